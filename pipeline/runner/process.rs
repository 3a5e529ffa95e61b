//! A stage process: serves its API, registers with the runner or runs by hand, and ends in time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use contract::clock::mono_ns;
use contract::error::StageError;

use crate::agent::{Agent, DEAD_MAN};
use crate::api::{API, Prepare, Registered, Registration, State, StateReply};
use crate::client::{Client, ClientError};
use crate::{serve, topology};

/// Why a stage process ends with an error.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error("listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("register with the runner: {0}")]
    Register(#[from] ClientError),
    #[error("the runner was not heard for {} s; stopped", DEAD_MAN.as_secs())]
    RunnerLost,
}

/// Runs a stage process until it is released, told to stop, or loses its runner.
pub async fn run(agent: Arc<Agent>, stop: impl Future<Output = ()>) -> Result<(), AgentError> {
    let listen = agent.options.listen;
    let fail = |source| AgentError::Listen { address: listen, source };
    let listener = tokio::net::TcpListener::bind(listen).await.map_err(fail)?;
    let address = listener.local_addr().map_err(fail)?;
    let server = tokio::spawn(serve::stage(listener, agent.clone()));
    agent.enter(State::Idle);
    tokio::pin!(stop);
    let outcome = match agent.options.runner.clone() {
        Some(runner) => under_runner(&agent, &runner, address, stop).await,
        None => by_hand(&agent, stop).await,
    };
    server.abort();
    outcome
}

async fn under_runner(
    agent: &Arc<Agent>,
    runner: &str,
    address: SocketAddr,
    mut stop: impl Future<Output = ()> + Unpin,
) -> Result<(), AgentError> {
    tokio::select! {
        registered = register(agent, runner, address) => registered?,
        () = &mut stop => return Ok(()),
    };
    loop {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
            () = &mut stop => {
                agent.stop();
                wait_until_final(agent).await;
                return Ok(());
            }
        }
        if agent.options.once && agent.is_released() {
            return Ok(());
        }
        if agent.silent() {
            agent.stop();
            tokio::time::sleep(Duration::from_secs(2)).await;
            agent.abort();
            wait_until_final(agent).await;
            return Err(AgentError::RunnerLost);
        }
    }
}

async fn wait_until_final(agent: &Agent) {
    for _ in 0..50 {
        let state = agent.state().state;
        if state.is_final() || state == State::Idle {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn register(agent: &Agent, runner: &str, address: SocketAddr) -> Result<Registered, AgentError> {
    let client = Client::default();
    let registration = Registration {
        stage_id: agent.stage_id().to_owned(),
        instance_uuid: format!("{}-{}-{}", agent.options.host.boot_id, std::process::id(), mono_ns()),
        base_url: format!("http://{address}"),
        api: API,
        version: agent.options.version.clone(),
        scenario_sha256: agent.options.scenario_sha256.clone(),
        instance: agent.options.instance,
        pid: std::process::id(),
        host: agent.options.host.clone(),
    };
    let url = format!("{runner}/v1/instances");
    loop {
        match client.post(&url, &registration, Duration::from_secs(5)).await {
            Ok(registered) => {
                agent.heard();
                return Ok(registered);
            }
            Err(error @ ClientError::Refused { .. }) => return Err(error.into()),
            Err(error) => tracing::debug!(%error, "the runner does not answer yet"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A stage run by a person: it starts when ready and ends when its work does, or on a signal.
async fn by_hand(agent: &Arc<Agent>, mut stop: impl Future<Output = ()> + Unpin) -> Result<(), AgentError> {
    let scenario = &agent.options.scenario;
    let bootstrap = scenario.broker.bootstrap_servers.clone().ok_or_else(|| {
        StageError::config("broker.bootstrap_servers", "a stage run by hand needs the address of a running broker")
    })?;
    let end_ns = scenario.run.warmup.ns() + scenario.run.main.ns();
    let prepare = Prepare {
        run_id: topology::new_run_id(),
        index: 0,
        of: 1,
        seed: scenario.run.seed,
        bootstrap,
        budget: contract::stage::Budget { max_bytes: scenario.broker.disk_budget.0, max_run_ns: end_ns },
    };
    let stage_failed = |message: String| StageError::stage(agent.stage_id(), message);
    agent.prepare(prepare).map_err(stage_failed)?;
    loop {
        agent.heard();
        let StateReply { state, error, .. } = agent.state();
        match state {
            State::Ready => {
                agent.start(mono_ns() + 1_000_000_000).map_err(stage_failed)?;
                agent.phase(contract::phases::Phase::Main, 0).map_err(stage_failed)?;
                agent.phase(contract::phases::Phase::Drain, end_ns).map_err(stage_failed)?;
            }
            State::Done => return Ok(()),
            State::Failed => {
                return Err(error.unwrap_or_else(|| stage_failed("failed without a reason".into())).into());
            }
            _ => {}
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
            () = &mut stop => agent.stop(),
        }
        if agent.is_released() {
            wait_until_final(agent).await;
            return Ok(());
        }
    }
}
