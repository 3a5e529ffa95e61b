//! `reelbench check`: every problem at once, else the load that the scenario will offer.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use contract::host::HostProbe;
use scenario::{Loaded, Offer, Problems, Severity};

use crate::cli::Format;
use crate::output;
use crate::registry::REGISTRY;

/// Check a scenario: every problem with its place, else the load it will offer
#[derive(Args)]
#[command(
    after_help = "Examples:\n  reelbench check configs/quickstart.yaml\n  reelbench check configs/quickstart.yaml --set stages.cameras.config.streams=30"
)]
pub struct CheckArgs {
    /// Scenario file
    #[arg(value_name = "SCENARIO")]
    path: PathBuf,
    #[command(flatten)]
    pub overrides: Overrides,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Changes to the scenario on the command line.
#[derive(Args, Clone, Debug, Default)]
pub struct Overrides {
    /// Change a value, with stages addressed by id and topics by name: `stages.cameras.config.streams=30`
    #[arg(long = "set", value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Length of main, such as `20s`
    #[arg(long, value_name = "TIME")]
    duration: Option<contract::Span>,
    /// Use this cluster instead of the built-in broker
    #[arg(long, value_name = "HOST:PORT,...")]
    bootstrap_servers: Option<String>,
}

impl Overrides {
    /// All as `--set` arguments, in the order of precedence.
    pub fn arguments(&self) -> Vec<String> {
        let mut all = self.set.clone();
        all.extend(self.duration.map(|span| format!("run.main={span}")));
        all.extend(self.bootstrap_servers.as_ref().map(|servers| format!("broker.bootstrap_servers={servers}")));
        all
    }
}

pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let loaded = match scenario::load(&args.path, &args.overrides.arguments(), &REGISTRY) {
        Ok(loaded) => loaded,
        Err(problems) => return refused(&problems, args.format),
    };
    loaded.warnings.iter().for_each(|warning| eprintln!("{warning}"));
    let loaded = loaded.with_auditors();
    let (offer, problems) = offer_of(&loaded);
    problems
        .0
        .iter()
        .filter(|problem| problem.severity == Severity::Warning)
        .for_each(|problem| eprintln!("{problem}"));
    if !offer.is_runnable() {
        return refused(&problems, args.format);
    }
    match args.format {
        Format::Json => output::print_json(&offer)?,
        Format::Text => output::print(&offer.to_string())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The load a scenario will put on this host, and what forbids it or should be known before.
pub fn offer_of(loaded: &Loaded) -> (Offer, Problems) {
    let mut offer = scenario::offer(&loaded.scenario, &REGISTRY);
    let broker = &loaded.scenario.broker;
    if broker.bootstrap_servers.is_none() {
        let dir = broker.data_dir.clone().unwrap_or_else(|| PathBuf::from("."));
        // A data directory that does not exist yet lies in the nearest folder that does.
        let existing = dir.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
        if let Some(free_bytes) = disk::DiskProbe::default().storage_facts(existing).free_bytes {
            offer = offer.with_free_bytes(free_bytes);
        }
    }
    let problems = Problems(loaded.problems_of(&offer));
    (offer, problems)
}

/// Prints every problem; exit code 2.
pub fn refused(problems: &Problems, format: Format) -> anyhow::Result<ExitCode> {
    match format {
        Format::Json => output::print_json(problems)?,
        Format::Text => eprintln!("{problems}"),
    }
    Ok(ExitCode::from(2))
}
