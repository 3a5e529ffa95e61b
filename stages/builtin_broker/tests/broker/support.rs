//! What the tests share: a broker in a temporary directory, clients with the settings of the checks, payloads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use builtin_broker::{Broker, BrokerOptions};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{ClientContext, Message};
use tempfile::TempDir;

/// Longest wait for something that has to happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A broker in this process, in a directory that goes with it.
pub struct Fixture {
    pub broker: Option<Broker>,
    pub dir: TempDir,
}

impl Fixture {
    pub fn start(change: impl FnOnce(&mut BrokerOptions)) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path());
        change(&mut options);
        Fixture { broker: Some(Broker::start(options).unwrap()), dir }
    }

    pub fn broker(&self) -> &Broker {
        self.broker.as_ref().unwrap()
    }

    pub fn bootstrap(&self) -> String {
        self.broker().bootstrap_servers()
    }
}

/// Options of a test: little disk needed.
pub fn options(dir: &Path) -> BrokerOptions {
    BrokerOptions { data_dir: dir.to_owned(), disk_floor_bytes: 0, maintenance_ms: 50, ..Default::default() }
}

/// Run a future to its end.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", bootstrap).create().unwrap()
}

/// Create a topic; the code the broker answered.
pub fn create_topic(
    bootstrap: &str,
    name: &str,
    partitions: i32,
    replication: i32,
    configs: &[(&str, &str)],
) -> Result<(), RDKafkaErrorCode> {
    let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(replication));
    for (name, value) in configs {
        topic = topic.set(name, value);
    }
    let results = block_on(admin(bootstrap).create_topics(&[topic], &AdminOptions::new())).unwrap();
    results.into_iter().next().unwrap().map(drop).map_err(|(_, code)| code)
}

/// Message id, and partition and offset or the error.
pub type Report = (u64, Result<(i32, i64), KafkaError>);

/// Delivery reports in the order they came.
#[derive(Default)]
pub struct Reports {
    pub rows: Mutex<Vec<Report>>,
}

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<u64>;

    fn delivery(&self, result: &DeliveryResult<'_>, id: Box<u64>) {
        let row = match result {
            Ok(message) => Ok((message.partition(), message.offset())),
            Err((error, _)) => Err(error.clone()),
        };
        self.rows.lock().unwrap().push((*id, row));
    }
}

/// A producer as the checks want it; `more` overrides.
pub fn producer(bootstrap: &str, more: &[(&str, &str)]) -> BaseProducer<Reports> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("message.max.bytes", "8388608")
        .set("linger.ms", "5");
    for (name, value) in more {
        config.set(*name, *value);
    }
    config.create_with_context(Reports::default()).unwrap()
}

/// Send, waiting while the client's queue is full.
pub fn send(
    producer: &BaseProducer<Reports>,
    topic: &str,
    partition: Option<i32>,
    key: &str,
    id: u64,
    payload: &[u8],
) -> Result<(), KafkaError> {
    loop {
        let mut record = BaseRecord::with_opaque_to(topic, Box::new(id)).key(key).payload(payload);
        record.partition = partition;
        match producer.send(record) {
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                producer.poll(Duration::from_millis(20));
            }
            other => return other.map_err(|(error, _)| error),
        }
    }
}

/// Wait for all reports and take them.
pub fn finish(producer: &BaseProducer<Reports>) -> Vec<Report> {
    producer.flush(PATIENCE).unwrap();
    std::mem::take(&mut *producer.context().rows.lock().unwrap())
}

/// A consumer as the checks want it; `more` overrides.
pub fn consumer(bootstrap: &str, group: &str, more: &[(&str, &str)]) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "500")
        .set("fetch.message.max.bytes", "8388608")
        .set("receive.message.max.bytes", "134217728")
        .set("fetch.wait.max.ms", "100");
    for (name, value) in more {
        config.set(*name, *value);
    }
    config.create().unwrap()
}

/// What a consumer got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    pub id: u64,
    pub partition: i32,
    pub offset: i64,
    pub payload: Vec<u8>,
}

/// Poll until `count` messages came or `patience` is over.
pub fn consume(consumer: &BaseConsumer, count: usize, patience: Duration) -> Vec<Got> {
    let (mut got, since) = (Vec::new(), Instant::now());
    while got.len() < count && since.elapsed() < patience {
        if let Some(message) = consumer.poll(Duration::from_millis(50)) {
            got.push(read(&message.unwrap()));
        }
    }
    got
}

pub fn read(message: &impl Message) -> Got {
    let payload = message.payload().unwrap().to_vec();
    let id = u64::from_be_bytes(payload[..8].try_into().unwrap());
    Got { id, partition: message.partition(), offset: message.offset(), payload }
}

/// Low and high watermark of each partition.
pub fn watermarks(consumer: &BaseConsumer, topic: &str, partitions: i32) -> Vec<(i64, i64)> {
    (0..partitions).map(|partition| consumer.fetch_watermarks(topic, partition, PATIENCE).unwrap()).collect()
}

/// Seeded bytes with the id in front: noise, or text that compresses well.
pub fn payload(id: u64, bytes: usize, compressible: bool) -> Vec<u8> {
    let mut payload = id.to_be_bytes().to_vec();
    let mut state = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while payload.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if compressible {
            let letter = b'a' + (state % 26) as u8;
            payload.extend([letter; 97]);
        } else {
            payload.extend(state.to_be_bytes());
        }
    }
    payload.truncate(bytes);
    payload
}

/// Wait until `done` holds; panics with `what` when it does not come.
pub fn wait_until(what: &str, patience: Duration, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < patience, "did not happen within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The segment files of each replica: directory name to node to file name to bytes.
pub fn replicas(data_dir: &Path) -> BTreeMap<String, BTreeMap<u16, BTreeMap<String, Vec<u8>>>> {
    let mut found: BTreeMap<String, BTreeMap<u16, BTreeMap<String, Vec<u8>>>> = BTreeMap::new();
    for node in 1..=64 {
        let Ok(partitions) = std::fs::read_dir(data_dir.join(format!("broker-{node}"))) else { continue };
        for partition in partitions.map(|entry| entry.unwrap()) {
            let name = partition.file_name().into_string().unwrap();
            for path in logs(&partition.path()) {
                let file = path.file_name().unwrap().to_str().unwrap().to_owned();
                let bytes = std::fs::read(&path).unwrap();
                found.entry(name.clone()).or_default().entry(node).or_default().insert(file, bytes);
            }
        }
    }
    found
}

fn logs(dir: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "log")).collect()
}

/// Every partition has as many replicas as wanted, all the same byte for byte. Returns bytes of one copy of everything.
pub fn assert_replicas_equal(data_dir: &Path, replication: usize) -> u64 {
    let mut bytes = 0;
    for (partition, copies) in replicas(data_dir) {
        assert_eq!(copies.len(), replication, "replicas of {partition}");
        let first = copies.values().next().unwrap();
        for (node, copy) in &copies {
            assert!(copy == first, "replica of {partition} on node {node} differs");
        }
        bytes += first.values().map(|file| file.len() as u64).sum::<u64>();
    }
    bytes
}
