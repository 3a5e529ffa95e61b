//! Publisher against bare client loops: the same records, client settings and broker, alternating, frames per CPU-second of
//! this process. The broker is a child process with its data on /dev/shm. Two peers: rdkafka's own `send`, which copies the
//! payload, and one that hands the payload over without a copy, as the publisher does; against the second, what is left is
//! the cost of the books and of the payload's checksum, which neither peer computes.
//!
//! `bench_publish [frame bytes] [frames] [rounds] [publisher|copying|bare]`; a last word runs one side only, for profiling.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use broker::KafkaAdapters;
use builtin_broker::{Broker, BrokerOptions};
use bytes::Bytes;
use contract::admin::{TopicConfig, TopicNeed};
use contract::clock::mono_ns;
use contract::flow::{Adapters, OutputSpec, PublishConfig, Spread, TopicRef};
use contract::recorder::Counter;
use contract::testing::{context, frame};
use contract::units::ByteSize;
use contract::{Offer, wire};
use rdkafka::bindings::{rd_kafka_producev, rd_kafka_resp_err_t, rd_kafka_vtype_t};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, ClientContext};
use rustix::time::{ClockId, clock_gettime};

type AnyError = Box<dyn std::error::Error>;

const PARTITIONS: i32 = 6;
const STREAMS: u64 = 12;
/// Bytes in flight, the same for both.
const QUEUE_BYTES: u64 = 64 << 20;
/// Different payloads, so that a checksum is not computed once for all.
const PAYLOADS: usize = 16;

fn cpu_ns() -> i64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// What one side took.
#[derive(Clone, Copy, Debug)]
struct Cost {
    cpu_seconds: f64,
    wall_seconds: f64,
}

fn timed(work: impl FnOnce() -> Result<(), AnyError>) -> Result<Cost, AnyError> {
    let (cpu, wall) = (cpu_ns(), mono_ns());
    work()?;
    Ok(Cost { cpu_seconds: (cpu_ns() - cpu) as f64 / 1e9, wall_seconds: (mono_ns() - wall) as f64 / 1e9 })
}

#[derive(Clone)]
struct Load {
    bootstrap: String,
    payloads: Vec<Bytes>,
    frames: u64,
}

impl Load {
    fn payload(&self, n: u64) -> &Bytes {
        &self.payloads[n as usize % PAYLOADS]
    }

    fn max_frame_bytes(&self) -> u64 {
        self.payloads[0].len() as u64
    }

    /// Offers every frame through the publisher; the settings it used.
    fn publisher(&self, topic: &str, folder: &Path) -> Result<(Cost, BTreeMap<String, String>), AnyError> {
        let cx = context(folder, &[topic]);
        let spec = OutputSpec {
            bootstrap_servers: self.bootstrap.clone(),
            client: BTreeMap::new(),
            topics: vec![TopicRef { name: topic.to_owned(), partitions: PARTITIONS, index: 0 }],
            spread: Spread::Streams,
            publish: PublishConfig { queue: Some(ByteSize(QUEUE_BYTES)), ..PublishConfig::default() },
            max_frame_bytes: self.max_frame_bytes(),
        };
        let cost = timed(|| {
            let output = KafkaAdapters.output(&cx, &spec)?;
            for n in 0..self.frames {
                let due_ns = cx.clock.now_ns();
                let mut next = frame(n / STREAMS, due_ns, self.payload(n).clone());
                next.stream = (n % STREAMS) as u32;
                while let Offer::Full(back) = output.try_offer(next, due_ns) {
                    output.wait_for_room(Duration::from_millis(100));
                    next = *back;
                }
            }
            output.flush(i64::MAX);
            Ok(())
        })?;
        if cx.recorder.get(Counter::Acked) != self.frames {
            return Err(format!("{} of {} frames acknowledged", cx.recorder.get(Counter::Acked), self.frames).into());
        }
        let fact = cx.recorder.delta(0, 0).facts["publish"]["client"].clone();
        Ok((cost, serde_json::from_value(fact)?))
    }

    /// A producer with a thread that polls, and no more.
    fn bare_producer(&self, settings: &BTreeMap<String, String>) -> Result<ThreadedProducer<Silent>, AnyError> {
        let mut config = ClientConfig::new();
        for (name, value) in settings.iter().filter(|(name, _)| *name != "statistics.interval.ms") {
            config.set(name, value);
        }
        config.set("queue.buffering.max.kbytes", (QUEUE_BYTES / 1024).to_string());
        Ok(config.create_with_context(Silent::default())?)
    }

    /// Sends the same records in a loop around the client library.
    fn bare(&self, topic: &str, settings: &BTreeMap<String, String>, copying: bool) -> Result<Cost, AnyError> {
        let mut header = Vec::new();
        wire::encode_header(&frame(0, 0, Bytes::new()), 0, &mut header);
        let name = CString::new(topic)?;
        let mut delivered = 0;
        let cost = timed(|| {
            let producer = self.bare_producer(settings)?;
            for n in 0..self.frames {
                let stream = (n % STREAMS) as u32;
                loop {
                    let sent = if copying {
                        send(&producer, topic, stream, &header, self.payload(n))
                    } else {
                        send_uncopied(&producer, &name, stream, &header, self.payload(n))
                    };
                    match sent {
                        Ok(()) => break,
                        Err(RDKafkaErrorCode::QueueFull) => std::thread::sleep(Duration::from_millis(1)),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            producer.flush(Duration::from_secs(300))?;
            delivered = producer.context().delivered.load(Ordering::Relaxed);
            Ok(())
        })?;
        if delivered != self.frames {
            return Err(format!("{delivered} of {} frames delivered", self.frames).into());
        }
        Ok(cost)
    }
}

/// Counts delivery reports, as any honest loop does.
#[derive(Default)]
struct Silent {
    delivered: AtomicU64,
}

impl ClientContext for Silent {}

impl ProducerContext for Silent {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        self.delivered.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
    }
}

fn send(
    producer: &ThreadedProducer<Silent>,
    topic: &str,
    stream: u32,
    header: &[u8],
    payload: &Bytes,
) -> Result<(), RDKafkaErrorCode> {
    let headers = OwnedHeaders::new().insert(Header { key: wire::HEADER_NAME, value: Some(header) });
    let key = wire::key(stream);
    let record =
        BaseRecord::to(topic).partition(stream as i32 % PARTITIONS).key(&key).payload(&payload[..]).headers(headers);
    producer.send(record).map_err(|(error, _)| error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail))
}

#[expect(unsafe_code, reason = "the peer has to avoid the copy in the same way")]
fn send_uncopied(
    producer: &ThreadedProducer<Silent>,
    topic: &CStr,
    stream: u32,
    header: &[u8],
    payload: &Bytes,
) -> Result<(), RDKafkaErrorCode> {
    let key = wire::key(stream);
    // SAFETY: the tags and types are those of `rd_kafka_producev`; the payloads outlive every producer of this program.
    let code = unsafe {
        rd_kafka_producev(
            producer.client().native_ptr(),
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_TOPIC,
            topic.as_ptr(),
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_PARTITION,
            stream as i32 % PARTITIONS,
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_MSGFLAGS,
            0,
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_VALUE,
            payload.as_ptr(),
            payload.len(),
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_KEY,
            key.as_ptr(),
            key.len(),
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADER,
            c"reelbench".as_ptr(),
            header.as_ptr(),
            header.len(),
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_END,
        )
    };
    if code == rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR { Ok(()) } else { Err(code.into()) }
}

/// The broker, as a child of this program.
struct ChildBroker {
    child: Child,
    bootstrap: String,
}

impl ChildBroker {
    fn start(data: &Path) -> Result<Self, AnyError> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output of the broker")?).read_line(&mut line)?;
        Ok(ChildBroker { child, bootstrap: line.trim().to_owned() })
    }
}

impl Drop for ChildBroker {
    fn drop(&mut self) {
        // Its standard input closes, and it ends.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[expect(clippy::print_stdout, reason = "standard output is how the parent learns the address")]
fn serve(data: &str) -> Result<(), AnyError> {
    let options = BrokerOptions { data_dir: data.into(), nodes: 1, ..BrokerOptions::default() };
    let broker = Broker::start(options)?;
    println!("{}", broker.bootstrap_servers());
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    broker.stop()?;
    Ok(())
}

fn create(bootstrap: &str, names: &[&str], max_frame_bytes: u64) -> Result<(), AnyError> {
    let need = |name: &&str| TopicNeed {
        config: TopicConfig {
            name: (*name).to_owned(),
            partitions: PARTITIONS as u32,
            replication: 1,
            retention_bytes: None,
            retention: None,
            segment_bytes: None,
            max_message_bytes: None,
            min_insync_replicas: None,
            reuse: false,
        },
        max_frame_bytes,
    };
    let admin = broker::admin(bootstrap, &BTreeMap::new())?;
    Ok(admin.create_topics(&names.iter().map(need).collect::<Vec<_>>())?)
}

fn payloads(bytes: usize) -> Vec<Bytes> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..PAYLOADS).map(|_| (0..bytes).map(|_| next()).collect::<Vec<u8>>().into()).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const SIDES: [&str; 3] = ["publisher", "copying", "bare"];

/// Every side once, on a broker of its own and in an order that turns with the round.
fn round(number: usize, load: &Load, only: Option<&str>) -> Result<BTreeMap<&'static str, Cost>, AnyError> {
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let broker = ChildBroker::start(&folder.path().join("data"))?;
    let load = Load { bootstrap: broker.bootstrap.clone(), ..load.clone() };
    create(&load.bootstrap, &["warm", SIDES[0], SIDES[1], SIDES[2]], load.max_frame_bytes())?;
    let scratch = tempfile::tempdir()?;
    // Learns the settings, and warms the broker and the allocator.
    let (_, settings) = Load { frames: 48, ..load.clone() }.publisher("warm", scratch.path())?;
    let mut costs = BTreeMap::new();
    for at in 0..SIDES.len() {
        let side = SIDES[(at + number) % SIDES.len()];
        if only.is_some_and(|only| only != side) {
            continue;
        }
        let cost = match side {
            "publisher" => load.publisher(side, scratch.path())?.0,
            _ => load.bare(side, &settings, side == "copying")?,
        };
        costs.insert(side, cost);
    }
    Ok(costs)
}

#[expect(clippy::print_stdout, reason = "the result of a bench")]
fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [verb, data] = arguments.as_slice()
        && verb == "serve"
    {
        return serve(data);
    }
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse::<u64>());
    let (bytes, frames, rounds) = (number(0, 197_000)?, number(1, 2_000)?, number(2, 5)?);
    let load = Load { bootstrap: String::new(), payloads: payloads(bytes as usize), frames };
    let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for n in 0..rounds as usize {
        let costs = round(n, &load, arguments.get(3).map(String::as_str))?;
        for (side, cost) in &costs {
            let mb = (frames * bytes) as f64 / 1e6;
            println!(
                "{side:9} {:8.0} frames/CPU-s {:6.3} CPU-ms/MB {:6.0} MB/s",
                frames as f64 / cost.cpu_seconds,
                cost.cpu_seconds * 1e3 / mb,
                mb / cost.wall_seconds
            );
            if let Some(publisher) = costs.get("publisher") {
                ratios.entry(side).or_default().push(cost.cpu_seconds / publisher.cpu_seconds);
            }
        }
    }
    for side in ["copying", "bare"] {
        if let Some(ratios) = ratios.get(side) {
            let median = median(ratios.clone());
            println!(
                "{bytes} bytes: publisher / {side}, frames per CPU-second, median of {rounds}: {median:.3} {ratios:.3?}"
            );
        }
    }
    Ok(())
}
