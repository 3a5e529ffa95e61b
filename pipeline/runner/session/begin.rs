//! Everything before t0: storage, broker, topics, stages, readiness. Each failure here is an error of the user's or the host's.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use contract::admin::{Admin, TopicNeed};
use contract::clock::mono_ns;
use contract::error::StageError;
use contract::phases::Phase;
use contract::stage::Budget;

use super::{ADMIN, POLL, Run, blocking};
use crate::api::{Prepare, State};
use crate::fleet::Fleet;
use crate::launch::{LaunchError, Process};
use crate::options::RunError;
use crate::{serve, topology};

/// t0 lies this far ahead, so that every instance hears of it.
const T0_AHEAD_NS: i64 = 2_000_000_000;
/// Port ranges tried for a broker that may be restarted: another program may take one between looking and binding.
const PORT_TRIES: u32 = 5;
const BROKER_READY: Duration = Duration::from_secs(60);

impl Run {
    /// Everything before t0; each failure is an error of the user's or the host's.
    pub async fn begin(&mut self) -> Result<(), RunError> {
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
                let failed = |error: io::Error| StageError::storage(path.display().to_string(), error.to_string());
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent).map_err(failed)?;
                }
                // Must be new: what this run did not make it must not remove.
                std::fs::create_dir(path).map_err(failed)?;
                self.data_made = true;
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
    pub async fn launch_broker(&mut self, dir: &Path) -> Result<String, LaunchError> {
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
