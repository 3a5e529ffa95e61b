//! Wear and errors a drive reports about itself, where a tool or /sys lets us read them. Absent otherwise: health is a
//! note in the record and never a reason to stop.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::root::{ProcRoot, optional_text};

/// A drive that does not answer its log in this time is not worth waiting for.
const TOOL_DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveHealth {
    /// `smartctl`, `nvme` or `sysfs`.
    pub source: String,
    /// The drive's own overall judgement.
    pub passed: Option<bool>,
    pub temperature_celsius: Option<f64>,
    /// Share of the rated endurance used up; can exceed 100.
    pub wear_percent: Option<f64>,
    pub available_spare_percent: Option<f64>,
    pub power_on_hours: Option<u64>,
    /// Written by the host over the drive's life.
    pub lifetime_written_bytes: Option<u64>,
    pub media_errors: Option<u64>,
}

/// The best source that answers: smartctl, nvme-cli, then /sys.
pub fn drive_health(root: &ProcRoot, device: &str) -> Option<DriveHealth> {
    // Tools ask the live drive, so they say nothing about a fixture; virtual devices have nothing to tell.
    let physical = root.is_live() && root.block_dir(device).join("device").exists();
    let node = format!("/dev/{device}");
    let ask = |program: &str, arguments: &[&str]| {
        if !physical {
            return None;
        }
        let text = run(Command::new(program).args(arguments).arg(&node), TOOL_DEADLINE)?;
        serde_json::from_str::<Value>(&text).ok()
    };
    // `-n standby`: never spin a sleeping disk up for a note.
    ask("smartctl", &["--json=c", "-a", "-n", "standby"])
        .and_then(|log| from_smartctl(&log))
        .or_else(|| {
            let nvme = device.starts_with("nvme").then(|| ask("nvme", &["smart-log", "-o", "json"]))?;
            from_nvme(&nvme?)
        })
        .or_else(|| from_sysfs(&root.block_dir(device)))
}

/// NVMe counts data in units of 1000 blocks of 512 bytes.
const NVME_UNIT_BYTES: u64 = 512_000;

fn from_smartctl(log: &Value) -> Option<DriveHealth> {
    let nvme = &log["nvme_smart_health_information_log"];
    let health = DriveHealth {
        source: "smartctl".into(),
        passed: log["smart_status"]["passed"].as_bool(),
        temperature_celsius: log["temperature"]["current"].as_f64(),
        wear_percent: nvme["percentage_used"].as_f64().or_else(|| log["endurance_used"]["current_percent"].as_f64()),
        available_spare_percent: nvme["available_spare"].as_f64(),
        power_on_hours: log["power_on_time"]["hours"].as_u64(),
        lifetime_written_bytes: nvme["data_units_written"]
            .as_u64()
            .and_then(|units| units.checked_mul(NVME_UNIT_BYTES)),
        media_errors: nvme["media_errors"].as_u64(),
    };
    health.says_something()
}

fn from_nvme(log: &Value) -> Option<DriveHealth> {
    // Older versions print large counters as strings.
    let number = |key: &str| log[key].as_f64().or_else(|| log[key].as_str()?.parse().ok());
    let health = DriveHealth {
        source: "nvme".into(),
        passed: number("critical_warning").map(|warning| warning == 0.0),
        temperature_celsius: number("temperature").map(|kelvin| kelvin - 273.0),
        wear_percent: number("percent_used").or_else(|| number("percentage_used")),
        available_spare_percent: number("avail_spare"),
        power_on_hours: number("power_on_hours").map(|hours| hours as u64),
        lifetime_written_bytes: number("data_units_written").map(|units| (units * NVME_UNIT_BYTES as f64) as u64),
        media_errors: number("media_errors").map(|errors| errors as u64),
    };
    health.says_something()
}

/// Temperature of an NVMe or SATA drive (hwmon), wear of an eMMC (`life_time`, steps of 10 %).
fn from_sysfs(dir: &Path) -> Option<DriveHealth> {
    let health = DriveHealth {
        source: "sysfs".into(),
        temperature_celsius: hwmon_millicelsius(dir).map(|millis| millis / 1000.0),
        wear_percent: optional_text(&dir.join("device/life_time")).and_then(|text| emmc_wear(&text)),
        ..DriveHealth::default()
    };
    health.says_something()
}

fn hwmon_millicelsius(dir: &Path) -> Option<f64> {
    // SATA: device/hwmon/hwmonN; NVMe: device/hwmonN, since the controller itself is the parent.
    let folders = ["device/hwmon", "device"].map(|folder| dir.join(folder));
    let entries = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    let mut sensors = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("hwmon"));
    sensors.find_map(|sensor| optional_text(&sensor.path().join("temp1_input"))?.parse().ok())
}

/// `0x01 0x02`: the worse of the two memory types; n means up to n x 10 % used.
fn emmc_wear(text: &str) -> Option<f64> {
    let steps = text.split_whitespace().filter_map(|word| u32::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    steps.max().filter(|&step| step > 0).map(|step| f64::from(step) * 10.0)
}

impl DriveHealth {
    /// A tool that ran but knew nothing must not hide the next source.
    fn says_something(self) -> Option<Self> {
        let empty = Self { source: self.source.clone(), ..Self::default() };
        (self != empty).then_some(self)
    }
}

/// Standard output of a short command; `None` when it cannot start or does not end in time. The exit code is ignored:
/// smartctl puts warnings about the drive into it.
fn run(command: &mut Command, deadline: Duration) -> Option<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut stdout = child.stdout.take()?;
    let (sender, receiver) = sync_channel(1);
    // Its own thread, so that a full pipe cannot stop the tool from ending; it ends when the pipe closes.
    let reader = Builder::new().name("drive-health".into()).spawn(move || {
        let mut text = String::new();
        let read = stdout.by_ref().take(1 << 20).read_to_string(&mut text);
        // The receiver is gone only when the deadline has passed.
        let _ = sender.send(read.ok().map(|_| text));
    });
    let ended = reader.is_ok() && wait(&mut child, deadline);
    if !ended {
        // Both fail only when the child has just ended by itself.
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    receiver.recv_timeout(deadline).ok().flatten()
}

fn wait(child: &mut Child, deadline: Duration) -> bool {
    let end = Instant::now() + deadline;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return true,
            Ok(None) if Instant::now() < end => sleep(Duration::from_millis(5)),
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use serde_json::json;

    use super::{drive_health, emmc_wear, from_nvme, from_smartctl, run};
    use crate::root::fixture::Fixture;

    #[test]
    fn the_smart_log_of_an_nvme_drive_is_read() {
        let log = json!({
            "smart_status": {"passed": true},
            "nvme_smart_health_information_log": {
                "percentage_used": 3, "available_spare": 100, "data_units_written": 2_000_000, "media_errors": 0},
            "temperature": {"current": 41}, "power_on_time": {"hours": 1234}
        });
        let health = from_smartctl(&log).unwrap();
        assert_eq!(
            (health.passed, health.temperature_celsius, health.wear_percent),
            (Some(true), Some(41.0), Some(3.0))
        );
        assert_eq!(health.lifetime_written_bytes, Some(1_024_000_000_000));
        assert_eq!((health.power_on_hours, health.media_errors), (Some(1234), Some(0)));
    }

    #[test]
    fn a_tool_that_knows_nothing_gives_no_health() {
        let refused = json!({"smartctl": {"exit_status": 1, "messages": [{"string": "Unable to detect device type"}]}});
        assert_eq!(from_smartctl(&refused), None);
        assert_eq!(from_nvme(&json!({})), None);
    }

    #[test]
    fn the_log_of_nvme_cli_counts_in_kelvin_and_may_hold_strings() {
        let log = json!({"critical_warning": 0, "temperature": 310, "percent_used": 7, "data_units_written": "1000"});
        let health = from_nvme(&log).unwrap();
        assert_eq!(
            (health.passed, health.temperature_celsius, health.wear_percent),
            (Some(true), Some(37.0), Some(7.0))
        );
        assert_eq!(health.lifetime_written_bytes, Some(512_000_000));
    }

    #[test]
    fn sysfs_gives_a_temperature_or_an_emmc_wear_level() {
        let fixture = Fixture::new();
        fixture.device("nvme0n1", "259:0").device("mmcblk0", "179:0").device("sda", "8:0").device("vda", "254:0");
        fixture.file("sys/devices/bus/block/nvme0n1/device/hwmon2/temp1_input", "38850\n");
        fixture.file("sys/devices/bus/block/sda/device/hwmon/hwmon5/temp1_input", "31000\n");
        fixture.file("sys/devices/bus/block/mmcblk0/device/life_time", "0x01 0x02\n");
        let health = |device| drive_health(&fixture.root, device);
        assert_eq!(health("nvme0n1").unwrap().temperature_celsius, Some(38.85));
        assert_eq!(health("sda").unwrap().temperature_celsius, Some(31.0));
        assert_eq!(health("mmcblk0").unwrap().wear_percent, Some(20.0));
        assert_eq!(health("vda"), None);
        assert_eq!(emmc_wear("0x00 0x00"), None);
    }

    #[test]
    fn a_tool_that_is_absent_or_hangs_is_no_error() {
        let short = Duration::from_millis(50);
        assert_eq!(run(&mut Command::new("reelbench-no-such-tool"), short), None);
        assert_eq!(run(Command::new("sleep").arg("60"), short), None);
        assert_eq!(run(Command::new("echo").arg("{}"), Duration::from_secs(20)).as_deref(), Some("{}\n"));
    }
}
