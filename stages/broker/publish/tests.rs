//! The policies, frame by frame. No broker listens at the address, so nothing is ever acknowledged and what fits is known
//! exactly.

use bytes::Bytes;
use contract::flow::{DropReason, OutputSpec, Policy, PublishConfig, Spread, TopicRef};
use contract::latency::Chain;
use contract::ledger::{LedgerSets, Mark};
use contract::recorder::Counter;
use contract::testing::{context, frame};
use contract::units::{ByteSize, Span};
use contract::{Cx, Offer, Output};
use std::time::Duration;

use super::Publisher;
use crate::size_chain::record_bytes;

const PAYLOAD: usize = 10_000;
const TOPICS: [&str; 2] = ["frames", "copies"];

struct Bench {
    _folder: tempfile::TempDir,
    cx: Cx,
    publisher: Publisher,
}

/// A publisher whose partitions hold `frames` frames each, of which half wait here where the policy needs that.
fn bench(policy: Policy, partitions: &[i32], spread: Spread, frames: u64) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let cx = context(folder.path(), &TOPICS);
    let topics: Vec<TopicRef> = partitions
        .iter()
        .enumerate()
        .map(|(n, partitions)| TopicRef { name: TOPICS[n].into(), partitions: *partitions, index: n as u16 })
        .collect();
    let lanes: i32 = partitions.iter().sum();
    let publish = PublishConfig {
        policy,
        queue: Some(ByteSize(frames * record_bytes(PAYLOAD as u64) * lanes as u64)),
        deadline: Some(Span(Duration::from_secs(3600))),
        message_timeout: Some(Span(Duration::from_secs(3600))),
        ..PublishConfig::default()
    };
    let spec = OutputSpec {
        bootstrap_servers: "127.0.0.1:1".into(),
        client: Default::default(),
        topics,
        spread,
        publish,
        max_frame_bytes: PAYLOAD as u64,
    };
    let publisher = Publisher::unconnected(&cx, &spec).unwrap();
    Bench { _folder: folder, cx, publisher }
}

impl Bench {
    fn offer(&self, stream: u32, seq: u64) -> Offer {
        let now_ns = self.cx.clock.now_ns();
        let mut frame = frame(seq, now_ns, Bytes::from(vec![seq as u8; PAYLOAD]));
        frame.stream = stream;
        self.publisher.try_offer(frame, now_ns)
    }

    fn count(&self, counter: Counter) -> u64 {
        self.cx.recorder.get(counter)
    }

    fn set(&self, mark: Mark, topic: &str, stream: u32) -> Vec<(u64, u64)> {
        let sets: LedgerSets = self.cx.recorder.ledger_sets().unwrap();
        sets.get(mark, topic, stream).ranges().to_vec()
    }

    fn drops(&self) -> Vec<(String, String, u64)> {
        let delta = self.cx.recorder.delta(0, 0);
        delta.drops.into_iter().map(|drop| (drop.stage, drop.reason, drop.count)).collect()
    }
}

fn is_accepted(offer: &Offer) -> bool {
    matches!(offer, Offer::Accepted { .. })
}

#[test]
fn block_refuses_what_does_not_fit_and_drops_nothing() {
    let bench = bench(Policy::Block, &[1], Spread::Streams, 10);
    for seq in 0..10 {
        assert!(is_accepted(&bench.offer(0, seq)), "{seq}");
    }
    for _ in 0..3 {
        let Offer::Full(frame) = bench.offer(0, 10) else { panic!("frame 10 has no room") };
        assert_eq!((frame.seq, frame.payload.len()), (10, PAYLOAD));
    }
    // Offered once however often it comes again.
    assert_eq!(bench.count(Counter::Offered), 11);
    assert_eq!(bench.set(Mark::Offered, "frames", 0), [(0, 11)]);
    assert!(bench.drops().is_empty());
    assert_eq!(bench.publisher.core.outstanding(), 10);
    let now_ns = bench.cx.clock.now_ns();
    assert!(!bench.publisher.flush(now_ns), "nothing was acknowledged");
}

#[test]
fn drop_new_gives_up_exactly_the_frames_that_do_not_fit() {
    let bench = bench(Policy::DropNew, &[1], Spread::Streams, 10);
    for seq in 0..25 {
        match bench.offer(0, seq) {
            Offer::Accepted { .. } => assert!(seq < 10),
            Offer::Dropped(reason) => assert_eq!((reason, seq >= 10), (DropReason::DropNew, true)),
            Offer::Full(_) => panic!("drop-new never refuses"),
        }
    }
    assert_eq!(bench.set(Mark::Dropped, "frames", 0), [(10, 25)]);
    assert_eq!(bench.drops(), [("publish".into(), "drop-new".into(), 15)]);
    assert_eq!(bench.count(Counter::Offered), 25);
}

#[test]
fn drop_old_gives_up_exactly_the_oldest_that_the_client_does_not_have() {
    let bench = bench(Policy::DropOld, &[1], Spread::Streams, 10);
    for seq in 0..25 {
        assert!(is_accepted(&bench.offer(0, seq)), "{seq}");
    }
    // Five are with the client library, the newest five wait, those between were pushed out.
    assert_eq!(bench.set(Mark::Dropped, "frames", 0), [(5, 20)]);
    assert_eq!(bench.drops(), [("publish".into(), "drop-old".into(), 15)]);
    assert_eq!(bench.publisher.core.outstanding(), 10);
}

#[test]
fn deadline_refuses_fresh_frames_and_gives_up_those_that_became_too_old() {
    let mut bench = bench(Policy::Deadline, &[1], Spread::Streams, 10);
    for seq in 0..10 {
        assert!(is_accepted(&bench.offer(0, seq)), "{seq}");
    }
    assert!(matches!(bench.offer(0, 10), Offer::Full(_)));
    assert!(bench.drops().is_empty());
    // The same lanes with a deadline that is over: what waits and what comes is too old, what the client has is not touched.
    drop(std::mem::replace(&mut bench.publisher, tight(&bench.cx)));
    for seq in 20..23 {
        assert!(is_accepted(&bench.offer(0, seq)), "{seq}");
    }
    let late = frame(23, bench.cx.clock.now_ns() - 200_000_000, Bytes::from(vec![0; PAYLOAD]));
    assert!(matches!(bench.publisher.try_offer(late, bench.cx.clock.now_ns()), Offer::Dropped(DropReason::Deadline)));
    // Two of three are in the window; the third waits until it is too old.
    while bench.count(Counter::Dropped) < 2 {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(bench.set(Mark::Dropped, "frames", 0), [(22, 24)]);
    assert_eq!(bench.drops(), [("publish".into(), "deadline".into(), 2)]);
    assert_eq!(bench.publisher.core.outstanding(), 2);
}

/// Two frames in the window, two waiting, a deadline of 100 ms.
fn tight(cx: &Cx) -> Publisher {
    let publish = PublishConfig {
        policy: Policy::Deadline,
        queue: Some(ByteSize(4 * record_bytes(PAYLOAD as u64))),
        deadline: Some(Span(Duration::from_millis(100))),
        ..PublishConfig::default()
    };
    let spec = OutputSpec {
        bootstrap_servers: "127.0.0.1:1".into(),
        client: Default::default(),
        topics: vec![TopicRef { name: "frames".into(), partitions: 1, index: 0 }],
        spread: Spread::Streams,
        publish,
        max_frame_bytes: PAYLOAD as u64,
    };
    Publisher::unconnected(cx, &spec).unwrap()
}

#[test]
fn a_partition_without_room_does_not_refuse_streams_of_another() {
    let bench = bench(Policy::Block, &[2], Spread::Streams, 10);
    for seq in 0..10 {
        assert!(is_accepted(&bench.offer(0, seq)));
    }
    assert!(matches!(bench.offer(2, 0), Offer::Full(_)), "stream 2 shares the partition of stream 0");
    for seq in 0..10 {
        assert!(is_accepted(&bench.offer(1, seq)), "stream 1 has a partition of its own");
    }
}

#[test]
fn an_oversized_frame_is_dropped_and_counted() {
    let bench = bench(Policy::Block, &[1], Spread::Streams, 10);
    let large = frame(0, 0, Bytes::from(vec![0; 3 << 20]));
    assert!(matches!(bench.publisher.try_offer(large, 0), Offer::Dropped(DropReason::TooLarge)));
    assert_eq!(bench.drops(), [("publish".into(), "too-large".into(), 1)]);
    assert_eq!((bench.count(Counter::Offered), bench.publisher.core.outstanding()), (1, 0));
}

#[test]
fn a_copy_is_taken_by_every_topic_or_by_none() {
    let bench = bench(Policy::Block, &[1, 2], Spread::Copy, 10);
    // Streams 0 and 1 share partition 0 of the first topic only.
    for seq in 0..5 {
        assert!(is_accepted(&bench.offer(0, seq)) && is_accepted(&bench.offer(1, seq)));
    }
    assert!(matches!(bench.offer(1, 5), Offer::Full(_)), "the first topic has no room");
    assert_eq!(bench.publisher.core.outstanding(), 20);
    for topic in TOPICS {
        assert_eq!(bench.set(Mark::Offered, topic, 0), [(0, 5)]);
        assert_eq!(bench.set(Mark::Offered, topic, 1), [(0, 6)]);
    }
    assert_eq!(bench.publisher.topic_of(1), 0);
}

#[test]
fn a_dropped_copy_is_dropped_from_every_topic() {
    let bench = bench(Policy::DropNew, &[1, 2], Spread::Copy, 10);
    for seq in 0..8 {
        let offers = [bench.offer(0, seq), bench.offer(1, seq)];
        assert!(offers.iter().all(|offer| is_accepted(offer) == (seq < 5)), "{seq}: {offers:?}");
    }
    for topic in TOPICS {
        for stream in [0, 1] {
            assert_eq!(bench.set(Mark::Dropped, topic, stream), [(5, 8)]);
        }
    }
}

#[test]
fn enqueue_closes_the_gap_between_offer_and_acceptance() {
    let bench = bench(Policy::Block, &[1], Spread::Streams, 10);
    let due_ns = bench.cx.clock.now_ns();
    let offered_ns = due_ns + 5_000;
    let mut offered = frame(0, due_ns, Bytes::from(vec![0; PAYLOAD]));
    offered.origin.self_lag_ns = 5_000;
    while bench.cx.clock.now_ns() < offered_ns {}
    let Offer::Accepted { at_ns } = bench.publisher.try_offer(offered.clone(), offered_ns) else { panic!("fits") };
    assert!(at_ns >= offered_ns);
    offered.origin.enqueue_ns = at_ns - offered_ns;
    offered.produced_ns = at_ns;
    assert!(Chain::begin(&offered, at_ns + 7).is_exact());
}

#[test]
fn a_timeout_of_the_client_is_a_failed_delivery_that_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let cx = context(folder.path(), &TOPICS);
    let publish = PublishConfig {
        queue: Some(ByteSize(2 * record_bytes(PAYLOAD as u64))),
        message_timeout: Some(Span(Duration::from_millis(200))),
        linger: Some(Span(Duration::ZERO)),
        ..PublishConfig::default()
    };
    let spec = OutputSpec {
        bootstrap_servers: "127.0.0.1:1".into(),
        client: Default::default(),
        topics: vec![TopicRef { name: "frames".into(), partitions: 1, index: 0 }],
        spread: Spread::Streams,
        publish,
        max_frame_bytes: PAYLOAD as u64,
    };
    let bench = Bench { publisher: Publisher::unconnected(&cx, &spec).unwrap(), cx, _folder: folder };
    let mut seq = 0;
    while bench.count(Counter::DeliveryFailed) < 4 {
        match bench.offer(0, seq) {
            Offer::Accepted { .. } => seq += 1,
            Offer::Full(_) => bench.publisher.wait_for_room(Duration::from_secs(60)),
            Offer::Dropped(reason) => panic!("{reason:?}"),
        }
    }
    let end_ns = bench.cx.clock.now_ns() + 60_000_000_000;
    assert!(bench.publisher.flush(end_ns));
    assert_eq!(bench.count(Counter::DeliveryFailed), seq);
    assert_eq!(bench.set(Mark::Failed, "frames", 0), [(0, seq)]);
    let reasons = bench.cx.recorder.delta(0, 0).reasons;
    assert!(reasons.keys().all(|reason| reason.starts_with("frames_delivery_failed: ")), "{reasons:?}");
}
