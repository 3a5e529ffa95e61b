//! Disk, process and host figures: what the storage did while a run was going on.
//!
//! Everything is read from /proc and /sys below a given root, so each reader is tested on fixture text. A figure the
//! host does not offer is `None`, never 0 and never an error.

mod averages;
mod baseline;
mod cpu;
mod device;
mod diskstats;
mod error;
mod facts;
mod health;
mod host;
mod memory;
mod mounts;
mod pressure;
mod probe;
mod process;
mod rates;
mod root;
mod sampler;
mod sync;

pub use averages::{Averages, DeviceSummary, DeviceWindow};
pub use baseline::{BaselineLimits, BaselineMethod, DiskBaseline, measure_baseline};
pub use cpu::{CpuCounters, CpuFractions, CpuSnapshot};
pub use device::{Backing, BlockDevice, backing_of};
pub use diskstats::{
    Counters, Delta, FlushCounters, Line, OpCounters, counters_of, parse, partition_parent, read_all, whole_devices,
};
pub use error::DiskError;
pub use facts::{DriveFacts, FileSystemFacts, drive_facts, file_system_facts};
pub use health::{DriveHealth, drive_health};
pub use host::{HostFacts, host_facts};
pub use memory::{Memory, MemoryActivity, SwapCounters};
pub use mounts::{Mount, mount_of, parse_mountinfo};
pub use pressure::{Pressure, PressureLine, Pressures};
pub use probe::DiskProbe;
pub use process::{ProcessCounters, ProcessIo, ProcessReader};
pub use rates::DeviceRates;
pub use root::ProcRoot;
pub use sampler::{DeviceSample, DeviceState, ProcessSample, Sample, Sampler, SamplerCost};
pub use sync::{SyncOutcome, SyncTarget, WriteDebt, timed_sync};
