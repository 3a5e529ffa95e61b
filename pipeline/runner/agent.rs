//! The stage's side of the runner API: one process, one stage instance, one small HTTP server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::clock::{RunClock, mono_ns, real_ns};
use contract::error::StageError;
use contract::flow::{Adapters, InputSpec, Io, OutputSpec, TopicRef};
use contract::ledger::Ledger;
use contract::phases::Phases;
use contract::recorder::Recorder;
use contract::shutdown::Shutdown;
use contract::stage::{Cx, CxParts, Demand, Registry, StageEntry};
use scenario::Scenario;
use scenario::model::StageConfig;

use crate::api::{DeltaReply, HostId, Prepare, Record, State, StateReply, entries};

/// A stage under a runner that hears nothing from it for this long drains and aborts.
pub const DEAD_MAN: Duration = Duration::from_secs(15);
/// Time that a flush may take beyond the drain deadline before what is left counts as in flight.
const FLUSH_GRACE_NS: i64 = 500_000_000;

/// What a stage process is given.
pub struct AgentOptions {
    pub scenario: Scenario,
    pub scenario_sha256: String,
    pub stage_id: String,
    /// Number its launcher gave this process.
    pub instance: Option<u32>,
    /// Ledger and log live here.
    pub work_dir: PathBuf,
    pub registry: Registry,
    pub adapters: Arc<dyn Adapters>,
    pub host: HostId,
    pub version: String,
    /// Where the API listens; port 0 for an ephemeral one.
    pub listen: SocketAddr,
    /// Runner to register with; without one the stage starts when ready.
    pub runner: Option<String>,
    /// End after the first release, as local children do; a container idles again instead.
    pub once: bool,
}

/// State shared by the HTTP handlers and the stage thread.
pub struct Agent {
    pub options: AgentOptions,
    stage: StageConfig,
    entry: &'static StageEntry,
    inner: Mutex<Inner>,
    changed: Condvar,
    pub notify: tokio::sync::Notify,
}

struct Inner {
    state: State,
    since_ns: i64,
    error: Option<StageError>,
    cx: Option<Cx>,
    prepared: Option<Prepare>,
    started: bool,
    released: bool,
    heard_ns: i64,
    deltas: u64,
}

impl Agent {
    pub fn new(options: AgentOptions) -> Result<Arc<Self>, StageError> {
        let stage = options.scenario.stages.iter().find(|stage| stage.id == options.stage_id).cloned();
        let stage = stage.ok_or_else(|| {
            let known: Vec<_> = options.scenario.stages.iter().map(|stage| stage.id.as_str()).collect();
            StageError::config(&options.stage_id, format!("no stage has this id; known are {}", known.join(", ")))
        })?;
        let entry = options.registry.find(&stage.kind).ok_or_else(|| {
            StageError::config(&stage.id, format!("kind `{}` is not known; see `reelbench stage list`", stage.kind))
        })?;
        let inner = Inner {
            state: State::Starting,
            since_ns: mono_ns(),
            error: None,
            cx: None,
            prepared: None,
            started: false,
            released: false,
            heard_ns: mono_ns(),
            deltas: 0,
        };
        let notify = tokio::sync::Notify::new();
        Ok(Arc::new(Agent { options, stage, entry, inner: Mutex::new(inner), changed: Condvar::new(), notify }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(&self, state: State) {
        let mut inner = self.lock();
        // A failure is final: a late step of the stage thread must not hide it.
        if inner.state == State::Failed && state != State::Idle {
            return;
        }
        tracing::info!(state = state.name(), "state");
        inner.state = state;
        inner.since_ns = mono_ns();
        self.changed.notify_all();
        self.notify.notify_waiters();
    }

    fn fail(&self, error: StageError) {
        tracing::error!(%error, "stage failed");
        {
            let mut inner = self.lock();
            inner.error.get_or_insert(error);
        }
        self.enter(State::Failed);
    }

    pub fn state(&self) -> StateReply {
        let inner = self.lock();
        StateReply { state: inner.state, since_ns: inner.since_ns, error: inner.error.clone() }
    }

    pub fn stage_id(&self) -> &str {
        &self.stage.id
    }

    pub fn kind(&self) -> &'static str {
        self.entry.kind
    }

    pub fn index(&self) -> u32 {
        self.lock().cx.as_ref().map_or(0, |cx| cx.index)
    }

    /// Notes that the runner spoke.
    pub fn heard(&self) {
        self.lock().heard_ns = mono_ns();
    }

    fn cx(&self) -> Option<Cx> {
        self.lock().cx.clone()
    }

    /// Opens the stage on a thread of its own; a repeated call for the same run changes nothing.
    pub fn prepare(self: &Arc<Self>, prepare: Prepare) -> Result<(), String> {
        {
            let mut inner = self.lock();
            match &inner.prepared {
                Some(earlier) if earlier.run_id == prepare.run_id => return Ok(()),
                Some(earlier) => return Err(format!("busy with run {}; release it first", earlier.run_id)),
                None => inner.prepared = Some(prepare.clone()),
            }
            inner.error = None;
            inner.started = false;
            inner.released = false;
        }
        self.enter(State::Preparing);
        let agent = self.clone();
        let spawned = std::thread::Builder::new().name(format!("stage-{}", self.stage.id)).spawn(move || {
            if let Err(error) = agent.live(&prepare) {
                agent.fail(error);
            }
        });
        spawned.map(drop).map_err(|error| format!("start the stage thread: {error}"))
    }

    /// The whole life of one run on the stage thread.
    fn live(&self, prepare: &Prepare) -> Result<(), StageError> {
        let cx = self.context(prepare)?;
        self.lock().cx = Some(cx.clone());
        let demand = (self.entry.demand)(self.stage.config.clone())?;
        let opened = (self.entry.open)(self.stage.config.clone(), &cx)?;
        let io = self.adapters(&cx, &prepare.bootstrap, &demand)?;
        let output = io.output.clone();
        self.enter(State::Ready);
        if !self.wait_for_start(&cx) {
            return Err(StageError::stage(&self.stage.id, "stopped before the run began"));
        }
        self.enter(State::Running);
        let result = opened.run(io, &cx);
        self.enter(State::Draining);
        if let Some(output) = output {
            let deadline = cx.drain_target().map_or(cx.clock.now_ns() + cx.deadline_ns, |drain| drain.deadline_ns);
            if !output.flush(deadline + FLUSH_GRACE_NS) {
                tracing::warn!("some frames have no delivery report at the deadline");
            }
        }
        result?;
        cx.recorder.failure().map_or(Ok(()), Err)?;
        self.enter(State::Done);
        Ok(())
    }

    fn context(&self, prepare: &Prepare) -> Result<Cx, StageError> {
        let topics: Vec<String> = self.options.scenario.topics.iter().map(|topic| topic.name.clone()).collect();
        let storage = |error: String| StageError::storage(self.options.work_dir.display().to_string(), error);
        std::fs::create_dir_all(&self.options.work_dir).map_err(|error| storage(error.to_string()))?;
        let ledger = Ledger::create(&self.options.work_dir.join(LEDGER_FILE), &topics)
            .map_err(|error| storage(error.to_string()))?;
        let phases = Phases::default();
        let deadline_ns = self.options.scenario.run.deadline.ns();
        Ok(Cx::new(CxParts {
            stage_id: self.stage.id.clone(),
            run_id: prepare.run_id,
            index: prepare.index,
            of: prepare.of,
            seed: prepare.seed,
            clock: RunClock::default(),
            phases: phases.clone(),
            shutdown: Shutdown::default(),
            recorder: Recorder::new(topics, Some(ledger), phases, deadline_ns),
            budget: prepare.budget,
            deadline_ns,
            work_dir: self.options.work_dir.clone(),
            drain: Mutex::default(),
        }))
    }

    fn topic_ref(&self, name: &str) -> Result<TopicRef, StageError> {
        let topics = &self.options.scenario.topics;
        let index = topics.iter().position(|topic| topic.name == name);
        let index = index.ok_or_else(|| StageError::config(name, "no such topic in the scenario"))?;
        Ok(TopicRef { name: name.to_owned(), partitions: topics[index].partitions as i32, index: index as u16 })
    }

    fn adapters(&self, cx: &Cx, bootstrap: &str, demand: &Demand) -> Result<Io, StageError> {
        let client = self.options.scenario.broker.resolved_client()?;
        let topics = self.stage.outputs().iter().map(|name| self.topic_ref(name)).collect::<Result<Vec<_>, _>>()?;
        let max_frame_bytes = demand.max_frame_bytes.unwrap_or(1 << 20);
        let mut io = Io::default();
        if !topics.is_empty() {
            let spec = OutputSpec {
                bootstrap_servers: bootstrap.to_owned(),
                client: client.clone(),
                topics,
                spread: self.stage.spread,
                publish: self.stage.publish.clone(),
                max_frame_bytes,
            };
            io.output = Some(self.options.adapters.output(cx, &spec)?);
        }
        if let Some(from) = &self.stage.from {
            let spec = InputSpec {
                bootstrap_servers: bootstrap.to_owned(),
                client,
                topic: self.topic_ref(from)?,
                group: format!("reelbench-{}-{}", cx.run_id, self.stage.id),
                consume: self.stage.consume.clone(),
                max_frame_bytes: crate::topology::max_frame_bytes(&self.options.scenario, &self.options.registry, from),
            };
            io.input = Some(self.options.adapters.input(cx, &spec)?);
        }
        Ok(io)
    }

    fn wait_for_start(&self, cx: &Cx) -> bool {
        let mut inner = self.lock();
        while !inner.started {
            if cx.shutdown.is_stopping() {
                return false;
            }
            inner =
                self.changed.wait_timeout(inner, Duration::from_millis(100)).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    pub fn start(&self, t0_mono_ns: i64) -> Result<(), String> {
        let ahead_ns = t0_mono_ns - mono_ns();
        let Some(cx) = self.cx() else { return Err("not prepared".into()) };
        if self.state().state != State::Ready {
            return Err(format!("state is {}, not ready", self.state().state.name()));
        }
        if ahead_ns <= 0 {
            return Err(format!("t0 is {} ms in the past", -ahead_ns / 1_000_000));
        }
        cx.clock.set_t0(t0_mono_ns);
        self.enter(State::Armed);
        self.lock().started = true;
        self.changed.notify_all();
        Ok(())
    }

    pub fn phase(&self, phase: contract::phases::Phase, at_ns: i64) -> Result<(), String> {
        let cx = self.cx().ok_or("not prepared")?;
        let now_ns = cx.clock.now_ns();
        if at_ns < now_ns {
            return Err(format!("phase {} is {} ms in the past", phase.name(), (now_ns - at_ns) / 1_000_000));
        }
        cx.phases.announce(phase, at_ns);
        Ok(())
    }

    pub fn drain(&self, target: crate::api::Drain) -> Result<(), String> {
        let cx = self.cx().ok_or("not prepared")?;
        cx.set_drain(target);
        Ok(())
    }

    pub fn abort(&self) {
        if let Some(cx) = self.cx() {
            cx.shutdown.abort();
        }
        self.changed.notify_all();
    }

    /// SIGTERM: finish what is held; a second one gives up.
    pub fn stop(&self) {
        match self.cx() {
            Some(cx) if cx.shutdown.is_stopping() => cx.shutdown.abort(),
            Some(cx) => cx.shutdown.stop(),
            None => {}
        }
        self.lock().released = true;
        self.changed.notify_all();
        self.notify.notify_waiters();
    }

    pub fn delta(&self) -> DeltaReply {
        let (n, cx) = {
            let mut inner = self.lock();
            inner.deltas += 1;
            (inner.deltas, inner.cx.clone())
        };
        let StateReply { state, error, .. } = self.state();
        let delta = cx.map(|cx| cx.recorder.delta(n, cx.clock.now_ns())).unwrap_or_default();
        // A background failure (ledger, client) ends the stage, whatever its threads still wait for.
        if let Some(failure) = self.cx().and_then(|cx| cx.recorder.failure())
            && state == State::Running
        {
            self.abort();
            self.fail(failure);
        }
        DeltaReply { state, error, delta }
    }

    pub fn record(&self) -> Record {
        let DeltaReply { state, error, delta } = self.delta();
        let sets = self.cx().map(|cx| entries(cx.recorder.ledger_sets())).unwrap_or_default();
        Record { state, error, delta, sets }
    }

    /// Ends the run for this instance; it may be prepared again unless it was started for one run only.
    pub fn release(&self) {
        self.abort();
        {
            let mut inner = self.lock();
            inner.prepared = None;
            inner.cx = None;
            inner.released = true;
        }
        self.enter(State::Idle);
    }

    /// A run is under way and its runner was not heard for too long.
    pub fn silent(&self) -> bool {
        let inner = self.lock();
        let busy = inner.prepared.is_some();
        busy && mono_ns() - inner.heard_ns > DEAD_MAN.as_nanos() as i64
    }

    pub fn is_released(&self) -> bool {
        self.lock().released
    }
}

/// Name of the ledger in an instance's work folder.
pub const LEDGER_FILE: &str = "ledger";

/// The reply of `GET /v1/clock`.
pub fn clock_reply() -> crate::api::ClockReply {
    crate::api::ClockReply { mono_ns: mono_ns(), real_ns: real_ns() }
}
