//! CPU, memory and I/O of each process in main, from the series. A restarted process has a new pid: its parts are added.

use std::collections::BTreeMap;

use contract::host::ProcessSample;
use contract::phases::Phase;

use crate::load::RunFolder;

/// One role over main.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessUse {
    pub cpu_seconds: f64,
    /// Seconds between its samples.
    pub seconds: f64,
    pub peak_rss_bytes: u64,
    pub read_bytes: Option<u64>,
    pub write_bytes: Option<u64>,
}

impl ProcessUse {
    /// 1.0 is one core.
    pub fn cores(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.cpu_seconds / self.seconds)
    }
}

/// By role, over the rows of main.
pub fn processes(folder: &RunFolder) -> BTreeMap<String, ProcessUse> {
    let mut uses: BTreeMap<String, ProcessUse> = BTreeMap::new();
    let mut before: BTreeMap<&str, (i64, &ProcessSample)> = BTreeMap::new();
    for row in folder.rows(Phase::Main) {
        let Some(host) = &row.host else { continue };
        for (role, sample) in &host.processes {
            let entry = uses.entry(role.clone()).or_default();
            entry.peak_rss_bytes = entry.peak_rss_bytes.max(sample.rss_bytes);
            if let Some((mono_ns, earlier)) = before.insert(role, (row.mono_ns, sample))
                && earlier.pid == sample.pid
            {
                entry.add(earlier, sample, row.mono_ns.saturating_sub(mono_ns));
            }
        }
    }
    uses
}

impl ProcessUse {
    fn add(&mut self, from: &ProcessSample, to: &ProcessSample, span_ns: i64) {
        self.cpu_seconds += (to.cpu_seconds - from.cpu_seconds).max(0.0);
        self.seconds += span_ns.max(0) as f64 / 1e9;
        add_bytes(&mut self.read_bytes, from.read_bytes, to.read_bytes);
        add_bytes(&mut self.write_bytes, from.write_bytes, to.write_bytes);
    }
}

fn add_bytes(sum: &mut Option<u64>, from: Option<u64>, to: Option<u64>) {
    if let (Some(from), Some(to)) = (from, to) {
        *sum = Some(sum.unwrap_or(0).saturating_add(to.saturating_sub(from)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::host::HostSample;
    use contract::series::{FrameFigures, SeriesRow};

    fn row(second: i64, pid: u32, cpu_seconds: f64) -> SeriesRow {
        let sample = ProcessSample { pid, cpu_seconds, rss_bytes: 100 + second as u64, ..ProcessSample::default() };
        let host = HostSample { processes: [("broker".to_owned(), sample)].into(), ..HostSample::default() };
        SeriesRow {
            mono_ns: second * 1_000_000_000,
            run_ns: second * 1_000_000_000,
            phase: Phase::Main,
            frames: FrameFigures::default(),
            end_to_end_p99_ns: None,
            handed_p99_ns: None,
            ack_p99_ns: None,
            lag_frames: None,
            lag_seconds: None,
            lag_by_stage: BTreeMap::new(),
            host: Some(host),
        }
    }

    #[test]
    fn a_restart_neither_loses_nor_invents_cpu_time() {
        let series = vec![row(0, 7, 5.0), row(1, 7, 5.5), row(2, 8, 0.1), row(3, 8, 0.4)];
        let uses = processes(&RunFolder { series, ..RunFolder::default() });
        let broker = &uses["broker"];
        assert!((broker.cpu_seconds - 0.8).abs() < 1e-9, "{broker:?}");
        assert_eq!((broker.seconds, broker.peak_rss_bytes, broker.write_bytes), (2.0, 103, None));
    }
}
