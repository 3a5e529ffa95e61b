//! What a stage is: one typed trait, one erased row, one table a family. Everything hangs on the row: `check` parses with it,
//! `schema` prints it, `stage list` lists it, a stage process opens and runs it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::RunClock;
use crate::error::StageError;
use crate::flow::Io;
use crate::frame::RunId;
use crate::phases::Phases;
use crate::random::Random;
use crate::recorder::Recorder;
use crate::shutdown::Shutdown;

/// Which adapters a stage has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ports {
    /// `to` only.
    Source,
    /// `from`, and `to` if the scenario gives one.
    Transform,
    /// `from` only.
    Sink,
    /// Neither.
    Alone,
}

/// What a stage will ask of the host and the broker: printed by `check`, used to size queues and topics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    pub streams: Option<u32>,
    /// Frames offered each second, all streams and instances together; absent when unpaced or unknown.
    pub frames_per_second: Option<f64>,
    /// Mean payload, estimated.
    pub frame_bytes: Option<u64>,
    /// Largest payload; an upper bound, sizes the size chain.
    pub max_frame_bytes: Option<u64>,
    /// CPU-seconds each second, estimated.
    pub cpu_seconds_per_second: Option<f64>,
    /// Files that must be readable.
    pub files: Vec<PathBuf>,
    /// How frames come to be: `each`, `shared`, `cached`; printed with every result.
    pub mode: Option<String>,
    /// Anything `check` should print.
    pub notes: Vec<String>,
}

/// One runnable unit. `open` and `run` are called on a thread of the stage's own and may block; work inside goes to further
/// named threads.
pub trait Stage: Sized + Send + 'static {
    /// The `config:` mapping; denies unknown fields.
    type Config: DeserializeOwned + JsonSchema + Send + 'static;
    const KIND: &'static str;
    /// One line for `stage list`.
    const ABOUT: &'static str;
    const PORTS: Ports;

    /// What it will ask for. May probe files; an error here is a configuration error.
    fn demand(config: &Self::Config) -> Result<Demand, StageError>;

    /// Connects, loads, warms, primes: everything that may fail before t0.
    fn open(config: Self::Config, cx: &Cx) -> Result<Self, StageError>;

    /// Works until the input closes, the schedule ends or shutdown; then drains.
    fn run(self, io: Io, cx: &Cx) -> Result<(), StageError>;
}

/// Bounds that a process keeps by itself, so that nobody's disk is filled by an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Payload bytes a generator may offer.
    pub max_bytes: u64,
    /// Run-relative end, whatever the runner says.
    pub max_run_ns: i64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { max_bytes: u64::MAX, max_run_ns: i64::MAX }
    }
}

/// Where a consumer may stop: the end offset of every partition, by topic name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainTarget {
    pub to: BTreeMap<String, BTreeMap<i32, i64>>,
    pub deadline_ns: i64,
}

/// What a stage instance is lent. Cheap to clone.
#[derive(Clone)]
pub struct Cx(Arc<CxParts>);

pub struct CxParts {
    pub stage_id: String,
    pub run_id: RunId,
    /// This instance is `index` of `of`.
    pub index: u32,
    pub of: u32,
    pub seed: u64,
    pub clock: RunClock,
    pub phases: Phases,
    pub shutdown: Shutdown,
    pub recorder: Recorder,
    pub budget: Budget,
    /// Bound on lateness: `run.deadline`.
    pub deadline_ns: i64,
    /// A folder of this instance's own, for its ledger and scratch.
    pub work_dir: PathBuf,
    pub drain: Mutex<Option<DrainTarget>>,
}

impl Deref for Cx {
    type Target = CxParts;
    fn deref(&self) -> &CxParts {
        &self.0
    }
}

impl Cx {
    pub fn new(parts: CxParts) -> Self {
        Cx(Arc::new(parts))
    }

    /// Randomness of this stage's own: the same in every run with the same seed.
    pub fn random(&self, purpose: &str) -> Random {
        Random::named(self.seed, &format!("{}/{purpose}", self.stage_id))
    }

    pub fn set_drain(&self, target: DrainTarget) {
        *self.drain.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    }

    pub fn drain_target(&self) -> Option<DrainTarget> {
        self.drain.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

type Runner = Box<dyn FnOnce(Io, &Cx) -> Result<(), StageError> + Send>;

/// An opened stage, ready to run.
pub struct Opened(Runner);

impl Opened {
    pub fn run(self, io: Io, cx: &Cx) -> Result<(), StageError> {
        (self.0)(io, cx)
    }
}

/// One row of a family's table.
#[derive(Clone, Copy)]
pub struct StageEntry {
    pub kind: &'static str,
    pub about: &'static str,
    pub ports: Ports,
    pub schema: fn() -> Schema,
    pub demand: fn(serde_json::Value) -> Result<Demand, StageError>,
    pub open: fn(serde_json::Value, &Cx) -> Result<Opened, StageError>,
}

fn parse<S: Stage>(config: serde_json::Value) -> Result<S::Config, StageError> {
    serde_json::from_value(config)
        .map_err(|error| StageError::config(format!("config of kind {}", S::KIND), error.to_string()))
}

impl StageEntry {
    pub const fn of<S: Stage>() -> Self {
        StageEntry {
            kind: S::KIND,
            about: S::ABOUT,
            ports: S::PORTS,
            schema: || schemars::schema_for!(S::Config),
            demand: |config| S::demand(&parse::<S>(config)?),
            open: |config, cx| {
                let stage = S::open(parse::<S>(config)?, cx)?;
                Ok(Opened(Box::new(move |io, cx: &Cx| stage.run(io, cx))))
            },
        }
    }
}

/// Every stage kind the program knows; built by the app, passed to whoever needs it.
#[derive(Clone, Copy)]
pub struct Registry(pub &'static [&'static [StageEntry]]);

impl Registry {
    pub fn entries(&self) -> impl Iterator<Item = &'static StageEntry> {
        self.0.iter().flat_map(|table| table.iter())
    }
    pub fn find(&self, kind: &str) -> Option<&'static StageEntry> {
        self.entries().find(|entry| entry.kind == kind)
    }
}
