//! The figures of `iostat -x` from a difference of counters.
//!
//! Where iostat prints 0 because nothing completed (await, request size), the figure here is absent: no I/O has no
//! latency.

use serde::{Deserialize, Serialize};

use crate::diskstats::{Delta, OpCounters};

const MIB: f64 = 1_048_576.0;
const KIB: f64 = 1024.0;

/// Rates of one device over one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceRates {
    pub reads_per_second: f64,
    pub writes_per_second: f64,
    pub discards_per_second: Option<f64>,
    pub flushes_per_second: Option<f64>,
    pub read_mib_per_second: f64,
    pub write_mib_per_second: f64,
    pub discard_mib_per_second: Option<f64>,
    pub reads_merged_per_second: f64,
    pub writes_merged_per_second: f64,
    /// Share of the direction's requests that were merged into another one before they reached the device.
    pub reads_merged_percent: Option<f64>,
    pub writes_merged_percent: Option<f64>,
    /// Mean size of a completed request.
    pub read_request_kib: Option<f64>,
    pub write_request_kib: Option<f64>,
    /// Over reads, writes and discards.
    pub request_kib: Option<f64>,
    /// Mean time from queueing to completion, plug and scheduler included.
    pub read_await_ms: Option<f64>,
    pub write_await_ms: Option<f64>,
    pub discard_await_ms: Option<f64>,
    pub flush_await_ms: Option<f64>,
    /// Over reads, writes and discards.
    pub await_ms: Option<f64>,
    /// Mean number of requests waiting or being served.
    pub queue_depth: f64,
    /// Share of time with at least one request in flight. A device that serves requests in parallel is not full at
    /// 100 %, and since Linux 5.0 the kernel samples it per timer tick, so a saturated one can show far less.
    pub utilisation_percent: f64,
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn await_ms(op: &OpCounters) -> Option<f64> {
    ratio(op.time_ms, op.completed)
}

fn request_kib(op: &OpCounters) -> Option<f64> {
    ratio(op.bytes(), op.completed).map(|bytes| bytes / KIB)
}

fn merged_percent(op: &OpCounters) -> Option<f64> {
    ratio(op.merged, op.merged.saturating_add(op.completed)).map(|share| share * 100.0)
}

impl DeviceRates {
    /// `None` for an interval without length.
    pub fn of(delta: &Delta, seconds: f64) -> Option<Self> {
        if !(seconds.is_finite() && seconds > 0.0) {
            return None;
        }
        let delta = &delta.0;
        let (reads, writes, discards) = (&delta.reads, &delta.writes, delta.discards.as_ref());
        let per_second = |count: u64| count as f64 / seconds;
        let mib = |op: &OpCounters| op.bytes() as f64 / MIB / seconds;
        let mut all = *reads;
        for op in [Some(writes), discards].into_iter().flatten() {
            all.add(op);
        }
        Some(Self {
            reads_per_second: per_second(reads.completed),
            writes_per_second: per_second(writes.completed),
            discards_per_second: discards.map(|op| per_second(op.completed)),
            flushes_per_second: delta.flushes.map(|flushes| per_second(flushes.completed)),
            read_mib_per_second: mib(reads),
            write_mib_per_second: mib(writes),
            discard_mib_per_second: discards.map(mib),
            reads_merged_per_second: per_second(reads.merged),
            writes_merged_per_second: per_second(writes.merged),
            reads_merged_percent: merged_percent(reads),
            writes_merged_percent: merged_percent(writes),
            read_request_kib: request_kib(reads),
            write_request_kib: request_kib(writes),
            request_kib: request_kib(&all),
            read_await_ms: await_ms(reads),
            write_await_ms: await_ms(writes),
            discard_await_ms: discards.and_then(await_ms),
            flush_await_ms: delta.flushes.and_then(|flushes| ratio(flushes.time_ms, flushes.completed)),
            await_ms: await_ms(&all),
            queue_depth: delta.weighted_ms as f64 / 1000.0 / seconds,
            utilisation_percent: delta.io_time_ms as f64 / 10.0 / seconds,
        })
    }

    /// Reads, writes and discards a second.
    pub fn operations_per_second(&self) -> f64 {
        self.reads_per_second + self.writes_per_second + self.discards_per_second.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceRates;
    use crate::diskstats::{Delta, parse};

    fn delta(before: &str, after: &str) -> Delta {
        let counters = |text: &str| parse(&format!("8 0 sda {text}")).unwrap()[0].counters;
        counters(after).since(&counters(before)).unwrap()
    }

    /// Worked out by hand from the definitions of `iostat -x`, two seconds apart.
    #[test]
    fn the_figures_of_iostat_come_out() {
        let before = "1000 100 80000 500 2000 200 160000 1500 0 7000 9000 10 0 1000 5 50 100";
        let after = "1100 125 88000 700 2300 500 236800 3300 2 8000 11500 14 0 9192 7 60 130";
        let rates = DeviceRates::of(&delta(before, after), 2.0).unwrap();
        let expected = DeviceRates {
            reads_per_second: 50.0,
            writes_per_second: 150.0,
            discards_per_second: Some(2.0),
            flushes_per_second: Some(5.0),
            read_mib_per_second: 1.953125,
            write_mib_per_second: 18.75,
            discard_mib_per_second: Some(2.0),
            reads_merged_per_second: 12.5,
            writes_merged_per_second: 150.0,
            reads_merged_percent: Some(20.0),
            writes_merged_percent: Some(50.0),
            read_request_kib: Some(40.0),
            write_request_kib: Some(128.0),
            request_kib: Some((8000.0 + 76800.0 + 8192.0) / 404.0 / 2.0),
            read_await_ms: Some(2.0),
            write_await_ms: Some(6.0),
            discard_await_ms: Some(0.5),
            flush_await_ms: Some(3.0),
            await_ms: Some((200.0 + 1800.0 + 2.0) / 404.0),
            queue_depth: 1.25,
            utilisation_percent: 50.0,
        };
        assert_eq!(rates, expected);
        assert_eq!(rates.operations_per_second(), 202.0);
    }

    #[test]
    fn an_idle_interval_has_no_latency_and_no_size() {
        let same = "1000 100 80000 500 2000 200 160000 1500 0 7000 9000 10 0 1000 5 50 100";
        let rates = DeviceRates::of(&delta(same, same), 1.0).unwrap();
        assert_eq!((rates.reads_per_second, rates.queue_depth, rates.utilisation_percent), (0.0, 0.0, 0.0));
        assert_eq!((rates.await_ms, rates.request_kib, rates.flush_await_ms), (None, None, None));
        assert_eq!(rates.writes_merged_percent, None);
    }

    #[test]
    fn what_an_old_kernel_does_not_count_is_absent() {
        let rates = DeviceRates::of(&delta("0 0 0 0 0 0 0 0 0 0 0", "1 0 8 1 0 0 0 0 0 1 1"), 1.0).unwrap();
        assert_eq!((rates.discards_per_second, rates.flushes_per_second), (None, None));
        assert_eq!(rates.await_ms, Some(1.0));
    }

    #[test]
    fn an_interval_without_length_has_no_rates() {
        for seconds in [0.0, -1.0, f64::NAN] {
            assert_eq!(DeviceRates::of(&Delta::default(), seconds), None);
        }
    }
}
