//! `reelbench run`: the main job. Runs a scenario and ends with a verdict.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use clap::Args;
use report::RunFolder;
use runner::{RunOptions, Services};

use crate::cli::Format;
use crate::cli::check::{Overrides, offer_of, refused};
use crate::output;
use crate::progress::Show;
use crate::registry::REGISTRY;
use crate::signals;

/// Run a scenario: exit 0 PASS, 1 FAIL, 2 usage or an error before it began, 3 INVALID, 130 interrupted
#[derive(Args)]
#[command(
    after_help = "Examples:\n  reelbench run configs/quickstart.yaml\n  reelbench run configs/quickstart.yaml --set stages.cameras.config.streams=30 --duration 20s\n  reelbench run configs/quickstart.yaml --bootstrap-servers kafka1:9092,kafka2:9092 --out results/kafka"
)]
pub struct RunArgs {
    /// Scenario file
    #[arg(value_name = "SCENARIO")]
    path: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Run folder, which must not exist; default `results/<name>-<date>-<time>`
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Keep the built-in broker's data
    #[arg(long)]
    keep_data: bool,
    /// Allow broker data in RAM; the result is INVALID as a statement on storage
    #[arg(long)]
    allow_ram: bool,
    /// Go on although the preflight found a broken link
    #[arg(long)]
    force: bool,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: RunArgs) -> Result<ExitCode> {
    let overrides = args.overrides.arguments();
    let loaded = match scenario::load(&args.path, &overrides, &REGISTRY) {
        Ok(loaded) => loaded,
        Err(problems) => return refused(&problems, args.format),
    };
    loaded.warnings.iter().for_each(|warning| eprintln!("{warning}"));
    let loaded = loaded.with_auditors();
    let (offer, problems) = offer_of(&loaded);
    if !offer.is_runnable() {
        return refused(&problems, args.format);
    }
    problems.0.iter().for_each(|warning| eprintln!("{warning}"));
    let scenario = loaded.scenario;
    let out = args.out.unwrap_or_else(|| PathBuf::from("results").join(runner::folder_name(&scenario.run.name)));
    let options = RunOptions {
        sha256: loaded.sha256,
        scenario,
        text: loaded.text,
        path: args.path,
        overrides,
        version: env!("CARGO_PKG_VERSION").into(),
        out: out.clone(),
        program: std::env::current_exe().context("find this program")?,
        allow_ram: args.allow_ram,
        keep_data: args.keep_data,
        force: args.force,
    };
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    let show = Arc::new(Mutex::new(Show::new()));
    let shown = show.clone();
    let summary = runtime.block_on(async {
        let services = Services {
            registry: REGISTRY,
            connect: Arc::new(broker::admin),
            probe: Arc::new(disk::DiskProbe::default()),
            progress: Box::new(move |progress| {
                shown.lock().unwrap_or_else(PoisonError::into_inner).show(&progress);
            }),
            interrupts: signals::count().context("listen for signals")?,
        };
        anyhow::Ok(runner::run(options, services).await)
    })?;
    show.lock().unwrap_or_else(PoisonError::into_inner).end();
    let summary = match summary {
        Ok(summary) => summary,
        Err(error @ runner::RunError::Interrupted) => {
            eprintln!("reelbench: {error}");
            return Ok(ExitCode::from(130));
        }
        Err(error) => return Err(error.into()),
    };
    let report = report::write_html(&out)?;
    match args.format {
        Format::Json => output::print_json(&summary)?,
        Format::Text => {
            output::print(&report::table(&RunFolder::read(&out)?))?;
            output::print(&format!("\nreport: {}", report.display()))?;
        }
    }
    Ok(ExitCode::from(if summary.interrupted { 130 } else { summary.verdict.status.exit_code() }))
}
