//! Groups: readiness, sharing, commits of the completed prefix, restarts, draining.

use std::collections::BTreeSet;
use std::time::Duration;

use contract::flow::PublishConfig;
use contract::ledger::Mark;
use contract::recorder::Counter;
use contract::{Input, Next};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use crate::support::{Topic, WAIT, alone, cluster, publish, read_all};

/// What the group has committed for each partition.
fn committed(topic: &Topic<'_>, group: &str) -> Vec<Offset> {
    let consumer: BaseConsumer = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", &topic.cluster.bootstrap)
        .set("group.id", group)
        .create()
        .unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_range(&topic.name, 0, topic.partitions - 1);
    let list = consumer.committed_offsets(list, WAIT).unwrap();
    list.elements().iter().map(|element| element.offset()).collect()
}

#[test]
fn instances_are_ready_before_anyone_reads_and_share_the_partitions() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "shared-group", 4, 65_000);
    let (_a, first) = alone(&topic.name);
    let (_b, second) = alone(&topic.name);
    // The first instance is made to share while it does not read yet.
    let inputs = [topic.input(&first, &topic.name), topic.input(&second, &topic.name)];
    let output = topic.output(&first, PublishConfig::default());
    publish(&first, &*output, 8, 0..100, 1_000);
    topic.drain(&first);
    topic.drain(&second);
    let mut seen = std::thread::scope(|scope| {
        let read = |mut input: Box<dyn Input>| {
            let mut seen = BTreeSet::new();
            read_all(&mut *input, |delivery| seen.insert((delivery.frame.stream, delivery.frame.seq)));
            input.close().unwrap();
            seen
        };
        inputs.map(|input| scope.spawn(move || read(input))).map(|thread| thread.join().unwrap())
    });
    let [a, b] = &mut seen;
    assert!(!a.is_empty() && !b.is_empty(), "{} and {}", a.len(), b.len());
    assert!(a.is_disjoint(b), "a frame went to both");
    assert_eq!(a.len() + b.len(), 800);
    for cx in [&first, &second] {
        assert_eq!((cx.recorder.get(Counter::Redelivered), cx.recorder.get(Counter::CommitErrors)), (0, 0));
    }
    assert_eq!(committed(&topic, &topic.name), [Offset::Offset(200); 4]);
}

#[test]
fn an_instance_without_a_partition_is_ready_and_closes() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "single", 1, 65_000);
    let (_a, first) = alone(&topic.name);
    let (_b, second) = alone(&topic.name);
    let mut inputs = [topic.input(&first, &topic.name), topic.input(&second, &topic.name)];
    let output = topic.output(&first, PublishConfig::default());
    publish(&first, &*output, 1, 0..50, 1_000);
    topic.drain(&first);
    topic.drain(&second);
    let seen = std::thread::scope(|scope| {
        let read = |input: &mut Box<dyn Input>| {
            let mut n = 0;
            read_all(&mut **input, |_| {
                n += 1;
                true
            });
            n
        };
        inputs.each_mut().map(|input| scope.spawn(move || read(input))).map(|thread| thread.join().unwrap())
    });
    assert_eq!((seen.iter().sum::<i32>(), seen.contains(&0)), (50, true), "{seen:?}");
}

#[test]
fn only_the_completed_prefix_is_committed_and_a_restart_goes_on_there() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "restart", 1, 65_000);
    let group = topic.name.clone();
    let (_a, cx) = alone(&topic.name);
    let output = topic.output(&cx, PublishConfig::default());
    publish(&cx, &*output, 1, 0..20, 1_000);
    let mut input = topic.input(&cx, &group);
    topic.drain(&cx);
    // Frame 7 is never completed; everything after it waits.
    read_all(&mut *input, |delivery| delivery.frame.seq != 7);
    input.close().unwrap();
    assert_eq!(committed(&topic, &group), [Offset::Offset(7)]);

    // A new process has a new ledger and works on the rest.
    let (_b, fresh) = alone(&topic.name);
    let mut input = topic.input(&fresh, &group);
    topic.drain(&fresh);
    let mut seqs = Vec::new();
    read_all(&mut *input, |delivery| {
        seqs.push(delivery.frame.seq);
        // Nothing is completed: the group stays where it is.
        false
    });
    drop(input);
    assert_eq!(seqs, (7..20).collect::<Vec<_>>());
    assert_eq!(committed(&topic, &group), [Offset::Offset(7)]);

    // The same process again: it has seen them all, so they are counted, completed and not handed over.
    let mut input = topic.input(&cx, &group);
    read_all(&mut *input, |delivery| panic!("frame {} was handed over twice", delivery.frame.seq));
    input.close().unwrap();
    assert_eq!(cx.recorder.get(Counter::Redelivered), 13);
    assert_eq!(cx.recorder.get(Counter::Delivered), 20);
    assert_eq!(cx.recorder.ledger_sets().unwrap().count(Mark::Read, &topic.name), 20);
    assert_eq!(committed(&topic, &group), [Offset::Offset(20)]);
}

#[test]
fn receipts_completed_by_other_threads_in_any_order_are_committed_at_close() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "threads", 2, 65_000);
    let (_a, cx) = alone(&topic.name);
    let output = topic.output(&cx, PublishConfig::default());
    publish(&cx, &*output, 2, 0..200, 1_000);
    let mut input = topic.input(&cx, &topic.name);
    topic.drain(&cx);
    let mut receipts = Vec::new();
    read_all(&mut *input, |delivery| {
        receipts.push(delivery.receipt);
        false
    });
    receipts.reverse();
    let completer = input.completer();
    std::thread::scope(|scope| {
        for part in receipts.chunks(37) {
            let completer = completer.clone();
            scope.spawn(move || part.iter().for_each(|receipt| completer.complete(*receipt)));
        }
    });
    input.close().unwrap();
    assert_eq!(committed(&topic, &topic.name), [Offset::Offset(200); 2]);
}

#[test]
fn a_drained_topic_closes_a_reader_that_finds_everything_committed() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "nothing-left", 3, 65_000);
    let (_a, cx) = alone(&topic.name);
    let output = topic.output(&cx, PublishConfig::default());
    publish(&cx, &*output, 2, 0..10, 1_000);
    for expected in [20, 0] {
        let (_folder, reader) = alone(&topic.name);
        let mut input = topic.input(&reader, &topic.name);
        topic.drain(&reader);
        let mut n = 0;
        read_all(&mut *input, |_| {
            n += 1;
            true
        });
        input.close().unwrap();
        assert_eq!(n, expected);
    }
}

#[test]
fn a_stopped_input_closes_at_once_and_commits_what_is_complete() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "stopped", 1, 65_000);
    let (_a, cx) = alone(&topic.name);
    let output = topic.output(&cx, PublishConfig::default());
    publish(&cx, &*output, 1, 0..10, 1_000);
    let mut input = topic.input(&cx, &topic.name);
    let completer = input.completer();
    let mut n = 0;
    while n < 4 {
        if let Next::Item(delivery) = input.next(Duration::from_secs(1)).unwrap() {
            completer.complete(delivery.receipt);
            n += 1;
        }
    }
    cx.shutdown.stop();
    assert!(matches!(input.next(Duration::from_secs(60)).unwrap(), Next::Closed));
    input.close().unwrap();
    assert_eq!(committed(&topic, &topic.name), [Offset::Offset(4)]);
}

#[test]
fn an_instance_that_joins_while_another_reads_takes_its_share_without_loss() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "joins-late", 4, 65_000);
    let (_a, first) = alone(&topic.name);
    let (_b, second) = alone(&topic.name);
    let mut early = topic.input(&first, &topic.name);
    let output = topic.output(&first, PublishConfig::default());
    publish(&first, &*output, 4, 0..50, 1_000);
    let (mut by_first, mut by_second) = (BTreeSet::new(), BTreeSet::new());
    std::thread::scope(|scope| {
        let (first, topic, by_first) = (&first, &topic, &mut by_first);
        let reading = scope.spawn(move || {
            read_all(&mut *early, |delivery| by_first.insert((delivery.frame.stream, delivery.frame.seq)));
            early.close().unwrap();
        });
        while first.recorder.get(Counter::Delivered) < 200 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut late = topic.input(&second, &topic.name);
        publish(first, &*output, 4, 50..100, 1_000);
        topic.drain(first);
        topic.drain(&second);
        read_all(&mut *late, |delivery| by_second.insert((delivery.frame.stream, delivery.frame.seq)));
        late.close().unwrap();
        reading.join().unwrap();
    });
    assert_eq!(by_first.union(&by_second).count(), 400);
    assert_eq!(by_second.len(), 100, "half of the partitions moved");
    assert_eq!(first.recorder.get(Counter::Redelivered), 0, "nothing is read again by who kept it");
    assert_eq!(committed(&topic, &topic.name), [Offset::Offset(100); 4]);
}
