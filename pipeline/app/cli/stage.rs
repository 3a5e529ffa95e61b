//! `reelbench stage`: the stage kinds, and one stage alone as a container runs it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use broker::KafkaAdapters;
use clap::{Args, Subcommand};
use contract::host::HostProbe;
use runner::agent::{Agent, AgentOptions};
use runner::api::HostId;
use runner::process;

use crate::cli::Format;
use crate::cli::check::{Overrides, refused};
use crate::output;
use crate::registry::REGISTRY;
use crate::signals;

/// List the stage kinds, or run one stage alone
#[derive(Args)]
pub struct StageArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Every stage kind with what it does
    List {
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    Run(Box<RunArgs>),
}

/// Run one stage of a scenario, as `reelbench run` and containers do
#[derive(Args)]
#[command(
    after_help = "Examples:\n  reelbench stage run --scenario configs/quickstart.yaml --id cameras --bootstrap-servers 127.0.0.1:9092"
)]
struct RunArgs {
    #[arg(long, value_name = "FILE")]
    scenario: PathBuf,
    /// Stage id
    #[arg(long)]
    id: String,
    /// Number of this instance, which the runner keeps when it is free; without it the runner gives one
    #[arg(long)]
    instance: Option<u32>,
    /// Runner to register with, `http://host:port`; without one the stage starts when ready
    #[arg(long, value_name = "URL")]
    runner: Option<String>,
    /// Folder of the ledger; default `results/stages/<id>-<instance>`
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// Where the stage's API and /metrics listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// End after one run instead of waiting for the next
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    overrides: Overrides,
}

pub fn run(args: StageArgs) -> Result<ExitCode> {
    match args.verb {
        Verb::List { format } => list(format),
        Verb::Run(args) => run_stage(*args),
    }
}

fn list(format: Format) -> Result<ExitCode> {
    let mut rows: Vec<_> = REGISTRY.entries().collect();
    rows.sort_by_key(|entry| entry.kind);
    match format {
        Format::Json => {
            let row = |entry: &&contract::StageEntry| serde_json::json!({ "kind": entry.kind, "ports": entry.ports, "about": entry.about });
            output::print_json(&rows.iter().map(row).collect::<Vec<_>>())?;
        }
        Format::Text => {
            let ports = |entry: &contract::StageEntry| format!("{:?}", entry.ports).to_lowercase();
            let row =
                |entry: &&contract::StageEntry| format!("{:<10} {:<10} {}", entry.kind, ports(entry), entry.about);
            output::print(&rows.iter().map(row).collect::<Vec<_>>().join("\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_stage(args: RunArgs) -> Result<ExitCode> {
    let loaded = match scenario::load(&args.scenario, &args.overrides.arguments(), &REGISTRY) {
        Ok(loaded) => loaded,
        Err(problems) => return refused(&problems, Format::Text),
    };
    let loaded = loaded.with_auditors();
    let own_dir = PathBuf::from("results/stages").join(format!("{}-{}", args.id, args.instance.unwrap_or(0)));
    let facts = disk::DiskProbe::default().host_facts();
    let options = AgentOptions {
        scenario_sha256: loaded.sha256,
        scenario: loaded.scenario,
        stage_id: args.id,
        instance: args.instance,
        work_dir: args.work_dir.unwrap_or(own_dir),
        registry: REGISTRY,
        adapters: Arc::new(KafkaAdapters),
        host: HostId { name: facts.name, boot_id: facts.boot_id, time_namespace: facts.time_namespace },
        version: env!("CARGO_PKG_VERSION").into(),
        listen: args.listen,
        runner: args.runner,
        once: args.once,
    };
    // One thread is enough for the API; the stage's work has threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let agent = Agent::new(options)?;
    runtime.block_on(process::run(agent, Box::pin(signals::one())))?;
    Ok(ExitCode::SUCCESS)
}
