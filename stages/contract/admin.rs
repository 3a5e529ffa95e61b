//! What the runner asks of a broker, without knowing Kafka; implemented by stages/broker, handed in by the app.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::StageError;
use crate::units::{ByteSize, Span};

/// A topic as the scenario wants it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicConfig {
    /// 1 to 249 characters of `[A-Za-z0-9._-]`.
    pub name: String,
    /// Number of partitions. Default 1.
    #[serde(default = "one")]
    pub partitions: u32,
    /// Replication factor: copies of each partition on different brokers. Default 1.
    #[serde(default = "one")]
    pub replication: u32,
    /// Bytes kept of each partition before old segments are deleted. Default: keep all.
    pub retention_bytes: Option<ByteSize>,
    /// Time kept. Default: the broker's.
    pub retention: Option<Span>,
    /// Size of a segment file. Default: the broker's.
    pub segment_bytes: Option<ByteSize>,
    /// Largest batch. Default: max(2 MiB, next power of two of twice the largest frame).
    pub max_message_bytes: Option<ByteSize>,
    /// Replicas that must have a record for acks "all". Default: the broker's.
    pub min_insync_replicas: Option<u32>,
    /// Use the topic if it exists. Default false: an existing topic is an error.
    #[serde(default)]
    pub reuse: bool,
}

fn one() -> u32 {
    1
}

/// What a topic must be able to carry.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicNeed {
    pub config: TopicConfig,
    pub max_frame_bytes: u64,
}

/// One link of the preflight: size chain, replication, retention, space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PreflightLink {
    /// The setting or fact: `topic frames: max.message.bytes`.
    pub link: String,
    pub observed: String,
    pub needed: String,
    pub ok: bool,
    /// What to change; empty when it holds.
    pub remedy: String,
}

/// What a broker is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    pub brokers: Vec<String>,
    pub topics: Vec<String>,
}

pub trait Admin: Send + Sync {
    /// Brokers and topics, or an error naming the address when none answers within `timeout`.
    fn cluster(&self, timeout: Duration) -> Result<ClusterView, StageError>;

    /// Every link, whether it holds or not.
    fn preflight(&self, topics: &[TopicNeed]) -> Result<Vec<PreflightLink>, StageError>;

    /// Creates the topics and waits until each partition has a leader.
    fn create_topics(&self, topics: &[TopicNeed]) -> Result<(), StageError>;

    /// The end offset of every partition of a topic.
    fn end_offsets(&self, topic: &str, timeout: Duration) -> Result<BTreeMap<i32, i64>, StageError>;

    /// The first offset still kept of every partition.
    fn start_offsets(&self, topic: &str, timeout: Duration) -> Result<BTreeMap<i32, i64>, StageError>;

    /// Bytes on disk of a topic over all replicas, where the broker tells.
    fn log_bytes(&self, topic: &str) -> Result<Option<u64>, StageError>;
}
