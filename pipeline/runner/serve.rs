//! HTTP servers: the stage's API, and the runner's registration and metrics.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Query, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use contract::metrics::{self, Source};
use serde::Deserialize;
use tokio::net::TcpListener;

use crate::agent::{Agent, clock_reply};
use crate::api::{Drain, PhaseCall, Prepare, Refusal, Start};
use crate::control::Control;

/// Largest request body: a drain target of many partitions fits; anything else is a mistake.
const MAX_BODY_BYTES: usize = 4 << 20;
/// Longest long poll.
const MAX_WAIT: Duration = Duration::from_secs(10);

const TEXT: [(&str, &str); 1] = [("content-type", "text/plain; version=0.0.4")];

fn refuse(status: StatusCode, error: String) -> Response {
    (status, Json(Refusal { error })).into_response()
}

fn reply(result: Result<(), String>, accepted: StatusCode) -> Response {
    match result {
        Ok(()) => (accepted, Json(serde_json::Value::Null)).into_response(),
        Err(error) => refuse(StatusCode::CONFLICT, error),
    }
}

/// Serves the API of a stage instance until the task is aborted.
pub async fn stage(listener: TcpListener, agent: Arc<Agent>) {
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/metrics", get(stage_metrics))
        .route("/v1/clock", get(async || Json(clock_reply())))
        .route("/v1/prepare", post(prepare))
        .route("/v1/state", get(state))
        .route("/v1/start", post(start))
        .route("/v1/phase", post(phase))
        .route("/v1/delta", get(delta))
        .route("/v1/drain", post(drain))
        .route("/v1/abort", post(abort))
        .route("/v1/record", get(record))
        .route("/v1/release", post(release))
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(agent);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the stage API stopped");
    }
}

async fn stage_metrics(Shared(agent): Shared<Arc<Agent>>) -> Response {
    let delta = agent.delta().delta;
    let source = Source { stage: agent.stage_id(), kind: agent.kind(), instance: agent.index() };
    (TEXT, metrics::render(&[(source, &delta)])).into_response()
}

async fn prepare(Shared(agent): Shared<Arc<Agent>>, Json(prepare): Json<Prepare>) -> Response {
    agent.heard();
    reply(agent.prepare(prepare), StatusCode::ACCEPTED)
}

#[derive(Deserialize)]
struct Wait {
    #[serde(default)]
    wait_ms: u64,
}

/// Answers at once when the state changed within the wait, else at its end.
async fn state(Shared(agent): Shared<Arc<Agent>>, Query(wait): Query<Wait>) -> Response {
    agent.heard();
    let before = agent.state();
    let changed = agent.notify.notified();
    if wait.wait_ms > 0 && agent.state().state == before.state {
        let _ = tokio::time::timeout(Duration::from_millis(wait.wait_ms).min(MAX_WAIT), changed).await;
    }
    Json(agent.state()).into_response()
}

async fn start(Shared(agent): Shared<Arc<Agent>>, Json(call): Json<Start>) -> Response {
    agent.heard();
    reply(agent.start(call.t0_mono_ns), StatusCode::OK)
}

async fn phase(Shared(agent): Shared<Arc<Agent>>, Json(call): Json<PhaseCall>) -> Response {
    agent.heard();
    reply(agent.phase(call.name, call.at_ns), StatusCode::OK)
}

async fn delta(Shared(agent): Shared<Arc<Agent>>) -> Response {
    agent.heard();
    Json(agent.delta()).into_response()
}

async fn drain(Shared(agent): Shared<Arc<Agent>>, Json(target): Json<Drain>) -> Response {
    agent.heard();
    reply(agent.drain(target), StatusCode::OK)
}

async fn abort(Shared(agent): Shared<Arc<Agent>>) -> Response {
    agent.heard();
    agent.abort();
    reply(Ok(()), StatusCode::OK)
}

async fn record(Shared(agent): Shared<Arc<Agent>>) -> Response {
    agent.heard();
    Json(agent.record()).into_response()
}

async fn release(Shared(agent): Shared<Arc<Agent>>) -> Response {
    agent.heard();
    agent.release();
    reply(Ok(()), StatusCode::OK)
}

/// Serves registration and the run's metrics until the task is aborted.
pub async fn runner(listener: TcpListener, control: Arc<Control>) {
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/metrics", get(runner_metrics))
        .route("/v1/clock", get(async || Json(clock_reply())))
        .route("/v1/instances", post(register))
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(control);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the runner API stopped");
    }
}

async fn runner_metrics(Shared(control): Shared<Arc<Control>>) -> Response {
    (TEXT, control.metrics()).into_response()
}

async fn register(
    Shared(control): Shared<Arc<Control>>,
    Json(registration): Json<crate::api::Registration>,
) -> Response {
    match control.register(registration) {
        Ok(registered) => Json(registered).into_response(),
        Err(error) => refuse(StatusCode::CONFLICT, error),
    }
}
