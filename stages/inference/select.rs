//! Which frames are inferred: every n-th frame, or a rate per stream on a grid in PTS. The same frames in every run.

use std::{collections::HashMap, num::NonZeroU32};

use contract::{Frame, pace::Selection, random::Random};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `select:` of the stage; at most one of `every`, `rate` and `total_rate`. Default: every frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Select {
    /// Every n-th frame of each stream.
    pub every: Option<NonZeroU32>,
    /// Images per second of each stream's own time.
    pub rate: Option<f64>,
    /// Images per second over all streams together; needs `streams`.
    pub total_rate: Option<f64>,
    /// How many streams share `total_rate`.
    pub streams: Option<NonZeroU32>,
}

impl Select {
    /// The rule, or what is wrong with the settings.
    pub fn rule(&self) -> Result<Rule, String> {
        let positive = |name: &str, rate: f64| {
            if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err(format!("`{name}` must be above 0, not {rate}")) }
        };
        match (self.every, self.rate, self.total_rate, self.streams) {
            (None, None, None, None) => Ok(Rule::Every(NonZeroU32::MIN)),
            (Some(every), None, None, None) => Ok(Rule::Every(every)),
            (None, Some(rate), None, None) => Ok(Rule::Rate(positive("rate", rate)?)),
            (None, None, Some(total), Some(streams)) => {
                Ok(Rule::Rate(positive("total_rate", total)? / f64::from(streams.get())))
            }
            (None, None, Some(_), None) => {
                Err("`total_rate` needs `streams`, the number of streams that share it".into())
            }
            (_, _, None, Some(_)) => Err("`streams` goes with `total_rate` only".into()),
            _ => Err("set one of `every`, `rate` and `total_rate`".into()),
        }
    }

    /// Images per second over all streams, where the settings alone say so.
    pub fn total_per_second(&self) -> Option<f64> {
        self.total_rate
    }
}

/// A checked selection rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    Every(NonZeroU32),
    /// Images per second of one stream.
    Rate(f64),
}

/// Decides frame by frame. Each stream's grid is shifted by a seeded share of its period, so that streams do not ask
/// for inference all at once.
#[derive(Debug)]
pub struct Selector {
    rule: Rule,
    seed: u64,
    streams: HashMap<u32, Stream>,
}

#[derive(Debug)]
struct Stream {
    grid: Option<Selection>,
    /// Added to seq before `every` divides it.
    shift: u64,
    last: Option<(u64, i64)>,
}

impl Selector {
    pub fn new(rule: Rule, seed: u64) -> Self {
        Self { rule, seed, streams: HashMap::new() }
    }

    /// Whether to infer this frame. Call it for every frame of a stream, in order.
    pub fn selects(&mut self, frame: &Frame) -> bool {
        let (rule, seed) = (self.rule, self.seed);
        let stream = self.streams.entry(frame.stream).or_insert_with(|| Stream::new(rule, seed, frame.stream));
        let media_ns = media_ns(frame);
        let before = match stream.last.replace((frame.seq, media_ns)) {
            Some((_, media_ns)) => Some(media_ns),
            None if frame.seq == 0 => None,
            // Another member read the beginning: take the stream's mean frame period for the one before.
            None => Some((i128::from(media_ns) * i128::from(frame.seq - 1) / i128::from(frame.seq)) as i64),
        };
        match (&stream.grid, rule) {
            (Some(grid), _) => grid.selects(before, media_ns),
            (None, Rule::Every(every)) => (frame.seq.wrapping_add(stream.shift)).is_multiple_of(u64::from(every.get())),
            (None, Rule::Rate(_)) => false,
        }
    }
}

impl Stream {
    fn new(rule: Rule, seed: u64, stream: u32) -> Self {
        match rule {
            Rule::Rate(rate) => Self { grid: Some(Selection::rate(rate, seed, stream)), shift: 0, last: None },
            Rule::Every(every) => {
                let shift = Random::named(seed, &format!("every/{stream}")).below(u64::from(every.get()));
                Self { grid: None, shift, last: None }
            }
        }
    }
}

/// PTS in nanoseconds of media time.
fn media_ns(frame: &Frame) -> i64 {
    let scaled = i128::from(frame.pts) * 1_000_000_000 * i128::from(frame.time_base.num);
    (scaled / i128::from(frame.time_base.den.max(1))) as i64
}

#[cfg(test)]
mod tests {
    use contract::{Rational, testing};

    use super::*;

    fn frame(stream: u32, seq: u64, fps: u32) -> Frame {
        let mut frame = testing::frame(seq, 0, bytes::Bytes::new());
        (frame.stream, frame.time_base) = (stream, Rational::new(1, fps));
        frame
    }

    fn picked(selector: &mut Selector, stream: u32, seqs: impl Iterator<Item = u64>) -> Vec<u64> {
        seqs.filter(|seq| selector.selects(&frame(stream, *seq, 24))).collect()
    }

    fn parse(json: serde_json::Value) -> Result<Rule, String> {
        serde_json::from_value::<Select>(json).map_err(|error| error.to_string()).and_then(|select| select.rule())
    }

    #[test]
    fn settings_are_checked() {
        use serde_json::json;
        assert_eq!(parse(json!({})), Ok(Rule::Every(NonZeroU32::MIN)));
        assert_eq!(parse(json!({ "rate": 2 })), Ok(Rule::Rate(2.0)));
        assert_eq!(parse(json!({ "total_rate": 5, "streams": 10 })), Ok(Rule::Rate(0.5)));
        for (wrong, word) in [
            (json!({ "every": 0 }), "nonzero"),
            (json!({ "rate": 0 }), "above 0"),
            (json!({ "total_rate": 5 }), "`streams`"),
            (json!({ "rate": 1, "streams": 5 }), "`total_rate`"),
            (json!({ "rate": 1, "every": 5 }), "one of"),
            (json!({ "rat": 1 }), "unknown field"),
        ] {
            let problem = parse(wrong.clone()).unwrap_err();
            assert!(problem.contains(word), "{wrong}: {problem}");
        }
    }

    #[test]
    fn every_nth_frame_is_taken_and_streams_are_staggered() {
        let mut selector = Selector::new(Rule::Every(NonZeroU32::new(8).unwrap()), 42);
        let mut firsts = std::collections::BTreeSet::new();
        for stream in 0..64 {
            let seqs = picked(&mut selector, stream, 0..80);
            assert_eq!(seqs.len(), 10);
            assert!(seqs.windows(2).all(|pair| pair[1] - pair[0] == 8));
            firsts.insert(seqs[0]);
        }
        assert_eq!(firsts.len(), 8, "every shift occurs");
    }

    #[test]
    fn a_rate_takes_that_many_frames_a_second_of_media_time() {
        let mut selector = Selector::new(Rule::Rate(2.0), 42);
        for stream in 0..20 {
            let seqs = picked(&mut selector, stream, 0..24 * 60);
            // The grid is shifted: its last point may lie behind the last frame.
            assert!((119..=120).contains(&seqs.len()), "stream {stream}: {}", seqs.len());
        }
        let mut again = Selector::new(Rule::Rate(2.0), 42);
        let mut other = Selector::new(Rule::Rate(2.0), 43);
        let first = picked(&mut Selector::new(Rule::Rate(2.0), 42), 3, 0..500);
        assert_eq!(first, picked(&mut again, 3, 0..500), "the same frames in every run");
        assert_ne!(first, picked(&mut other, 3, 0..500), "another seed, other frames");
    }

    #[test]
    fn a_member_that_takes_over_picks_the_frames_the_first_would_have() {
        let all = picked(&mut Selector::new(Rule::Rate(5.0), 1), 9, 0..1000);
        let late = picked(&mut Selector::new(Rule::Rate(5.0), 1), 9, 333..1000);
        assert_eq!(late, all.into_iter().filter(|seq| *seq >= 333).collect::<Vec<_>>());
    }

    #[test]
    fn a_missing_frame_is_replaced_by_the_next() {
        let all = picked(&mut Selector::new(Rule::Rate(5.0), 1), 9, 0..100);
        let lost = all[3];
        let rest = picked(&mut Selector::new(Rule::Rate(5.0), 1), 9, (0..100).filter(|seq| *seq != lost));
        let expected: Vec<u64> = all.iter().map(|seq| if *seq == lost { lost + 1 } else { *seq }).collect();
        assert_eq!(rest, expected);
    }
}
