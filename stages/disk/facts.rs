//! What a drive and a file system are: the facts that make two runs comparable or not.

use std::fs;
use std::path::Path;

use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};

use crate::device::Backing;
use crate::diskstats::SECTOR_BYTES;
use crate::error::DiskError;
use crate::health::{DriveHealth, drive_health};
use crate::mounts::parse_mountinfo;
use crate::root::{ProcRoot, optional_flag, optional_number, optional_text};

/// A whole disk, as /sys/block describes it. Every field is absent where the kernel or the driver does not offer it.
/// The serial number is left out on purpose: records are shared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveFacts {
    pub device: String,
    pub size_bytes: Option<u64>,
    pub vendor: Option<String>,
    pub model: Option<String>,
    pub firmware: Option<String>,
    /// The bus or driver, such as `nvme`, `virtio`, `scsi`, `loop`.
    pub transport: Option<String>,
    pub rotational: Option<bool>,
    /// The scheduler in use.
    pub scheduler: Option<String>,
    pub max_sectors_kb: Option<u64>,
    pub max_hw_sectors_kb: Option<u64>,
    pub read_ahead_kb: Option<u64>,
    pub nr_requests: Option<u64>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    pub logical_block_bytes: Option<u64>,
    pub physical_block_bytes: Option<u64>,
    pub read_only: Option<bool>,
    /// 2 = the kernel merges no requests, 0 = it does.
    pub nomerges: Option<u64>,
    /// `Some(false)`: the kernel counts nothing for this device, and all its figures are blank.
    pub iostats_enabled: Option<bool>,
    pub health: Option<DriveHealth>,
}

/// Facts of a whole disk; `None` when /sys does not know it.
pub fn drive_facts(root: &ProcRoot, device: &str) -> Option<DriveFacts> {
    let dir = root.block_dir(device);
    if !dir.exists() {
        return None;
    }
    let text = |file: &str| optional_text(&dir.join(file));
    let number = |file: &str| optional_number(&dir.join(file));
    let flag = |file: &str| optional_flag(&dir.join(file));
    Some(DriveFacts {
        device: device.to_owned(),
        size_bytes: number("size").map(|sectors| sectors.saturating_mul(SECTOR_BYTES)),
        vendor: text("device/vendor").filter(|vendor| !vendor.starts_with("0x")),
        // SCSI and NVMe say `model`, SD cards `name`.
        model: text("device/model").or_else(|| text("device/name")),
        firmware: text("device/firmware_rev").or_else(|| text("device/rev")),
        transport: transport(&dir),
        rotational: flag("queue/rotational"),
        scheduler: text("queue/scheduler").map(|line| active_choice(&line)),
        max_sectors_kb: number("queue/max_sectors_kb"),
        max_hw_sectors_kb: number("queue/max_hw_sectors_kb"),
        read_ahead_kb: number("queue/read_ahead_kb"),
        nr_requests: number("queue/nr_requests"),
        write_cache: text("queue/write_cache"),
        logical_block_bytes: number("queue/logical_block_size"),
        physical_block_bytes: number("queue/physical_block_size"),
        read_only: flag("ro"),
        nomerges: number("queue/nomerges"),
        iostats_enabled: iostats_enabled(root, device),
        health: drive_health(root, device),
    })
}

/// `queue/iostats`: off, the counters stand still and a rate of 0 would be a lie.
pub(crate) fn iostats_enabled(root: &ProcRoot, whole_device: &str) -> Option<bool> {
    // The file holds flags; any other value than 0 counts.
    optional_number(&root.block_dir(whole_device).join("queue/iostats")).map(|value| value != 0)
}

/// `none [mq-deadline] kyber`: the one in brackets, or the only one.
fn active_choice(line: &str) -> String {
    let bracketed = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
    bracketed.unwrap_or(line).to_owned()
}

fn transport(dir: &Path) -> Option<String> {
    // The device's `subsystem` link ends in the bus; virtual devices have none and are named by their own kind.
    if let Ok(bus) = fs::canonicalize(dir.join("device/subsystem")) {
        return bus.file_name()?.to_str().map(str::to_owned);
    }
    let real = fs::canonicalize(dir).ok()?;
    let name = real.file_name()?.to_str()?;
    let kind = name.trim_end_matches(|character: char| character.is_ascii_digit()).trim_end_matches('-');
    real.components().any(|part| part.as_os_str() == "virtual").then(|| kind.to_owned())
}

/// The file system behind a path and how full it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileSystemFacts {
    pub mount_point: String,
    pub source: String,
    pub fs_type: String,
    /// Options of this mount, then those of the file system.
    pub mount_options: String,
    pub super_options: String,
    pub size_bytes: u64,
    /// What an unprivileged process may still use; less than `free_bytes` by the reserve for root.
    pub available_bytes: u64,
    pub free_bytes: u64,
    /// (size - free) / size.
    pub fill_ratio: Option<f64>,
}

/// Facts of the file system that `backing` is on.
pub fn file_system_facts(root: &ProcRoot, backing: &Backing) -> Result<FileSystemFacts, DiskError> {
    let mounts = parse_mountinfo(&root.proc_text("self/mountinfo")?)?;
    // The mount found before: by its point, the topmost one.
    let mount = mounts.iter().rfind(|mount| mount.mount_point == backing.mount_point && mount.source == backing.source);
    let space = statvfs(&backing.path).map_err(|error| DiskError::Io {
        action: "read the free space",
        path: backing.path.clone(),
        source: error.into(),
    })?;
    let size_bytes = space.f_blocks.saturating_mul(space.f_frsize);
    let free_bytes = space.f_bfree.saturating_mul(space.f_frsize);
    Ok(FileSystemFacts {
        mount_point: backing.mount_point.display().to_string(),
        source: backing.source.clone(),
        fs_type: backing.fs_type.clone(),
        mount_options: mount.map(|mount| mount.options.clone()).unwrap_or_default(),
        super_options: mount.map(|mount| mount.super_options.clone()).unwrap_or_default(),
        size_bytes,
        available_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        free_bytes,
        fill_ratio: (size_bytes > 0).then(|| size_bytes.saturating_sub(free_bytes) as f64 / size_bytes as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::{active_choice, drive_facts, file_system_facts};
    use crate::device::backing_of;
    use crate::root::ProcRoot;
    use crate::root::fixture::Fixture;

    #[test]
    fn a_drive_is_described_by_its_attributes() {
        let fixture = Fixture::new();
        fixture.device("nvme0n1", "259:0");
        for (file, text) in [
            ("size", "7501476528"),
            ("device/model", "ACME Fast 4T                            "),
            ("device/firmware_rev", "1.2.3"),
            ("queue/rotational", "0"),
            ("queue/scheduler", "none [mq-deadline] kyber"),
            ("queue/max_sectors_kb", "1280"),
            ("queue/max_hw_sectors_kb", "2048"),
            ("queue/read_ahead_kb", "128"),
            ("queue/nr_requests", "1023"),
            ("queue/write_cache", "write back"),
            ("queue/logical_block_size", "512"),
            ("queue/physical_block_size", "4096"),
            ("queue/iostats", "1"),
            ("ro", "0"),
        ] {
            fixture.file(&format!("sys/devices/bus/block/nvme0n1/{file}"), &format!("{text}\n"));
        }
        let facts = drive_facts(&fixture.root, "nvme0n1").unwrap();
        assert_eq!(facts.size_bytes, Some(3_840_755_982_336));
        assert_eq!(facts.model.as_deref(), Some("ACME Fast 4T"));
        assert_eq!(facts.firmware.as_deref(), Some("1.2.3"));
        assert_eq!((facts.rotational, facts.read_only), (Some(false), Some(false)));
        assert_eq!(facts.scheduler.as_deref(), Some("mq-deadline"));
        assert_eq!((facts.max_sectors_kb, facts.max_hw_sectors_kb), (Some(1280), Some(2048)));
        assert_eq!((facts.read_ahead_kb, facts.nr_requests), (Some(128), Some(1023)));
        assert_eq!(facts.write_cache.as_deref(), Some("write back"));
        assert_eq!((facts.logical_block_bytes, facts.physical_block_bytes), (Some(512), Some(4096)));
        assert_eq!(facts.iostats_enabled, Some(true));
        assert_eq!((facts.vendor, facts.nomerges, facts.health), (None, None, None));
    }

    #[test]
    fn an_unknown_drive_has_no_facts_and_a_bare_one_has_blanks() {
        let fixture = Fixture::new();
        fixture.device("sda", "8:0").file("sys/devices/bus/block/sda/queue/iostats", "0\n");
        assert_eq!(drive_facts(&fixture.root, "sdz"), None);
        let facts = drive_facts(&fixture.root, "sda").unwrap();
        assert_eq!((facts.model, facts.scheduler, facts.size_bytes), (None, None, None));
        assert_eq!(facts.iostats_enabled, Some(false));
    }

    #[test]
    fn the_scheduler_in_use_is_the_one_in_brackets() {
        assert_eq!(active_choice("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(active_choice("none"), "none");
    }

    #[test]
    fn the_file_system_of_a_temporary_directory_has_a_size_and_a_fill_level() {
        let root = ProcRoot::default();
        let dir = tempfile::tempdir().unwrap();
        let facts = file_system_facts(&root, &backing_of(&root, dir.path()).unwrap()).unwrap();
        assert!(facts.size_bytes > 0 && facts.available_bytes <= facts.size_bytes, "{facts:?}");
        let fill = facts.fill_ratio.unwrap();
        assert!((0.0..=1.0).contains(&fill), "{facts:?}");
        assert!(facts.mount_options.starts_with("rw"), "{facts:?}");
    }
}
