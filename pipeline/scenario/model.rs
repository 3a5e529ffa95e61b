//! What a scenario file says, as types. Every mapping denies unknown keys; every field says its meaning, unit and default.

use std::collections::BTreeMap;
use std::path::PathBuf;

use contract::admin::TopicConfig;
use contract::flow::{ConsumeConfig, PublishConfig, Spread};
use contract::units::{ByteSize, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A scenario file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name, seed and lengths of the run.
    pub run: RunConfig,
    /// The Kafka cluster; without `bootstrap_servers` the built-in broker is started.
    #[serde(default)]
    pub broker: BrokerConfig,
    /// Topics to create.
    #[serde(default)]
    pub topics: Vec<TopicConfig>,
    /// What runs; each entry is one stage.
    pub stages: Vec<StageConfig>,
    /// Limits that decide between PASS, FAIL and INVALID.
    #[serde(default)]
    pub verdict: VerdictConfig,
    /// Devices and paths to watch beside the broker's data directory.
    #[serde(default)]
    pub observe: Vec<ObserveConfig>,
}

/// `run:`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Name of the run, for folders and reports: letters, digits, `-` and `_`.
    pub name: String,
    /// Seed of every random choice. Default 42.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Longest warm-up; it ends earlier once the rate is steady. Default 30 s.
    #[serde(default = "default_warmup")]
    pub warmup: Span,
    /// Length of the measured part. Default 60 s.
    #[serde(default = "default_main")]
    pub main: Span,
    /// Longest time to read what was published after the last frame. Default 30 s.
    #[serde(default = "default_drain")]
    pub drain: Span,
    /// Age at which a frame is late. Default 1 s.
    #[serde(default = "default_deadline")]
    pub deadline: Span,
    /// Longest time until every stage is ready. Default 120 s.
    #[serde(default = "default_ready")]
    pub ready: Span,
}

fn default_seed() -> u64 {
    42
}
fn default_warmup() -> Span {
    Span::from_secs(30)
}
fn default_main() -> Span {
    Span::from_secs(60)
}
fn default_drain() -> Span {
    Span::from_secs(30)
}
fn default_deadline() -> Span {
    Span::from_secs(1)
}
fn default_ready() -> Span {
    Span::from_secs(120)
}

/// `broker:`; without `bootstrap_servers` the built-in broker is started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerConfig {
    /// Addresses of an external cluster, `host:port,...`. Absent: the built-in broker.
    pub bootstrap_servers: Option<String>,
    /// Virtual nodes of the built-in broker. Default 1.
    pub nodes: u16,
    /// Folder in which the built-in broker gets a folder of its own for its data, removed at the end. Default: the run folder.
    pub data_dir: Option<PathBuf>,
    /// Most bytes the run may put on disk, replicas included. Default 20 GiB.
    pub disk_budget: ByteSize,
    /// Free space at which the built-in broker refuses to write. Default 2 GiB.
    pub free_space_floor: ByteSize,
    /// When the built-in broker syncs its logs beside each segment roll. Default: it leaves that to the system.
    pub flush: FlushConfig,
    /// Restart the built-in broker when it dies. Default: never.
    pub restart: RestartConfig,
    /// Properties of the Kafka client (security.protocol, ssl.ca.location, ...). Secrets are named by `${ENV}` or `@file`.
    pub client: BTreeMap<String, String>,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        BrokerConfig {
            bootstrap_servers: None,
            nodes: 1,
            data_dir: None,
            disk_budget: ByteSize(20 << 30),
            free_space_floor: ByteSize(2 << 30),
            flush: FlushConfig::default(),
            restart: RestartConfig::default(),
            client: BTreeMap::new(),
        }
    }
}

/// `broker.flush:`
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FlushConfig {
    /// Sync a partition after this many records.
    pub records: Option<u64>,
    /// Sync a partition after this time.
    pub interval: Option<Span>,
}

/// `broker.restart:`
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RestartConfig {
    /// Restarts allowed. Default 0.
    pub max: u32,
}

/// One entry of `stages:`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageConfig {
    /// Unique name: letters, digits, `-` and `_`.
    pub id: String,
    /// What it does; `reelbench stage list` lists the kinds.
    pub kind: String,
    /// Topic to read.
    #[serde(default)]
    pub from: Option<String>,
    /// Topic, or topics, to write.
    #[serde(default)]
    pub to: Option<OneOrMany>,
    /// How several topics are used. Default `streams`.
    #[serde(default)]
    pub spread: Spread,
    /// Processes. Default 1.
    #[serde(default = "default_instances")]
    pub instances: u32,
    /// How it writes to topics.
    #[serde(default)]
    pub publish: PublishConfig,
    /// How it reads from its topic.
    #[serde(default)]
    pub consume: ConsumeConfig,
    /// Settings of its kind.
    #[serde(default = "empty_mapping")]
    pub config: serde_json::Value,
}

fn default_instances() -> u32 {
    1
}
fn empty_mapping() -> serde_json::Value {
    serde_json::Value::Object(Default::default())
}

/// `frames` or `[a, b, c]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl StageConfig {
    /// The topics it writes, in order.
    pub fn outputs(&self) -> Vec<String> {
        match &self.to {
            None => Vec::new(),
            Some(OneOrMany::One(topic)) => vec![topic.clone()],
            Some(OneOrMany::Many(topics)) => topics.clone(),
        }
    }
}

/// Whether decoding is the generator's part or under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecodeRole {
    /// Late decoding makes the run INVALID.
    #[default]
    Generator,
    /// Late decoding is a result.
    UnderTest,
}

/// `verdict:` limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VerdictConfig {
    /// Share of frames due in main that may be late, dropped or lost. Default 0.001.
    pub budget: f64,
    /// Whether decoding is part of the generator or under test. Default `generator`.
    pub decode: DecodeRole,
    /// Longest p99 of `end_to_end` (or `handed` without inference). Default: none.
    pub p99: Option<Span>,
    /// Share of CPU time stolen by the hypervisor above which a run is INVALID. Default 0.05.
    pub max_steal: f64,
}

impl Default for VerdictConfig {
    fn default() -> Self {
        VerdictConfig { budget: 0.001, decode: DecodeRole::Generator, p99: None, max_steal: 0.05 }
    }
}

/// One entry of `observe:`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObserveConfig {
    /// Unique name, for the report.
    pub id: String,
    /// A path; the device behind it is watched.
    pub path: PathBuf,
}
