//! The figures against the real thing: iostat on the same counters, real writes on this machine's disk, loop devices.
//!
//! What a machine lacks (iostat, root, loop devices, a disk at all) is skipped aloud.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]
#![expect(clippy::print_stdout, reason = "a skipped test says so")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use disk::{
    BaselineLimits, DeviceRates, DeviceWindow, ProcRoot, Sample, Sampler, backing_of, drive_facts, measure_baseline,
    parse, timed_sync,
};
use serde_json::Value;
use tempfile::TempDir;

/// A folder on the disk the build uses: the system's temporary folder may be memory.
fn disk_folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn skipped(reason: &str) {
    println!("SKIPPED: {reason}");
}

/// Run a tool; its standard output, or `None` when it is absent or fails.
fn tool(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Feed iostat two readings through a named pipe, so that it sees exactly these whatever the machine's load is.
fn iostat(before: &str, after: &str) -> Option<Value> {
    let dir = tempfile::tempdir().unwrap();
    let device = dir.path().join("block/sdq");
    fs::create_dir_all(&device).unwrap();
    let pipe = device.join("stat");
    tool("mkfifo", &[text(&pipe)])?;
    let arguments = ["-x", "-y", "-o", "JSON", "-f", text(dir.path()), "2", "1"];
    let mut child = Command::new("iostat").args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    // Opening waits for the reader; the pause lets it close its end before the next reading goes in.
    let open = || OpenOptions::new().write(true).open(&pipe).unwrap();
    open().write_all(before.as_bytes()).unwrap();
    sleep(Duration::from_millis(500));
    let mut later = open();
    while child.try_wait().unwrap().is_none() {
        // iostat opens the file a second time in its last round. Between its reads there is nobody at the other end.
        let _ = later.write_all(after.as_bytes());
        sleep(Duration::from_millis(100));
    }
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    Some(report["sysstat"]["hosts"][0]["statistics"][0]["disk"][0].clone())
}

#[test]
fn iostat_gives_the_same_figures_for_the_same_counters() {
    if tool("iostat", &["-V"]).is_none() {
        return skipped("iostat is absent (Debian package sysstat)");
    }
    let pairs = [
        // Milliseconds of reads and the weighted sum wrap at 2^32 in between.
        (
            "1000 100 80000 4294967290 2000 200 160000 1500 0 7000 4294960000 10 0 1000 5 50 100\n",
            "11000 1350 880000 40194 32300 30500 2368000 183300 2 8000 2704 1014 20 92192 70 600 1300\n",
        ),
        // No reads at all; a queue that is never empty.
        (
            "5 0 40 1 100000 0 800000 900000 3 5000 900000 0 0 0 0 0 0\n",
            "5 0 40 1 250000 70000 9800000 4900000 64 7000 129000 0 0 0 0 400 8000\n",
        ),
    ];
    for (before, after) in pairs {
        let report = iostat(before, after).expect("mkfifo is part of every system");
        compare(&report, before, after);
    }
}

fn compare(report: &Value, before: &str, after: &str) {
    let counters = |text: &str| parse(&format!("8 0 sdq {text}")).unwrap()[0].counters;
    let delta = counters(after).since(&counters(before)).unwrap();
    // Its interval is two seconds and the hundredths its clock shows: take it from a rate it prints.
    let seconds =
        delta.0.writes.completed as f64 / report["w/s"].as_f64().unwrap_or_else(|| panic!("{report} for {before}"));
    assert!((1.9..4.0).contains(&seconds), "{report}");
    let rates = DeviceRates::of(&delta, seconds).unwrap();
    // iostat prints 0 where there is nothing to average; here that is blank.
    let figures = [
        ("r/s", Some(rates.reads_per_second)),
        ("d/s", rates.discards_per_second),
        ("f/s", rates.flushes_per_second),
        ("rkB/s", Some(rates.read_mib_per_second * 1024.0)),
        ("wkB/s", Some(rates.write_mib_per_second * 1024.0)),
        ("dkB/s", rates.discard_mib_per_second.map(|mib| mib * 1024.0)),
        ("rrqm/s", Some(rates.reads_merged_per_second)),
        ("wrqm/s", Some(rates.writes_merged_per_second)),
        ("rrqm", rates.reads_merged_percent),
        ("wrqm", rates.writes_merged_percent),
        ("r_await", rates.read_await_ms),
        ("w_await", rates.write_await_ms),
        ("d_await", rates.discard_await_ms),
        ("f_await", rates.flush_await_ms),
        ("rareq-sz", rates.read_request_kib),
        ("wareq-sz", rates.write_request_kib),
        ("aqu-sz", Some(rates.queue_depth)),
        ("util", Some(rates.utilisation_percent)),
    ];
    for (name, ours) in figures {
        let theirs = report[name].as_f64().unwrap_or_else(|| panic!("{name} in {report}"));
        let ours = ours.unwrap_or(0.0);
        // Two decimals are printed, and the interval is known as well as w/s is.
        assert!((ours - theirs).abs() <= 0.006 + ours * 1e-5, "{name}: ours {ours}, iostat {theirs}\n{report}");
    }
}

/// Noise, so that no file system makes less of it.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(bytes).collect()
}

fn written(device: &str, before: &Sample, after: &Sample) -> u64 {
    after.devices[device].total.writes.bytes() - before.devices[device].total.writes.bytes()
}

#[test]
fn a_write_of_known_size_reaches_the_device_and_is_charged_to_the_process() {
    const BYTES: usize = 48 << 20;
    let root = ProcRoot::default();
    let dir = disk_folder();
    let mut sampler = Sampler::new(&root);
    let devices = sampler.watch_path(dir.path()).unwrap();
    let [device] = devices.as_slice() else {
        return skipped("the build folder is not on exactly one block device");
    };
    sampler.watch_process("writer", std::process::id());
    let before = sampler.sample();
    fs::write(dir.path().join("data"), noise(BYTES)).unwrap();
    let outcome = timed_sync(&root, dir.path(), Duration::from_secs(100)).unwrap();
    assert!(outcome.complete(), "{outcome:?}");
    let after = sampler.sample();
    assert!(written(device, &before, &after) >= BYTES as u64, "{:?}", after.devices[device]);
    let mut window = DeviceWindow::default();
    window.push(&after.devices[device].delta.unwrap(), after.interval_seconds.unwrap());
    assert_eq!(window.summary().written_bytes, written(device, &before, &after));
    let dirtied = |sample: &Sample| sample.processes["writer"].counters.io.map(|io| io.write_bytes);
    match (dirtied(&before), dirtied(&after)) {
        (Some(before), Some(after)) => assert!(after - before >= BYTES as u64, "{before} {after}"),
        _ => skipped("/proc/self/io is not readable"),
    }
}

#[test]
fn a_baseline_is_real_input_and_output() {
    let dir = disk_folder();
    let mut sampler = Sampler::new(&ProcRoot::default());
    let devices = sampler.watch_path(dir.path()).unwrap();
    let [device] = devices.as_slice() else {
        return skipped("the build folder is not on exactly one block device");
    };
    let before = sampler.sample();
    let limits = BaselineLimits { bytes: 16 << 20, time: Duration::from_secs(30) };
    let baseline = measure_baseline(dir.path(), limits).unwrap();
    let after = sampler.sample();
    println!("{baseline:?}");
    let read = after.devices[device].total.reads.bytes() - before.devices[device].total.reads.bytes();
    assert!(written(device, &before, &after) >= baseline.written_bytes, "{baseline:?}");
    assert!(read >= baseline.read_bytes, "read {read} of {baseline:?}");
}

/// A file system on a loop device of its own, unmounted and detached at the end.
struct LoopDisk {
    device: String,
    mount_point: PathBuf,
    _image: TempDir,
}

impl LoopDisk {
    /// `None` without root, loop devices or mkfs.
    fn new(image_folder: TempDir, mebibytes: u64) -> Option<Self> {
        let image = image_folder.path().join("image");
        File::create(&image).ok()?.set_len(mebibytes << 20).ok()?;
        tool("mkfs.ext4", &["-q", "-F", text(&image)])?;
        let node = tool("losetup", &["-f", "--show", text(&image)])?;
        let mount_point = image_folder.path().join("mounted");
        fs::create_dir(&mount_point).ok()?;
        let mounted = tool("mount", &["-t", "ext4", &node, text(&mount_point)]);
        let disk = Self { device: node.strip_prefix("/dev/")?.to_owned(), mount_point, _image: image_folder };
        mounted.map(|_| disk)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = tool("umount", &[text(&self.mount_point)]);
        let _ = tool("losetup", &["-d", &format!("/dev/{}", self.device)]);
    }
}

#[test]
fn a_loop_device_is_followed_to_the_disk_or_the_memory_below() {
    let root = ProcRoot::default();
    let Some(on_disk) = LoopDisk::new(disk_folder(), 32) else {
        return skipped("loop devices need root, losetup and mkfs.ext4");
    };
    let below = backing_of(&root, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let found = backing_of(&root, &on_disk.mount_point.join("not/yet/there")).unwrap();
    assert_eq!(found.devices[0].name, on_disk.device);
    assert_eq!((found.on_ram.is_some(), found.fs_type.as_str()), (below.on_ram.is_some(), "ext4"));
    if !below.devices.is_empty() {
        assert_eq!(found.disks(), below.disks());
    }
    let facts = drive_facts(&root, &on_disk.device).unwrap();
    assert_eq!((facts.size_bytes, facts.transport.as_deref()), (Some(32 << 20), Some("loop")));

    let Some(in_memory) = tempfile::tempdir_in("/dev/shm").ok().and_then(|folder| LoopDisk::new(folder, 32)) else {
        return skipped("no writable /dev/shm for a loop device in memory");
    };
    let reason = backing_of(&root, &in_memory.mount_point).unwrap().on_ram.unwrap();
    assert!(reason.contains(&in_memory.device) && reason.contains("tmpfs"), "{reason}");
}

/// A mount that is taken down at the end.
struct Mounted(PathBuf);

impl Mounted {
    fn new(arguments: &[&str], mount_point: &Path) -> Option<Self> {
        fs::create_dir_all(mount_point).unwrap();
        tool("mount", &[arguments, &[text(mount_point)]].concat()).map(|_| Self(mount_point.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = tool("umount", &[text(&self.0)]);
    }
}

#[test]
fn binds_overlays_and_covered_mounts_are_followed_as_the_kernel_sees_them() {
    let (root, dir) = (ProcRoot::default(), disk_folder());
    let below = backing_of(&root, dir.path()).unwrap();
    let (source, bound) = (dir.path().join("a source"), dir.path().join("a bind"));
    fs::create_dir(&source).unwrap();
    let Some(_bind) = Mounted::new(&["--bind", text(&source)], &bound) else {
        return skipped("mounting needs root");
    };
    let found = backing_of(&root, &bound).unwrap();
    assert_eq!((&found.devices, &found.mount_point), (&below.devices, &fs::canonicalize(&bound).unwrap()));

    // A memory file system over the parent hides the bind mount: only the kernel can tell.
    let hidden = dir.path().join("outer/inner");
    let Some(_inner) = Mounted::new(&["--bind", text(&source)], &hidden) else { return skipped("no bind mounts") };
    let outer = dir.path().join("outer");
    let Some(cover) = Mounted::new(&["-t", "tmpfs", "tmpfs"], &outer) else { return skipped("no tmpfs") };
    fs::create_dir(&hidden).unwrap();
    assert!(backing_of(&root, &hidden).unwrap().on_ram.is_some());
    drop(cover);
    assert_eq!(backing_of(&root, &hidden).unwrap().on_ram, below.on_ram);

    for (upper, ram) in [(dir.path().to_owned(), below.on_ram.is_some()), (PathBuf::from("/dev/shm"), true)] {
        let Ok(upper) = tempfile::tempdir_in(upper) else { continue };
        let layers = ["lower", "upper", "work"].map(|layer| upper.path().join(layer));
        layers.iter().for_each(|layer| fs::create_dir(layer).unwrap());
        let [lower, above, work] = layers.each_ref().map(|layer| text(layer));
        let options = format!("lowerdir={lower},upperdir={above},workdir={work}");
        let merged = upper.path().join("merged");
        let Some(_overlay) = Mounted::new(&["-t", "overlay", "overlay", "-o", &options], &merged) else {
            return skipped("no overlay file system");
        };
        let found = backing_of(&root, &merged.join("data")).unwrap();
        assert_eq!((found.fs_type.as_str(), found.on_ram.is_some()), ("overlay", ram), "{found:?}");
        assert_eq!(found.devices.is_empty(), ram || below.devices.is_empty(), "{found:?}");
    }
}

#[test]
fn only_our_own_bytes_are_on_a_device_of_our_own() {
    const BYTES: usize = 16 << 20;
    let Some(disk) = LoopDisk::new(disk_folder(), 96) else {
        return skipped("loop devices need root, losetup and mkfs.ext4");
    };
    let root = ProcRoot::default();
    timed_sync(&root, &disk.mount_point, Duration::from_secs(60)).unwrap();
    let mut sampler = Sampler::new(&root);
    assert_eq!(sampler.watch_path(&disk.mount_point).unwrap(), std::slice::from_ref(&disk.device));
    let before = sampler.sample();
    fs::write(disk.mount_point.join("data"), noise(BYTES)).unwrap();
    timed_sync(&root, &disk.mount_point, Duration::from_secs(60)).unwrap();
    let after = sampler.sample();
    let bytes = written(&disk.device, &before, &after);
    // Journal and metadata come on top; a lazily initialised inode table too.
    assert!((BYTES as u64..BYTES as u64 + (24 << 20)).contains(&bytes), "{bytes}");
}

/// Slow writes of one device to a crawl for the root control group, version 1; lifted at the end.
struct Throttle {
    rule: PathBuf,
    number: String,
}

impl Throttle {
    fn new(device: &str, bytes_per_second: u64) -> Option<Self> {
        let number = fs::read_to_string(format!("/sys/block/{device}/dev")).ok()?.trim().to_owned();
        let rule = PathBuf::from("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device");
        fs::write(&rule, format!("{number} {bytes_per_second}")).ok()?;
        Some(Self { rule, number })
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _ = fs::write(&self.rule, format!("{} 0", self.number));
    }
}

#[test]
fn a_stuck_disk_costs_the_deadline_and_no_more() {
    let Some(disk) = LoopDisk::new(disk_folder(), 64) else {
        return skipped("loop devices need root, losetup and mkfs.ext4");
    };
    let root = ProcRoot::default();
    timed_sync(&root, &disk.mount_point, Duration::from_secs(60)).unwrap();
    let Some(throttle) = Throttle::new(&disk.device, 1 << 20) else {
        return skipped("no control group of version 1 to slow a disk down with");
    };
    // 8 MiB at 1 MiB/s: eight seconds of work against a deadline of one.
    fs::write(disk.mount_point.join("data"), noise(8 << 20)).unwrap();
    let start = Instant::now();
    let outcome = timed_sync(&root, &disk.mount_point, Duration::from_secs(1)).unwrap();
    let waited = start.elapsed();
    drop(throttle);
    assert_eq!((outcome.seconds, outcome.complete()), (None, false), "{outcome:?}");
    assert!(outcome.after.total_bytes().is_some() && waited >= Duration::from_secs(1), "{outcome:?}");
    // The sync goes on behind our back: wait for it, or the disk could not be unmounted.
    assert!(timed_sync(&root, &disk.mount_point, Duration::from_secs(60)).unwrap().complete());
}
