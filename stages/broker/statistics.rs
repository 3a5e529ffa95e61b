//! What the client library's own statistics (one document a second) say, as gauges and as the `fetch` step.

use contract::Recorder;
use contract::latency::Step;
use contract::recorder::Gauge;
use rdkafka::Statistics;
use rdkafka::statistics::Window;

/// Mean over several rolling windows, weighted by their samples; `None` without a sample.
fn mean<'a>(windows: impl Iterator<Item = Option<&'a Window>>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for window in windows.flatten().filter(|window| window.cnt > 0) {
        sum += window.sum as f64;
        count += window.cnt as f64;
    }
    (count > 0.0).then(|| sum / count)
}

fn brokers(statistics: &Statistics, recorder: &Recorder) -> Option<f64> {
    let round_trip_us = mean(statistics.brokers.values().map(|broker| broker.rtt.as_ref()));
    if let Some(us) = round_trip_us {
        recorder.set(Gauge::BrokerRoundTripSeconds, us / 1e6);
    }
    if let Some(ms) = mean(statistics.brokers.values().map(|broker| broker.throttle.as_ref())) {
        recorder.set(Gauge::BrokerThrottleSeconds, ms / 1e3);
    }
    round_trip_us
}

pub(crate) fn of_producer(statistics: &Statistics, recorder: &Recorder) {
    brokers(statistics, recorder);
    if let Some(records) = mean(statistics.topics.values().map(|topic| Some(&topic.batchcnt))) {
        recorder.set(Gauge::BatchRecords, records);
    }
}

/// `now_ns` is run-relative; the mean round trip of this second is one sample of `fetch`.
pub(crate) fn of_consumer(statistics: &Statistics, recorder: &Recorder, now_ns: i64) {
    if let Some(us) = brokers(statistics, recorder) {
        recorder.step(Step::Fetch, now_ns, (us * 1e3) as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(cnt: i64, sum: i64) -> Window {
        Window { cnt, sum, ..Window::default() }
    }

    #[test]
    fn means_are_weighted_and_absent_without_samples() {
        let (a, b, empty) = (window(3, 30), window(1, 50), window(0, 0));
        assert_eq!(mean([Some(&a), Some(&b), Some(&empty), None].into_iter()), Some(20.0));
        assert_eq!(mean([Some(&empty), None].into_iter()), None);
    }
}
