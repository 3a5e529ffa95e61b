//! What the runner asks of the host: figures of disks, processes, CPU and memory. Implemented by stages/disk, handed in by the
//! app. Everything that a host does not tell is absent.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::StageError;

/// One look at the host; rates are over the time since the last look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostSample {
    pub mono_ns: i64,
    /// Seconds since the previous sample; absent in the first.
    pub interval_seconds: Option<f64>,
    /// Whole devices behind the watched paths, by name.
    pub devices: BTreeMap<String, DeviceSample>,
    /// Processes by role (`broker`, `cameras-0`, `runner`).
    pub processes: BTreeMap<String, ProcessSample>,
    pub cpu: Option<CpuSample>,
    pub memory: Option<MemorySample>,
    pub pressure: Option<PressureSample>,
}

/// iostat -x figures of one device, and cumulative counters since boot for sums over phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceSample {
    pub reads_per_second: Option<f64>,
    pub writes_per_second: Option<f64>,
    pub read_bytes_per_second: Option<f64>,
    pub write_bytes_per_second: Option<f64>,
    /// Mean request size; absent without requests.
    pub read_request_bytes: Option<f64>,
    pub write_request_bytes: Option<f64>,
    pub read_await_seconds: Option<f64>,
    pub write_await_seconds: Option<f64>,
    /// aqu-sz.
    pub queue: Option<f64>,
    /// %util / 100: any I/O in flight; meaningless as saturation on NVMe.
    pub utilisation: Option<f64>,
    pub total: DeviceTotals,
}

/// Counters of one device since it appeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceTotals {
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub read_ms: u64,
    pub write_ms: u64,
    pub weighted_ms: u64,
    pub busy_ms: u64,
    pub flushes: Option<u64>,
    pub discards: Option<u64>,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessSample {
    pub pid: u32,
    /// CPU-seconds each second since the last sample (1.0 = one core).
    pub cpu: Option<f64>,
    pub cpu_seconds: f64,
    pub rss_bytes: u64,
    pub threads: u64,
    /// Bytes the process caused to be read from or written to storage (`/proc/PID/io`); writes count when dirtied.
    pub read_bytes: Option<u64>,
    pub write_bytes: Option<u64>,
    pub cancelled_write_bytes: Option<u64>,
}

/// Shares of all CPU time since the last sample, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuSample {
    pub user: f64,
    pub system: f64,
    pub iowait: f64,
    pub steal: f64,
    pub idle: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySample {
    pub available_bytes: u64,
    pub cached_bytes: u64,
    pub dirty_bytes: u64,
    pub writeback_bytes: u64,
    pub swap_used_bytes: u64,
}

/// PSI totals since boot in seconds; absent where the kernel has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PressureSample {
    pub cpu_waiting_seconds: Option<f64>,
    pub io_waiting_seconds: Option<f64>,
    pub io_stalled_seconds: Option<f64>,
    pub memory_waiting_seconds: Option<f64>,
}

/// What a directory stands on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageFacts {
    pub path: String,
    /// Whole device, such as `vda`; absent where there is none, with the reason.
    pub device: Option<String>,
    pub no_device_reason: Option<String>,
    /// On tmpfs, ramfs, zram or a loop device over them.
    pub ram: bool,
    pub file_system: Option<String>,
    pub mount_options: Option<String>,
    pub size_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    /// Model, scheduler, max_sectors_kb, read-ahead and the like, as the kernel names them.
    pub device_facts: BTreeMap<String, String>,
}

/// A short measurement of a device, because disks differ tenfold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    pub path: String,
    pub write_bytes_per_second: Option<f64>,
    pub read_bytes_per_second: Option<f64>,
    pub bytes: u64,
    /// `O_DIRECT`, or what was done instead.
    pub method: String,
    /// Why a figure is absent.
    pub note: Option<String>,
}

/// A timed syncfs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SyncOutcome {
    /// Absent when it did not return before the deadline.
    pub seconds: Option<f64>,
    pub dirty_before_bytes: Option<u64>,
    pub dirty_after_bytes: Option<u64>,
    pub error: Option<String>,
}

/// Facts of the host that do not change in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostFacts {
    pub name: String,
    pub boot_id: String,
    pub time_namespace: String,
    pub kernel: String,
    pub cpu_model: Option<String>,
    pub cores: u32,
    pub memory_bytes: u64,
    /// sysctls and the like that bear on results.
    pub settings: BTreeMap<String, String>,
}

/// Samples the host; one at a time, from one thread.
pub trait HostSampler: Send {
    /// Watches the device behind a path from now on.
    fn watch_path(&mut self, path: &Path);
    /// Watches a process under a role; a later call replaces the pid.
    fn watch_process(&mut self, role: &str, pid: u32);
    fn sample(&mut self) -> HostSample;
}

/// Questions that take time; called from a blocking thread.
pub trait HostProbe: Send + Sync {
    fn sampler(&self) -> Box<dyn HostSampler>;
    fn host_facts(&self) -> HostFacts;
    fn storage_facts(&self, path: &Path) -> StorageFacts;
    fn baseline(&self, dir: &Path) -> Result<Baseline, StageError>;
    fn syncfs(&self, dir: &Path, deadline: Duration) -> SyncOutcome;
}
