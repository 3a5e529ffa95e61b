//! Policies and partitions with a broker behind them: whatever is given up, the books add up to the frame.

use std::collections::BTreeMap;
use std::time::Duration;

use broker::KafkaAdapters;
use contract::flow::{Acks, Adapters, OutputSpec, Policy, PublishConfig, Spread, TopicRef};
use contract::intervals::IntervalSet;
use contract::ledger::Mark;
use contract::recorder::Counter;
use contract::units::{ByteSize, Span};
use contract::{Offer, Output};
use rdkafka::mocking::MockCluster;

use crate::support::{Topic, alone, cluster, need, offer, payload, publish, read_all, unique};

fn hurried(policy: Policy) -> PublishConfig {
    PublishConfig {
        policy,
        queue: Some(ByteSize(2_000_000)),
        deadline: Some(Span(Duration::from_millis(5))),
        ..PublishConfig::default()
    }
}

/// Offers faster than any broker takes; then every offered frame is either read back or dropped, and none is both.
fn offer_in_a_hurry(policy: Policy) -> (u64, u64) {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "hurry", 2, 200_000);
    let (_folder, cx) = alone(&topic.name);
    let output = topic.output(&cx, hurried(policy));
    let shared = payload(0, 0, 200_000);
    for seq in 0..300 {
        for stream in 0..4 {
            offer(&cx, &*output, stream, seq, shared.clone());
        }
    }
    assert!(output.flush(cx.clock.now_ns() + 60_000_000_000));
    let mut input = topic.input(&cx, &topic.name);
    topic.drain(&cx);
    read_all(&mut *input, |_| true);
    let sets = cx.recorder.ledger_sets().unwrap();
    for stream in 0..4 {
        let [seen, dropped, acked] =
            [Mark::Seen, Mark::Dropped, Mark::Acked].map(|mark| sets.get(mark, &topic.name, stream));
        assert_eq!(seen, acked);
        assert!(seen.intersection(&dropped).is_empty(), "a dropped frame arrived");
        assert_eq!(seen.union(&dropped), IntervalSet::from_range(0, 300));
    }
    let count = |counter| cx.recorder.get(counter);
    assert_eq!(count(Counter::Reordered) + count(Counter::Duplicates) + count(Counter::DeliveryFailed), 0);
    (count(Counter::Delivered), count(Counter::Dropped))
}

#[test]
fn block_delivers_everything_however_fast_it_is_offered() {
    assert_eq!(offer_in_a_hurry(Policy::Block), (1_200, 0));
}

#[test]
fn what_drop_new_gives_up_is_what_does_not_arrive() {
    let (delivered, dropped) = offer_in_a_hurry(Policy::DropNew);
    assert_eq!(delivered + dropped, 1_200);
    assert!(delivered > 0 && dropped > 0, "{delivered} delivered, {dropped} dropped");
}

#[test]
fn what_drop_old_gives_up_is_what_does_not_arrive() {
    let (delivered, dropped) = offer_in_a_hurry(Policy::DropOld);
    assert_eq!(delivered + dropped, 1_200);
    assert!(delivered > 0 && dropped > 0, "{delivered} delivered, {dropped} dropped");
}

#[test]
fn what_deadline_gives_up_is_what_does_not_arrive() {
    let (delivered, dropped) = offer_in_a_hurry(Policy::Deadline);
    assert_eq!(delivered + dropped, 1_200);
    assert!(delivered > 0, "{delivered} delivered, {dropped} dropped");
}

#[test]
fn without_acks_nothing_counts_as_acknowledged() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "acks-none", 1, 65_000);
    let (_folder, cx) = alone(&topic.name);
    let config = PublishConfig { acks: Acks::None, ..PublishConfig::default() };
    publish(&cx, &*topic.output(&cx, config), 1, 0..20, 1_000);
    assert_eq!((cx.recorder.get(Counter::Offered), cx.recorder.get(Counter::Acked)), (20, 0));
}

#[test]
fn copies_arrive_in_every_topic() {
    let cluster = cluster();
    let names = [unique("copy-a"), unique("copy-b")];
    cluster.admin.create_topics(&names.clone().map(|name| need(&name, 2, 65_000))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cx = contract::testing::context(folder.path(), &[&names[0], &names[1]]);
    let topics = (0..2).map(|n| TopicRef { name: names[usize::from(n)].clone(), partitions: 2, index: n }).collect();
    let spec = OutputSpec {
        bootstrap_servers: cluster.bootstrap.clone(),
        client: BTreeMap::new(),
        topics,
        spread: Spread::Copy,
        publish: PublishConfig::default(),
        max_frame_bytes: 65_000,
    };
    let output = KafkaAdapters.output(&cx, &spec).unwrap();
    publish(&cx, &*output, 3, 0..40, 5_000);
    let sets = cx.recorder.ledger_sets().unwrap();
    for name in &names {
        assert_eq!((sets.count(Mark::Offered, name), sets.count(Mark::Acked, name)), (120, 120));
        let ends = cluster.admin.end_offsets(name, Duration::from_secs(10)).unwrap();
        assert_eq!(ends, [(0, 80), (1, 40)].into());
    }
}

/// Two brokers of the client library's own mock, each leading one partition: the only way to slow one partition alone.
#[test]
fn a_slow_partition_does_not_delay_another() {
    let mock = MockCluster::new(2).unwrap();
    mock.create_topic("frames", 2, 1).unwrap();
    mock.partition_leader("frames", 0, Some(1)).unwrap();
    mock.partition_leader("frames", 1, Some(2)).unwrap();
    let (_folder, cx) = alone("frames");
    let spec = OutputSpec {
        bootstrap_servers: mock.bootstrap_servers(),
        client: BTreeMap::new(),
        topics: vec![TopicRef { name: "frames".into(), partitions: 2, index: 0 }],
        spread: Spread::Streams,
        publish: PublishConfig {
            queue: Some(ByteSize(200_000)),
            message_timeout: Some(Span(Duration::from_secs(300))),
            ..PublishConfig::default()
        },
        max_frame_bytes: 10_000,
    };
    let output: std::sync::Arc<dyn Output> = KafkaAdapters.output(&cx, &spec).unwrap();
    mock.broker_round_trip_time(2, Duration::from_secs(120)).unwrap();
    // Fill the slow partition until it refuses.
    let mut slow = 0;
    loop {
        let now_ns = cx.clock.now_ns();
        let mut frame = contract::testing::frame(slow, now_ns, payload(1, slow, 10_000));
        frame.stream = 1;
        match output.try_offer(frame, now_ns) {
            Offer::Accepted { .. } => slow += 1,
            Offer::Full(_) => break,
            Offer::Dropped(reason) => panic!("{reason:?}"),
        }
    }
    // The other one still takes and acknowledges many times what its share holds.
    for seq in 0..100 {
        assert!(offer(&cx, &*output, 0, seq, payload(0, seq, 10_000)));
    }
    while cx.recorder.get(Counter::Acked) < 100 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let sets = cx.recorder.ledger_sets().unwrap();
    assert_eq!(sets.get(Mark::Acked, "frames", 0).ranges(), [(0, 100)]);
    assert!(sets.get(Mark::Acked, "frames", 1).is_empty(), "the slow partition has acknowledged nothing");
}
