//! What the broker costs: MB/s, CPU of client and broker, disk bytes per payload byte.
//!
//! `bench_broker [MB per row] [data directory]` runs each row against a fresh broker in a process of its own. Wall MB/s
//! depends on what else the host does and is a lower bound; CPU per MB and the disk ratio are the steadier figures.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use builtin_broker::{Broker, BrokerOptions};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

type AnyError = Box<dyn std::error::Error>;

const TOPIC: &str = "bench";
const PARTITIONS: i32 = 6;
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> Result<(), AnyError> {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some("--serve") {
        return serve(PathBuf::from(arguments.next().ok_or("a directory is needed")?));
    }
    let megabytes: usize = first.map_or(Ok(400), |text| text.parse())?;
    let base = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    say(
        "message  RF  produce MB/s  client/broker CPU ms per MB  consume MB/s  client/broker CPU ms per MB  disk bytes per payload byte",
    );
    for (message_bytes, replication) in [(1_000_000, 1), (100_000, 1), (1_000_000, 3), (100_000, 3)] {
        row(&base, megabytes, message_bytes, replication)?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the table is what the program is for")]
fn say(line: &str) {
    println!("{line}");
}

fn serve(data_dir: PathBuf) -> Result<(), AnyError> {
    let broker = Broker::start(BrokerOptions { data_dir, ..Default::default() })?;
    say(&broker.bootstrap_servers());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    broker.stop()?;
    Ok(())
}

/// CPU seconds of a process so far, in user and kernel mode.
fn cpu_seconds(pid: &str) -> Result<f64, AnyError> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    // Linux reports in 100 ticks per second on every platform it still supports.
    Ok(ticks as f64 / 100.0)
}

fn row(base: &Path, megabytes: usize, message_bytes: usize, replication: i32) -> Result<(), AnyError> {
    let dir = tempfile::tempdir_in(base)?;
    let (mut broker, bootstrap) = start(dir.path())?;
    let pid = broker.id().to_string();
    create_topic(&bootstrap, replication)?;
    let count = megabytes * 1_000_000 / message_bytes;
    let mb = (count * message_bytes) as f64 / 1e6;

    let (since, client, served) = (Instant::now(), cpu_seconds("self")?, cpu_seconds(&pid)?);
    produce(&bootstrap, count, message_bytes)?;
    let produce_rate = mb / since.elapsed().as_secs_f64();
    let produce_cpu = ((cpu_seconds("self")? - client) * 1e3 / mb, (cpu_seconds(&pid)? - served) * 1e3 / mb);

    let (since, client, served) = (Instant::now(), cpu_seconds("self")?, cpu_seconds(&pid)?);
    consume(&bootstrap, count)?;
    let consume_rate = mb / since.elapsed().as_secs_f64();
    let consume_cpu = ((cpu_seconds("self")? - client) * 1e3 / mb, (cpu_seconds(&pid)? - served) * 1e3 / mb);

    let ratio = log_bytes(dir.path())? as f64 / (mb * 1e6);
    say(&format!(
        "{:>4} KB  {replication:>2}  {produce_rate:>12.0}  {:>12.2} / {:<12.2}  {consume_rate:>12.0}  {:>12.2} / {:<12.2}  {ratio:.4}",
        message_bytes / 1_000,
        produce_cpu.0,
        produce_cpu.1,
        consume_cpu.0,
        consume_cpu.1,
    ));
    drop(broker.stdin.take());
    broker.wait()?;
    Ok(())
}

fn start(dir: &Path) -> Result<(Child, String), AnyError> {
    let mut broker = Command::new(std::env::current_exe()?)
        .arg("--serve")
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut bootstrap = String::new();
    BufReader::new(broker.stdout.take().ok_or("the broker has no output")?).read_line(&mut bootstrap)?;
    Ok((broker, bootstrap.trim().to_owned()))
}

fn create_topic(bootstrap: &str, replication: i32) -> Result<(), AnyError> {
    let admin: AdminClient<DefaultClientContext> = ClientConfig::new().set("bootstrap.servers", bootstrap).create()?;
    let topic =
        NewTopic::new(TOPIC, PARTITIONS, TopicReplication::Fixed(replication)).set("max.message.bytes", "8388608");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let results = runtime.block_on(admin.create_topics(&[topic], &AdminOptions::new()))?;
    results
        .into_iter()
        .try_for_each(|result| result.map(drop).map_err(|(topic, code)| format!("{topic}: {code}").into()))
}

fn produce(bootstrap: &str, count: usize, message_bytes: usize) -> Result<(), AnyError> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("message.max.bytes", "8388608")
        .set("queue.buffering.max.kbytes", "262144")
        .set("socket.nagle.disable", "true")
        .set("linger.ms", "1")
        .create()?;
    let payload: Vec<u8> = (0..message_bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for number in 0..count {
        let partition = i32::try_from(number)? % PARTITIONS;
        loop {
            let record: BaseRecord<'_, (), [u8]> = BaseRecord::to(TOPIC).partition(partition).payload(&payload);
            match producer.send(record) {
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    producer.poll(Duration::from_millis(5));
                }
                sent => break sent.map_err(|(error, _)| error)?,
            }
        }
    }
    Ok(producer.flush(PATIENCE)?)
}

fn consume(bootstrap: &str, count: usize) -> Result<(), AnyError> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "bench")
        .set("fetch.message.max.bytes", "8388608")
        .set("receive.message.max.bytes", "134217728")
        .set("fetch.queue.backoff.ms", "10")
        .create()?;
    let mut all = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        all.add_partition_offset(TOPIC, partition, Offset::Beginning)?;
    }
    consumer.assign(&all)?;
    let (mut got, since) = (0, Instant::now());
    while got < count {
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            message?;
            got += 1;
        }
        if since.elapsed() > PATIENCE {
            return Err(format!("{got} of {count} messages came").into());
        }
    }
    Ok(())
}

/// Bytes of all segment files.
fn log_bytes(dir: &Path) -> Result<u64, AnyError> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            bytes += log_bytes(&path)?;
        } else if path.extension().is_some_and(|end| end == "log") {
            bytes += path.metadata()?.len();
        }
    }
    Ok(bytes)
}
