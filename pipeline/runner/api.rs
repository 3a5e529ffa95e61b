//! The runner API as JSON types; client and server live here, a stage crate never sees HTTP.

use contract::error::StageError;
use contract::frame::RunId;
use contract::ledger::{LedgerError, LedgerSets, SetKey};
use contract::phases::Phase;
use contract::recorder::Delta;
use contract::stage::{Budget, DrainTarget};
use serde::{Deserialize, Serialize};

/// Version of this API; instances and runner must agree.
pub const API: u32 = 1;

/// Where an instance runs; the same boot id and time namespace mean the same monotonic clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostId {
    pub name: String,
    pub boot_id: String,
    pub time_namespace: String,
}

/// `POST runner/v1/instances`, repeated until accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    pub stage_id: String,
    pub instance_uuid: String,
    pub base_url: String,
    pub api: u32,
    pub version: String,
    pub scenario_sha256: String,
    /// Number its launcher gave it, if any; the runner may give another.
    #[serde(default)]
    pub instance: Option<u32>,
    pub pid: u32,
    pub host: HostId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    pub run_id: RunId,
    pub index: u32,
    pub of: u32,
}

/// Body of every refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub error: String,
}

/// `GET /v1/clock`, stamped just before the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReply {
    pub mono_ns: i64,
    pub real_ns: i64,
}

/// `POST /v1/prepare`: connect, load, warm, prime. Idempotent by run id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepare {
    pub run_id: RunId,
    pub index: u32,
    pub of: u32,
    pub seed: u64,
    pub bootstrap: String,
    pub budget: Budget,
}

/// The life of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Starting,
    Idle,
    Preparing,
    Ready,
    Armed,
    Running,
    Draining,
    Done,
    Failed,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Idle => "idle",
            State::Preparing => "preparing",
            State::Ready => "ready",
            State::Armed => "armed",
            State::Running => "running",
            State::Draining => "draining",
            State::Done => "done",
            State::Failed => "failed",
        }
    }
    /// Nothing more will come of it in this run.
    pub fn is_final(self) -> bool {
        matches!(self, State::Done | State::Failed)
    }
}

/// `GET /v1/state`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateReply {
    pub state: State,
    /// CLOCK_MONOTONIC of the instance.
    pub since_ns: i64,
    pub error: Option<StageError>,
}

/// `POST /v1/start`: t0 in the instance's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub t0_mono_ns: i64,
}

/// `POST /v1/phase`: a future instant, run-relative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseCall {
    pub name: Phase,
    pub at_ns: i64,
}

/// `GET /v1/delta`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeltaReply {
    pub state: State,
    pub error: Option<StageError>,
    pub delta: Delta,
}

/// `POST /v1/drain`.
pub type Drain = DrainTarget;

/// `GET /v1/record`: the final books.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub state: State,
    pub error: Option<StageError>,
    pub delta: Delta,
    pub sets: Vec<SetEntry>,
}

/// One set of a ledger as ranges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetEntry {
    #[serde(flatten)]
    pub key: SetKey,
    pub ranges: contract::intervals::IntervalSet,
}

pub fn entries(sets: Result<LedgerSets, LedgerError>) -> Vec<SetEntry> {
    let sets = sets.unwrap_or_default();
    sets.0.into_iter().map(|(key, ranges)| SetEntry { key, ranges }).collect()
}

pub fn sets(entries: Vec<SetEntry>) -> LedgerSets {
    LedgerSets(entries.into_iter().map(|entry| (entry.key, entry.ranges)).collect())
}
