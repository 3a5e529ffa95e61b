//! Which block devices are behind a path, and whether it is memory after all.
//!
//! A path lies on a mount, a mount on one device (btrfs: several), a partition on a disk, a stacked device (dm, md,
//! loop) on further ones. Bytes are compared on the device the file system sits on, latency and queue on the disks at
//! the bottom; the two are never added up.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::{Deserialize, Serialize};

use crate::diskstats::{partition_parent, read_all};
use crate::error::DiskError;
use crate::mounts::{Mount, mount_of, parse_mountinfo};
use crate::root::{ProcRoot, optional_text};

/// Overlay on loop on overlay ...: more levels than this is a cycle.
const MAX_DEPTH: usize = 8;

/// A device a file system sits on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// As /proc/diskstats names it: `vda1`, `dm-0`, `loop3`.
    pub name: String,
    /// The whole disk when `name` is a partition.
    pub partition_of: Option<String>,
    /// The whole disks at the bottom, sorted; the device itself (or its disk) when it is not stacked.
    pub disks: Vec<String>,
}

impl BlockDevice {
    /// The whole device: itself, or the disk of a partition.
    pub fn whole(&self) -> &str {
        self.partition_of.as_deref().unwrap_or(&self.name)
    }
}

/// What a path is stored on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backing {
    /// The path looked at: resolved, and the nearest existing folder when the path does not exist yet.
    pub path: PathBuf,
    pub mount_point: PathBuf,
    pub fs_type: String,
    pub source: String,
    /// Empty when there is no block device; `note` says why.
    pub devices: Vec<BlockDevice>,
    /// Why the data is in memory; `None` when it is not.
    pub on_ram: Option<String>,
    /// Anything a reader must know: no block device, a device that cannot be followed.
    pub note: Option<String>,
}

impl Backing {
    /// The whole disks below all devices, each once.
    pub fn disks(&self) -> Vec<String> {
        let disks: BTreeSet<&String> = self.devices.iter().flat_map(|device| &device.disks).collect();
        disks.into_iter().cloned().collect()
    }
}

/// Find out what `path` is stored on. The path need not exist yet.
pub fn backing_of(root: &ProcRoot, path: &Path) -> Result<Backing, DiskError> {
    let path = nearest_existing(path)?;
    let mounts = parse_mountinfo(&root.proc_text("self/mountinfo")?)?;
    let finder = Finder { root, mounts: &mounts, ask_kernel: root.is_live() };
    finder.backing(&path, MAX_DEPTH)
}

fn nearest_existing(path: &Path) -> Result<PathBuf, DiskError> {
    let mut candidate = std::path::absolute(path).map_err(|source| resolve_error(path, source))?;
    loop {
        match fs::canonicalize(&candidate) {
            Ok(resolved) => return Ok(resolved),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && candidate.pop() => {}
            Err(source) => return Err(resolve_error(path, source)),
        }
    }
}

fn resolve_error(path: &Path, source: std::io::Error) -> DiskError {
    DiskError::Resolve { path: path.to_owned(), source }
}

/// The kernel's own answer to "which mount", since Linux 5.8.
fn mount_id(path: &Path) -> Option<u64> {
    let answer = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    (answer.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(answer.stx_mnt_id)
}

struct Finder<'a> {
    root: &'a ProcRoot,
    mounts: &'a [Mount],
    /// Let statx name the mount of a path; off when the mounts are not this process's.
    ask_kernel: bool,
}

/// What a file system type says about where its data is.
enum Kind {
    Memory,
    Network,
    Fuse,
    Overlay,
    Btrfs,
    Pool,
    Unknown,
}

fn kind(fs_type: &str) -> Kind {
    match fs_type {
        "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" | "rootfs" => Kind::Memory,
        "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "9p" | "virtiofs" | "lustre" | "afs" | "gfs2" => Kind::Network,
        "overlay" => Kind::Overlay,
        "btrfs" => Kind::Btrfs,
        "zfs" | "bcachefs" => Kind::Pool,
        _ if fs_type == "fuse" || fs_type.starts_with("fuse.") => Kind::Fuse,
        _ => Kind::Unknown,
    }
}

impl Finder<'_> {
    fn backing(&self, path: &Path, depth: usize) -> Result<Backing, DiskError> {
        let id = if self.ask_kernel { mount_id(path) } else { None };
        let mount = mount_of(self.mounts, path, id).ok_or_else(|| DiskError::NoMount { path: path.to_owned() })?;
        let mut backing = Backing {
            path: path.to_owned(),
            mount_point: mount.mount_point.clone(),
            fs_type: mount.fs_type.clone(),
            source: mount.source.clone(),
            devices: Vec::new(),
            on_ram: None,
            note: None,
        };
        // Major 0 is the kernel's range for file systems that are not on exactly one block device.
        if mount.major != 0 {
            match self.device_name(mount.major, mount.minor) {
                Some(name) => self.add_device(&mut backing, &name, depth),
                None => {
                    backing.note =
                        Some(format!("device {}:{} of {} is not in /sys", mount.major, mount.minor, mount.source));
                }
            }
        } else {
            self.without_number(&mut backing, mount, depth);
        }
        Ok(backing)
    }

    fn without_number(&self, backing: &mut Backing, mount: &Mount, depth: usize) {
        let fs_type = &mount.fs_type;
        match kind(fs_type) {
            Kind::Memory => backing.on_ram = Some(format!("{fs_type} keeps files in memory: no block device")),
            Kind::Network => {
                backing.note = Some(format!("{fs_type} from {} is remote: no block device on this host", mount.source));
            }
            Kind::Fuse => {
                backing.note = Some(format!("{fs_type} is served by a program: its block device is not known"));
            }
            Kind::Pool => {
                backing.note =
                    Some(format!("{fs_type} spreads {} over a pool: name its disks in observe.devices", mount.source));
            }
            Kind::Unknown => backing.note = Some(format!("{fs_type} names no block device")),
            Kind::Btrfs => {
                for name in self.btrfs_devices(&mount.source) {
                    self.add_device(backing, &name, depth);
                }
                if backing.devices.is_empty() {
                    backing.note = Some(format!("btrfs device {} is not in /sys", mount.source));
                }
            }
            Kind::Overlay => self.overlay(backing, mount, depth),
        }
    }

    /// Writes to an overlay go to its upper directory, so that is what counts.
    fn overlay(&self, backing: &mut Backing, mount: &Mount, depth: usize) {
        let Some(upper) = mount.super_option("upperdir").map(PathBuf::from) else {
            backing.note = Some("overlay without an upper directory is read-only: no block device takes writes".into());
            return;
        };
        // In a container the option names a path of the host, which here is either absent or falls into the overlay.
        let holder = mount_of(self.mounts, &upper, None);
        if depth == 0 || holder.is_none_or(|holder| holder.id == mount.id) || !upper.exists() {
            backing.note = Some(format!(
                "overlay whose upper directory {} is not visible from here: name its disk in observe.devices or use a \
                 mounted volume",
                upper.display()
            ));
            return;
        }
        match self.backing(&upper, depth - 1) {
            Ok(below) => {
                backing.note = Some(match below.note {
                    Some(note) => format!("overlay on {} ({}): {note}", below.fs_type, upper.display()),
                    None => format!("overlay on {} ({})", below.fs_type, upper.display()),
                });
                backing.devices = below.devices;
                backing.on_ram = below.on_ram.map(|reason| format!("overlay on {}: {reason}", below.fs_type));
            }
            Err(error) => backing.note = Some(format!("overlay: {error}")),
        }
    }

    fn add_device(&self, backing: &mut Backing, name: &str, depth: usize) {
        let mut disks = BTreeSet::new();
        self.follow(backing, name, depth, &mut disks);
        backing.devices.push(BlockDevice {
            name: name.to_owned(),
            partition_of: partition_parent(self.root, name),
            disks: disks.into_iter().collect(),
        });
    }

    /// Walk from a device to the whole disks at the bottom.
    fn follow(&self, backing: &mut Backing, name: &str, depth: usize, disks: &mut BTreeSet<String>) {
        let whole = partition_parent(self.root, name).unwrap_or_else(|| name.to_owned());
        if is_numbered(&whole, "zram") || is_numbered(&whole, "ram") {
            backing.on_ram = Some(format!("{whole} is a disk in memory"));
        }
        let dir = self.root.block_dir(&whole);
        let slaves = names_in(&dir.join("slaves"));
        let loop_file = optional_text(&dir.join("loop/backing_file"));
        if depth == 0 || (slaves.is_empty() && loop_file.is_none()) {
            disks.insert(whole);
        } else if let Some(file) = loop_file {
            self.follow_loop(backing, &whole, &file, depth - 1, disks);
        } else {
            for slave in slaves {
                self.follow(backing, &slave, depth - 1, disks);
            }
        }
    }

    fn follow_loop(&self, backing: &mut Backing, name: &str, file: &str, depth: usize, disks: &mut BTreeSet<String>) {
        // The kernel appends " (deleted)" once the file is unlinked; its folder still says where it is.
        let file = Path::new(file.strip_suffix(" (deleted)").unwrap_or(file));
        let folder = file.parent().unwrap_or(file);
        let below = self.backing(folder, depth);
        let Ok(below) =
            below.inspect_err(|error| backing.note = Some(format!("{name} on {}: {error}", file.display())))
        else {
            disks.insert(name.to_owned());
            return;
        };
        if let Some(reason) = &below.on_ram {
            backing.on_ram = Some(format!("{name} is a file ({}) on {}: {reason}", file.display(), below.fs_type));
        }
        if below.devices.is_empty() {
            let note = below.note.as_deref();
            backing.note = note.map(|note| format!("{name} is a file ({}): {note}", file.display()));
            disks.insert(name.to_owned());
        }
        disks.extend(below.disks());
    }

    /// Device numbers to the name /proc/diskstats uses.
    fn device_name(&self, major: u32, minor: u32) -> Option<String> {
        let link = self.root.sys.join(format!("dev/block/{major}:{minor}"));
        let from_sys = fs::canonicalize(link).ok().and_then(|dir| Some(dir.file_name()?.to_str()?.replace('!', "/")));
        from_sys.or_else(|| {
            let lines = read_all(self.root).ok()?;
            lines.into_iter().find(|line| (line.major, line.minor) == (major, minor)).map(|line| line.name)
        })
    }

    /// All devices of the btrfs file system that `source` (one of them) belongs to.
    fn btrfs_devices(&self, source: &str) -> Vec<String> {
        let Some(name) = self.source_name(source) else { return Vec::new() };
        let systems = self.root.sys.join("fs/btrfs");
        let all = names_in(&systems).into_iter().map(|uuid| names_in(&systems.join(uuid).join("devices")));
        all.into_iter().find(|names| names.contains(&name)).unwrap_or_else(|| vec![name])
    }

    /// `/dev/sda2`, or a link such as `/dev/mapper/x`, to a name known to /sys.
    fn source_name(&self, source: &str) -> Option<String> {
        let path = Path::new(source);
        let resolved = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = resolved.strip_prefix("/dev").ok()?.to_str()?.to_owned();
        self.root.block_dir(&name).exists().then_some(name)
    }
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.map(|name| name.replace('!', "/")).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::{Backing, Finder, MAX_DEPTH, backing_of, nearest_existing};
    use crate::mounts::parse_mountinfo;
    use crate::root::fixture::Fixture;

    /// The answer by the text of mountinfo alone: the paths of a fixture are not this machine's.
    fn backing(fixture: &Fixture, mountinfo: &str, path: &str) -> Backing {
        let mounts = parse_mountinfo(mountinfo).unwrap();
        let finder = Finder { root: &fixture.root, mounts: &mounts, ask_kernel: false };
        finder.backing(Path::new(path), MAX_DEPTH).unwrap()
    }

    #[test]
    fn a_partition_names_its_disk() {
        let fixture = Fixture::new();
        fixture.device("sda", "8:0").device("sda/sda1", "8:1");
        let found = backing(&fixture, "27 1 8:1 / / rw - ext4 /dev/root rw", "/srv/kafka");
        assert_eq!(found.devices[0].name, "sda1");
        assert_eq!(found.devices[0].partition_of.as_deref(), Some("sda"));
        assert_eq!(found.devices[0].whole(), "sda");
        assert_eq!(found.disks(), ["sda"]);
        assert_eq!((found.on_ram, found.note), (None, None));
    }

    #[test]
    fn a_bind_mount_is_on_the_device_it_was_bound_from() {
        let fixture = Fixture::new();
        fixture.device("sda", "8:0").device("sdb", "8:16");
        let text = "27 1 8:0 / / rw - ext4 /dev/sda rw\n28 27 8:16 /pool/logs /kafka rw - xfs /dev/sdb rw";
        assert_eq!(backing(&fixture, text, "/kafka/data").disks(), ["sdb"]);
    }

    #[test]
    fn a_mapped_device_is_followed_to_every_disk_below() {
        let fixture = Fixture::new();
        fixture.device("sda", "8:0").device("sda/sda2", "8:2").device("nvme0n1", "259:0");
        fixture.device("dm-0", "253:0").device("dm-1", "253:1");
        fixture.slave("dm-1", "dm-0").slave("dm-0", "sda2").slave("dm-0", "nvme0n1");
        let found = backing(&fixture, "27 1 253:1 / / rw - xfs /dev/mapper/vg-lv rw", "/srv");
        assert_eq!((found.devices[0].name.as_str(), found.devices[0].partition_of.as_deref()), ("dm-1", None));
        assert_eq!(found.disks(), ["nvme0n1", "sda"]);
    }

    #[test]
    fn memory_and_remote_file_systems_say_plainly_that_there_is_no_device() {
        let fixture = Fixture::new();
        for (line, ram, words) in [
            ("27 1 0:30 / / rw - tmpfs tmpfs rw", true, "tmpfs keeps files in memory"),
            ("27 1 0:30 / / rw - ramfs none rw", true, "ramfs keeps files in memory"),
            ("27 1 0:30 / / rw - nfs4 server:/export rw", false, "server:/export is remote"),
            ("27 1 0:30 / / rw - fuse.sshfs user@host: rw", false, "served by a program"),
            ("27 1 0:30 / / rw - zfs tank/data rw", false, "over a pool"),
            ("27 1 0:30 / / rw - overlay overlay ro,lowerdir=/a:/b", false, "read-only"),
        ] {
            let found = backing(&fixture, line, "/x");
            assert!(found.devices.is_empty() && found.disks().is_empty(), "{line}");
            assert_eq!(found.on_ram.is_some(), ram, "{line}");
            let text = found.on_ram.or(found.note).unwrap();
            assert!(text.contains(words), "{line}: {text}");
        }
    }

    #[test]
    fn disks_in_memory_are_recognised_through_stacks() {
        let fixture = Fixture::new();
        fixture.device("zram0", "253:0").device("loop1", "7:1").device("dm-0", "254:0").device("loop2", "7:2");
        fixture.device("sda", "8:0").slave("dm-0", "loop1");
        fixture.file("sys/devices/bus/block/loop1/loop/backing_file", "/shm/disk.img (deleted)\n");
        fixture.file("sys/devices/bus/block/loop2/loop/backing_file", "/srv/disk.img\n");
        let text = "\
1 0 8:0 / / rw - ext4 /dev/sda rw
2 1 253:0 / /z rw - ext4 /dev/zram0 rw
3 1 254:0 / /mapped rw - ext4 /dev/dm-0 rw
4 1 0:30 / /shm rw - tmpfs tmpfs rw
5 1 7:2 / /looped rw - ext4 /dev/loop2 rw";
        assert!(backing(&fixture, text, "/z/x").on_ram.unwrap().contains("zram0"));
        let mapped = backing(&fixture, text, "/mapped/x");
        assert!(mapped.on_ram.as_deref().unwrap().contains("loop1 is a file (/shm/disk.img) on tmpfs"), "{mapped:?}");
        let looped = backing(&fixture, text, "/looped/x");
        assert_eq!((looped.devices[0].name.as_str(), looped.disks()), ("loop2", vec!["sda".to_owned()]));
        assert_eq!(looped.on_ram, None);
    }

    #[test]
    fn an_overlay_is_what_its_upper_directory_is() {
        let fixture = Fixture::new();
        fixture.device("sda", "8:0");
        let upper = fixture.path().join("upper");
        fs::create_dir_all(&upper).unwrap();
        let overlay = |fs_line: &str| {
            let upper = upper.display();
            let text = format!(
                "{fs_line}\n9 1 0:44 / /merged rw - overlay overlay rw,lowerdir=/l,upperdir={upper},workdir=/w"
            );
            backing(&fixture, &text, "/merged/data")
        };
        let on_disk = overlay("1 0 8:0 / / rw - ext4 /dev/sda rw");
        assert_eq!((on_disk.disks(), on_disk.on_ram), (vec!["sda".to_owned()], None));
        let on_memory = overlay("1 0 0:30 / / rw - tmpfs tmpfs rw");
        assert!(on_memory.devices.is_empty());
        assert!(on_memory.on_ram.unwrap().contains("overlay on tmpfs"));
    }

    #[test]
    fn the_upper_directory_of_a_container_root_is_not_guessed() {
        let fixture = Fixture::new();
        let text = "1 0 0:44 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/var/lib/engine/1/diff,workdir=/w";
        let found = backing(&fixture, text, "/data");
        assert!(found.devices.is_empty() && found.on_ram.is_none());
        assert!(found.note.unwrap().contains("not visible from here"));
    }

    #[test]
    fn btrfs_names_all_its_devices() {
        let fixture = Fixture::new();
        fixture.device("sda", "8:0").device("sda/sda9", "8:9").device("sdb", "8:16");
        fixture
            .file("sys/fs/btrfs/1111-2222/devices/sda9/size", "1")
            .file("sys/fs/btrfs/1111-2222/devices/sdb/size", "1");
        fixture.file("sys/fs/btrfs/features/raid56", "1");
        let found = backing(&fixture, "1 0 0:33 /@data / rw - btrfs /dev/sda9 rw,subvol=/@data", "/x");
        let names: Vec<_> = found.devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["sda9", "sdb"]);
        assert_eq!(found.disks(), ["sda", "sdb"]);
    }

    #[test]
    fn device_numbers_missing_in_sys_are_looked_up_in_diskstats() {
        let fixture = Fixture::new();
        let text = "27 1 8:1 / / rw - ext4 /dev/root rw";
        assert!(backing(&fixture, text, "/x").note.unwrap().contains("8:1"));
        fixture.file("proc/diskstats", "8 1 sda1 0 0 0 0 0 0 0 0 0 0 0\n");
        assert_eq!(backing(&fixture, text, "/x").devices[0].name, "sda1");
    }

    #[test]
    fn a_path_that_does_not_exist_yet_is_judged_by_its_nearest_folder() {
        let dir = tempfile::tempdir().unwrap();
        let deep: PathBuf = dir.path().join("run-1/broker/node-0");
        assert_eq!(nearest_existing(&deep).unwrap(), fs::canonicalize(dir.path()).unwrap());
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(nearest_existing(&dir.path().join("file/below")).unwrap_err().to_string().contains("file/below"));
    }

    #[test]
    fn memory_is_told_from_disk_on_this_machine() {
        let root = crate::root::ProcRoot::default();
        if parse_mountinfo(&root.proc_text("self/mountinfo").unwrap())
            .unwrap()
            .iter()
            .any(|mount| mount.mount_point == Path::new("/dev/shm") && mount.fs_type == "tmpfs")
        {
            assert!(backing_of(&root, Path::new("/dev/shm")).unwrap().on_ram.is_some());
        } else {
            println!("SKIPPED: no tmpfs on /dev/shm");
        }
        let here = backing_of(&root, &std::env::current_dir().unwrap()).unwrap();
        assert!(!here.devices.is_empty() || here.on_ram.is_some() || here.note.is_some(), "{here:?}");
    }
}
