//! The binary `reelbench`: one program for the runner, every stage and the built-in broker.

mod assets;
mod cli;
mod output;
mod progress;
mod registry;
mod signals;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // Before anything else: a child must not outlive the process that started it.
    runner::end_with_parent();
    let cli = cli::Cli::parse();
    output::start_log(cli.verbose);
    match cli.run() {
        Ok(code) => code,
        // A reader that left early (`| head`) is no failure of ours.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reelbench: {}", output::told(&error));
            ExitCode::from(2)
        }
    }
}
