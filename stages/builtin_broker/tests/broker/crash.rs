//! SIGKILL twice while producing: nothing acknowledged is lost, nothing is stored twice, replicas are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rdkafka::consumer::Consumer;
use rdkafka::producer::Producer;
use rdkafka::{Offset, TopicPartitionList};

use crate::child::ServeProcess;
use crate::support::{
    PATIENCE, assert_replicas_equal, consume, consumer, create_topic, payload, producer, send, watermarks,
};

const TOPIC: &str = "crash";
const PARTITIONS: i32 = 4;
const MESSAGE_BYTES: usize = 200_000;
const IN_FLIGHT: i32 = 32;

#[test]
fn two_kills_while_producing_lose_and_repeat_nothing() {
    let long = std::env::var_os("REELBENCH_LONG").is_some();
    let messages = if long { 4_000 } else { 400 };
    let dir = tempfile::tempdir().unwrap();
    // Fixed ports, so that the client finds the broker again.
    let listen = format!("listen={}", free_ports());
    let mut broker = Some(ServeProcess::start(dir.path(), &[&listen]));
    let bootstrap = broker.as_ref().unwrap().bootstrap.clone();
    create_topic(&bootstrap, TOPIC, PARTITIONS, 3, &[("segment.bytes", "10000000")]).unwrap();
    let producer = producer(&bootstrap, &[("message.timeout.ms", "15000"), ("reconnect.backoff.max.ms", "200")]);
    for id in 0..messages {
        if id == messages / 3 || id == messages * 2 / 3 {
            // In the middle of work: some messages are on their way.
            assert!(producer.in_flight_count() > 0, "nothing was in flight at the kill");
            broker.take().unwrap().kill();
            broker = Some(ServeProcess::start(dir.path(), &[&listen]));
        }
        send(&producer, TOPIC, Some((id % 4) as i32), "k", id, &payload(id, MESSAGE_BYTES, false)).unwrap();
        while producer.in_flight_count() > IN_FLIGHT {
            producer.poll(Duration::from_millis(5));
        }
    }
    producer.flush(PATIENCE).unwrap();
    let reports = std::mem::take(&mut *producer.context().rows.lock().unwrap());
    assert_eq!(reports.len() as u64, messages, "every message has a report");
    let acknowledged: BTreeSet<u64> = reports.iter().filter(|(_, report)| report.is_ok()).map(|(id, _)| *id).collect();

    let got = read_everything(&bootstrap);
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    got.iter().for_each(|(id, _)| *times.entry(*id).or_default() += 1);
    let lost: Vec<&u64> = acknowledged.iter().filter(|id| !times.contains_key(id)).collect();
    let repeated: Vec<&u64> = times.iter().filter(|(_, count)| **count > 1).map(|(id, _)| id).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    assert!(repeated.is_empty(), "stored twice: {repeated:?}");
    assert!(got.iter().all(|(id, bytes)| *bytes == payload(*id, MESSAGE_BYTES, false)), "payloads differ");
    let facts = broker.unwrap().stop();
    assert_eq!(facts.requests_panicked, 0);
    assert_replicas_equal(dir.path(), 3);
    println!("sent {messages}, acknowledged {}, read {}, lost 0, repeated 0", acknowledged.len(), got.len());
}

/// The first of three free consecutive ports, as an address.
fn free_ports() -> String {
    for port in (20_000..60_000).step_by(7) {
        let all: Result<Vec<_>, _> =
            (port..port + 3).map(|port| std::net::TcpListener::bind(("127.0.0.1", port))).collect();
        if all.is_ok() {
            return format!("127.0.0.1:{port}");
        }
    }
    panic!("no three consecutive ports are free");
}

fn read_everything(bootstrap: &str) -> Vec<(u64, Vec<u8>)> {
    let consumer = consumer(bootstrap, "reader", &[]);
    let marks = watermarks(&consumer, TOPIC, PARTITIONS);
    let total: i64 = marks.iter().map(|(_, high)| high).sum();
    let mut all = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        all.add_partition_offset(TOPIC, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&all).unwrap();
    let got = consume(&consumer, total as usize, PATIENCE);
    assert_eq!(got.len() as i64, total, "messages read and watermarks");
    got.into_iter().map(|got| (got.id, got.payload)).collect()
}
