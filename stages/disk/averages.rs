//! Averages over a phase, each under its own name: plain, zero-discarded, and ratio of sums. They differ a lot for a
//! bursty disk, so none of them is ever just "the average".

use serde::{Deserialize, Serialize};

use crate::diskstats::Delta;
use crate::rates::DeviceRates;

/// Averages of one figure's samples. Absent samples (no I/O, no device) are in none of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Averages {
    pub samples: u64,
    pub samples_above_zero: u64,
    /// Mean of all samples.
    pub plain: Option<f64>,
    /// Mean of the samples above zero.
    pub zero_discarded: Option<f64>,
    pub max: Option<f64>,
}

impl Averages {
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sum = Sum::default();
        for sample in samples {
            sum.push(Some(sample));
        }
        sum.averages()
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    samples: u64,
    above_zero: u64,
    sum: f64,
    max: Option<f64>,
}

impl Sum {
    fn push(&mut self, sample: Option<f64>) {
        let Some(sample) = sample else { return };
        self.samples += 1;
        self.above_zero += u64::from(sample > 0.0);
        self.sum += sample;
        self.max = Some(self.max.map_or(sample, |max| max.max(sample)));
    }

    fn averages(&self) -> Averages {
        let over = |count: u64| (count > 0).then(|| self.sum / count as f64);
        Averages {
            samples: self.samples,
            samples_above_zero: self.above_zero,
            plain: over(self.samples),
            zero_discarded: over(self.above_zero),
            max: self.max,
        }
    }
}

/// One device over one phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceSummary {
    /// Length of the intervals with a known difference; shorter than the phase when the device was away.
    pub seconds: f64,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub discarded_bytes: Option<u64>,
    /// Ratio of sums: every total over the elapsed time, every mean over all requests of the phase.
    pub overall: Option<DeviceRates>,
    pub reads_per_second: Averages,
    pub writes_per_second: Averages,
    pub read_mib_per_second: Averages,
    pub write_mib_per_second: Averages,
    pub read_request_kib: Averages,
    pub write_request_kib: Averages,
    pub read_await_ms: Averages,
    pub write_await_ms: Averages,
    pub await_ms: Averages,
    pub queue_depth: Averages,
    pub utilisation_percent: Averages,
}

/// Collects one device's intervals of a phase.
#[derive(Debug, Clone, Default)]
pub struct DeviceWindow {
    seconds: f64,
    sum: Delta,
    figures: [Sum; 11],
}

impl DeviceWindow {
    /// One interval. An interval whose difference is unknown (device away or replaced) is simply not pushed.
    pub fn push(&mut self, delta: &Delta, seconds: f64) {
        let Some(rates) = DeviceRates::of(delta, seconds) else { return };
        self.seconds += seconds;
        self.sum.add(delta);
        let figures = [
            Some(rates.reads_per_second),
            Some(rates.writes_per_second),
            Some(rates.read_mib_per_second),
            Some(rates.write_mib_per_second),
            rates.read_request_kib,
            rates.write_request_kib,
            rates.read_await_ms,
            rates.write_await_ms,
            rates.await_ms,
            Some(rates.queue_depth),
            Some(rates.utilisation_percent),
        ];
        for (sum, figure) in self.figures.iter_mut().zip(figures) {
            sum.push(figure);
        }
    }

    pub fn summary(&self) -> DeviceSummary {
        let averages = self.figures.map(|sum| sum.averages());
        DeviceSummary {
            seconds: self.seconds,
            reads: self.sum.0.reads.completed,
            writes: self.sum.0.writes.completed,
            read_bytes: self.sum.0.reads.bytes(),
            written_bytes: self.sum.0.writes.bytes(),
            discarded_bytes: self.sum.0.discards.map(|discards| discards.bytes()),
            overall: DeviceRates::of(&self.sum, self.seconds),
            reads_per_second: averages[0],
            writes_per_second: averages[1],
            read_mib_per_second: averages[2],
            write_mib_per_second: averages[3],
            read_request_kib: averages[4],
            write_request_kib: averages[5],
            read_await_ms: averages[6],
            write_await_ms: averages[7],
            await_ms: averages[8],
            queue_depth: averages[9],
            utilisation_percent: averages[10],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Averages, DeviceWindow};
    use crate::diskstats::{Counters, Delta, OpCounters};

    #[test]
    fn zero_discard_and_plain_averages_differ_on_a_bursty_disk() {
        let averages = Averages::of([0.0, 0.0, 10.0, 20.0]);
        assert_eq!(averages.zero_discarded, Some(15.0));
        assert_eq!(averages.plain, Some(7.5));
        assert_eq!((averages.samples, averages.samples_above_zero, averages.max), (4, 2, Some(20.0)));
    }

    #[test]
    fn no_samples_have_no_average_and_zeros_have_no_zero_discarded_one() {
        assert_eq!(Averages::of([]).plain, None);
        let zeros = Averages::of([0.0, 0.0]);
        assert_eq!((zeros.plain, zeros.zero_discarded), (Some(0.0), None));
    }

    fn writes(completed: u64, time_ms: u64) -> Delta {
        let writes = OpCounters { completed, merged: 0, sectors: completed * 8, time_ms };
        Delta(Counters { writes, ..Default::default() })
    }

    #[test]
    fn await_of_a_phase_weighs_requests_and_its_samples_do_not() {
        let mut window = DeviceWindow::default();
        window.push(&writes(0, 0), 1.0);
        window.push(&writes(1, 100), 1.0);
        window.push(&writes(99, 99), 1.0);
        window.push(&writes(50, 0), 0.0);
        let summary = window.summary();
        assert_eq!(summary.seconds, 3.0);
        assert_eq!(summary.written_bytes, 100 * 4096);
        let overall = summary.overall.unwrap();
        assert_eq!(overall.write_await_ms, Some(1.99));
        assert!((overall.writes_per_second - 100.0 / 3.0).abs() < 1e-12);
        assert_eq!((summary.write_await_ms.samples, summary.write_await_ms.plain), (2, Some(50.5)));
        assert_eq!(summary.writes_per_second.zero_discarded, Some(50.0));
        assert_eq!(summary.discarded_bytes, None);
    }
}
