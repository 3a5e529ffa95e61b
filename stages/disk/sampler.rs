//! One look at the host each second: devices, processes, CPU, memory, pressure.
//!
//! Rates are over the time since the last look, totals are for sums over phases. Whatever cannot be known is blank: a
//! device that is away, one whose counters the kernel does not keep, a process that ended.

use std::collections::BTreeMap;
use std::path::Path;

use contract::clock::{mono_ns, thread_cpu_ns};
use serde::{Deserialize, Serialize};

use crate::cpu::{CpuFractions, CpuSnapshot};
use crate::device::backing_of;
use crate::diskstats::{Counters, Delta, Line, counters_of, partition_parent, read_all};
use crate::error::DiskError;
use crate::facts::iostats_enabled;
use crate::memory::{Memory, MemoryActivity, SwapCounters};
use crate::pressure::Pressures;
use crate::process::{ProcessCounters, ProcessIo, ProcessReader};
use crate::rates::DeviceRates;
use crate::root::{ProcRoot, optional_number};

/// What one tick saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub mono_ns: i64,
    /// Absent in the first sample.
    pub interval_seconds: Option<f64>,
    pub devices: BTreeMap<String, DeviceSample>,
    /// By role. A process that is gone is absent.
    pub processes: BTreeMap<String, ProcessSample>,
    pub cpu: Option<CpuFractions>,
    pub memory: Option<Memory>,
    pub memory_activity: Option<MemoryActivity>,
    pub pressure: Pressures,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceSample {
    pub state: DeviceState,
    /// Requests in flight at this instant; absent unless the device is counted.
    pub in_flight: Option<i64>,
    /// What happened since the last sample.
    pub delta: Option<Delta>,
    pub rates: Option<DeviceRates>,
    /// The kernel's counters at the first sight plus every known difference since: never wraps, never goes back, so
    /// the difference of two samples is exact for the time both were counted.
    pub total: Counters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    Counted,
    /// Not in /proc/diskstats: removed, or never there.
    Absent,
    /// First sight of another device under the same name: no rates until the next sample.
    Replaced,
    /// `queue/iostats` is 0: the kernel's counters stand still.
    NotCounted,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    pub counters: ProcessCounters,
    /// CPU-seconds a second: 1.0 is one core. Absent in a process's first sample.
    pub cpu_cores: Option<f64>,
    pub read_bytes_per_second: Option<f64>,
    /// Dirtied less cancelled; negative when more was cancelled than dirtied.
    pub write_bytes_per_second: Option<f64>,
}

/// What sampling itself has cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SamplerCost {
    pub samples: u64,
    pub cpu_seconds: f64,
}

struct WatchedDevice {
    whole: String,
    diskseq: Option<u64>,
    last: Option<Counters>,
    total: Counters,
    sum: Delta,
}

struct WatchedProcess {
    pid: u32,
    last: Option<ProcessCounters>,
}

struct Last {
    mono_ns: i64,
    cpu: Option<CpuSnapshot>,
    swap: Option<SwapCounters>,
    pressure: Pressures,
}

/// Samples what it was told to watch; used from one thread.
pub struct Sampler {
    root: ProcRoot,
    reader: ProcessReader,
    devices: BTreeMap<String, WatchedDevice>,
    processes: BTreeMap<String, WatchedProcess>,
    last: Option<Last>,
    cost: SamplerCost,
}

impl Sampler {
    pub fn new(root: &ProcRoot) -> Self {
        Self {
            root: root.clone(),
            reader: ProcessReader::new(root),
            devices: BTreeMap::new(),
            processes: BTreeMap::new(),
            last: None,
            cost: SamplerCost::default(),
        }
    }

    /// Watch the whole devices that the file system of a path sits on; returns their names, none for memory or a
    /// remote file system.
    pub fn watch_path(&mut self, path: &Path) -> Result<Vec<String>, DiskError> {
        let backing = backing_of(&self.root, path)?;
        let names: Vec<String> = backing.devices.iter().map(|device| device.whole().to_owned()).collect();
        for name in &names {
            self.watch_device(name);
        }
        Ok(names)
    }

    /// Watch a device by its name in /proc/diskstats.
    pub fn watch_device(&mut self, name: &str) {
        let whole = partition_parent(&self.root, name).unwrap_or_else(|| name.to_owned());
        self.devices.entry(name.to_owned()).or_insert(WatchedDevice {
            whole,
            diskseq: None,
            last: None,
            total: Counters::default(),
            sum: Delta::default(),
        });
    }

    /// Watch a process; a later call with the same role replaces the pid.
    pub fn watch_process(&mut self, role: &str, pid: u32) {
        self.processes.insert(role.to_owned(), WatchedProcess { pid, last: None });
    }

    pub fn cost(&self) -> SamplerCost {
        self.cost
    }

    /// Look now.
    pub fn sample(&mut self) -> Sample {
        let cpu_before = thread_cpu_ns();
        let sample = self.sample_at(mono_ns());
        self.cost.samples += 1;
        self.cost.cpu_seconds += (thread_cpu_ns() - cpu_before) as f64 / 1e9;
        sample
    }

    fn sample_at(&mut self, mono_ns: i64) -> Sample {
        // Disks first: their counters belong to the time stamp.
        let lines = read_all(&self.root).unwrap_or_default();
        let elapsed = self.last.as_ref().map(|last| (mono_ns - last.mono_ns) as f64 / 1e9);
        let seconds = elapsed.filter(|&seconds| seconds > 0.0);
        let root = &self.root;
        let devices = self.devices.iter_mut();
        let devices =
            devices.map(|(name, device)| (name.clone(), device.sample(root, name, &lines, seconds))).collect();
        let reader = &self.reader;
        let processes = self.processes.iter_mut();
        let processes = processes.filter_map(|(role, process)| Some((role.clone(), process.sample(reader, seconds)?)));
        let processes = processes.collect();
        let now = Last {
            mono_ns,
            cpu: CpuSnapshot::read(root),
            swap: SwapCounters::read(root),
            pressure: Pressures::read(root),
        };
        let mut sample = Sample {
            mono_ns,
            interval_seconds: seconds,
            devices,
            processes,
            cpu: None,
            memory: Memory::read(root),
            memory_activity: None,
            pressure: now.pressure,
        };
        if let (Some(last), Some(seconds)) = (&self.last, seconds) {
            sample.cpu = now.cpu.as_ref().and_then(|cpu| cpu.since(last.cpu.as_ref()?));
            sample.pressure = now.pressure.since(&last.pressure, seconds);
            let page_bytes = self.reader.page_bytes();
            sample.memory_activity = now.swap.and_then(|swap| swap.since(last.swap.as_ref()?, seconds, page_bytes));
        }
        self.last = Some(now);
        sample
    }
}

impl WatchedDevice {
    fn sample(&mut self, root: &ProcRoot, name: &str, lines: &[Line], seconds: Option<f64>) -> DeviceSample {
        let Some(now) = counters_of(lines, name).copied() else {
            self.last = None;
            self.diskseq = None;
            return self.blank(DeviceState::Absent);
        };
        let diskseq = optional_number(&root.block_dir(&self.whole).join("diskseq"));
        let same_device = self.diskseq == diskseq;
        self.diskseq = diskseq;
        let last = self.last.replace(now);
        if iostats_enabled(root, &self.whole) == Some(false) {
            // Rates would be a false 0, now and in the interval that ends with the switch turned on again.
            self.last = None;
            return self.blank(DeviceState::NotCounted);
        }
        let Some(last) = last else {
            // First sight of the run: start from the kernel's totals. After an absence: go on from ours.
            if self.total == Counters::default() && self.sum == Delta::default() {
                self.total = now;
            }
            return DeviceSample { in_flight: Some(now.in_flight), ..self.blank(DeviceState::Counted) };
        };
        let Some(delta) = now.since(&last).filter(|_| same_device) else {
            return DeviceSample { in_flight: Some(now.in_flight), ..self.blank(DeviceState::Replaced) };
        };
        self.sum.add(&delta);
        DeviceSample {
            in_flight: Some(now.in_flight),
            rates: seconds.and_then(|seconds| DeviceRates::of(&delta, seconds)),
            delta: Some(delta),
            ..self.blank(DeviceState::Counted)
        }
    }

    /// A sample that knows its totals only.
    fn blank(&self, state: DeviceState) -> DeviceSample {
        let mut total = Delta(self.total);
        total.add(&self.sum);
        DeviceSample { state, in_flight: None, delta: None, rates: None, total: total.0 }
    }
}

impl WatchedProcess {
    fn sample(&mut self, reader: &ProcessReader, seconds: Option<f64>) -> Option<ProcessSample> {
        let now = reader.read(self.pid)?;
        // The same pid with another start is another process: nothing to compare with.
        let last = self.last.replace(now.clone()).filter(|last| last.start_ticks == now.start_ticks);
        let rate = |difference: f64| seconds.map(|seconds| difference / seconds);
        let io = last.as_ref().and_then(|last| Some((now.io?, last.io?)));
        let written = |io: &ProcessIo| io.write_bytes as f64 - io.cancelled_write_bytes as f64;
        Some(ProcessSample {
            cpu_cores: last.as_ref().and_then(|last| rate(now.cpu_seconds() - last.cpu_seconds())),
            read_bytes_per_second: io.and_then(|(now, last)| rate(now.read_bytes as f64 - last.read_bytes as f64)),
            write_bytes_per_second: io.and_then(|(now, last)| rate(written(&now) - written(&last))),
            counters: now,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{DeviceState, Sample, Sampler};
    use crate::root::fixture::Fixture;

    const SECOND: i64 = 1_000_000_000;

    fn host() -> (Fixture, Sampler) {
        let fixture = Fixture::new();
        fixture.device("sda", "8:0").device("sda/sda1", "8:1");
        fixture.file("sys/devices/bus/block/sda/diskseq", "9\n");
        fixture.file("proc/self/mountinfo", "27 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
        let mut sampler = Sampler::new(&fixture.root);
        sampler.watch_device("sda");
        (fixture, sampler)
    }

    /// Writes, their sectors, weighted ms; the partition carries the same numbers.
    fn disk(fixture: &Fixture, writes: u64, weighted_ms: u64) {
        let fields = format!("0 0 0 0 {writes} 0 {} 0 0 0 {weighted_ms}", writes * 8);
        fixture.file("proc/diskstats", &format!("8 0 sda {fields}\n8 1 sda1 {fields}\n"));
    }

    fn sda(sample: &Sample) -> &super::DeviceSample {
        &sample.devices["sda"]
    }

    #[test]
    fn rates_start_with_the_second_sample_and_totals_with_the_first() {
        let (fixture, mut sampler) = host();
        disk(&fixture, 1000, 0);
        let first = sampler.sample_at(5 * SECOND);
        assert_eq!((first.interval_seconds, sda(&first).rates.as_ref()), (None, None));
        assert_eq!((sda(&first).state, sda(&first).total.writes.completed), (DeviceState::Counted, 1000));
        disk(&fixture, 1100, 3000);
        let second = sampler.sample_at(7 * SECOND);
        let rates = sda(&second).rates.as_ref().unwrap();
        assert_eq!((rates.writes_per_second, rates.queue_depth), (50.0, 1.5));
        assert_eq!(sda(&second).total.writes.bytes() - sda(&first).total.writes.bytes(), 100 * 4096);
    }

    #[test]
    fn totals_do_not_wrap_with_the_kernels_milliseconds() {
        let (fixture, mut sampler) = host();
        let mut totals = Vec::new();
        for (second, weighted_ms) in [(0, 4_294_967_000), (1, 704), (2, 4_294_000_000)] {
            disk(&fixture, 10, weighted_ms);
            totals.push(sda(&sampler.sample_at(second * SECOND)).total.weighted_ms);
        }
        assert_eq!(totals[1] - totals[0], 1000);
        assert_eq!(totals[2] - totals[1], 4_293_999_296);
    }

    #[test]
    fn a_removed_device_is_blank_and_counts_on_when_it_returns() {
        let (fixture, mut sampler) = host();
        disk(&fixture, 1000, 0);
        sampler.sample_at(0);
        fixture.file("proc/diskstats", "8 16 sdb 0 0 0 0 0 0 0 0 0 0 0\n");
        let away = sampler.sample_at(SECOND);
        assert_eq!(
            (sda(&away).state, sda(&away).in_flight, sda(&away).rates.as_ref()),
            (DeviceState::Absent, None, None)
        );
        assert_eq!(sda(&away).total.writes.completed, 1000);
        disk(&fixture, 5, 0);
        let back = sampler.sample_at(2 * SECOND);
        assert_eq!((sda(&back).state, sda(&back).rates.as_ref()), (DeviceState::Counted, None));
        disk(&fixture, 8, 0);
        let next = sampler.sample_at(3 * SECOND);
        assert_eq!(sda(&next).rates.as_ref().unwrap().writes_per_second, 3.0);
        assert_eq!(sda(&next).total.writes.completed, 1003);
    }

    #[test]
    fn another_device_under_the_same_name_gives_no_rates() {
        let (fixture, mut sampler) = host();
        disk(&fixture, 1000, 0);
        sampler.sample_at(0);
        // More writes than before: only the sequence number tells that this is not the same disk.
        fixture.file("sys/devices/bus/block/sda/diskseq", "10\n");
        disk(&fixture, 2000, 0);
        let replaced = sampler.sample_at(SECOND);
        assert_eq!((sda(&replaced).state, sda(&replaced).rates.as_ref()), (DeviceState::Replaced, None));
        assert_eq!(sda(&replaced).total.writes.completed, 1000);
        // Without the number a counter that fell tells.
        fixture.remove("sys/devices/bus/block/sda/diskseq");
        disk(&fixture, 2001, 0);
        sampler.sample_at(2 * SECOND);
        disk(&fixture, 3, 0);
        assert_eq!(sda(&sampler.sample_at(3 * SECOND)).state, DeviceState::Replaced);
    }

    #[test]
    fn counters_the_kernel_does_not_keep_are_blank_not_zero() {
        let (fixture, mut sampler) = host();
        disk(&fixture, 1000, 0);
        sampler.sample_at(0);
        fixture.file("sys/devices/bus/block/sda/queue/iostats", "0\n");
        let off = sampler.sample_at(SECOND);
        assert_eq!((sda(&off).state, sda(&off).rates.as_ref()), (DeviceState::NotCounted, None));
        fixture.file("sys/devices/bus/block/sda/queue/iostats", "1\n");
        disk(&fixture, 1010, 0);
        assert_eq!(sda(&sampler.sample_at(2 * SECOND)).rates, None);
        disk(&fixture, 1020, 0);
        assert_eq!(sda(&sampler.sample_at(3 * SECOND)).rates.as_ref().unwrap().writes_per_second, 10.0);
    }

    #[test]
    fn a_watched_path_watches_the_whole_disk_once() {
        let (fixture, mut sampler) = host();
        disk(&fixture, 1, 0);
        let path = fixture.path().to_owned();
        assert_eq!(sampler.watch_path(&path).unwrap(), ["sda"]);
        let sample = sampler.sample_at(0);
        assert_eq!(sample.devices.keys().collect::<Vec<_>>(), ["sda"]);
    }

    fn process(fixture: &Fixture, start: u64, ticks: u64, written: u64) {
        let stat = format!("42 (broker) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 3 0 {start} 0 10\n");
        let io = format!(
            "rchar: 0\nwchar: 0\nread_bytes: 4096\nwrite_bytes: {written}\ncancelled_write_bytes: {}\n",
            written / 4
        );
        fixture.file("proc/42/stat", &stat).file("proc/42/io", &io);
    }

    #[test]
    fn a_process_has_rates_until_its_pid_is_reused_or_gone() {
        let (fixture, mut sampler) = host();
        sampler.watch_process("broker", 42);
        process(&fixture, 700, 100, 4000);
        assert_eq!(sampler.sample_at(0).processes["broker"].cpu_cores, None);
        process(&fixture, 700, 250, 12000);
        let sample = sampler.sample_at(2 * SECOND);
        let broker = &sample.processes["broker"];
        assert_eq!((broker.cpu_cores, broker.write_bytes_per_second), (Some(0.75), Some(3000.0)));
        assert_eq!(broker.read_bytes_per_second, Some(0.0));
        process(&fixture, 900, 300, 13000);
        let reused = sampler.sample_at(3 * SECOND);
        assert_eq!(
            (reused.processes["broker"].cpu_cores, reused.processes["broker"].write_bytes_per_second),
            (None, None)
        );
        fixture.remove("proc/42");
        assert!(sampler.sample_at(4 * SECOND).processes.is_empty());
    }

    #[test]
    fn an_empty_host_gives_blanks_and_two_looks_at_once_give_no_rates() {
        let fixture = Fixture::new();
        let mut sampler = Sampler::new(&fixture.root);
        sampler.watch_device("sda");
        let sample = sampler.sample_at(0);
        assert_eq!((sample.cpu, sample.memory, sample.memory_activity), (None, None, None));
        assert_eq!(sda(&sample).state, DeviceState::Absent);
        let (fixture, mut sampler) = host();
        disk(&fixture, 1, 0);
        sampler.sample_at(0);
        let again = sampler.sample_at(0);
        assert_eq!((again.interval_seconds, sda(&again).rates.as_ref()), (None, None));
    }

    #[test]
    fn a_sample_survives_its_serialised_form() {
        let (fixture, mut sampler) = host();
        disk(&fixture, 1000, 0);
        fixture.file("proc/stat", "cpu  1 2 3 4\n").file("proc/meminfo", "Dirty: 4 kB\n");
        sampler.watch_process("broker", 42);
        process(&fixture, 700, 100, 4000);
        sampler.sample_at(0);
        disk(&fixture, 1100, 3000);
        fixture.file("proc/stat", "cpu  4 2 3 8\n");
        let sample = sampler.sample_at(SECOND);
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
    }
}
