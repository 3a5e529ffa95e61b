//! What a run is given, and why it may not begin.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use contract::admin::Admin;
use contract::error::StageError;
use contract::host::HostProbe;
use contract::series::SeriesRow;
use contract::stage::Registry;
use scenario::Scenario;
use tokio::sync::watch as signal;

use crate::launch::LaunchError;

/// What to run.
pub struct RunOptions {
    pub scenario: Scenario,
    /// Text as run; written into the run folder and read by the stages.
    pub text: String,
    pub sha256: String,
    pub path: PathBuf,
    pub overrides: Vec<String>,
    pub version: String,
    /// The run folder; must not exist.
    pub out: PathBuf,
    /// This program: it is started again for the broker and each stage.
    pub program: PathBuf,
    pub allow_ram: bool,
    pub keep_data: bool,
    pub force: bool,
}

type Connect = dyn Fn(&str, &BTreeMap<String, String>) -> Result<Box<dyn Admin>, StageError> + Send + Sync;

/// What the app lends.
pub struct Services {
    pub registry: Registry,
    pub connect: Arc<Connect>,
    pub probe: Arc<dyn HostProbe>,
    /// Called once a second, and with a word when something happens.
    pub progress: Box<dyn FnMut(Progress<'_>) + Send>,
    /// How often the user asked to stop: 1 drains, 2 aborts.
    pub interrupts: signal::Receiver<u32>,
}

/// What there is to show.
pub enum Progress<'a> {
    Word(&'a str),
    Row { row: &'a SeriesRow, phase_started_ns: i64, phase_ends_ns: Option<i64> },
}

/// Why a run did not begin; exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("run folder {}: {source}; name a new one with --out", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("preflight: {0}")]
    Preflight(String),
    #[error("not ready within {seconds} s: {missing}")]
    NotReady { seconds: u64, missing: String },
    #[error("runner API: {0}")]
    Api(io::Error),
    #[error("{0}")]
    Calls(String),
    #[error("interrupted before the run began")]
    Interrupted,
}
