//! Nanosecond histograms: all samples, serialised and merged, never averages of percentiles. Negative values (clock error) are
//! kept in a histogram of their own, not clamped.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest value kept exactly: 1 hour. A longer one counts at this bound.
const MAX_NS: u64 = 3_600_000_000_000;
/// Three digits: 0.1 % resolution over the whole range.
const DIGITS: u8 = 3;

/// Samples needed before a percentile is printed (99 % confidence, no sample over the limit).
pub const MIN_SAMPLES: [(f64, u64); 4] = [(0.5, 2), (0.9, 44), (0.99, 459), (0.999, 4_603)];

/// A histogram of signed nanoseconds.
#[derive(Clone, Debug)]
pub struct NsHistogram {
    positive: Histogram<u64>,
    negative: Option<Histogram<u64>>,
    min_ns: i64,
    max_ns: i64,
    sum_ns: i128,
}

impl Default for NsHistogram {
    fn default() -> Self {
        NsHistogram { positive: new_histogram(), negative: None, min_ns: i64::MAX, max_ns: i64::MIN, sum_ns: 0 }
    }
}

fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_NS, DIGITS).expect("the bounds and digits are constants the crate accepts")
}

impl NsHistogram {
    pub fn record(&mut self, ns: i64) {
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += i128::from(ns);
        if ns >= 0 {
            self.positive.saturating_record(ns.unsigned_abs());
        } else {
            self.negative.get_or_insert_with(new_histogram).saturating_record(ns.unsigned_abs());
        }
    }

    pub fn count(&self) -> u64 {
        self.positive.len() + self.negative_count()
    }

    pub fn negative_count(&self) -> u64 {
        self.negative.as_ref().map_or(0, Histogram::len)
    }

    pub fn merge(&mut self, other: &NsHistogram) {
        self.positive.add(&other.positive).expect("all histograms have the same bounds");
        if let Some(theirs) = &other.negative {
            let ours = self.negative.get_or_insert_with(new_histogram);
            ours.add(theirs).expect("all histograms have the same bounds");
        }
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }

    /// The samples recorded since `earlier`, a former state of this histogram; minimum and maximum are then those of the
    /// whole. Used for rolling percentiles.
    pub fn since(&self, earlier: &NsHistogram) -> NsHistogram {
        let mut newer = self.clone();
        // A subtraction fails only when `earlier` is not a former state; then everything is new.
        if newer.positive.subtract(&earlier.positive).is_err() {
            return self.clone();
        }
        newer.sum_ns -= earlier.sum_ns;
        newer
    }

    /// The value at a quantile, negative ones included; `None` without samples.
    pub fn quantile(&self, quantile: f64) -> Option<i64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((quantile * count as f64).ceil() as u64).clamp(1, count);
        let negatives = self.negative_count();
        let value = match &self.negative {
            // The smallest value is the largest magnitude.
            Some(negative) if rank <= negatives => -(value_at_rank(negative, negatives - rank + 1) as i64),
            _ => value_at_rank(&self.positive, rank - negatives) as i64,
        };
        Some(value.clamp(self.min_ns, self.max_ns))
    }

    pub fn stats(&self) -> LatencyStats {
        let count = self.count();
        let enough =
            |index: usize| (count >= MIN_SAMPLES[index].1).then(|| self.quantile(MIN_SAMPLES[index].0)).flatten();
        let some = |value: i64| (count > 0).then_some(value);
        LatencyStats {
            count,
            negative_count: self.negative_count(),
            mean: (count > 0).then(|| (self.sum_ns as f64) / count as f64),
            min: some(self.min_ns),
            max: some(self.max_ns),
            p50: enough(0),
            p90: enough(1),
            p99: enough(2),
            p99_9: enough(3),
        }
    }

    pub fn to_text(&self) -> HistogramText {
        HistogramText {
            positive: encode(&self.positive),
            negative: self.negative.as_ref().map(encode),
            min_ns: self.min_ns,
            max_ns: self.max_ns,
            sum_ns: self.sum_ns.to_string(),
        }
    }

    pub fn from_text(text: &HistogramText) -> Result<Self, String> {
        Ok(NsHistogram {
            positive: decode(&text.positive)?,
            negative: text.negative.as_deref().map(decode).transpose()?,
            min_ns: text.min_ns,
            max_ns: text.max_ns,
            sum_ns: text.sum_ns.parse().map_err(|error| format!("sum_ns: {error}"))?,
        })
    }

    /// (upper bound in ns, samples) of each non-empty bucket of the non-negative part, for plots.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        self.positive.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
    }
}

/// Half a rank is taken off, so that rounding of the quotient cannot move to the next sample.
fn value_at_rank(histogram: &Histogram<u64>, rank: u64) -> u64 {
    histogram.value_at_quantile((rank as f64 - 0.5) / histogram.len() as f64)
}

fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).expect("writing into memory does not fail");
    BASE64.encode(bytes)
}

fn decode(text: &str) -> Result<Histogram<u64>, String> {
    let bytes = BASE64.decode(text).map_err(|error| format!("histogram is not base64: {error}"))?;
    let histogram: Histogram<u64> = Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| format!("histogram does not decode: {error:?}"))?;
    let mut own = new_histogram();
    own.add(&histogram).map_err(|error| format!("histogram has other bounds: {error:?}"))?;
    Ok(own)
}

/// A histogram as text (HdrHistogram V2, base64), with exact minimum, maximum and sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistogramText {
    pub positive: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub negative: Option<String>,
    pub min_ns: i64,
    pub max_ns: i64,
    /// Decimal text: it may exceed 64 bits.
    pub sum_ns: String,
}

/// A latency distribution in nanoseconds. A percentile with too few samples is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatencyStats {
    pub count: u64,
    /// Samples below zero: clock error between hosts, shown and never clamped.
    #[serde(default)]
    pub negative_count: u64,
    pub mean: Option<f64>,
    pub min: Option<i64>,
    pub max: Option<i64>,
    pub p50: Option<i64>,
    pub p90: Option<i64>,
    pub p99: Option<i64>,
    pub p99_9: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_without_enough_samples_are_blank() {
        let mut histogram = NsHistogram::default();
        assert_eq!(histogram.stats().mean, None);
        (0..458).for_each(|ns| histogram.record(ns));
        assert_eq!((histogram.stats().p99, histogram.stats().p90.is_some()), (None, true));
        histogram.record(458);
        assert!(histogram.stats().p99.is_some());
    }

    #[test]
    fn negative_values_are_kept() {
        let mut histogram = NsHistogram::default();
        [-5, -3, 10, 20].into_iter().for_each(|ns| histogram.record(ns));
        let stats = histogram.stats();
        assert_eq!((stats.min, stats.max, stats.negative_count, stats.mean), (Some(-5), Some(20), 2, Some(5.5)));
        assert_eq!(histogram.quantile(0.25), Some(-5));
        assert_eq!(histogram.quantile(0.5), Some(-3));
        assert_eq!(histogram.quantile(1.0), Some(20));
    }

    proptest! {
        #[test]
        fn quantiles_are_within_a_tenth_of_a_percent_of_the_sorted_list(
            mut values in proptest::collection::vec(-10_000_000_000i64..10_000_000_000, 1..400), percent in 1u32..=100
        ) {
            let mut histogram = NsHistogram::default();
            values.iter().for_each(|ns| histogram.record(*ns));
            values.sort_unstable();
            let q = f64::from(percent) / 100.0;
            let exact = values[((q * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1];
            let found = histogram.quantile(q).unwrap();
            prop_assert!((found - exact).abs() <= exact.abs() / 500 + 1, "{} for {}", found, exact);
        }

        #[test]
        fn merging_texts_equals_recording_together(
            a in proptest::collection::vec(-1000i64..1_000_000, 0..50), b in proptest::collection::vec(0i64..1_000_000, 0..50)
        ) {
            let (mut x, mut y, mut both) = (NsHistogram::default(), NsHistogram::default(), NsHistogram::default());
            a.iter().for_each(|ns| { x.record(*ns); both.record(*ns); });
            b.iter().for_each(|ns| { y.record(*ns); both.record(*ns); });
            let mut merged = NsHistogram::from_text(&x.to_text()).unwrap();
            merged.merge(&NsHistogram::from_text(&y.to_text()).unwrap());
            prop_assert_eq!(merged.stats(), both.stats());
        }
    }
}
