//! `reelbench schema`: the JSON Schemas of scenario files and of summary.json, and the reference pages made from them.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use contract::metrics::{Kind, catalogue};

use crate::output;
use crate::registry::REGISTRY;

/// Print the JSON Schema of scenario files (for editors), of summary.json, or a reference page
#[derive(Args)]
#[command(
    after_help = "Examples:\n  reelbench schema > scenario.schema.json\n  reelbench schema summary\n  reelbench schema metrics --markdown"
)]
pub struct SchemaArgs {
    #[arg(value_enum, default_value_t = What::Scenario)]
    what: What,
    /// Print the reference page instead of the schema
    #[arg(long)]
    markdown: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    Scenario,
    Summary,
    Metrics,
}

pub fn run(args: &SchemaArgs) -> anyhow::Result<ExitCode> {
    match (args.what, args.markdown) {
        (What::Scenario, false) => output::print_json(&scenario::json_schema(&REGISTRY))?,
        (What::Scenario, true) => output::print(&scenario::reference_markdown(&REGISTRY))?,
        (What::Summary, false) => output::print_json(&report::summary_schema())?,
        (What::Summary, true) => output::print(&report::summary_markdown())?,
        (What::Metrics, _) => output::print(&metrics_page())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The metric catalogue as a page.
fn metrics_page() -> String {
    let mut page = String::from(
        "# Metrics\n\nServed at `/metrics` by every stage and, for all of them, by the runner. Base units; counters end in \
         `_total`. No metric has a label per stream. Source: the catalogue in `stages/contract/metrics.rs`.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for metric in catalogue() {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
        };
        let _ = writeln!(page, "| `{}` | {kind} | {} | {} |", metric.name, metric.labels.join(", "), metric.about);
    }
    page
}
