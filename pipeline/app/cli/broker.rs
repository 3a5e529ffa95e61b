//! `reelbench broker`: the built-in broker as a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use builtin_broker::{Broker, BrokerOptions, FlushPolicy};
use clap::Args;
use contract::{ByteSize, Span};

use crate::output;
use crate::signals;

/// Run the built-in broker: Kafka's protocol over real segment files, without replication over a network
///
/// Its numbers do not stand for Apache Kafka. Prints `ready HOST:PORT,...` once clients may connect; ends on SIGTERM.
#[derive(Args)]
#[command(after_help = "Examples:\n  reelbench broker --data-dir data/broker --nodes 3 --listen 127.0.0.1:9092")]
pub struct BrokerArgs {
    /// Where topics and logs live
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Virtual brokers, each with a port and a replica directory
    #[arg(long, default_value_t = 3)]
    nodes: u16,
    /// Address of the first node; the others take the ports after it; port 0 takes free ones
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9092")]
    listen: SocketAddr,
    /// Host name told to clients; default the listening address
    #[arg(long, value_name = "HOST")]
    advertised_host: Option<String>,
    /// Refuse to write when free space would fall below this
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    free_space_floor: ByteSize,
    /// Sync a partition after this many records, before they are acknowledged
    #[arg(long, value_name = "N")]
    flush_records: Option<u64>,
    /// Sync a partition at least this often
    #[arg(long, value_name = "TIME")]
    flush_interval: Option<Span>,
}

pub fn run(args: BrokerArgs) -> Result<ExitCode> {
    let options = BrokerOptions {
        data_dir: args.data_dir,
        nodes: args.nodes,
        listen: args.listen,
        advertised_host: args.advertised_host,
        disk_floor_bytes: args.free_space_floor.0,
        flush: FlushPolicy {
            every_messages: args.flush_records,
            every_ms: args.flush_interval.map(|span| span.0.as_millis() as u64),
        },
        // A topic that nobody created would hide a mistake in a benchmark.
        auto_create_topics: false,
        ..BrokerOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let broker = Broker::start(options)?;
    output::print(&format!("ready {}", broker.bootstrap_servers()))?;
    runtime.block_on(signals::one());
    let facts = broker.stop()?;
    tracing::info!(?facts, "stopped");
    Ok(ExitCode::SUCCESS)
}
