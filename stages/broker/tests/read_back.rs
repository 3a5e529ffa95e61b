//! What is published comes back, frame by frame, and the books agree.

use std::collections::BTreeSet;

use broker::STAGES;
use bytes::Bytes;
use contract::flow::PublishConfig;
use contract::latency::{Chain, Step};
use contract::ledger::Mark;
use contract::recorder::{Counter, Gauge, Outcome};
use contract::testing::frame;
use contract::{Io, wire};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::support::{Topic, alone, cluster, offer, payload, publish, read_all};

const STREAMS: u32 = 8;
const SEQS: u64 = 250;
const BYTES: usize = 20_000;

#[test]
fn every_frame_comes_back_once_whole_and_with_an_exact_chain() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "identity", 6, 65_000);
    let (_folder, cx) = alone(&topic.name);
    let mut input = topic.input(&cx, &topic.name);
    let output = topic.output(&cx, PublishConfig::default());
    publish(&cx, &*output, STREAMS, 0..SEQS, BYTES);
    topic.drain(&cx);
    let mut seen = BTreeSet::new();
    read_all(&mut *input, |delivery| {
        let frame = &delivery.frame;
        assert_eq!(frame.payload, payload(frame.stream, frame.seq, BYTES));
        assert_eq!(delivery.receipt.partition, (frame.stream % 6) as i32);
        let chain = Chain::of(delivery);
        assert!(chain.is_exact(), "{chain:?}");
        assert_eq!(frame.due_ns + frame.origin.enqueue_ns, frame.produced_ns);
        assert!(seen.insert((frame.stream, frame.seq)));
        true
    });
    input.close().unwrap();
    let n = u64::from(STREAMS) * SEQS;
    assert_eq!(seen.len() as u64, n);
    let count = |counter| cx.recorder.get(counter);
    for counter in [Counter::Offered, Counter::Acked, Counter::Delivered] {
        assert_eq!(count(counter), n, "{counter:?}");
    }
    for counter in [
        Counter::Dropped,
        Counter::DeliveryFailed,
        Counter::Duplicates,
        Counter::Redelivered,
        Counter::Reordered,
        Counter::Corrupt,
        Counter::Foreign,
        Counter::CommitErrors,
    ] {
        assert_eq!(count(counter), 0, "{counter:?}");
    }
    assert_eq!(count(Counter::AckedBytes), n * BYTES as u64);
    assert!(cx.recorder.failure().is_none());
    let sets = cx.recorder.ledger_sets().unwrap();
    for stream in 0..STREAMS {
        for mark in [Mark::Offered, Mark::Acked, Mark::Seen] {
            assert_eq!(sets.get(mark, &topic.name, stream).ranges(), [(0, SEQS)], "{mark:?} of stream {stream}");
        }
    }
    assert_eq!(sets.count(Mark::Read, &topic.name), n);
}

#[test]
fn positions_and_facts_reach_the_record() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "record", 2, 65_000);
    let (_folder, cx) = alone(&topic.name);
    let mut input = topic.input(&cx, &topic.name);
    let output = topic.output(&cx, PublishConfig::default());
    publish(&cx, &*output, 2, 0..30, BYTES);
    topic.drain(&cx);
    read_all(&mut *input, |_| true);
    // The client's statistics come once a second.
    while cx.recorder.gauge(Gauge::BrokerRoundTripSeconds).is_none() || cx.recorder.gauge(Gauge::BatchRecords).is_none()
    {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let delta = cx.recorder.delta(1, 0);
    assert_eq!(delta.positions[&topic.name], [(0, 30), (1, 30)].into());
    assert_eq!(delta.facts["publish"]["client"]["acks"], "all");
    assert_eq!(delta.facts["publish"]["profile"], "thumb");
    assert_eq!(delta.facts["consume"]["client"]["group.id"], topic.name);
    assert!(delta.gauge(Gauge::LagSeconds).is_some());
    assert_eq!(delta.gauge(Gauge::QueueFrames), Some(0.0));
    assert!(delta.steps.contains_key(&Step::Ack) && delta.steps.contains_key(&Step::Handed));
}

#[test]
fn large_frames_pass_the_size_chain() {
    let cluster = cluster();
    let bytes = 6_220_800;
    let topic = Topic::new(&cluster, "raw", 2, bytes);
    let (_folder, cx) = alone(&topic.name);
    let mut input = topic.input(&cx, &topic.name);
    let output = topic.output(&cx, PublishConfig::default());
    publish(&cx, &*output, 2, 0..6, bytes as usize);
    topic.drain(&cx);
    let mut n = 0;
    read_all(&mut *input, |delivery| {
        assert_eq!(delivery.frame.payload, payload(delivery.frame.stream, delivery.frame.seq, bytes as usize));
        n += 1;
        true
    });
    assert_eq!((n, cx.recorder.get(Counter::Acked)), (12, 12));
}

#[test]
fn a_payload_shared_by_many_streams_arrives_whole_for_each() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "shared", 3, 65_000);
    let (_folder, cx) = alone(&topic.name);
    let mut input = topic.input(&cx, &topic.name);
    let output = topic.output(&cx, PublishConfig::default());
    for seq in 0..20 {
        let shared = payload(0, seq, BYTES);
        for stream in 0..12 {
            assert!(offer(&cx, &*output, stream, seq, shared.clone()));
        }
    }
    assert!(output.flush(cx.clock.now_ns() + 60_000_000_000));
    topic.drain(&cx);
    let mut n = 0;
    read_all(&mut *input, |delivery| {
        assert_eq!(delivery.frame.payload, payload(0, delivery.frame.seq, BYTES));
        n += 1;
        true
    });
    assert_eq!((n, cx.recorder.get(Counter::Corrupt)), (240, 0));
}

/// Sends a record past the publisher.
fn send_raw(bootstrap: &str, topic: &str, header: Option<&[u8]>, payload: &[u8]) {
    let producer: BaseProducer = rdkafka::ClientConfig::new().set("bootstrap.servers", bootstrap).create().unwrap();
    let headers = header
        .map(|value| OwnedHeaders::new().insert(Header { key: wire::HEADER_NAME, value: Some(value) }))
        .unwrap_or_default();
    producer.send(BaseRecord::to(topic).partition(0).key(&[0; 4]).payload(payload).headers(headers)).unwrap();
    producer.flush(std::time::Duration::from_secs(30)).unwrap();
}

#[test]
fn strangers_duplicates_and_damage_are_counted_and_not_handed_over() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "strangers", 1, 65_000);
    let (_folder, cx) = alone(&topic.name);
    let mut input = topic.input(&cx, &topic.name);
    let output = topic.output(&cx, PublishConfig::default());
    publish(&cx, &*output, 1, 0..3, 100);
    let header = |seq: u64, ours: bool, payload: &Bytes| {
        let mut frame = frame(seq, 0, payload.clone());
        if !ours {
            frame.run_id = contract::RunId([1; 16]);
        }
        let mut header = Vec::new();
        wire::encode_header(&frame, crc32c::crc32c(payload), &mut header);
        header
    };
    let whole = payload(0, 3, 100);
    send_raw(&cluster.bootstrap, &topic.name, None, b"not a frame");
    send_raw(&cluster.bootstrap, &topic.name, Some(b"RBFR of another kind"), b"neither");
    send_raw(&cluster.bootstrap, &topic.name, Some(&header(3, false, &whole)), &whole);
    send_raw(&cluster.bootstrap, &topic.name, Some(&header(1, true, &whole)), &whole);
    let mut damaged = whole.to_vec();
    damaged[50] ^= 4;
    send_raw(&cluster.bootstrap, &topic.name, Some(&header(3, true, &whole)), &damaged);
    publish(&cx, &*output, 1, 4..6, 100);
    topic.drain(&cx);
    let mut handed = Vec::new();
    read_all(&mut *input, |delivery| {
        handed.push(delivery.frame.seq);
        true
    });
    input.close().unwrap();
    assert_eq!(handed, [0, 1, 2, 4, 5]);
    let count = |counter| cx.recorder.get(counter);
    assert_eq!((count(Counter::Foreign), count(Counter::Duplicates), count(Counter::Corrupt)), (3, 1, 1));
    // The damaged frame is delivered, and ended as corrupt: nobody will work on it.
    assert_eq!(count(Counter::Delivered), 6);
    let sets = cx.recorder.ledger_sets().unwrap();
    assert_eq!(sets.count_reason(Mark::Done, Outcome::Corrupt as u8, &topic.name), 1);
    assert_eq!(sets.count(Mark::Done, &topic.name), 1);
    assert_eq!(count(Counter::Reordered), 0);
}

#[test]
fn the_audit_stage_reads_a_topic_to_its_end() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "audit", 4, 65_000);
    let (_folder, cx) = alone(&topic.name);
    let input = topic.input(&cx, &topic.name);
    let output = topic.output(&cx, PublishConfig::default());
    let entry = STAGES.iter().find(|entry| entry.kind == "audit").unwrap();
    let stage = (entry.open)(serde_json::json!({}), &cx).unwrap();
    let inside = cx.clone();
    let running = std::thread::spawn(move || stage.run(Io { input: Some(input), output: None }, &inside));
    publish(&cx, &*output, STREAMS, 0..100, BYTES);
    topic.drain(&cx);
    running.join().unwrap().unwrap();
    let count = |counter| cx.recorder.get(counter);
    let n = u64::from(STREAMS) * 100;
    assert_eq!((count(Counter::Delivered), count(Counter::Done)), (n, n));
    assert_eq!(count(Counter::ChainBroken), 0);
    assert!(count(Counter::Commits) > 0);
    assert_eq!(count(Counter::CommitErrors), 0);
}
