//! The binary `reelbench`.

mod assets;
mod cli {
    pub mod assets;
}

use clap::Parser;

#[derive(Parser)]
#[command(name = "reelbench", version)]
enum Command {
    Assets(cli::assets::AssetsArgs),
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    match Command::parse() {
        Command::Assets(args) => cli::assets::run(args),
    }
}
