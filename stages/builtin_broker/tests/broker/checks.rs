//! The fourteen checks: a whole life of a topic with the client's usual calls, for each codec and assignor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Message, Offset, TopicPartitionList};

use crate::support::{
    Fixture, Got, PATIENCE, assert_replicas_equal, consume, consumer, create_topic, finish, payload, producer, read,
    replicas, send, wait_until, watermarks,
};

const TOPIC: &str = "frames";
const PARTITIONS: i32 = 6;
const SIZES: [usize; 4] = [1_000, 100_000, 1_000_000, 6_000_000];
const KEYS: u64 = 12;
const REBALANCE: Duration = Duration::from_secs(15);

/// Codec, assignor, and whether payloads compress.
struct Variant {
    codec: &'static str,
    assignor: &'static str,
    compressible: bool,
}

#[test]
fn the_fourteen_checks_pass_plain_with_range() {
    run(&Variant { codec: "none", assignor: "range", compressible: false });
}

#[test]
fn the_fourteen_checks_pass_with_lz4_and_cooperative_sticky() {
    run(&Variant { codec: "lz4", assignor: "cooperative-sticky", compressible: true });
}

#[test]
fn the_fourteen_checks_pass_with_zstd_and_cooperative_sticky() {
    run(&Variant { codec: "zstd", assignor: "cooperative-sticky", compressible: true });
}

fn run(variant: &Variant) {
    let fixture = Fixture::start(|_| {});
    let bootstrap = fixture.bootstrap();
    checks_1_to_4_topics(&bootstrap);
    let sent = check_5_produce(&bootstrap, variant);
    checks_6_to_9_consume_and_commit(&bootstrap, &sent);
    checks_10_to_12_group(&bootstrap, variant);
    let reader = consumer(&bootstrap, "reader", &[]);
    let marks = watermarks(&reader, TOPIC, PARTITIONS);
    assert!(marks.iter().all(|(low, _)| *low == 0), "check 13: low watermarks {marks:?}");
    assert_eq!(marks.iter().map(|(_, high)| high).sum::<i64>(), 108, "check 13: high watermarks {marks:?}");
    let refused = send(&producer(&bootstrap, &[]), TOPIC, None, "k", 0, &payload(0, 9_000_000, false));
    let too_large = KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge);
    assert_eq!(refused, Err(too_large), "check 14");
    check_disk(&fixture, variant, &sent);
}

fn checks_1_to_4_topics(bootstrap: &str) {
    let create =
        |replication| create_topic(bootstrap, TOPIC, PARTITIONS, replication, &[("max.message.bytes", "8388608")]);
    assert_eq!(create(3), Ok(()), "check 1");
    assert_eq!(create(3), Err(RDKafkaErrorCode::TopicAlreadyExists), "check 2");
    let refused = create_topic(bootstrap, "other", 1, 9, &[]);
    assert_eq!(refused, Err(RDKafkaErrorCode::InvalidReplicationFactor), "check 3");
    let metadata = consumer(bootstrap, "metadata", &[]).fetch_metadata(Some(TOPIC), PATIENCE).unwrap();
    let partitions = metadata.topics()[0].partitions();
    assert_eq!((partitions.len(), metadata.brokers().len()), (6, 3), "check 4");
    let leaders: BTreeSet<i32> = partitions.iter().map(|partition| partition.leader()).collect();
    assert_eq!(leaders, BTreeSet::from([1, 2, 3]), "check 4");
    assert!(partitions.iter().all(|partition| partition.replicas().len() == 3), "check 4");
}

/// Payload by id.
fn check_5_produce(bootstrap: &str, variant: &Variant) -> BTreeMap<u64, Vec<u8>> {
    let producer = producer(bootstrap, &[("compression.type", variant.codec)]);
    let mut sent = BTreeMap::new();
    for (position, bytes) in SIZES.iter().enumerate() {
        for key in 0..KEYS {
            let id = position as u64 * KEYS + key;
            let payload = payload(id, *bytes, variant.compressible);
            send(&producer, TOPIC, None, &format!("key-{key}"), id, &payload).unwrap();
            sent.insert(id, payload);
        }
    }
    let mut by_partition: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    let reports = finish(&producer);
    assert_eq!(reports.len(), 48, "check 5");
    for (id, report) in reports {
        let (partition, offset) = report.unwrap_or_else(|error| panic!("check 5: message {id}: {error}"));
        by_partition.entry(partition).or_default().push(offset);
    }
    for (partition, mut offsets) in by_partition {
        offsets.sort_unstable();
        assert!(offsets.iter().copied().eq(0..offsets.len() as i64), "check 5: partition {partition}: {offsets:?}");
    }
    sent
}

fn checks_6_to_9_consume_and_commit(bootstrap: &str, sent: &BTreeMap<u64, Vec<u8>>) {
    let first = consumer(bootstrap, "group", &[]);
    first.subscribe(&[TOPIC]).unwrap();
    let got = consume(&first, 48, PATIENCE);
    let received: BTreeMap<u64, Vec<u8>> = got.iter().map(|got| (got.id, got.payload.clone())).collect();
    assert_eq!((got.len(), received.len()), (48, 48), "check 6");
    assert!(received == *sent, "check 6: payloads differ");
    assert_in_order(&got);
    let mut half = TopicPartitionList::new();
    let mut ordered = got;
    ordered.sort_by_key(|got| (got.partition, got.offset));
    let committed: BTreeMap<i32, i64> = ordered[..24].iter().map(|got| (got.partition, got.offset + 1)).collect();
    for (partition, offset) in committed {
        half.add_partition_offset(TOPIC, partition, Offset::Offset(offset)).unwrap();
    }
    assert_eq!(first.commit(&half, CommitMode::Sync), Ok(()), "check 8");
    drop(first);
    let second = consumer(bootstrap, "group", &[]);
    second.subscribe(&[TOPIC]).unwrap();
    let mut rest = consume(&second, 24, PATIENCE);
    rest.extend(consume(&second, 1, Duration::from_secs(1)));
    let ids = |got: &[Got]| got.iter().map(|got| got.id).collect::<BTreeSet<u64>>();
    assert_eq!((rest.len(), ids(&rest)), (24, ids(&ordered[24..])), "check 9");
    second.commit_consumer_state(CommitMode::Sync).unwrap();
}

fn assert_in_order(got: &[Got]) {
    let mut next: BTreeMap<i32, i64> = BTreeMap::new();
    for message in got {
        let expected = next.entry(message.partition).or_insert(0);
        assert_eq!(message.offset, *expected, "check 7: partition {}", message.partition);
        *expected += 1;
    }
}

/// A group member on its own thread; commits each message it takes.
struct Member {
    partitions: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

fn join_group(bootstrap: &str, assignor: &str, taken: &Arc<Mutex<Vec<Got>>>) -> Member {
    let consumer = consumer(bootstrap, "group", &[("partition.assignment.strategy", assignor)]);
    consumer.subscribe(&[TOPIC]).unwrap();
    let (partitions, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (seen, stopped, taken) = (Arc::clone(&partitions), Arc::clone(&stop), Arc::clone(taken));
    let thread = std::thread::spawn(move || {
        while !stopped.load(Ordering::Acquire) {
            if let Some(message) = consumer.poll(Duration::from_millis(20)) {
                let message = message.unwrap();
                taken.lock().unwrap().push(read(&message));
                let mut position = TopicPartitionList::new();
                let next = Offset::Offset(message.offset() + 1);
                position.add_partition_offset(TOPIC, message.partition(), next).unwrap();
                consumer.commit(&position, CommitMode::Sync).unwrap();
            }
            seen.store(consumer.assignment().map_or(0, |list| list.count()), Ordering::Release);
        }
    });
    Member { partitions, stop, thread }
}

fn shares(members: &[Member]) -> Vec<usize> {
    members.iter().map(|member| member.partitions.load(Ordering::Acquire)).collect()
}

fn checks_10_to_12_group(bootstrap: &str, variant: &Variant) {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let mut members = vec![join_group(bootstrap, variant.assignor, &taken)];
    wait_until("check 10: one member has all", REBALANCE, || shares(&members) == [6]);
    members.extend((0..2).map(|_| join_group(bootstrap, variant.assignor, &taken)));
    wait_until("check 10: three members have two each", REBALANCE, || shares(&members) == [2, 2, 2]);

    let producer = producer(bootstrap, &[("compression.type", variant.codec)]);
    for id in 1_000..1_060 {
        send(&producer, TOPIC, Some((id % 6) as i32), "k", id, &payload(id, 50_000, variant.compressible)).unwrap();
    }
    assert!(finish(&producer).iter().all(|(_, report)| report.is_ok()), "check 11: produce");
    wait_until("check 11: sixty messages", PATIENCE, || taken.lock().unwrap().len() >= 60);
    std::thread::sleep(Duration::from_millis(500));
    let ids: BTreeSet<u64> = taken.lock().unwrap().iter().map(|got| got.id).collect();
    assert_eq!((taken.lock().unwrap().len(), ids.len()), (60, 60), "check 11");

    let gone = members.remove(0);
    gone.stop.store(true, Ordering::Release);
    gone.thread.join().unwrap();
    wait_until("check 12: two members have three each", REBALANCE, || shares(&members) == [3, 3]);
    for member in members {
        member.stop.store(true, Ordering::Release);
        member.thread.join().unwrap();
    }
    assert_eq!(taken.lock().unwrap().len(), 60, "check 12: nothing was delivered again");
}

/// Beyond the checks: what lies on the disk is what was asked for.
fn check_disk(fixture: &Fixture, variant: &Variant, sent: &BTreeMap<u64, Vec<u8>>) {
    let stored = assert_replicas_equal(fixture.dir.path(), 3);
    let sent_bytes = sent.values().map(|payload| payload.len() as u64).sum::<u64>() + 60 * 50_000;
    let facts = fixture.broker().facts();
    assert_eq!((facts.bytes_appended, facts.bytes_replicated), (stored, stored * 3));
    assert_eq!((facts.requests_malformed, facts.requests_panicked, facts.batches_refused), (0, 0, 0));
    let attributes = replicas(fixture.dir.path()).into_values().map(|nodes| {
        let file = nodes.into_values().next().unwrap().into_values().next().unwrap();
        file[22] & 7
    });
    let attributes: BTreeSet<u8> = attributes.collect();
    match variant.codec {
        "none" => {
            assert_eq!(attributes, BTreeSet::from([0]));
            let ratio = stored as f64 / sent_bytes as f64;
            assert!((1.0..1.01).contains(&ratio), "{ratio} bytes on disk per payload byte and replica");
        }
        codec => {
            let number = if codec == "lz4" { 3 } else { 4 };
            assert!(attributes.contains(&number), "{codec} was asked for, found codecs {attributes:?}");
            assert!(stored < sent_bytes / 4, "{stored} bytes stored of {sent_bytes}: not compressed");
        }
    }
}
