//! The latency chain of one frame. It telescopes over time stamps, so that the parts sum to `end - due` exactly.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flow::Delivery;
use crate::frame::Frame;
use crate::recorder::Recorder;

/// A timed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Due until the previous blocked enqueue of the stream returned; 0 without one.
    Blocked,
    /// The generator's own lateness.
    SelfLag,
    /// Offered until accepted.
    Enqueue,
    /// Accepted until handed to the consuming stage.
    BrokerWait,
    Preprocess,
    BatchWait,
    Infer,
    /// Due until the last step of the consuming stage; the sum of the steps above.
    EndToEnd,
    /// Due until handed to the consuming stage, for every frame, selected or not.
    Handed,
    /// Work of decoding one frame; beside the chain.
    Decode,
    /// Work of converting and encoding one frame; beside the chain.
    Encode,
    /// Due until acknowledged; beside the chain.
    Ack,
    /// Round trip of fetch requests, from the client's statistics; beside the chain.
    Fetch,
}

impl Step {
    pub const ALL: [Step; 13] = [
        Step::Blocked,
        Step::SelfLag,
        Step::Enqueue,
        Step::BrokerWait,
        Step::Preprocess,
        Step::BatchWait,
        Step::Infer,
        Step::EndToEnd,
        Step::Handed,
        Step::Decode,
        Step::Encode,
        Step::Ack,
        Step::Fetch,
    ];
    /// The steps that sum to `EndToEnd`.
    pub const CHAIN: [Step; 7] =
        [Step::Blocked, Step::SelfLag, Step::Enqueue, Step::BrokerWait, Step::Preprocess, Step::BatchWait, Step::Infer];

    pub fn name(self) -> &'static str {
        match self {
            Step::Blocked => "blocked",
            Step::SelfLag => "self_lag",
            Step::Enqueue => "enqueue",
            Step::BrokerWait => "broker_wait",
            Step::Preprocess => "preprocess",
            Step::BatchWait => "batch_wait",
            Step::Infer => "infer",
            Step::EndToEnd => "end_to_end",
            Step::Handed => "handed",
            Step::Decode => "decode",
            Step::Encode => "encode",
            Step::Ack => "ack",
            Step::Fetch => "fetch",
        }
    }
}

/// The stamps of one frame in its consuming stage. A stage without a step leaves its stamp equal to the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    pub due_ns: i64,
    pub blocked_ns: i64,
    pub self_lag_ns: i64,
    pub enqueue_ns: i64,
    pub produced_ns: i64,
    pub handed_ns: i64,
    pub preprocessed_ns: i64,
    pub batched_ns: i64,
    pub end_ns: i64,
}

impl Chain {
    /// Begins at the moment a frame was handed to the stage.
    pub fn of(delivery: &Delivery) -> Self {
        Chain::begin(&delivery.frame, delivery.handed_ns)
    }

    pub fn begin(frame: &Frame, handed_ns: i64) -> Self {
        Chain {
            due_ns: frame.due_ns,
            blocked_ns: frame.origin.blocked_ns,
            self_lag_ns: frame.origin.self_lag_ns,
            enqueue_ns: frame.origin.enqueue_ns,
            produced_ns: frame.produced_ns,
            handed_ns,
            preprocessed_ns: handed_ns,
            batched_ns: handed_ns,
            end_ns: handed_ns,
        }
    }

    /// The steps in the order of `Step::CHAIN`.
    pub fn steps_ns(&self) -> [i64; 7] {
        [
            self.blocked_ns,
            self.self_lag_ns,
            self.enqueue_ns,
            self.handed_ns - self.produced_ns,
            self.preprocessed_ns - self.handed_ns,
            self.batched_ns - self.preprocessed_ns,
            self.end_ns - self.batched_ns,
        ]
    }

    pub fn end_to_end_ns(&self) -> i64 {
        self.end_ns - self.due_ns
    }

    /// Whether the steps sum to `end - due`; a producer that stamps wrongly is seen here.
    pub fn is_exact(&self) -> bool {
        self.steps_ns().iter().sum::<i64>() == self.end_to_end_ns()
    }

    /// Records every step of the chain and its sum.
    pub fn record(&self, recorder: &Recorder) {
        for (step, ns) in Step::CHAIN.into_iter().zip(self.steps_ns()) {
            recorder.step(step, self.due_ns, ns);
        }
        recorder.step(Step::EndToEnd, self.due_ns, self.end_to_end_ns());
        recorder.chain_checked(self.is_exact());
    }
}
