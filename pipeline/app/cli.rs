//! The command line: one file and one `Args` for each verb.

pub mod assets;
mod broker;
mod check;
mod compare;
mod completions;
mod doctor;
mod report;
mod run;
mod schema;
mod stage;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// Benchmark storage with a real streaming-inference ingest pipeline
#[derive(Parser)]
#[command(name = "reelbench", version, max_term_width = 100)]
pub struct Cli {
    /// Log what happens to standard error
    #[arg(long, short, global = true)]
    pub verbose: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Check(check::CheckArgs),
    Run(run::RunArgs),
    Stage(stage::StageArgs),
    Broker(broker::BrokerArgs),
    Report(report::ReportArgs),
    Compare(compare::CompareArgs),
    Schema(schema::SchemaArgs),
    Assets(assets::AssetsArgs),
    Doctor(doctor::DoctorArgs),
    Completions(completions::CompletionsArgs),
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

impl Cli {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::Check(args) => check::run(&args),
            Verb::Run(args) => run::run(args),
            Verb::Stage(args) => stage::run(args),
            Verb::Broker(args) => broker::run(args),
            Verb::Report(args) => report::run(&args),
            Verb::Compare(args) => compare::run(&args),
            Verb::Schema(args) => schema::run(&args),
            Verb::Assets(args) => assets::run(args),
            Verb::Doctor(args) => doctor::run(&args),
            Verb::Completions(args) => completions::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
