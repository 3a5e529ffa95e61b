//! A run that has begun: ticks, phases, deaths, drain, sync, end of every child. What is before t0 is in `session/begin.rs`.

mod begin;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use contract::admin::Admin;
use contract::clock::mono_ns;
use contract::error::StageError;
use contract::host::{Baseline, HostFacts, HostSample, StorageFacts, SyncOutcome};
use contract::phases::Phase;
use contract::stage::{Demand, DrainTarget};
use contract::summary::PhaseFacts;

use crate::api::State;
use crate::control::{Control, Expected};
use crate::fleet::{Fleet, Instance};
use crate::launch::Process;
use crate::options::{Progress, RunError, RunOptions, Services};
use crate::topology;
use crate::watch::{Roles, Watch};

const TICK: Duration = Duration::from_secs(1);
/// States are polled this often while something is waited for.
const POLL: Duration = Duration::from_millis(200);
/// A phase is announced this far ahead.
const PHASE_AHEAD_NS: i64 = 1_500_000_000;
const ADMIN: Duration = Duration::from_secs(10);
/// Time a child may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(8);
/// Drain after the broker died: nothing can be read any more.
const SHORT_DRAIN_NS: i64 = 3_000_000_000;
/// The broker refuses a batch that would cross the floor, so free space stops a batch or two above it.
const FLOOR_MARGIN_BYTES: u64 = 8 << 20;
const SYNC: Duration = Duration::from_secs(120);

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
    /// Why the broker's answer was given up.
    pub broker_silent: Option<String>,
    pub storage_full: Option<String>,
    /// The data directory was made by this run, so that this run may remove it.
    data_made: bool,
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

impl Run {
    pub fn new(options: RunOptions, services: Services) -> Result<Self, RunError> {
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
            broker_silent: None,
            storage_full: None,
            data_made: false,
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

    /// Where the built-in broker keeps its data: always a folder of this run's own, because it is removed at the end.
    pub fn data_dir(&self) -> Option<PathBuf> {
        let broker = &self.options.scenario.broker;
        if broker.bootstrap_servers.is_some() {
            return None;
        }
        Some(match &broker.data_dir {
            Some(named) => named.join(format!("reelbench-{}", self.control.run_id)),
            None => self.options.out.join("broker"),
        })
    }

    /// Removes the broker's data, best effort: it may be tens of gigabytes and must not change a result.
    pub fn remove_data(&self) {
        if let Some(dir) = self.data_dir().filter(|_| self.data_made) {
            let _ = std::fs::remove_dir_all(dir);
        }
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

    /// Warm-up and main.
    pub async fn measure(&mut self) {
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
        let dead =
            self.fleet.instances.iter().any(|instance| instance.lost.is_some() || instance.state == State::Failed);
        // An instance without a stream of its own is done at once: only when every source is done is there nothing to come.
        let is_source = |instance: &&Instance| self.sources().contains(&instance.stage.stage_id);
        let all_done = self.fleet.instances.iter().filter(is_source).all(Instance::is_over);
        dead || all_done || self.broker_died.is_some() || self.storage_full.is_some() || self.interrupted()
    }

    fn sources(&self) -> Vec<String> {
        let sources = topology::sources(&self.options.scenario, &self.services.registry);
        sources.iter().map(|stage| stage.id.clone()).collect()
    }

    /// The built-in broker refuses to write below its floor and clients retry in silence: the run is over, and says why.
    fn look_at_free_space(&mut self) {
        let Some(dir) = self.data_dir().filter(|_| self.storage_full.is_none()) else { return };
        let Ok(space) = rustix::fs::statvfs(&dir) else { return };
        let (free, floor) = (space.f_bavail * space.f_frsize, self.options.scenario.broker.free_space_floor.0);
        if free < floor.saturating_add(FLOOR_MARGIN_BYTES) {
            let (free, floor) = (free >> 20, floor >> 20);
            let full = format!("storage is full: {free} MiB free in {}, the floor is {floor} MiB", dir.display());
            self.storage_full = Some(full);
        }
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
        self.look_at_free_space();
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
            let instance = self.fleet.instances.iter_mut().find(|instance| instance.pid == child.pid);
            let Some(instance) = instance else { continue };
            match child.exited() {
                Some(status) => {
                    instance.lost.get_or_insert_with(|| format!("its process ended ({status})"));
                }
                // Given up means gone: one that woke up again would write behind the books.
                None if instance.lost.is_some() => child.signal(rustix::process::Signal::KILL),
                None => {}
            }
        }
    }

    /// Lets sources flush, then consumers read to the end, within the drain time.
    pub async fn drain(&mut self) {
        let now_ns = self.now_ns();
        self.enter_at(Phase::Drain, self.drain_ns.unwrap_or(now_ns));
        let hopeless = self.broker_died.is_some() || self.storage_full.is_some() || self.aborted;
        let span_ns = if hopeless { SHORT_DRAIN_NS } else { self.options.scenario.run.drain.ns() };
        let deadline_ns = now_ns + span_ns;
        let sources = self.sources();
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
        if self.broker_died.is_some() || self.broker_silent.is_some() {
            return None;
        }
        let (admin, name) = (self.admin.clone()?, topic.to_owned());
        match blocking(move || admin.end_offsets(&name, ADMIN)).await {
            Ok(ends) => {
                self.ends.insert(topic.to_owned(), ends.clone());
                Some(ends)
            }
            Err(error) => {
                // Asked once: each further topic would wait as long again.
                self.broker_silent = Some(format!("end offsets of {topic}: {error}"));
                None
            }
        }
    }

    /// Final books, end of every stage, sync, end of the broker.
    pub async fn close(&mut self) {
        self.fleet.gather(&self.control, TICK).await;
        let _ = self.watch.row(&self.fleet, self.now_ns(), self.phase).await;
        self.fleet.gather_records().await;
        self.look_after_broker().await;
        self.look_for_deaths();
        self.fleet.release().await;
        self.end_stages().await;
        // Only now does nobody write any more: these ends are final.
        let topics: Vec<String> = self.options.scenario.topics.iter().map(|topic| topic.name.clone()).collect();
        for topic in &topics {
            self.end_offsets(topic).await;
        }
        self.log_bytes = self.measure_logs(topics).await;
        self.enter(Phase::Sync);
        if let Some(dir) = self.data_dir() {
            let probe = self.services.probe.clone();
            self.sync = tokio::task::spawn_blocking(move || probe.syncfs(&dir, SYNC)).await.ok();
        }
        self.last_sample = self.watch.sample().await;
        let _ = self.watch.row(&self.fleet, self.now_ns(), self.phase).await;
        self.look_after_broker().await;
        self.end_children().await;
        self.enter(Phase::End);
    }

    /// Bytes of all replicas; absent when the broker cannot tell or retention deleted some.
    async fn measure_logs(&self, topics: Vec<String>) -> Option<u64> {
        let admin = self.admin.clone().filter(|_| self.broker_died.is_none() && self.broker_silent.is_none())?;
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

    async fn end_stages(&mut self) {
        for child in &mut self.children {
            child.signal(rustix::process::Signal::TERM);
        }
        for child in &mut self.children {
            if !child.end(GRACE).await {
                self.warnings.push(format!("{} did not end within {} s and was killed", child.role, GRACE.as_secs()));
            }
        }
    }

    pub async fn end_children(&mut self) {
        self.end_stages().await;
        if let Some(broker) = &mut self.broker
            && !broker.end(GRACE).await
        {
            self.warnings.push("the built-in broker did not end and was killed".into());
        }
        if let Some(server) = self.server.take() {
            server.abort();
        }
    }
}

async fn blocking<T: Send + 'static, E: From<StageError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let panicked = |error: tokio::task::JoinError| E::from(StageError::stage("runner", error.to_string()));
    tokio::task::spawn_blocking(work).await.map_err(panicked)?
}
