//! `reelbench completions`: shell completions.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output;

/// Print completions for a shell
#[derive(Args)]
#[command(after_help = "Examples:\n  reelbench completions bash > /etc/bash_completion.d/reelbench")]
pub struct CompletionsArgs {
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "reelbench", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
