//! `summary.json`: the result of a run. Its JSON Schema is published. What does not apply is absent, never 0.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::PreflightLink;
use crate::histogram::LatencyStats;
use crate::host::{Baseline, HostFacts, StorageFacts, SyncOutcome};
use crate::latency::Step;
use crate::phases::Phase;
use crate::recorder::DropCount;

pub const SCHEMA_VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub schema_version: u32,
    pub run_id: String,
    pub scenario: ScenarioFacts,
    pub hosts: Vec<HostEntry>,
    /// RFC 3339, UTC.
    pub started: String,
    pub interrupted: bool,
    pub verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub audit: Option<Audit>,
    /// By stage id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub inference: BTreeMap<String, InferenceIdentity>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub broker: Option<BrokerFacts>,
    /// Frames due in main.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub latency_ns: BTreeMap<Step, LatencyStats>,
    /// Frames due before or after main.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub latency_outside_main_ns: BTreeMap<Step, LatencyStats>,
    pub stages: BTreeMap<String, StageFacts>,
    pub disks: Vec<DiskFacts>,
    pub host: HostFacts,
    pub phases: Vec<PhaseFacts>,
    pub storage: Vec<StorageFacts>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub baseline: Option<Baseline>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sync: Option<SyncOutcome>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub preflight: Vec<PreflightLink>,
    /// Advice: what is odd, why, what to change.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFacts {
    pub name: String,
    pub path: String,
    /// Of the text as run, after `--set`.
    pub sha256: String,
    pub seed: u64,
    /// Version of reelbench.
    pub version: String,
    pub deadline_ns: i64,
    /// Changes made on the command line.
    pub overrides: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostEntry {
    pub name: String,
    pub boot_id: String,
    pub offset_ns: i64,
    pub error_ns: i64,
    pub drift_ppm: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    Pass,
    Fail,
    Invalid,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::Pass => "PASS",
            Status::Fail => "FAIL",
            Status::Invalid => "INVALID",
        }
    }
    /// Exit code of a run.
    pub fn exit_code(self) -> u8 {
        match self {
            Status::Pass => 0,
            Status::Fail => 1,
            Status::Invalid => 3,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    pub status: Status,
    /// One line for each broken rule; for PASS what was held.
    pub reasons: Vec<String>,
    pub checks: Vec<Check>,
}

/// One rule with its limit and what was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// `audit`, `not-drained`, `budget`, `backlog`, `error`, `generator`, `clock`, `storage`, `environment`.
    pub id: String,
    /// Stage id or topic it concerns, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stage: Option<String>,
    pub limit: String,
    pub observed: String,
    /// PASS, FAIL, INVALID; absent when it could not be judged, with the reason in `observed`.
    pub status: Option<Status>,
}

/// `offered = delivered + lost + dropped + in_flight`, exactly.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Audit {
    /// Frames due by the schedule; offered may be fewer when the generator died or fell behind.
    pub scheduled: u64,
    #[serde(flatten)]
    pub totals: AuditCounts,
    /// Frames due in main that were offered; the denominator of the budget.
    pub offered_main: u64,
    pub late: u64,
    pub dropped_main: u64,
    pub drops: Vec<DropCount>,
    pub topics: Vec<TopicAudit>,
    /// Topics that no stage read back: acknowledgements only.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub acknowledged_only: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditCounts {
    pub offered: u64,
    pub acked: u64,
    pub delivered: u64,
    pub lost: u64,
    pub lost_acked: u64,
    pub lost_unacked: u64,
    /// Part of lost_unacked: the generator died before a delivery report.
    pub lost_stage_died: u64,
    pub dropped: u64,
    pub in_flight: u64,
    pub corrupt: u64,
    pub duplicates: u64,
    pub redelivered: u64,
    pub reordered: u64,
    pub foreign: u64,
    /// Seen though never offered, or seen though dropped: breaks the identity.
    pub unexplained: u64,
    pub identity_holds: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopicAudit {
    pub topic: String,
    /// Counted in the totals: written by a source.
    pub source: bool,
    /// The stage whose group audits it; absent: acknowledged only, and `delivered` is not known.
    pub audited_by: Option<String>,
    #[serde(flatten)]
    pub counts: AuditCounts,
    pub payload_bytes: u64,
    pub replication: u32,
}

/// `delivered = inferred + not_selected + dropped + failed + corrupt + unfinished`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InferenceIdentity {
    pub delivered: u64,
    pub inferred: u64,
    pub not_selected: u64,
    pub dropped: u64,
    pub failed: u64,
    /// Not worked on, because the payload is not what was written.
    #[serde(default)]
    pub corrupt: u64,
    /// Handed to the stage and never finished, because it died or the drain ended.
    pub unfinished: u64,
    pub identity_holds: bool,
    pub model: Option<String>,
    /// `official`, `real-standin` or `seeded` (predictions meaningless).
    pub model_weights: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BrokerFacts {
    /// `built-in` or `external`.
    pub kind: String,
    pub version: Option<String>,
    pub nodes: u32,
    pub bootstrap_servers: String,
    pub data_dir: Option<String>,
    /// Bytes the logs hold over all replicas at the end.
    pub log_bytes: Option<u64>,
    pub died: bool,
    /// `does not stand for Apache Kafka` where that is so.
    pub label: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageFacts {
    pub kind: String,
    pub from: Option<String>,
    pub to: Vec<String>,
    pub instances: Vec<InstanceFacts>,
    /// Counters of all instances together.
    pub counters: BTreeMap<String, u64>,
    /// Counts by "counter: reason".
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub reasons: BTreeMap<String, u64>,
    /// Decode mode, weights, client settings.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub facts: BTreeMap<String, serde_json::Value>,
    /// Frames due in main.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub latency_ns: BTreeMap<Step, LatencyStats>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstanceFacts {
    pub index: u32,
    pub host: String,
    pub pid: u32,
    /// Last state: `done`, `idle`, `failed`, `lost`, `killed`.
    pub state: String,
    pub error: Option<String>,
    pub cpu_seconds: Option<f64>,
    pub rss_bytes: Option<u64>,
    pub read_bytes: Option<u64>,
    pub write_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskFacts {
    pub device: String,
    pub path: String,
    /// By phase name.
    pub phases: BTreeMap<String, DiskPhase>,
}

/// One device over one phase: sums, and averages over its seconds with and without idle ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskPhase {
    pub seconds: f64,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub read_iops: Option<f64>,
    pub write_iops: Option<f64>,
    pub read_mib_per_second: Option<f64>,
    pub write_mib_per_second: Option<f64>,
    /// Averages over the seconds that had writes.
    pub write_iops_nonzero: Option<f64>,
    pub write_mib_per_second_nonzero: Option<f64>,
    pub read_request_kib: Option<f64>,
    pub write_request_kib: Option<f64>,
    pub read_await_ms: Option<f64>,
    pub write_await_ms: Option<f64>,
    pub queue: Option<f64>,
    pub utilisation: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseFacts {
    pub name: Phase,
    /// Run-relative; negative before t0.
    pub start_ns: i64,
    pub end_ns: i64,
}
