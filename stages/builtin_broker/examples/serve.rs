//! A broker as a process of its own, for tests that kill it: `serve <data dir> [option=value ...] [quiet]`.
//!
//! Prints `ready <bootstrap servers>`, serves until its standard input closes, then prints its facts as JSON.

use std::io::Read;
use std::path::PathBuf;

use builtin_broker::{Broker, BrokerOptions};

type AnyError = Box<dyn std::error::Error>;

fn options(arguments: impl Iterator<Item = String>) -> Result<BrokerOptions, AnyError> {
    let mut arguments = arguments.skip(1);
    let data_dir = PathBuf::from(arguments.next().ok_or("a data directory is needed")?);
    let mut options = BrokerOptions { data_dir, ..Default::default() };
    for argument in arguments {
        let (name, value) = argument.split_once('=').ok_or("options are written name=value")?;
        match name {
            "nodes" => options.nodes = value.parse()?,
            "listen" => options.listen = value.parse()?,
            "segment_bytes" => options.segment_bytes = value.parse()?,
            "disk_floor_bytes" => options.disk_floor_bytes = value.parse()?,
            "flush_messages" => options.flush.every_messages = Some(value.parse()?),
            "flush_ms" => options.flush.every_ms = Some(value.parse()?),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok(options)
}

#[expect(clippy::print_stdout, reason = "standard output is how the parent learns the address")]
fn main() -> Result<(), AnyError> {
    let (quiet, arguments): (Vec<String>, Vec<String>) = std::env::args().partition(|argument| argument == "quiet");
    if quiet.is_empty() {
        tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    }
    let broker = Broker::start(options(arguments.into_iter())?)?;
    println!("ready {}", broker.bootstrap_servers());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let facts = broker.stop()?;
    println!("facts {}", serde_json::to_string(&facts)?);
    Ok(())
}
