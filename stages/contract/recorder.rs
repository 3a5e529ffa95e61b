//! What one process counts: counters, drops by reason, step histograms, positions, and the ledger. Cheap enough for every
//! frame; read each second as a `Delta`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::audit::{OrderAudit, Sight};
use crate::error::StageError;
use crate::flow::DropReason;
use crate::histogram::{HistogramText, NsHistogram};
use crate::latency::Step;
use crate::ledger::{Lane, Ledger, Mark};
use crate::phases::{Phases, Window};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Something counted; each is one row of the metric catalogue.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(usize)]
        pub enum Counter { $($(#[doc = $doc])+ $variant,)+ }

        impl Counter {
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)+];
            /// Name in deltas; the metric is `reelbench_<name>_total`.
            pub fn name(self) -> &'static str { match self { $(Counter::$variant => $name,)+ } }
            pub fn about(self) -> &'static str { match self { $(Counter::$variant => concat!($($doc, )+),)+ } }
        }
    };
}

counters! {
    /// Frames due so far by the schedule.
    Scheduled = "frames_scheduled",
    /// Frames offered to the output.
    Offered = "frames_offered",
    /// Frames offered that are due in main.
    OfferedMain = "frames_offered_main",
    /// Payload bytes offered.
    OfferedBytes = "frames_offered_bytes",
    /// Frames with a positive delivery report.
    Acked = "frames_acked",
    /// Payload bytes with a positive delivery report.
    AckedBytes = "frames_acked_bytes",
    /// Frames with a negative delivery report.
    DeliveryFailed = "frames_delivery_failed",
    /// Frames given up before the broker, by policy.
    Dropped = "frames_dropped",
    /// Frames given up before the broker that were due in main.
    DroppedMain = "frames_dropped_main",
    /// Frames whose self-lag exceeded a quarter of the deadline, due in main.
    SelfLagOver = "frames_self_lag_over",
    /// Frames handed to a consuming stage for the first time.
    Delivered = "frames_delivered",
    /// Payload bytes handed to a consuming stage for the first time.
    DeliveredBytes = "frames_delivered_bytes",
    /// Offsets read again.
    Redelivered = "frames_redelivered",
    /// Frames found at more than one offset.
    Duplicates = "frames_duplicate",
    /// Frames behind a later one of their stream, in offset order.
    Reordered = "frames_reordered",
    /// Frames whose payload does not have the CRC it was written with.
    Corrupt = "frames_corrupt",
    /// Records of another run, or not ours.
    Foreign = "frames_foreign",
    /// Frames whose last step is done.
    Done = "frames_done",
    /// Frames due in main whose last step is done.
    DoneMain = "frames_done_main",
    /// Frames due in main whose last step was done after due + deadline.
    Late = "frames_late",
    /// Frames inferred.
    Inferred = "frames_inferred",
    /// Frames that the selection left out.
    NotSelected = "frames_not_selected",
    /// Frames given up by the inference stage.
    InferDropped = "frames_inference_dropped",
    /// Frames whose inference failed.
    InferFailed = "frames_inference_failed",
    /// Frames decoded.
    Decoded = "frames_decoded",
    /// Frames or packets that could not be decoded.
    DecodeErrors = "decode_errors",
    /// Offset commits made.
    Commits = "commits",
    /// Offset commits refused.
    CommitErrors = "commit_errors",
    /// Latency chains whose steps did not sum to end - due; must stay 0.
    ChainBroken = "latency_chains_broken",
}

macro_rules! gauges {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// A value that goes up and down.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(usize)]
        pub enum Gauge { $($(#[doc = $doc])+ $variant,)+ }

        impl Gauge {
            pub const ALL: &'static [Gauge] = &[$(Gauge::$variant,)+];
            /// Name in deltas; the metric is `reelbench_<name>`.
            pub fn name(self) -> &'static str { match self { $(Gauge::$variant => $name,)+ } }
            pub fn about(self) -> &'static str { match self { $(Gauge::$variant => concat!($($doc, )+),)+ } }
        }
    };
}

gauges! {
    /// Records behind the end of the assigned partitions.
    LagFrames = "lag_frames",
    /// Age of the newest frame handed over, by its due time.
    LagSeconds = "lag_seconds",
    /// Payload bytes accepted and not yet acknowledged.
    QueueBytes = "publish_queue_bytes",
    /// Frames accepted and not yet acknowledged.
    QueueFrames = "publish_queue_frames",
    /// Client statistics: mean round trip to the broker.
    BrokerRoundTripSeconds = "broker_round_trip_seconds",
    /// Client statistics: time the broker throttled the client.
    BrokerThrottleSeconds = "broker_throttle_seconds",
    /// Client statistics: mean records in a batch.
    BatchRecords = "publish_batch_records",
}

/// How a frame ended in a consuming stage; each frame in exactly one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// Read back by an audit.
    Audited = 0,
    Inferred = 1,
    /// Left out by the selection; being handed over was its last step.
    NotSelected = 2,
    /// Given up by the stage.
    Dropped = 3,
    /// The work on it failed.
    Failed = 4,
    /// Not worked on, because its payload is not what was written.
    Corrupt = 5,
}

impl Outcome {
    fn counter(self) -> Option<Counter> {
        match self {
            Outcome::Inferred => Some(Counter::Inferred),
            Outcome::NotSelected => Some(Counter::NotSelected),
            Outcome::Dropped => Some(Counter::InferDropped),
            Outcome::Failed => Some(Counter::InferFailed),
            // Corrupt frames are counted when they are seen.
            Outcome::Audited | Outcome::Corrupt => None,
        }
    }

    /// Whether there was a last step that can be late.
    fn has_last_step(self) -> bool {
        matches!(self, Outcome::Audited | Outcome::Inferred | Outcome::NotSelected)
    }
}

/// One frame as the recorder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRef {
    /// Index in `Recorder::topics`.
    pub topic: u16,
    pub stream: u32,
    pub seq: u64,
    pub due_ns: i64,
    pub bytes: u64,
}

/// The books of one process. Cheap to clone; all clones share them.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

struct Shared {
    topics: Vec<String>,
    ledger: Option<Ledger>,
    phases: Phases,
    deadline_ns: i64,
    counters: Vec<AtomicU64>,
    gauges: Vec<AtomicU64>,
    steps: Vec<[Mutex<NsHistogram>; 2]>,
    drops: Mutex<BTreeMap<(String, String), u64>>,
    reasons: Mutex<BTreeMap<String, u64>>,
    order: Mutex<OrderAudit>,
    positions: Mutex<BTreeMap<(u16, i32), i64>>,
    facts: Mutex<BTreeMap<String, serde_json::Value>>,
    failure: Mutex<Option<StageError>>,
}

/// A NaN marks a gauge never set: missing is blank, not 0.
const UNSET: u64 = f64::NAN.to_bits();

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// `topics` are all topics of the scenario in its order; `ledger` is absent only where nothing is audited.
    pub fn new(topics: Vec<String>, ledger: Option<Ledger>, phases: Phases, deadline_ns: i64) -> Self {
        Recorder(Arc::new(Shared {
            topics,
            ledger,
            phases,
            deadline_ns,
            counters: Counter::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            gauges: Gauge::ALL.iter().map(|_| AtomicU64::new(UNSET)).collect(),
            steps: Step::ALL.iter().map(|_| Default::default()).collect(),
            drops: Mutex::default(),
            reasons: Mutex::default(),
            order: Mutex::default(),
            positions: Mutex::default(),
            facts: Mutex::default(),
            failure: Mutex::default(),
        }))
    }

    pub fn topics(&self) -> &[String] {
        &self.0.topics
    }

    pub fn topic_index(&self, name: &str) -> Option<u16> {
        self.0.topics.iter().position(|topic| topic == name).map(|index| index as u16)
    }

    pub fn add(&self, counter: Counter, n: u64) {
        self.0.counters[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    pub fn get(&self, counter: Counter) -> u64 {
        self.0.counters[counter as usize].load(Ordering::Relaxed)
    }

    pub fn set(&self, gauge: Gauge, value: f64) {
        self.0.gauges[gauge as usize].store(value.to_bits(), Ordering::Relaxed);
    }

    pub fn gauge(&self, gauge: Gauge) -> Option<f64> {
        Some(f64::from_bits(self.0.gauges[gauge as usize].load(Ordering::Relaxed))).filter(|value| !value.is_nan())
    }

    /// Counts something with a reason, such as a decode error, beside its counter.
    pub fn reason(&self, counter: Counter, reason: &str) {
        self.add(counter, 1);
        self.because(counter, reason);
    }

    /// A fact of this stage for the record: decode mode, weights, client settings.
    pub fn fact(&self, name: &str, value: impl Into<serde_json::Value>) {
        lock(&self.0.facts).insert(name.to_owned(), value.into());
    }

    /// Samples of one step, filed by the phase the frame was due in.
    pub fn step(&self, step: Step, due_ns: i64, ns: i64) {
        let window = match self.0.phases.window(due_ns) {
            Window::Main => 0,
            Window::Outside => 1,
        };
        lock(&self.0.steps[step as usize][window]).record(ns);
    }

    pub fn chain_checked(&self, exact: bool) {
        if !exact {
            self.add(Counter::ChainBroken, 1);
        }
    }

    fn mark(&self, mark: Mark, reason: u8, topic: u16, lane: u32, seq: u64) -> bool {
        let Some(ledger) = &self.0.ledger else { return true };
        match ledger.mark(Lane { mark, reason, topic, lane }, seq) {
            Ok(new) => new,
            Err(error) => {
                self.fail(StageError::storage(ledger.path().display().to_string(), error.to_string()));
                true
            }
        }
    }

    /// Keeps the first failure of a background part; the stage's host ends the stage on it.
    pub fn fail(&self, error: StageError) {
        lock(&self.0.failure).get_or_insert(error);
    }

    pub fn failure(&self) -> Option<StageError> {
        lock(&self.0.failure).clone()
    }

    fn in_main(&self, due_ns: i64) -> bool {
        self.0.phases.window(due_ns) == Window::Main
    }

    /// Notes a frame as offered; call before it is sent. `self_lag_ns` is the generator's own lateness.
    pub fn offered(&self, frame: FrameRef, self_lag_ns: i64) {
        if !self.mark(Mark::Offered, 0, frame.topic, frame.stream, frame.seq) {
            return;
        }
        self.add(Counter::Offered, 1);
        self.add(Counter::OfferedBytes, frame.bytes);
        if self.in_main(frame.due_ns) {
            self.add(Counter::OfferedMain, 1);
            if self_lag_ns > self.0.deadline_ns / 4 {
                self.add(Counter::SelfLagOver, 1);
            }
        }
    }

    /// A positive delivery report; `at_ns` ends `ack`.
    pub fn acked(&self, frame: FrameRef, at_ns: i64) {
        if self.mark(Mark::Acked, 0, frame.topic, frame.stream, frame.seq) {
            self.add(Counter::Acked, 1);
            self.add(Counter::AckedBytes, frame.bytes);
        }
        self.step(Step::Ack, frame.due_ns, at_ns - frame.due_ns);
    }

    /// A negative delivery report.
    pub fn delivery_failed(&self, frame: FrameRef, reason: &str) {
        self.mark(Mark::Failed, 0, frame.topic, frame.stream, frame.seq);
        self.reason(Counter::DeliveryFailed, reason);
    }

    /// A frame given up before the broker.
    pub fn dropped(&self, frame: FrameRef, stage: &str, reason: DropReason) {
        if self.mark(Mark::Dropped, reason as u8, frame.topic, frame.stream, frame.seq) {
            self.add(Counter::Dropped, 1);
            if self.in_main(frame.due_ns) {
                self.add(Counter::DroppedMain, 1);
            }
            *lock(&self.0.drops).entry((stage.to_owned(), reason.name().to_owned())).or_default() += 1;
        }
    }

    /// Notes an offset and its frame as seen, before anything is committed, and says what the record is. `handed_ns` is the
    /// moment it goes to the stage.
    pub fn seen(&self, partition: i32, offset: i64, frame: FrameRef, intact: bool, handed_ns: i64) -> Sight {
        let new_offset = self.mark(Mark::Read, 0, frame.topic, partition as u32, offset as u64);
        let new_seq = new_offset && self.mark(Mark::Seen, 0, frame.topic, frame.stream, frame.seq);
        let sight = lock(&self.0.order).observe(frame.topic, frame.stream, frame.seq, new_offset, new_seq);
        match sight {
            Sight::Redelivered => self.add(Counter::Redelivered, 1),
            Sight::Duplicate => self.add(Counter::Duplicates, 1),
            Sight::First { reordered } => {
                self.add(Counter::Delivered, 1);
                self.add(Counter::DeliveredBytes, frame.bytes);
                self.add(Counter::Reordered, u64::from(reordered));
                self.add(Counter::Corrupt, u64::from(!intact));
                self.step(Step::Handed, frame.due_ns, handed_ns - frame.due_ns);
            }
        }
        sight
    }

    /// A record that is not of this run.
    pub fn foreign(&self, topic: u16, partition: i32, offset: i64) {
        if self.mark(Mark::Read, 0, topic, partition as u32, offset as u64) {
            self.add(Counter::Foreign, 1);
        }
    }

    /// A frame handed to this stage has ended at `end_ns`. The ledger keeps how, so that it is known after a kill.
    pub fn done(&self, frame: FrameRef, outcome: Outcome, end_ns: i64) {
        if !self.mark(Mark::Done, outcome as u8, frame.topic, frame.stream, frame.seq) {
            return;
        }
        if let Some(counter) = outcome.counter() {
            self.add(counter, 1);
        }
        if !outcome.has_last_step() {
            return;
        }
        self.add(Counter::Done, 1);
        if self.in_main(frame.due_ns) {
            self.add(Counter::DoneMain, 1);
            if end_ns > frame.due_ns + self.0.deadline_ns {
                self.add(Counter::Late, 1);
            }
        }
    }

    /// Counts why something ended that is already counted, such as a failed inference.
    pub fn because(&self, counter: Counter, reason: &str) {
        *lock(&self.0.reasons).entry(format!("{}: {reason}", counter.name())).or_default() += 1;
    }

    /// The next offset to be read of a partition.
    pub fn position(&self, topic: u16, partition: i32, next_offset: i64) {
        lock(&self.0.positions).insert((topic, partition), next_offset);
    }

    /// Everything so far, cumulative; `n` is the caller's running number.
    pub fn delta(&self, n: u64, run_ns: i64) -> Delta {
        let steps = Step::ALL.iter().filter_map(|step| {
            let [main, outside] = &self.0.steps[*step as usize];
            let text = |histogram: &Mutex<NsHistogram>| {
                let histogram = lock(histogram);
                (histogram.count() > 0).then(|| histogram.to_text())
            };
            let pair = StepText { main: text(main), outside: text(outside) };
            (pair.main.is_some() || pair.outside.is_some()).then_some((*step, pair))
        });
        let mut positions: BTreeMap<String, BTreeMap<i32, i64>> = BTreeMap::new();
        for ((topic, partition), next) in lock(&self.0.positions).iter() {
            let name = self.0.topics.get(usize::from(*topic)).cloned().unwrap_or_default();
            positions.entry(name).or_default().insert(*partition, *next);
        }
        Delta {
            n,
            mono_ns: crate::clock::mono_ns(),
            run_ns,
            counters: Counter::ALL
                .iter()
                .map(|c| (c.name().to_owned(), self.get(*c)))
                .filter(|(_, n)| *n > 0)
                .collect(),
            gauges: Gauge::ALL.iter().filter_map(|g| self.gauge(*g).map(|v| (g.name().to_owned(), v))).collect(),
            drops: lock(&self.0.drops)
                .iter()
                .map(|((stage, reason), count)| DropCount {
                    stage: stage.clone(),
                    reason: reason.clone(),
                    count: *count,
                })
                .collect(),
            reasons: lock(&self.0.reasons).clone(),
            steps: steps.collect(),
            positions,
            facts: lock(&self.0.facts).clone(),
        }
    }

    /// The ledger's sets; empty without a ledger.
    pub fn ledger_sets(&self) -> Result<crate::ledger::LedgerSets, crate::ledger::LedgerError> {
        self.0.ledger.as_ref().map_or_else(|| Ok(Default::default()), Ledger::sets)
    }
}

/// Frames given up, by the step and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DropCount {
    pub stage: String,
    pub reason: String,
    pub count: u64,
}

/// Histograms of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepText {
    pub main: Option<HistogramText>,
    pub outside: Option<HistogramText>,
}

/// The books of one process at one moment; all figures are cumulative, so that a lost delta loses nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    pub n: u64,
    pub mono_ns: i64,
    pub run_ns: i64,
    pub counters: BTreeMap<String, u64>,
    pub gauges: BTreeMap<String, f64>,
    pub drops: Vec<DropCount>,
    /// Counts by "counter: reason".
    pub reasons: BTreeMap<String, u64>,
    pub steps: BTreeMap<Step, StepText>,
    /// Next offset by topic and partition.
    pub positions: BTreeMap<String, BTreeMap<i32, i64>>,
    pub facts: BTreeMap<String, serde_json::Value>,
}

impl Delta {
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter.name()).copied().unwrap_or(0)
    }
    pub fn gauge(&self, gauge: Gauge) -> Option<f64> {
        self.gauges.get(gauge.name()).copied()
    }
    /// Histogram of a step over frames due in main; empty without samples or when the text does not decode.
    pub fn main_histogram(&self, step: Step) -> NsHistogram {
        let text = self.steps.get(&step).and_then(|pair| pair.main.as_ref());
        text.and_then(|text| NsHistogram::from_text(text).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phases::Phase;

    fn frame(seq: u64, due_ns: i64) -> FrameRef {
        FrameRef { topic: 0, stream: 1, seq, due_ns, bytes: 10 }
    }

    fn recorder() -> (tempfile::TempDir, Recorder) {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::create(&folder.path().join("ledger"), &["frames".into()]).unwrap();
        let phases = Phases::default();
        phases.announce(Phase::Main, 100);
        phases.announce(Phase::Drain, 200);
        (folder, Recorder::new(vec!["frames".into()], Some(ledger), phases, 40))
    }

    #[test]
    fn lateness_counts_only_frames_due_in_main() {
        let (_folder, recorder) = recorder();
        for (seq, due, end) in [(0, 50, 500), (1, 100, 141), (2, 150, 190), (3, 199, 400), (4, 200, 900)] {
            recorder.done(frame(seq, due), Outcome::Audited, end);
        }
        let count = |counter| recorder.get(counter);
        assert_eq!((count(Counter::Done), count(Counter::DoneMain), count(Counter::Late)), (5, 3, 2));
    }

    #[test]
    fn the_ledger_tells_how_each_frame_ended() {
        let (_folder, recorder) = recorder();
        let outcomes = [Outcome::Inferred, Outcome::Inferred, Outcome::NotSelected, Outcome::Failed, Outcome::Dropped];
        for (seq, outcome) in outcomes.into_iter().enumerate() {
            recorder.done(frame(seq as u64, 150), outcome, 400);
        }
        let sets = recorder.ledger_sets().unwrap();
        let ended = |outcome: Outcome| sets.count_reason(Mark::Done, outcome as u8, "frames");
        assert_eq!((ended(Outcome::Inferred), ended(Outcome::NotSelected), ended(Outcome::Failed)), (2, 1, 1));
        assert_eq!((recorder.get(Counter::InferDropped), recorder.get(Counter::Late)), (1, 3));
    }

    #[test]
    fn a_frame_offered_twice_counts_once_and_sights_are_sorted() {
        let (_folder, recorder) = recorder();
        recorder.offered(frame(0, 150), 11);
        recorder.offered(frame(0, 150), 11);
        assert_eq!((recorder.get(Counter::Offered), recorder.get(Counter::SelfLagOver)), (1, 1));
        assert_eq!(recorder.seen(0, 0, frame(0, 150), true, 160), Sight::First { reordered: false });
        assert_eq!(recorder.seen(0, 0, frame(0, 150), true, 161), Sight::Redelivered);
        assert_eq!(recorder.seen(0, 1, frame(0, 150), true, 162), Sight::Duplicate);
        recorder.foreign(0, 0, 2);
        let delta = recorder.delta(1, 170);
        let expected =
            [(Counter::Delivered, 1), (Counter::Redelivered, 1), (Counter::Duplicates, 1), (Counter::Foreign, 1)];
        for (counter, n) in expected {
            assert_eq!(delta.counter(counter), n, "{counter:?}");
        }
        assert_eq!(delta.main_histogram(Step::Handed).count(), 1);
    }

    #[test]
    fn a_gauge_never_set_is_absent() {
        let (_folder, recorder) = recorder();
        assert!(recorder.delta(0, 0).gauges.is_empty());
        recorder.set(Gauge::LagFrames, 0.0);
        assert_eq!(recorder.delta(0, 0).gauge(Gauge::LagFrames), Some(0.0));
    }
}
