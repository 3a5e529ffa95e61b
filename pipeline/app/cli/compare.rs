//! `reelbench compare`: two run folders side by side.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use report::RunFolder;

use crate::cli::Format;
use crate::output;

/// Compare two runs: each figure, both values, the difference, and what differs in scenario and host
#[derive(Args)]
#[command(after_help = "Examples:\n  reelbench compare results/drive-a results/drive-b")]
pub struct CompareArgs {
    #[arg(value_name = "A")]
    a: PathBuf,
    #[arg(value_name = "B")]
    b: PathBuf,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let comparison = report::compare(&RunFolder::read(&args.a)?, &RunFolder::read(&args.b)?);
    match args.format {
        Format::Json => output::print_json(&comparison.json())?,
        Format::Text => output::print(&comparison.text())?,
    }
    Ok(ExitCode::SUCCESS)
}
