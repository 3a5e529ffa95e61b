//! The figures of this crate in the words of the run record: what the runner asks the host through the contract.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use contract::StageError;
use contract::host::{self as record, HostProbe, HostSampler};
use contract::summary::DiskPhase;

use crate::averages::DeviceSummary;
use crate::baseline::{BaselineLimits, BaselineMethod, DiskBaseline, measure_baseline};
use crate::cpu::CpuFractions;
use crate::device::{Backing, backing_of};
use crate::diskstats::Counters;
use crate::error::DiskError;
use crate::facts::{DriveFacts, FileSystemFacts, drive_facts, file_system_facts};
use crate::health::DriveHealth;
use crate::host::{HostFacts, host_facts};
use crate::memory::Memory;
use crate::pressure::{Pressure, PressureLine, Pressures};
use crate::root::ProcRoot;
use crate::sampler::{DeviceSample, DeviceState, ProcessSample, Sample, Sampler};
use crate::sync::{SyncOutcome, SyncTarget};

/// Answers for the host whose /proc and /sys it was given.
#[derive(Debug, Default)]
pub struct DiskProbe {
    root: ProcRoot,
    /// Folders opened when their facts were asked: syncfs tells of write errors since then.
    open: Mutex<BTreeMap<PathBuf, SyncTarget>>,
}

impl DiskProbe {
    pub fn new(root: ProcRoot) -> Self {
        Self { root, open: Mutex::default() }
    }

    /// Keep the folder open for a later sync. A folder that cannot be opened now will say so then.
    fn keep_open(&self, folder: &Path) {
        if let Ok(target) = SyncTarget::open(&self.root, folder) {
            // A map is whole even if a thread died while it held the lock.
            self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned(), target);
        }
    }

    /// The folder kept open that is on the same file system as `dir` and holds it; else `dir` itself.
    fn sync_target(&self, dir: &Path) -> Result<SyncTarget, DiskError> {
        let fresh = SyncTarget::open(&self.root, dir)?;
        let path = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = path.ancestors().filter_map(|folder| open.get(folder));
        let kept = kept
            .filter(|target| target.file_system() == fresh.file_system())
            .find_map(|target| target.try_clone().ok());
        Ok(kept.unwrap_or(fresh))
    }
}

impl HostProbe for DiskProbe {
    fn sampler(&self) -> Box<dyn HostSampler> {
        Box::new(Sampler::new(&self.root))
    }

    fn host_facts(&self) -> record::HostFacts {
        host_facts(&self.root).into()
    }

    fn storage_facts(&self, path: &Path) -> record::StorageFacts {
        match backing_of(&self.root, path) {
            Ok(backing) => {
                self.keep_open(&backing.path);
                storage_facts(&self.root, path, &backing)
            }
            Err(error) => record::StorageFacts {
                path: path.display().to_string(),
                no_device_reason: Some(error.to_string()),
                ..Default::default()
            },
        }
    }

    fn baseline(&self, dir: &Path) -> Result<record::Baseline, StageError> {
        let measured = measure_baseline(dir, BaselineLimits::default());
        let measured = measured.map_err(|error| StageError::storage(dir.display().to_string(), error.to_string()))?;
        let ram = backing_of(&self.root, dir).ok().and_then(|backing| backing.on_ram);
        Ok(record_baseline(dir, &measured, ram))
    }

    fn syncfs(&self, dir: &Path, deadline: Duration) -> record::SyncOutcome {
        match self.sync_target(dir).and_then(|target| target.sync(deadline)) {
            Ok(outcome) => outcome.into(),
            Err(error) => record::SyncOutcome { error: Some(error.to_string()), ..Default::default() },
        }
    }
}

impl HostSampler for Sampler {
    fn watch_path(&mut self, path: &Path) {
        if let Err(error) = Sampler::watch_path(self, path) {
            tracing::warn!("no disk figures for {}: {error}", path.display());
        }
    }

    fn watch_process(&mut self, role: &str, pid: u32) {
        Sampler::watch_process(self, role, pid);
    }

    fn sample(&mut self) -> record::HostSample {
        Sampler::sample(self).into()
    }
}

impl From<Sample> for record::HostSample {
    fn from(sample: Sample) -> Self {
        // The record's totals are plain numbers, so a device without counters is left out rather than shown as 0.
        let counted = sample
            .devices
            .into_iter()
            .filter(|(_, device)| matches!(device.state, DeviceState::Counted | DeviceState::Replaced));
        Self {
            mono_ns: sample.mono_ns,
            interval_seconds: sample.interval_seconds,
            devices: counted.map(|(name, device)| (name, device.into())).collect(),
            processes: sample.processes.into_iter().map(|(role, process)| (role, process.into())).collect(),
            cpu: sample.cpu.map(Into::into),
            memory: sample.memory.and_then(record_memory),
            pressure: record_pressure(&sample.pressure),
        }
    }
}

const MIB: f64 = 1_048_576.0;

impl From<DeviceSample> for record::DeviceSample {
    fn from(device: DeviceSample) -> Self {
        let rates = device.rates.as_ref();
        Self {
            reads_per_second: rates.map(|rates| rates.reads_per_second),
            writes_per_second: rates.map(|rates| rates.writes_per_second),
            read_bytes_per_second: rates.map(|rates| rates.read_mib_per_second * MIB),
            write_bytes_per_second: rates.map(|rates| rates.write_mib_per_second * MIB),
            read_request_bytes: rates.and_then(|rates| rates.read_request_kib).map(|kib| kib * 1024.0),
            write_request_bytes: rates.and_then(|rates| rates.write_request_kib).map(|kib| kib * 1024.0),
            read_await_seconds: rates.and_then(|rates| rates.read_await_ms).map(|ms| ms / 1000.0),
            write_await_seconds: rates.and_then(|rates| rates.write_await_ms).map(|ms| ms / 1000.0),
            queue: rates.map(|rates| rates.queue_depth),
            utilisation: rates.map(|rates| rates.utilisation_percent / 100.0),
            total: (&device.total).into(),
        }
    }
}

impl From<&Counters> for record::DeviceTotals {
    fn from(total: &Counters) -> Self {
        Self {
            reads: total.reads.completed,
            writes: total.writes.completed,
            read_bytes: total.reads.bytes(),
            write_bytes: total.writes.bytes(),
            read_ms: total.reads.time_ms,
            write_ms: total.writes.time_ms,
            weighted_ms: total.weighted_ms,
            busy_ms: total.io_time_ms,
            flushes: total.flushes.map(|flushes| flushes.completed),
            discards: total.discards.map(|discards| discards.completed),
        }
    }
}

impl From<ProcessSample> for record::ProcessSample {
    fn from(process: ProcessSample) -> Self {
        let counters = &process.counters;
        Self {
            pid: counters.pid,
            cpu: process.cpu_cores,
            cpu_seconds: counters.cpu_seconds(),
            rss_bytes: counters.rss_bytes,
            threads: counters.threads,
            read_bytes: counters.io.map(|io| io.read_bytes),
            write_bytes: counters.io.map(|io| io.write_bytes),
            cancelled_write_bytes: counters.io.map(|io| io.cancelled_write_bytes),
        }
    }
}

impl From<CpuFractions> for record::CpuSample {
    fn from(cpu: CpuFractions) -> Self {
        // The record has no field for interrupts; they are the kernel's work, and the shares must sum to 1.
        Self { user: cpu.user, system: cpu.system + cpu.irq, iowait: cpu.iowait, steal: cpu.steal, idle: cpu.idle }
    }
}

fn record_memory(memory: Memory) -> Option<record::MemorySample> {
    Some(record::MemorySample {
        available_bytes: memory.available_bytes?,
        cached_bytes: memory.cached_bytes?,
        dirty_bytes: memory.dirty_bytes?,
        writeback_bytes: memory.writeback_bytes?,
        swap_used_bytes: memory.swap_total_bytes?.saturating_sub(memory.swap_free_bytes?),
    })
}

fn record_pressure(pressures: &Pressures) -> Option<record::PressureSample> {
    let seconds = |line: PressureLine| line.total_microseconds as f64 / 1e6;
    let some = |pressure: Option<Pressure>| pressure.map(|pressure| seconds(pressure.some));
    let sample = record::PressureSample {
        cpu_waiting_seconds: some(pressures.cpu),
        io_waiting_seconds: some(pressures.io),
        io_stalled_seconds: pressures.io.and_then(|pressure| pressure.full).map(seconds),
        memory_waiting_seconds: some(pressures.memory),
    };
    (sample != record::PressureSample::default()).then_some(sample)
}

impl From<HostFacts> for record::HostFacts {
    fn from(facts: HostFacts) -> Self {
        let mut settings: BTreeMap<String, String> =
            facts.vm_settings.iter().map(|(name, value)| (format!("vm.{name}"), value.to_string())).collect();
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let further = [
            ("cpus_allowed", number(facts.cpus_allowed)),
            ("cpu_quota", facts.cpu_quota.map(|quota| quota.to_string())),
            ("cpu_governor", facts.cpu_governor),
            ("memory_limit_bytes", number(facts.memory_limit_bytes)),
            ("swap_bytes", number(facts.swap_bytes)),
            ("clock_source", facts.clock_source),
            ("virtualisation", facts.virtualisation),
            ("container", facts.container),
        ];
        settings.extend(further.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        let name = facts.name.unwrap_or_else(|| "unknown".to_owned());
        Self {
            // Two hosts that both say nothing must not look like the same boot, or their clocks would be taken as one.
            boot_id: facts.boot_id.unwrap_or_else(|| format!("unknown-{name}-{}", std::process::id())),
            // Kernels before 5.6 have no time namespaces: all processes share one.
            time_namespace: facts.time_namespace.unwrap_or_else(|| "none".to_owned()),
            kernel: facts.kernel.unwrap_or_else(|| "unknown".to_owned()),
            cpu_model: facts.cpu_model,
            cores: facts.cpus_online.and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(0),
            memory_bytes: facts.memory_bytes.unwrap_or(0),
            settings,
            name,
        }
    }
}

fn storage_facts(root: &ProcRoot, path: &Path, backing: &Backing) -> record::StorageFacts {
    let (device, reason) = match backing.devices.as_slice() {
        [one] => (Some(one.whole().to_owned()), None),
        [] => (None, backing.on_ram.clone().or_else(|| backing.note.clone())),
        several => {
            let names: Vec<&str> = several.iter().map(|device| device.whole()).collect();
            (None, Some(format!("{} spans several devices: {}", backing.fs_type, names.join(", "))))
        }
    };
    let file_system = file_system_facts(root, backing).ok();
    record::StorageFacts {
        path: path.display().to_string(),
        device,
        no_device_reason: reason,
        ram: backing.on_ram.is_some(),
        file_system: Some(backing.fs_type.clone()),
        mount_options: file_system.as_ref().map(all_options),
        size_bytes: file_system.as_ref().map(|facts| facts.size_bytes),
        free_bytes: file_system.as_ref().map(|facts| facts.available_bytes),
        device_facts: device_facts(root, backing),
    }
}

/// Options of the mount, then those of the file system that are not among them: barriers and journal modes are there.
fn all_options(facts: &FileSystemFacts) -> String {
    let mut options: Vec<&str> = facts.mount_options.split(',').collect();
    for option in facts.super_options.split(',') {
        if !option.is_empty() && !options.contains(&option) {
            options.push(option);
        }
    }
    options.join(",")
}

/// Facts of the device and of the disks below it; `disk.` is in front of the latter when the two differ.
fn device_facts(root: &ProcRoot, backing: &Backing) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let (disks, wholes): (Vec<String>, Vec<&str>) =
        (backing.disks(), backing.devices.iter().map(|device| device.whole()).collect());
    if let [device] = backing.devices.as_slice() {
        facts.extend(drive_facts(root, device.whole()).into_iter().flat_map(|drive| named_facts(&drive)));
        if device.partition_of.is_some() {
            facts.insert("partition".to_owned(), device.name.clone());
        }
    }
    if disks.iter().any(|disk| !wholes.contains(&disk.as_str())) || wholes.len() > 1 {
        facts.insert("disks".to_owned(), disks.join(" "));
        for disk in &disks {
            let drive = drive_facts(root, disk).into_iter().flat_map(|drive| named_facts(&drive));
            facts.extend(drive.map(|(name, value)| (format!("{disk}.{name}"), value)));
        }
    }
    let notes = [("memory", &backing.on_ram), ("note", &backing.note)];
    facts.extend(notes.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text.clone()?))));
    facts
}

/// The kernel's own names where it has one.
fn named_facts(drive: &DriveFacts) -> Vec<(String, String)> {
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let flag = |value: Option<bool>| value.map(|value| u8::from(value).to_string());
    let facts = [
        ("size_bytes", number(drive.size_bytes)),
        ("vendor", drive.vendor.clone()),
        ("model", drive.model.clone()),
        ("firmware", drive.firmware.clone()),
        ("transport", drive.transport.clone()),
        ("rotational", flag(drive.rotational)),
        ("scheduler", drive.scheduler.clone()),
        ("max_sectors_kb", number(drive.max_sectors_kb)),
        ("max_hw_sectors_kb", number(drive.max_hw_sectors_kb)),
        ("read_ahead_kb", number(drive.read_ahead_kb)),
        ("nr_requests", number(drive.nr_requests)),
        ("write_cache", drive.write_cache.clone()),
        ("logical_block_size", number(drive.logical_block_bytes)),
        ("physical_block_size", number(drive.physical_block_bytes)),
        ("read_only", flag(drive.read_only)),
        ("nomerges", number(drive.nomerges)),
        ("iostats", flag(drive.iostats_enabled)),
    ];
    let facts = facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    facts.chain(drive.health.iter().flat_map(health_facts)).collect()
}

fn health_facts(health: &DriveHealth) -> Vec<(String, String)> {
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let decimal = |value: Option<f64>| value.map(|value| value.to_string());
    let facts = [
        ("source", Some(health.source.clone())),
        ("passed", health.passed.map(|passed| passed.to_string())),
        ("temperature_celsius", decimal(health.temperature_celsius)),
        ("wear_percent", decimal(health.wear_percent)),
        ("available_spare_percent", decimal(health.available_spare_percent)),
        ("power_on_hours", number(health.power_on_hours)),
        ("lifetime_written_bytes", number(health.lifetime_written_bytes)),
        ("media_errors", number(health.media_errors)),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((format!("health.{name}"), value?))).collect()
}

fn record_baseline(dir: &Path, measured: &DiskBaseline, ram: Option<String>) -> record::Baseline {
    let block_mib = measured.block_bytes as f64 / MIB;
    let (method, note) = match measured.method {
        BaselineMethod::Direct => ("O_DIRECT", None),
        BaselineMethod::Buffered => (
            "page cache with fdatasync, read after POSIX_FADV_DONTNEED",
            Some("no O_DIRECT here: the kernel may have kept pages, so the read figure is an upper bound".to_owned()),
        ),
    };
    record::Baseline {
        path: dir.display().to_string(),
        write_bytes_per_second: Some(measured.write_mib_per_second * MIB),
        read_bytes_per_second: Some(measured.read_mib_per_second * MIB),
        bytes: measured.written_bytes,
        method: format!("{method}, sequential, {block_mib} MiB blocks, one request at a time"),
        note: ram.or(note),
    }
}

impl From<SyncOutcome> for record::SyncOutcome {
    fn from(outcome: SyncOutcome) -> Self {
        Self {
            seconds: outcome.seconds,
            dirty_before_bytes: outcome.before.total_bytes(),
            dirty_after_bytes: outcome.after.total_bytes(),
            error: outcome.error,
        }
    }
}

impl From<&DeviceSummary> for DiskPhase {
    fn from(summary: &DeviceSummary) -> Self {
        let overall = summary.overall.as_ref();
        Self {
            seconds: summary.seconds,
            reads: summary.reads,
            writes: summary.writes,
            read_bytes: summary.read_bytes,
            write_bytes: summary.written_bytes,
            read_iops: overall.map(|rates| rates.reads_per_second),
            write_iops: overall.map(|rates| rates.writes_per_second),
            read_mib_per_second: overall.map(|rates| rates.read_mib_per_second),
            write_mib_per_second: overall.map(|rates| rates.write_mib_per_second),
            write_iops_nonzero: summary.writes_per_second.zero_discarded,
            write_mib_per_second_nonzero: summary.write_mib_per_second.zero_discarded,
            read_request_kib: overall.and_then(|rates| rates.read_request_kib),
            write_request_kib: overall.and_then(|rates| rates.write_request_kib),
            read_await_ms: overall.and_then(|rates| rates.read_await_ms),
            write_await_ms: overall.and_then(|rates| rates.write_await_ms),
            queue: overall.map(|rates| rates.queue_depth),
            utilisation: overall.map(|rates| rates.utilisation_percent / 100.0),
        }
    }
}

impl SyncTarget {
    /// The number of the file system, to tell whether two folders share one.
    fn file_system(&self) -> Option<u64> {
        self.directory().metadata().ok().map(|facts| facts.dev())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use contract::host::{self as record, HostProbe};

    use super::{DiskProbe, record_baseline};
    use crate::baseline::{BaselineMethod, DiskBaseline};
    use crate::root::ProcRoot;
    use crate::root::fixture::Fixture;

    fn disk(fixture: &Fixture, writes: u64, weighted_ms: u64) {
        let fields = format!("10 0 80 20 {writes} 0 {} {} 0 500 {weighted_ms}", writes * 8, writes * 4);
        fixture.file("proc/diskstats", &format!("8 0 sda {fields}\n8 1 sda1 {fields}\n"));
    }

    fn machine() -> Fixture {
        let fixture = Fixture::new();
        fixture.device("sda", "8:0").device("sda/sda1", "8:1");
        fixture.file("proc/self/mountinfo", "27 1 8:1 / / rw,noatime - ext4 /dev/sda1 rw,data=writeback\n");
        fixture.file("sys/devices/bus/block/sda/queue/scheduler", "[none] mq-deadline\n");
        disk(&fixture, 100, 1000);
        fixture
    }

    #[test]
    fn the_record_holds_the_whole_disk_in_base_units() {
        let fixture = machine();
        let mut sampler = DiskProbe::new(fixture.root.clone()).sampler();
        sampler.watch_path(Path::new("/"));
        let first = sampler.sample();
        assert_eq!(first.devices.keys().collect::<Vec<_>>(), ["sda"]);
        let device = &first.devices["sda"];
        assert_eq!((device.writes_per_second, device.queue, device.write_await_seconds), (None, None, None));
        disk(&fixture, 150, 2000);
        let second = sampler.sample();
        let (seconds, device) = (second.interval_seconds.unwrap(), &second.devices["sda"]);
        assert!((device.writes_per_second.unwrap() * seconds - 50.0).abs() < 1e-6);
        assert!((device.write_bytes_per_second.unwrap() * seconds - 50.0 * 4096.0).abs() < 1e-3);
        assert_eq!((device.write_request_bytes, device.write_await_seconds), (Some(4096.0), Some(0.004)));
        assert_eq!((device.read_request_bytes, device.read_await_seconds), (None, None));
        let expected = record::DeviceTotals {
            reads: 10,
            writes: 150,
            read_bytes: 80 * 512,
            write_bytes: 150 * 4096,
            read_ms: 20,
            write_ms: 600,
            weighted_ms: 2000,
            busy_ms: 500,
            flushes: None,
            discards: None,
        };
        assert_eq!(device.total, expected);
        assert_eq!((second.cpu, second.memory, second.pressure), (None, None, None));
    }

    #[test]
    fn a_device_without_counters_is_left_out_instead_of_zero() {
        let fixture = machine();
        fixture.file("sys/devices/bus/block/sda/queue/iostats", "0\n");
        let mut sampler = DiskProbe::new(fixture.root.clone()).sampler();
        sampler.watch_path(Path::new("/"));
        assert!(sampler.sample().devices.is_empty());
    }

    #[test]
    fn storage_facts_name_the_device_or_say_why_there_is_none() {
        let fixture = machine();
        let probe = DiskProbe::new(fixture.root.clone());
        let facts = probe.storage_facts(Path::new("/"));
        assert_eq!((facts.device.as_deref(), facts.ram), (Some("sda"), false));
        assert_eq!(
            (facts.file_system.as_deref(), facts.mount_options.as_deref()),
            (Some("ext4"), Some("rw,noatime,data=writeback"))
        );
        assert_eq!(facts.device_facts["scheduler"], "none");
        assert_eq!(facts.device_facts["partition"], "sda1");
        fixture.file("proc/self/mountinfo", "27 1 0:30 / / rw - tmpfs tmpfs rw\n");
        let facts = probe.storage_facts(Path::new("/"));
        assert_eq!((facts.device.as_deref(), facts.ram), (None, true));
        assert!(facts.no_device_reason.unwrap().contains("memory"));
        fixture.file("proc/self/mountinfo", "");
        assert!(probe.storage_facts(Path::new("/")).no_device_reason.unwrap().contains("no mount"));
    }

    #[test]
    fn a_stack_lists_the_disks_below_it() {
        let fixture = machine();
        fixture.device("dm-0", "253:0").slave("dm-0", "sda1");
        fixture.file("proc/self/mountinfo", "27 1 253:0 / / rw - xfs /dev/mapper/x rw\n");
        let facts = DiskProbe::new(fixture.root.clone()).storage_facts(Path::new("/"));
        assert_eq!(facts.device.as_deref(), Some("dm-0"));
        assert_eq!(
            (facts.device_facts["disks"].as_str(), facts.device_facts["sda.scheduler"].as_str()),
            ("sda", "none")
        );
    }

    #[test]
    fn two_hosts_that_say_nothing_are_not_the_same_boot() {
        let facts = DiskProbe::new(Fixture::new().root.clone()).host_facts();
        assert!(facts.boot_id.contains(&std::process::id().to_string()), "{facts:?}");
        assert_eq!(facts.time_namespace, "none");
    }

    #[test]
    fn a_baseline_says_how_it_was_measured() {
        let measured = DiskBaseline {
            method: BaselineMethod::Buffered,
            block_bytes: 1 << 20,
            written_bytes: 64 << 20,
            write_seconds: 0.5,
            write_mib_per_second: 128.0,
            read_bytes: 64 << 20,
            read_seconds: 0.25,
            read_mib_per_second: 256.0,
        };
        let baseline = record_baseline(Path::new("/d"), &measured, None);
        assert_eq!((baseline.write_bytes_per_second, baseline.bytes), (Some(134_217_728.0), 64 << 20));
        assert!(baseline.method.contains("fdatasync") && baseline.note.unwrap().contains("upper bound"));
        let on_ram = record_baseline(Path::new("/d"), &measured, Some("tmpfs".into()));
        assert_eq!(on_ram.note.as_deref(), Some("tmpfs"));
    }

    #[test]
    fn a_sync_uses_the_folder_opened_before_or_names_what_is_missing() {
        let probe = DiskProbe::new(ProcRoot::default());
        let dir = tempfile::tempdir().unwrap();
        probe.storage_facts(dir.path());
        let below = dir.path().join("broker");
        std::fs::create_dir(&below).unwrap();
        let kept = probe.sync_target(&below).unwrap();
        assert_eq!(kept.path(), std::fs::canonicalize(dir.path()).unwrap());
        let outcome = probe.syncfs(&below, Duration::from_secs(60));
        assert!(outcome.seconds.is_some() && outcome.error.is_none(), "{outcome:?}");
        let outcome = probe.syncfs(Path::new("/no/such/dir"), Duration::from_secs(1));
        assert!(outcome.seconds.is_none() && outcome.error.unwrap().contains("/no/such/dir"));
    }
}
