//! `reelbench report`: the table and the HTML page of a run folder, also an unfinished one.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use report::RunFolder;

use crate::output;

/// Show a run folder again and rewrite its report.html
#[derive(Args)]
#[command(after_help = "Examples:\n  reelbench report results/quickstart-20260131-120000")]
pub struct ReportArgs {
    /// Run folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let folder = RunFolder::read(&args.dir)?;
    let page = report::write_html(&args.dir)?;
    output::print(&report::table(&folder))?;
    output::print(&format!("\nreport: {}", page.display()))?;
    Ok(ExitCode::SUCCESS)
}
