//! How a stage takes in and gives out frames without knowing Kafka: `Input` and `Output`, implemented by stages/broker, by
//! channels in tests, and handed in by the app.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::StageError;
use crate::frame::Frame;
use crate::stage::Cx;
use crate::units::{ByteSize, Span};

/// Why a frame was given up before the broker had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum DropReason {
    /// Policy `drop-new`: the queue was full.
    DropNew = 1,
    /// Policy `drop-old`: pushed out by a newer frame.
    DropOld = 2,
    /// Policy `deadline`: too old to be of use.
    Deadline = 3,
    /// Larger than the size chain allows.
    TooLarge = 4,
}

impl DropReason {
    pub const ALL: [DropReason; 4] =
        [DropReason::DropNew, DropReason::DropOld, DropReason::Deadline, DropReason::TooLarge];

    pub fn name(self) -> &'static str {
        match self {
            DropReason::DropNew => "drop-new",
            DropReason::DropOld => "drop-old",
            DropReason::Deadline => "deadline",
            DropReason::TooLarge => "too-large",
        }
    }
}

/// What became of an offered frame.
#[derive(Debug)]
pub enum Offer {
    /// Taken; `at_ns` is the run-relative moment, also stamped as `produced_ns`.
    Accepted { at_ns: i64 },
    /// Given up by policy, already counted.
    Dropped(DropReason),
    /// No room (policy `block`): offer the same frame again later.
    Full(Box<Frame>),
}

/// Where a stage's frames go. Never blocks, so that one partition without room does not delay other streams.
pub trait Output: Send + Sync {
    /// Offers a frame. On the first offer the output marks it offered in the ledger (before it is sent) and counts it; the
    /// caller has set `origin.blocked_ns` and `origin.self_lag_ns`, the output sets `origin.enqueue_ns` and `produced_ns`.
    /// `offered_ns` is the moment of the first offer of this frame.
    fn try_offer(&self, frame: Frame, offered_ns: i64) -> Offer;

    /// Waits until there may be room again, at most `wait`.
    fn wait_for_room(&self, wait: Duration);

    /// Index of the topic in `Recorder::topics` that a stream's frames go to.
    fn topic_of(&self, stream: u32) -> u16;

    /// Waits until every accepted frame has a delivery report, or until `deadline_ns` (run-relative). True when none is left.
    fn flush(&self, deadline_ns: i64) -> bool;
}

/// What an input item is completed by: its place in the topic. A consumer commits only the contiguous completed prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// Index of the topic in `Recorder::topics`.
    pub topic: u16,
    pub partition: i32,
    pub offset: i64,
}

/// One frame handed to a stage.
#[derive(Debug)]
pub struct Delivery {
    pub frame: Frame,
    pub receipt: Receipt,
    /// When it was handed to the stage (run-relative); ends `broker_wait`.
    pub handed_ns: i64,
}

/// What an input has to say.
#[derive(Debug)]
pub enum Next {
    Item(Box<Delivery>),
    /// Nothing within the wait.
    Idle,
    /// Every assigned partition was read to its drain target, or shutdown: no more will come.
    Closed,
}

/// Where a stage's frames come from. Corrupt, foreign, redelivered and duplicate records are counted by the input and are not
/// handed over twice.
pub trait Input: Send {
    fn next(&mut self, wait: Duration) -> Result<Next, StageError>;

    /// A handle that completes receipts from other threads.
    fn completer(&self) -> Arc<dyn Complete>;

    /// Commits what is complete and leaves the group.
    fn close(self: Box<Self>) -> Result<(), StageError>;
}

/// Takes back receipts once the work on an item is done.
pub trait Complete: Send + Sync {
    fn complete(&self, receipt: Receipt);
}

/// The adapters of one stage instance.
#[derive(Default)]
pub struct Io {
    pub input: Option<Box<dyn Input>>,
    pub output: Option<Arc<dyn Output>>,
}

/// Makes the adapters of a stage; implemented over the broker crate by the app.
pub trait Adapters: Send + Sync {
    fn output(&self, cx: &Cx, to: &OutputSpec) -> Result<Arc<dyn Output>, StageError>;
    fn input(&self, cx: &Cx, from: &InputSpec) -> Result<Box<dyn Input>, StageError>;
}

/// What an output must know.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputSpec {
    pub bootstrap_servers: String,
    /// Client properties (security), already resolved from environment and files.
    pub client: BTreeMap<String, String>,
    /// Name, partitions and index in `Recorder::topics` of each topic.
    pub topics: Vec<TopicRef>,
    pub spread: Spread,
    pub publish: PublishConfig,
    /// Largest payload the stage will offer; sizes batches and queues.
    pub max_frame_bytes: u64,
}

/// What an input must know.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    pub bootstrap_servers: String,
    pub client: BTreeMap<String, String>,
    pub topic: TopicRef,
    /// A group of its own for each run and stage: `reelbench-<run id>-<stage id>`.
    pub group: String,
    pub consume: ConsumeConfig,
    pub max_frame_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRef {
    pub name: String,
    pub partitions: i32,
    pub index: u16,
}

/// How a stage with several topics uses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    /// Stream mod topics.
    #[default]
    Streams,
    /// Every frame to every topic.
    Copy,
}

impl Spread {
    /// Which of `topics` a stream's frames go to; `copy` goes to all, so the first stands for them.
    pub fn topic_of(self, stream: u32, topics: usize) -> usize {
        match self {
            Spread::Streams => stream as usize % topics.max(1),
            Spread::Copy => 0,
        }
    }

    /// The partition of a stream: explicit, because hashing keys skews and leaves partitions empty.
    pub fn partition_of(self, stream: u32, topics: usize, partitions: i32) -> i32 {
        let turn = match self {
            Spread::Streams => stream as usize / topics.max(1),
            Spread::Copy => stream as usize,
        };
        (turn % partitions.max(1) as usize) as i32
    }
}

/// What to do with a frame when there is no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Wait: the stream's next frames are late, none is dropped.
    #[default]
    Block,
    /// Give up the frame that finds no room.
    DropNew,
    /// Give up the oldest waiting frame, to make room for the new one.
    DropOld,
    /// Wait, but give up a frame older than `deadline`.
    Deadline,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Acks {
    #[serde(rename = "0")]
    None,
    #[serde(rename = "1")]
    Leader,
    #[default]
    #[serde(rename = "all")]
    All,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    #[default]
    None,
    Lz4,
    Zstd,
    Gzip,
}

/// `publish:` of a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PublishConfig {
    /// What to do when there is no room. Default `block`.
    pub policy: Policy,
    /// Which replicas must have a frame before it counts as acknowledged: "0", "1" or "all" (default).
    pub acks: Acks,
    /// Idempotent producer: no duplicates, no reordering. Default true with acks "all", else false.
    pub idempotence: Option<bool>,
    /// Default `none`: JPEG does not compress.
    pub compression: Compression,
    /// Time a batch waits for more frames. Default by frame size: 5 ms below 64 KiB, else 0.
    pub linger: Option<Span>,
    /// Largest batch. Default by frame size.
    pub batch_size: Option<ByteSize>,
    /// Bytes that may wait for acknowledgement, over all partitions. Default by frame size, 64 MiB to 256 MiB.
    pub queue: Option<ByteSize>,
    /// Age after which policy `deadline` drops a frame. Default `run.deadline`.
    pub deadline: Option<Span>,
    /// Time until an unacknowledged frame counts as failed. Default 30 s.
    pub message_timeout: Option<Span>,
}

/// `consume:` of a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConsumeConfig {
    /// Bytes fetched ahead of the stage. Default 64 MiB.
    pub queue: Option<ByteSize>,
    /// How often completed offsets are committed. Default 1 s.
    pub commit_interval: Option<Span>,
    /// Time without a heartbeat after which the group gives a member's partitions away. Default 10 s.
    pub session_timeout: Option<Span>,
}
