//! Device figures of each phase, from the rows of the time series.

use std::collections::BTreeMap;

use contract::host::{DeviceTotals, HostSample, StorageFacts};
use contract::phases::Phase;
use contract::series::SeriesRow;
use contract::summary::{DiskFacts, DiskPhase, PhaseFacts};

/// Seconds below which a phase has no rates.
const SHORTEST_SECONDS: f64 = 0.5;

/// One look at a device.
#[derive(Clone, Copy)]
struct Look {
    mono_ns: i64,
    totals: DeviceTotals,
}

/// Every watched device over every phase, and over the whole run as `all`.
pub fn by_phase(
    rows: &[SeriesRow],
    phases: &[PhaseFacts],
    storage: &[StorageFacts],
    first: Option<&HostSample>,
    last: Option<&HostSample>,
) -> Vec<DiskFacts> {
    let samples: Vec<(&HostSample, Phase)> = first
        .map(|sample| (sample, Phase::Ready))
        .into_iter()
        .chain(rows.iter().filter_map(|row| row.host.as_ref().map(|host| (host, row.phase))))
        .chain(last.map(|sample| (sample, Phase::Sync)))
        .collect();
    let mut seen: Vec<DiskFacts> = Vec::new();
    for facts in storage {
        let Some(device) = facts.device.clone() else { continue };
        if seen.iter().any(|known| known.device == device) {
            continue;
        }
        let mut by_phase = BTreeMap::new();
        for phase in phases {
            if let Some(figures) = of_phase(&samples, &device, phase.name) {
                by_phase.insert(phase.name.name().to_owned(), figures);
            }
        }
        if let Some(all) = over(&looks(&samples, &device, |_| true)) {
            by_phase.insert("all".to_owned(), all);
        }
        seen.push(DiskFacts { device, path: facts.path.clone(), phases: by_phase });
    }
    seen
}

fn looks(samples: &[(&HostSample, Phase)], device: &str, wanted: impl Fn(Phase) -> bool) -> Vec<Look> {
    let look = |(sample, phase): &(&HostSample, Phase)| {
        let totals = sample.devices.get(device)?.total;
        wanted(*phase).then_some(Look { mono_ns: sample.mono_ns, totals })
    };
    samples.iter().filter_map(look).collect()
}

/// A phase begins with the last look before it.
fn of_phase(samples: &[(&HostSample, Phase)], device: &str, phase: Phase) -> Option<DiskPhase> {
    let begin = samples.iter().position(|(_, of)| *of == phase)?;
    let mut inside = looks(&samples[begin.saturating_sub(1)..begin], device, |_| true);
    inside.extend(looks(samples, device, |of| of == phase));
    over(&inside)
}

fn over(looks: &[Look]) -> Option<DiskPhase> {
    let (first, last) = (looks.first()?, looks.last()?);
    let seconds = (last.mono_ns - first.mono_ns) as f64 / 1e9;
    if seconds < SHORTEST_SECONDS {
        return None;
    }
    let d = |field: fn(&DeviceTotals) -> u64| field(&last.totals).saturating_sub(field(&first.totals));
    let (reads, writes) = (d(|t| t.reads), d(|t| t.writes));
    let (read_bytes, write_bytes) = (d(|t| t.read_bytes), d(|t| t.write_bytes));
    let ratio = |a: u64, b: u64| (b > 0).then(|| a as f64 / b as f64);
    let active = active_writes(looks);
    Some(DiskPhase {
        seconds,
        reads,
        writes,
        read_bytes,
        write_bytes,
        read_iops: Some(reads as f64 / seconds),
        write_iops: Some(writes as f64 / seconds),
        read_mib_per_second: Some(mib(read_bytes) / seconds),
        write_mib_per_second: Some(mib(write_bytes) / seconds),
        write_iops_nonzero: active.map(|(iops, _)| iops),
        write_mib_per_second_nonzero: active.map(|(_, rate)| rate),
        read_request_kib: ratio(read_bytes, reads).map(|bytes| bytes / 1024.0),
        write_request_kib: ratio(write_bytes, writes).map(|bytes| bytes / 1024.0),
        read_await_ms: ratio(d(|t| t.read_ms), reads),
        write_await_ms: ratio(d(|t| t.write_ms), writes),
        queue: Some(d(|t| t.weighted_ms) as f64 / 1000.0 / seconds),
        utilisation: Some((d(|t| t.busy_ms) as f64 / 1000.0 / seconds).min(1.0)),
    })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Means of writes/s and MiB/s over the looks that saw a write ("zero-discarded").
fn active_writes(looks: &[Look]) -> Option<(f64, f64)> {
    let rates: Vec<(f64, f64)> = looks
        .windows(2)
        .filter_map(|pair| {
            let seconds = (pair[1].mono_ns - pair[0].mono_ns) as f64 / 1e9;
            let writes = pair[1].totals.writes.saturating_sub(pair[0].totals.writes);
            let bytes = pair[1].totals.write_bytes.saturating_sub(pair[0].totals.write_bytes);
            (writes > 0 && seconds > 0.0).then(|| (writes as f64 / seconds, mib(bytes) / seconds))
        })
        .collect();
    let n = rates.len() as f64;
    let mean = |part: fn(&(f64, f64)) -> f64| rates.iter().map(part).sum::<f64>() / n;
    (!rates.is_empty()).then(|| (mean(|rate| rate.0), mean(|rate| rate.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(second: i64, writes: u64, write_bytes: u64) -> Look {
        let totals = DeviceTotals { writes, write_bytes, write_ms: writes * 2, ..DeviceTotals::default() };
        Look { mono_ns: second * 1_000_000_000, totals }
    }

    #[test]
    fn averages_with_and_without_idle_seconds_differ_as_defined() {
        // Writes a second: 0, 0, 10, 20.
        let looks = [look(0, 0, 0), look(1, 0, 0), look(2, 0, 0), look(3, 10, 10 << 20), look(4, 30, 30 << 20)];
        let figures = over(&looks).unwrap();
        assert_eq!((figures.write_iops, figures.write_iops_nonzero), (Some(7.5), Some(15.0)));
        assert_eq!((figures.write_mib_per_second, figures.write_request_kib), (Some(7.5), Some(1024.0)));
        assert_eq!((figures.write_await_ms, figures.read_await_ms), (Some(2.0), None));
    }

    #[test]
    fn a_phase_too_short_to_measure_is_absent() {
        assert!(over(&[look(1, 5, 5)]).is_none());
        assert!(over(&[]).is_none());
    }
}
