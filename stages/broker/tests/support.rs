//! A broker, topics on it, and the specs that publishers and consumers are made from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use broker::KafkaAdapters;
use builtin_broker::{Broker, BrokerOptions};
use bytes::Bytes;
use contract::admin::{Admin, TopicConfig, TopicNeed};
use contract::flow::{Adapters, ConsumeConfig, InputSpec, OutputSpec, PublishConfig, Spread, TopicRef};
use contract::stage::DrainTarget;
use contract::testing::{context, frame};
use contract::units::Span;
use contract::{Cx, Delivery, Input, Next, Offer, Output};

pub const WAIT: Duration = Duration::from_secs(10);

/// A broker for one test.
pub struct Cluster {
    pub bootstrap: String,
    pub admin: Box<dyn Admin>,
    /// Whether it is the built-in one.
    pub builtin: bool,
    _broker: Option<(Broker, tempfile::TempDir)>,
}

impl Cluster {
    /// One that someone else runs.
    pub fn at(bootstrap: &str) -> Self {
        let admin = broker::admin(bootstrap, &BTreeMap::new()).unwrap();
        Cluster { bootstrap: bootstrap.to_owned(), admin, builtin: true, _broker: None }
    }
}

/// One node, so that any external broker will do.
pub fn cluster() -> Cluster {
    nodes(1)
}

/// More than one node only with the built-in broker.
pub fn nodes(nodes: u16) -> Cluster {
    let external = std::env::var("REELBENCH_BOOTSTRAP").ok();
    let builtin = external.is_none();
    let (bootstrap, broker) = match external {
        Some(bootstrap) => (bootstrap, None),
        None => {
            let folder = tempfile::tempdir().unwrap();
            let options = BrokerOptions { data_dir: folder.path().join("data"), nodes, ..BrokerOptions::default() };
            let broker = Broker::start(options).unwrap();
            (broker.bootstrap_servers(), Some((broker, folder)))
        }
    };
    let admin = broker::admin(&bootstrap, &BTreeMap::new()).unwrap();
    Cluster { bootstrap, admin, builtin, _broker: broker }
}

/// A name that no other test and no earlier run has used.
pub fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{}-{}-{n}", std::process::id(), contract::clock::real_ns())
}

pub fn need(name: &str, partitions: u32, max_frame_bytes: u64) -> TopicNeed {
    let config = TopicConfig {
        name: name.to_owned(),
        partitions,
        replication: 1,
        retention_bytes: None,
        retention: None,
        segment_bytes: None,
        max_message_bytes: None,
        min_insync_replicas: None,
        reuse: false,
    };
    TopicNeed { config, max_frame_bytes }
}

/// A context with the one topic `name`, its ledger in a folder of its own.
pub fn alone(name: &str) -> (tempfile::TempDir, Cx) {
    let folder = tempfile::tempdir().unwrap();
    let cx = context(folder.path(), &[name]);
    (folder, cx)
}

/// A topic for one test.
pub struct Topic<'a> {
    pub cluster: &'a Cluster,
    pub name: String,
    pub partitions: i32,
    pub max_frame_bytes: u64,
}

impl<'a> Topic<'a> {
    pub fn new(cluster: &'a Cluster, name: &str, partitions: i32, max_frame_bytes: u64) -> Self {
        let name = unique(name);
        cluster.admin.create_topics(&[need(&name, partitions as u32, max_frame_bytes)]).unwrap();
        Topic { cluster, name, partitions, max_frame_bytes }
    }

    fn topic_ref(&self) -> TopicRef {
        TopicRef { name: self.name.clone(), partitions: self.partitions, index: 0 }
    }

    pub fn output(&self, cx: &Cx, publish: PublishConfig) -> Arc<dyn Output> {
        let spec = OutputSpec {
            bootstrap_servers: self.cluster.bootstrap.clone(),
            client: BTreeMap::new(),
            topics: vec![self.topic_ref()],
            spread: Spread::Streams,
            publish,
            max_frame_bytes: self.max_frame_bytes,
        };
        KafkaAdapters.output(cx, &spec).unwrap()
    }

    pub fn input(&self, cx: &Cx, group: &str) -> Box<dyn Input> {
        let spec = InputSpec {
            bootstrap_servers: self.cluster.bootstrap.clone(),
            client: BTreeMap::new(),
            topic: self.topic_ref(),
            group: group.to_owned(),
            consume: ConsumeConfig {
                commit_interval: Some(Span(Duration::from_millis(100))),
                ..ConsumeConfig::default()
            },
            max_frame_bytes: self.max_frame_bytes,
        };
        KafkaAdapters.input(cx, &spec).unwrap()
    }

    /// Tells a consumer that nothing more will come.
    pub fn drain(&self, cx: &Cx) {
        let ends = self.cluster.admin.end_offsets(&self.name, WAIT).unwrap();
        // An hour: a reader that does not find the end is not saved by the deadline.
        let deadline_ns = cx.clock.now_ns() + 3_600_000_000_000;
        cx.set_drain(DrainTarget { to: [(self.name.clone(), ends)].into(), deadline_ns });
    }
}

/// A payload that tells frames apart and is not the same twice.
pub fn payload(stream: u32, seq: u64, bytes: usize) -> Bytes {
    let mut state = (u64::from(stream) << 40) | (seq + 1);
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(next).collect::<Vec<u8>>().into()
}

/// Offers a frame due now until it is taken or given up.
pub fn offer(cx: &Cx, output: &dyn Output, stream: u32, seq: u64, payload: Bytes) -> bool {
    let due_ns = cx.clock.now_ns();
    let mut offered = frame(seq, due_ns, payload);
    offered.stream = stream;
    let mut next = offered;
    loop {
        match output.try_offer(next, due_ns) {
            Offer::Accepted { .. } => return true,
            Offer::Dropped(_) => return false,
            Offer::Full(back) => {
                output.wait_for_room(Duration::from_millis(100));
                next = *back;
            }
        }
    }
}

/// Publishes `seqs` of each stream and waits for the acknowledgements.
pub fn publish(cx: &Cx, output: &dyn Output, streams: u32, seqs: std::ops::Range<u64>, bytes: usize) {
    for seq in seqs {
        for stream in 0..streams {
            assert!(offer(cx, output, stream, seq, payload(stream, seq, bytes)));
        }
    }
    assert!(output.flush(cx.clock.now_ns() + 60_000_000_000), "not every frame was reported on");
}

/// Reads until the input closes; `work` decides whether a delivery is completed.
pub fn read_all(input: &mut dyn Input, mut work: impl FnMut(&Delivery) -> bool) {
    let completer = input.completer();
    loop {
        match input.next(Duration::from_millis(50)).unwrap() {
            Next::Item(delivery) => {
                if work(&delivery) {
                    completer.complete(delivery.receipt);
                }
            }
            Next::Idle => {}
            Next::Closed => return,
        }
    }
}
