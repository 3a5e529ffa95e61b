//! One run from the first check to the verdict: broker, stages, phases, drain, sync, books. Whatever happens, it ends, and
//! every child is ended.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use contract::admin::{Admin, TopicNeed};
use contract::clock::mono_ns;
use contract::error::StageError;
use contract::flow::Acks;
use contract::host::{Baseline, HostFacts, HostProbe, HostSample, StorageFacts, SyncOutcome};
use contract::phases::Phase;
use contract::series::SeriesRow;
use contract::stage::{Budget, Demand, DrainTarget, Registry};
use contract::summary::{PhaseFacts, Summary};
use scenario::Scenario;
use tokio::sync::watch as signal;

use crate::api::{Prepare, State};
use crate::control::{Control, Expected};
use crate::fleet::Fleet;
use crate::launch::{LaunchError, Process};
use crate::watch::{Roles, Watch};
use crate::{books, serve, topology};

const TICK: Duration = Duration::from_secs(1);
/// States are polled this often while something is waited for.
const POLL: Duration = Duration::from_millis(200);
/// t0 lies this far ahead, so that every instance hears of it.
const T0_AHEAD_NS: i64 = 2_000_000_000;
/// A phase is announced this far ahead.
const PHASE_AHEAD_NS: i64 = 1_500_000_000;
const BROKER_READY: Duration = Duration::from_secs(60);
/// Port ranges tried for a broker that may be restarted: another program may take one between looking and binding.
const PORT_TRIES: u32 = 5;
const ADMIN: Duration = Duration::from_secs(10);
/// Time a child may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(8);
/// Drain after the broker died: nothing can be read any more.
const SHORT_DRAIN_NS: i64 = 3_000_000_000;
const SYNC: Duration = Duration::from_secs(120);

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
    #[error("run folder {}: {source}", path.display())]
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

/// Everything known of a run; books.rs makes the summary of it.
pub struct Run {
    pub options: RunOptions,
    pub services: Services,
    pub demands: BTreeMap<String, Demand>,
    pub control: Arc<Control>,
    pub started_ns: i64,
    pub t0_mono_ns: i64,
    pub bootstrap: String,
    pub admin: Option<Arc<dyn Admin>>,
    pub broker: Option<Process>,
    pub children: Vec<Process>,
    pub fleet: Fleet,
    pub watch: Watch,
    pub phases: Vec<PhaseFacts>,
    pub phase: Phase,
    pub main_ns: Option<i64>,
    pub drain_ns: Option<i64>,
    pub ends: BTreeMap<String, BTreeMap<i32, i64>>,
    pub log_bytes: Option<u64>,
    pub broker_died: Option<String>,
    broker_listen: String,
    restarts: u32,
    pub aborted: bool,
    pub sync: Option<SyncOutcome>,
    pub baseline: Option<Baseline>,
    pub storage: Vec<StorageFacts>,
    pub host: HostFacts,
    pub preflight: Vec<contract::admin::PreflightLink>,
    pub first_sample: Option<HostSample>,
    pub last_sample: Option<HostSample>,
    pub warnings: Vec<String>,
    server: Option<tokio::task::JoinHandle<()>>,
    next_tick: tokio::time::Instant,
}

/// Runs a scenario. An error means that it did not begin; nothing of it is left behind.
pub async fn run(options: RunOptions, services: Services) -> Result<Summary, RunError> {
    let out = options.out.clone();
    let folder = |source| RunError::Folder { path: out.clone(), source };
    if let Some(parent) = out.parent() {
        std::fs::create_dir_all(parent).map_err(folder)?;
    }
    std::fs::create_dir(&out).map_err(folder)?;
    let begun = Run::new(options, services);
    let mut run = match begun {
        Ok(run) => run,
        Err(error) => {
            let _ = std::fs::remove_dir_all(&out);
            return Err(error);
        }
    };
    if let Err(error) = run.begin().await {
        run.end_children().await;
        let _ = std::fs::remove_dir_all(&out);
        return Err(error);
    }
    run.measure().await;
    run.drain().await;
    run.close().await;
    books::settle(run).await.map_err(|source| RunError::Folder { path: out, source })
}

impl Run {
    fn new(options: RunOptions, services: Services) -> Result<Self, RunError> {
        let folder = |source| RunError::Folder { path: options.out.clone(), source };
        std::fs::write(options.out.join("scenario.yaml"), &options.text).map_err(folder)?;
        let kinds = |stage: &scenario::model::StageConfig| Expected {
            stage_id: stage.id.clone(),
            kind: stage.kind.clone(),
            of: stage.instances,
        };
        let expected = options.scenario.stages.iter().map(kinds).collect();
        let run_id = topology::new_run_id();
        let control = Arc::new(Control::new(run_id, &options.sha256, &options.version, expected));
        let sources = topology::sources(&options.scenario, &services.registry);
        let roles = Roles {
            sources: sources.iter().map(|stage| stage.id.clone()).collect(),
            consumers: topology::drain_order(&options.scenario).iter().map(|stage| stage.id.clone()).collect(),
        };
        let watch = Watch::new(roles, services.probe.sampler(), &options.out.join("series.jsonl")).map_err(folder)?;
        let host = services.probe.host_facts();
        Ok(Run {
            demands: topology::demands(&options.scenario, &services.registry),
            fleet: Fleet::new(&control, &BTreeMap::new()),
            control,
            started_ns: contract::clock::real_ns(),
            t0_mono_ns: mono_ns(),
            bootstrap: String::new(),
            admin: None,
            broker: None,
            children: Vec::new(),
            watch,
            phases: Vec::new(),
            phase: Phase::Init,
            main_ns: None,
            drain_ns: None,
            ends: BTreeMap::new(),
            log_bytes: None,
            broker_died: None,
            broker_listen: String::new(),
            restarts: 0,
            aborted: false,
            sync: None,
            baseline: None,
            storage: Vec::new(),
            host,
            preflight: Vec::new(),
            first_sample: None,
            last_sample: None,
            warnings: Vec::new(),
            server: None,
            next_tick: tokio::time::Instant::now(),
            options,
            services,
        })
    }

    pub fn now_ns(&self) -> i64 {
        mono_ns() - self.t0_mono_ns
    }

    /// Where the built-in broker keeps its data.
    pub fn data_dir(&self) -> Option<PathBuf> {
        let broker = &self.options.scenario.broker;
        let own = || self.options.out.join("broker");
        broker.bootstrap_servers.is_none().then(|| broker.data_dir.clone().unwrap_or_else(own))
    }

    fn say(&mut self, word: &str) {
        (self.services.progress)(Progress::Word(word));
    }

    pub fn interrupted(&self) -> bool {
        *self.services.interrupts.borrow() > 0
    }

    fn enter(&mut self, phase: Phase) {
        let now_ns = self.now_ns();
        self.enter_at(phase, now_ns);
    }

    /// Enters a phase whose beginning was announced: it holds from that instant, not from when the runner woke up.
    fn enter_at(&mut self, phase: Phase, at_ns: i64) {
        if let Some(last) = self.phases.last_mut() {
            last.end_ns = at_ns;
        }
        self.phase = phase;
        self.phases.push(PhaseFacts { name: phase, start_ns: at_ns, end_ns: at_ns });
    }

    /// Everything before t0; each failure is an error of the user's or the host's.
    async fn begin(&mut self) -> Result<(), RunError> {
        self.enter(Phase::Init);
        self.look_at_storage().await?;
        self.start_broker().await?;
        self.create_topics().await?;
        self.start_stages().await?;
        self.prepare().await?;
        self.enter(Phase::Ready);
        self.first_sample = self.watch.sample().await;
        self.start().await
    }

    async fn look_at_storage(&mut self) -> Result<(), RunError> {
        let mut paths: Vec<PathBuf> = self.data_dir().into_iter().collect();
        paths.extend(self.options.scenario.observe.iter().map(|observe| observe.path.clone()));
        for path in &paths {
            if self.data_dir().as_ref() == Some(path) {
                std::fs::create_dir_all(path)
                    .map_err(|error| StageError::storage(path.display().to_string(), error.to_string()))?;
            }
            self.storage.push(self.services.probe.storage_facts(path));
            self.watch.watch_path(path);
        }
        let Some(dir) = self.data_dir() else { return Ok(()) };
        if self.storage[0].ram && !self.options.allow_ram {
            let place = dir.display().to_string();
            let remedy = "the data directory is in RAM, which says nothing of a disk; choose another with \
                          `broker.data_dir` or --out, or allow it with --allow-ram";
            return Err(StageError::storage(place, remedy).into());
        }
        self.say("measuring the device for a few seconds");
        let probe = self.services.probe.clone();
        let measured = tokio::task::spawn_blocking(move || probe.baseline(&dir)).await;
        match measured {
            Ok(Ok(baseline)) => self.baseline = Some(baseline),
            Ok(Err(error)) => self.warnings.push(format!("no device baseline: {error}")),
            Err(error) => self.warnings.push(format!("no device baseline: {error}")),
        }
        Ok(())
    }

    async fn start_broker(&mut self) -> Result<(), RunError> {
        let broker = self.options.scenario.broker.clone();
        let Some(dir) = self.data_dir() else {
            self.bootstrap = broker.bootstrap_servers.unwrap_or_default();
            return Ok(());
        };
        self.say("starting the built-in broker");
        // A broker that may be restarted needs ports of its own, which clients find again; else free ones are taken.
        let restartable = broker.restart.max > 0;
        let mut tries = if restartable { PORT_TRIES } else { 1 };
        loop {
            self.broker_listen =
                if restartable { free_address().map_err(RunError::Api)? } else { "127.0.0.1:0".into() };
            tries -= 1;
            match self.launch_broker(&dir).await {
                Ok(bootstrap) => {
                    self.bootstrap = bootstrap;
                    return Ok(());
                }
                Err(error) if tries == 0 => return Err(error.into()),
                Err(error) => tracing::info!(%error, "trying other ports"),
            }
        }
    }

    /// Starts the broker process on its address and waits until it is ready; returns its bootstrap list.
    async fn launch_broker(&mut self, dir: &Path) -> Result<String, LaunchError> {
        let broker = &self.options.scenario.broker;
        let mut args: Vec<String> = vec!["broker".into(), "--listen".into(), self.broker_listen.clone()];
        args.extend(["--data-dir".into(), dir.display().to_string(), "--nodes".into(), broker.nodes.to_string()]);
        args.extend(["--free-space-floor".into(), broker.free_space_floor.to_string()]);
        if let Some(records) = broker.flush.records {
            args.extend(["--flush-records".into(), records.to_string()]);
        }
        if let Some(interval) = broker.flush.interval {
            args.extend(["--flush-interval".into(), interval.to_string()]);
        }
        let log = self.options.out.join("broker.log");
        let mut process = Process::spawn("broker", &self.options.program, &args, &log, Stdio::piped())?;
        self.watch.watch_process("broker", process.pid);
        let ready = process.ready_line(BROKER_READY).await;
        self.broker = Some(process);
        ready
    }

    async fn create_topics(&mut self) -> Result<(), RunError> {
        let connect = self.services.connect.clone();
        let (bootstrap, client) = (self.bootstrap.clone(), self.options.scenario.broker.resolved_client()?);
        let registry = self.services.registry;
        let need = |topic: &contract::admin::TopicConfig| TopicNeed {
            config: topic.clone(),
            max_frame_bytes: topology::max_frame_bytes(&self.options.scenario, &registry, &topic.name),
        };
        let needs: Vec<TopicNeed> = self.options.scenario.topics.iter().map(need).collect();
        let force = self.options.force;
        let work = move || -> Result<_, RunError> {
            let admin: Arc<dyn Admin> = Arc::from(connect(&bootstrap, &client)?);
            admin.cluster(ADMIN)?;
            let links = admin.preflight(&needs)?;
            let broken: Vec<String> = links
                .iter()
                .filter(|link| !link.ok)
                .map(|link| {
                    format!("{}: {} where {} is needed; {}", link.link, link.observed, link.needed, link.remedy)
                })
                .collect();
            if !broken.is_empty() && !force {
                return Err(RunError::Preflight(broken.join("\n  ")));
            }
            admin.create_topics(&needs)?;
            Ok((admin, links))
        };
        let (admin, links) = blocking(work).await?;
        self.admin = Some(admin);
        self.preflight = links;
        Ok(())
    }

    async fn start_stages(&mut self) -> Result<(), RunError> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(RunError::Api)?;
        let address = listener.local_addr().map_err(RunError::Api)?;
        self.server = Some(tokio::spawn(serve::runner(listener, self.control.clone())));
        self.watch.watch_process("runner", std::process::id());
        let mut work_dirs = BTreeMap::new();
        for stage in self.options.scenario.stages.clone() {
            for instance in 0..stage.instances {
                let role = format!("{}-{instance}", stage.id);
                let work_dir = self.options.out.join("stages").join(&role);
                let mut args: Vec<String> = ["stage", "run", "--once"].map(str::to_owned).into();
                args.extend(["--scenario".into(), self.options.out.join("scenario.yaml").display().to_string()]);
                args.extend(["--id".into(), stage.id.clone(), "--instance".into(), instance.to_string()]);
                args.extend(["--runner".into(), format!("http://{address}")]);
                args.extend(["--work-dir".into(), work_dir.display().to_string()]);
                let log = work_dir.join("log");
                let process = Process::spawn(&role, &self.options.program, &args, &log, Stdio::null())?;
                work_dirs.insert(process.pid, work_dir);
                self.children.push(process);
            }
        }
        self.wait_for_registrations().await?;
        self.fleet = Fleet::new(&self.control, &work_dirs);
        for instance in &self.fleet.instances {
            self.watch.watch_process(&instance.role(), instance.pid);
        }
        Ok(())
    }

    async fn wait_for_registrations(&mut self) -> Result<(), RunError> {
        let deadline = tokio::time::Instant::now() + self.options.scenario.run.ready.0;
        loop {
            let missing = self.control.missing();
            if missing.is_empty() {
                return Ok(());
            }
            self.fail_early(deadline, &missing.join(", "))?;
            tokio::time::sleep(POLL / 4).await;
        }
    }

    /// What ends the wait for readiness: a dead child, the user, the deadline.
    fn fail_early(&mut self, deadline: tokio::time::Instant, missing: &str) -> Result<(), RunError> {
        for child in self.children.iter_mut().chain(self.broker.iter_mut()) {
            if let Some(status) = child.exited() {
                let (what, status, tail) = (child.role.clone(), status.to_string(), child.tail());
                return Err(LaunchError::Ended { what, status, tail }.into());
            }
        }
        if self.interrupted() {
            return Err(RunError::Interrupted);
        }
        if tokio::time::Instant::now() > deadline {
            let seconds = self.options.scenario.run.ready.0.as_secs();
            return Err(RunError::NotReady { seconds, missing: missing.to_owned() });
        }
        Ok(())
    }

    async fn prepare(&mut self) -> Result<(), RunError> {
        self.say("waiting for every stage to connect, load and warm up");
        let run = &self.options.scenario.run;
        let slack_ns = 10_000_000_000;
        let prepare = Prepare {
            run_id: self.control.run_id,
            index: 0,
            of: 1,
            seed: run.seed,
            bootstrap: self.bootstrap.clone(),
            budget: Budget {
                max_bytes: self.options.scenario.broker.disk_budget.0,
                max_run_ns: run.warmup.ns() + run.main.ns() + slack_ns,
            },
        };
        calls(self.fleet.prepare(&prepare).await)?;
        let deadline = tokio::time::Instant::now() + self.options.scenario.run.ready.0;
        loop {
            self.fleet.refresh_states().await;
            if let Some(failed) = self.fleet.instances.iter().find(|instance| instance.state == State::Failed) {
                let unknown = || StageError::stage(failed.role(), "failed without a reason");
                let error = failed.error.clone().unwrap_or_else(unknown);
                return Err(StageError {
                    place: format!("stage `{}`: {}", failed.stage.stage_id, error.place),
                    ..error
                }
                .into());
            }
            let waiting: Vec<String> = self
                .fleet
                .instances
                .iter()
                .filter(|instance| instance.state != State::Ready)
                .map(|instance| format!("{} ({})", instance.role(), instance.state.name()))
                .collect();
            if waiting.is_empty() {
                return Ok(());
            }
            self.fail_early(deadline, &waiting.join(", "))?;
            tokio::time::sleep(POLL / 2).await;
        }
    }

    async fn start(&mut self) -> Result<(), RunError> {
        let t0_mono_ns = mono_ns() + T0_AHEAD_NS;
        // Phases before t0 were stamped against the start of the program.
        let shift_ns = t0_mono_ns - self.t0_mono_ns;
        for phase in &mut self.phases {
            phase.start_ns -= shift_ns;
            phase.end_ns -= shift_ns;
        }
        self.t0_mono_ns = t0_mono_ns;
        calls(self.fleet.start(self.t0_mono_ns).await)?;
        self.next_tick = tokio::time::Instant::now() + Duration::from_nanos(T0_AHEAD_NS as u64);
        Ok(())
    }

    /// Warm-up and main.
    async fn measure(&mut self) {
        tokio::time::sleep_until(self.next_tick).await;
        self.enter_at(Phase::WarmUp, 0);
        let run = self.options.scenario.run.clone();
        loop {
            self.tick(Some(run.warmup.ns())).await;
            if self.trouble() || self.watch.is_steady(self.now_ns()) {
                break;
            }
            if self.now_ns() + PHASE_AHEAD_NS >= run.warmup.ns() {
                break;
            }
        }
        if self.trouble() {
            return self.cut_short().await;
        }
        let main_ns = self.now_ns() + PHASE_AHEAD_NS;
        let drain_ns = main_ns + run.main.ns();
        self.announce(Phase::Main, main_ns).await;
        self.announce(Phase::Drain, drain_ns).await;
        (self.main_ns, self.drain_ns) = (Some(main_ns), Some(drain_ns));
        self.sleep_until_ns(main_ns).await;
        self.enter_at(Phase::Main, main_ns);
        while self.now_ns() < drain_ns {
            self.tick(Some(drain_ns)).await;
            // Past the end of the schedule sources are done as they should be.
            if self.now_ns() < drain_ns && self.trouble() {
                return self.cut_short().await;
            }
        }
    }

    async fn announce(&mut self, phase: Phase, at_ns: i64) {
        for (role, error) in self.fleet.phase(phase, at_ns).await {
            self.warnings.push(format!("{role} did not take phase {}: {error}", phase.name()));
        }
    }

    async fn sleep_until_ns(&self, at_ns: i64) {
        tokio::time::sleep(Duration::from_nanos((at_ns - self.now_ns()).max(0) as u64)).await;
    }

    /// Something happened that makes going on pointless.
    fn trouble(&self) -> bool {
        let over_early = self.fleet.instances.iter().any(|instance| instance.is_over());
        over_early || self.broker_died.is_some() || self.interrupted()
    }

    /// Ends the schedule now.
    async fn cut_short(&mut self) {
        let at_ns = self.now_ns() + PHASE_AHEAD_NS;
        let at_ns = self.drain_ns.map_or(at_ns, |planned| planned.min(at_ns));
        self.announce(Phase::Drain, at_ns).await;
        self.drain_ns = Some(at_ns);
        self.sleep_until_ns(at_ns).await;
    }

    /// One second: books, host, children, progress.
    async fn tick(&mut self, phase_ends_ns: Option<i64>) {
        self.next_tick = (self.next_tick + TICK).max(tokio::time::Instant::now());
        let mut interrupts = self.services.interrupts.clone();
        tokio::select! {
            () = tokio::time::sleep_until(self.next_tick) => {}
            _ = interrupts.changed() => {}
        }
        self.fleet.gather(&self.control, TICK).await;
        self.look_after_broker().await;
        self.look_for_deaths();
        let run_ns = self.now_ns();
        // The last look of main may come just after its end.
        let over = self.phase == Phase::Main && self.drain_ns.is_some_and(|drain_ns| run_ns >= drain_ns);
        let phase = if over { Phase::Drain } else { self.phase };
        match self.watch.row(&self.fleet, run_ns, phase).await {
            Ok(row) => {
                let phase_started_ns = self.phases.last().map_or(0, |phase| phase.start_ns);
                (self.services.progress)(Progress::Row { row, phase_started_ns, phase_ends_ns });
            }
            Err(error) => self.warnings.push(format!("series.jsonl: {error}")),
        }
        if *self.services.interrupts.borrow() > 1 && !self.aborted {
            self.aborted = true;
            self.fleet.abort().await;
        }
    }

    /// A dead broker is started again while the scenario allows it; else the run is over.
    async fn look_after_broker(&mut self) {
        if self.broker_died.is_some() {
            return;
        }
        let Some(status) = self.broker.as_mut().and_then(Process::exited) else { return };
        let most = self.options.scenario.broker.restart.max;
        let Some(dir) = self.data_dir().filter(|_| self.restarts < most) else {
            self.broker_died = Some(format!("the built-in broker ended by itself ({status})"));
            return;
        };
        self.restarts += 1;
        self.warnings
            .push(format!("the built-in broker ended ({status}) and was started again: {} of {most}", self.restarts));
        if let Err(error) = self.launch_broker(&dir).await {
            self.broker_died = Some(format!("the built-in broker ended ({status}) and did not come back: {error}"));
        }
    }

    fn look_for_deaths(&mut self) {
        for child in &mut self.children {
            let Some(status) = child.exited() else { continue };
            let dead = self.fleet.instances.iter_mut().find(|instance| instance.pid == child.pid);
            if let Some(instance) = dead
                && instance.lost.is_none()
            {
                instance.lost = Some(format!("its process ended ({status})"));
            }
        }
    }

    /// Lets sources flush, then consumers read to the end, within the drain time.
    async fn drain(&mut self) {
        let now_ns = self.now_ns();
        self.enter_at(Phase::Drain, self.drain_ns.unwrap_or(now_ns));
        let span_ns = match (&self.broker_died, self.aborted) {
            (None, false) => self.options.scenario.run.drain.ns(),
            _ => SHORT_DRAIN_NS,
        };
        let deadline_ns = now_ns + span_ns;
        let sources: Vec<String> =
            topology::sources(&self.options.scenario, &self.services.registry).iter().map(|s| s.id.clone()).collect();
        let none = DrainTarget { to: BTreeMap::new(), deadline_ns };
        for id in &sources {
            self.fleet.drain(id, &none).await;
        }
        self.wait_over(&sources, deadline_ns).await;
        let order: Vec<(String, String)> = topology::drain_order(&self.options.scenario)
            .iter()
            .filter_map(|stage| Some((stage.id.clone(), stage.from.clone()?)))
            .collect();
        for (id, topic) in order {
            let Some(ends) = self.end_offsets(&topic).await else { continue };
            let target = DrainTarget { to: BTreeMap::from([(topic, ends)]), deadline_ns };
            self.fleet.drain(&id, &target).await;
            self.wait_over(&[id], deadline_ns).await;
        }
        self.fleet.abort().await;
        let all: Vec<String> = self.options.scenario.stages.iter().map(|stage| stage.id.clone()).collect();
        self.wait_over(
            &all,
            deadline_ns.min(self.now_ns() + SHORT_DRAIN_NS).max(self.now_ns() + POLL.as_nanos() as i64),
        )
        .await;
    }

    async fn wait_over(&mut self, stages: &[String], deadline_ns: i64) {
        loop {
            self.look_after_broker().await;
            self.look_for_deaths();
            self.fleet.refresh_states().await;
            let over = |id: &String| self.fleet.of_stage(id).all(|instance| instance.is_over());
            if stages.iter().all(over) {
                return;
            }
            let cut = self.broker_died.is_some() || self.aborted;
            let limit = if cut { deadline_ns.min(self.now_ns() + SHORT_DRAIN_NS) } else { deadline_ns };
            if self.now_ns() > limit + 1_000_000_000 {
                return;
            }
            if tokio::time::Instant::now() + POLL >= self.next_tick + TICK {
                self.tick(Some(deadline_ns)).await;
            } else {
                tokio::time::sleep(POLL).await;
            }
        }
    }

    async fn end_offsets(&mut self, topic: &str) -> Option<BTreeMap<i32, i64>> {
        if self.broker_died.is_some() {
            return None;
        }
        let (admin, name) = (self.admin.clone()?, topic.to_owned());
        match blocking(move || admin.end_offsets(&name, ADMIN)).await {
            Ok(ends) => {
                self.ends.insert(topic.to_owned(), ends.clone());
                Some(ends)
            }
            Err(error) => {
                self.warnings.push(format!("end offsets of {topic}: {error}"));
                None
            }
        }
    }

    /// Final books, sync, end of every child.
    async fn close(&mut self) {
        self.fleet.gather(&self.control, TICK).await;
        let _ = self.watch.row(&self.fleet, self.now_ns(), self.phase).await;
        self.fleet.gather_records().await;
        let topics: Vec<String> = self.options.scenario.topics.iter().map(|topic| topic.name.clone()).collect();
        for topic in &topics {
            if !self.ends.contains_key(topic) {
                self.end_offsets(topic).await;
            }
        }
        self.log_bytes = self.measure_logs(topics).await;
        self.fleet.release().await;
        self.enter(Phase::Sync);
        if let Some(dir) = self.data_dir() {
            let probe = self.services.probe.clone();
            self.sync = tokio::task::spawn_blocking(move || probe.syncfs(&dir, SYNC)).await.ok();
        }
        self.last_sample = self.watch.sample().await;
        let _ = self.watch.row(&self.fleet, self.now_ns(), self.phase).await;
        self.end_children().await;
        self.enter(Phase::End);
    }

    /// Bytes of all replicas; absent when the broker cannot tell or retention deleted some.
    async fn measure_logs(&self, topics: Vec<String>) -> Option<u64> {
        let admin = self.admin.clone().filter(|_| self.broker_died.is_none())?;
        let measure = move || -> Result<Option<u64>, StageError> {
            let mut total = 0;
            for topic in &topics {
                let deleted = admin.start_offsets(topic, ADMIN)?.values().any(|start| *start > 0);
                match admin.log_bytes(topic)? {
                    Some(bytes) if !deleted => total += bytes,
                    _ => return Ok(None),
                }
            }
            Ok(Some(total))
        };
        blocking(measure).await.ok().flatten()
    }

    async fn end_children(&mut self) {
        for child in &mut self.children {
            child.signal(rustix::process::Signal::TERM);
        }
        for child in &mut self.children {
            if !child.end(GRACE).await {
                self.warnings.push(format!("{} did not end within {} s and was killed", child.role, GRACE.as_secs()));
            }
        }
        if let Some(broker) = &mut self.broker
            && !broker.end(GRACE).await
        {
            self.warnings.push("the built-in broker did not end and was killed".into());
        }
        if let Some(server) = self.server.take() {
            server.abort();
        }
    }

    /// The weakest acks of the sources.
    pub fn source_acks(&self) -> Vec<(Acks, bool)> {
        let sources = topology::sources(&self.options.scenario, &self.services.registry);
        sources.iter().map(|stage| books::promise(&stage.publish)).collect()
    }
}

/// A loopback address whose port was free just now.
fn free_address() -> io::Result<String> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

fn calls(failed: Vec<(String, crate::client::ClientError)>) -> Result<(), RunError> {
    if failed.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = failed.iter().map(|(role, error)| format!("{role}: {error}")).collect();
    Err(RunError::Calls(lines.join("\n  ")))
}

async fn blocking<T: Send + 'static, E: From<StageError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let panicked = |error: tokio::task::JoinError| E::from(StageError::stage("runner", error.to_string()));
    tokio::task::spawn_blocking(work).await.map_err(panicked)?
}
