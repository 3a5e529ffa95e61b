//! A broker that is killed, restarted, stalled or gone. It runs as a child of the test, which is this program again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use builtin_broker::{Broker, BrokerOptions};
use contract::Next;
use contract::flow::{Policy, PublishConfig};
use contract::intervals::IntervalSet;
use contract::ledger::Mark;
use contract::recorder::Counter;
use contract::stage::DrainTarget;
use contract::units::ByteSize;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Cluster, Topic, alone, offer, payload, publish, read_all};

const DATA: &str = "REELBENCH_TEST_BROKER_DATA";
const LISTEN: &str = "REELBENCH_TEST_BROKER_LISTEN";
const READY: &str = "broker ready at ";

/// Not a test of its own: what the child runs. Does nothing unless a test asks for it.
#[test]
fn child_broker() {
    let Some(data) = std::env::var_os(DATA) else { return };
    let listen: SocketAddr = std::env::var(LISTEN).unwrap().parse().unwrap();
    let options = BrokerOptions { data_dir: PathBuf::from(data), nodes: 1, listen, ..BrokerOptions::default() };
    let broker = Broker::start(options).unwrap();
    println!("\n{READY}{}", broker.bootstrap_servers());
    // Until it is killed.
    loop {
        std::thread::park();
    }
}

struct ChildBroker {
    child: Child,
    address: String,
}

impl ChildBroker {
    fn start(data: &Path, listen: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "outage::child_broker", "--nocapture"])
            .env(DATA, data)
            .env(LISTEN, listen)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.map_while(Result::ok).find_map(|line| line.strip_prefix(READY).map(str::to_owned));
        ChildBroker { address: ready.expect("the child ends without a broker"), child }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Returns once every thread stands still: a signal takes a moment to reach them.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let stands = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap();
            stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
        };
        while !std::fs::read_dir(&tasks).unwrap().all(|task| stands(task.unwrap())) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for ChildBroker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A broker with a place for its data that outlives it.
fn child() -> (tempfile::TempDir, ChildBroker, Cluster) {
    let folder = tempfile::tempdir().unwrap();
    let broker = ChildBroker::start(&folder.path().join("data"), "127.0.0.1:0");
    let cluster = Cluster::at(&broker.address);
    (folder, broker, cluster)
}

#[test]
fn no_frame_is_lost_or_doubled_when_the_broker_is_killed_twice() {
    let (folder, mut broker, cluster) = child();
    let topic = Topic::new(&cluster, "killed", 4, 200_000);
    let (_ledger, cx) = alone(&topic.name);
    let mut input = topic.input(&cx, &topic.name);
    let output = topic.output(&cx, PublishConfig { queue: Some(ByteSize(8_000_000)), ..PublishConfig::default() });
    let reading = {
        let (cx, name) = (cx.clone(), topic.name.clone());
        std::thread::spawn(move || {
            read_all(&mut *input, |_| true);
            input.close().unwrap();
            assert!(cx.recorder.failure().is_none(), "{name}: {:?}", cx.recorder.failure());
        })
    };
    for seq in 0..150 {
        if seq == 50 || seq == 100 {
            let address = broker.address.clone();
            broker.kill();
            broker = ChildBroker::start(&folder.path().join("data"), &address);
        }
        for stream in 0..4 {
            assert!(offer(&cx, &*output, stream, seq, payload(stream, seq, 200_000)));
        }
    }
    assert!(output.flush(cx.clock.now_ns() + 60_000_000_000));
    topic.drain(&cx);
    reading.join().unwrap();
    let sets = cx.recorder.ledger_sets().unwrap();
    for stream in 0..4 {
        for mark in [Mark::Offered, Mark::Acked, Mark::Seen] {
            assert_eq!(sets.get(mark, &topic.name, stream), IntervalSet::from_range(0, 150), "{mark:?}");
        }
    }
    for counter in [Counter::Duplicates, Counter::Reordered, Counter::Corrupt, Counter::DeliveryFailed] {
        assert_eq!(cx.recorder.get(counter), 0, "{counter:?}");
    }
}

#[test]
fn offering_goes_on_while_the_broker_stands_still_and_the_books_close_afterwards() {
    let (_folder, broker, cluster) = child();
    let topic = Topic::new(&cluster, "stalled", 2, 100_000);
    let (_ledger, cx) = alone(&topic.name);
    let config =
        PublishConfig { policy: Policy::DropOld, queue: Some(ByteSize(4_000_000)), ..PublishConfig::default() };
    let output = topic.output(&cx, config);
    publish(&cx, &*output, 2, 0..10, 100_000);
    broker.stop();
    for seq in 10..200 {
        for stream in 0..2 {
            // Never refused: the oldest make room.
            assert!(offer(&cx, &*output, stream, seq, payload(stream, seq, 100_000)));
        }
    }
    assert_eq!(cx.recorder.get(Counter::Acked), 20, "nothing is acknowledged by a broker that stands still");
    broker.signal(Signal::CONT);
    assert!(output.flush(cx.clock.now_ns() + 60_000_000_000));
    let mut input = topic.input(&cx, &topic.name);
    topic.drain(&cx);
    read_all(&mut *input, |_| true);
    let sets = cx.recorder.ledger_sets().unwrap();
    for stream in 0..2 {
        let [seen, dropped] = [Mark::Seen, Mark::Dropped].map(|mark| sets.get(mark, &topic.name, stream));
        assert!(seen.intersection(&dropped).is_empty());
        assert_eq!(seen.union(&dropped), IntervalSet::from_range(0, 200));
        // The share of a partition is 2 MB: 9 frames with the client and the 9 newest waiting when the broker went on.
        assert_eq!(dropped.ranges(), [(19, 191)]);
    }
}

#[test]
fn a_broker_that_is_gone_holds_nobody_up() {
    let (_folder, mut broker, cluster) = child();
    let topic = Topic::new(&cluster, "gone", 1, 65_000);
    let (_ledger, cx) = alone(&topic.name);
    let mut input = topic.input(&cx, &topic.name);
    let output = topic.output(&cx, PublishConfig::default());
    publish(&cx, &*output, 1, 0..10, 1_000);
    let completer = input.completer();
    let mut n = 0;
    while n < 10 {
        if let Next::Item(delivery) = input.next(Duration::from_secs(1)).unwrap() {
            completer.complete(delivery.receipt);
            n += 1;
        }
    }
    broker.kill();
    for seq in 10..15 {
        assert!(offer(&cx, &*output, 0, seq, payload(0, seq, 1_000)));
    }
    assert!(!output.flush(cx.clock.now_ns() + 500_000_000), "nobody can have acknowledged them");
    // More is to come than ever will; the deadline of the drain ends the reading.
    let to: BTreeMap<String, BTreeMap<i32, i64>> = [(topic.name.clone(), [(0, 15)].into())].into();
    cx.set_drain(DrainTarget { to, deadline_ns: cx.clock.now_ns() + 300_000_000 });
    read_all(&mut *input, |delivery| panic!("frame {} from a broker that is gone", delivery.frame.seq));
    input.close().unwrap();
    drop(output);
    // In flight: neither acknowledged nor failed nor dropped, also after the publisher is taken down.
    let sets = cx.recorder.ledger_sets().unwrap();
    assert_eq!(sets.get(Mark::Offered, &topic.name, 0), IntervalSet::from_range(0, 15));
    assert_eq!(sets.get(Mark::Acked, &topic.name, 0), IntervalSet::from_range(0, 10));
    assert_eq!(sets.count(Mark::Failed, &topic.name) + sets.count(Mark::Dropped, &topic.name), 0);
}
