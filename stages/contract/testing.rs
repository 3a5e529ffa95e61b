//! Channel adapters and a compliance check, so that any stage is tested without a broker. Used by tests only.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::clock::RunClock;
use crate::error::StageError;
use crate::flow::{Complete, Delivery, Input, Io, Next, Offer, Output, Receipt};
use crate::frame::{Frame, RunId};
use crate::ledger::Ledger;
use crate::phases::Phases;
use crate::recorder::{FrameRef, Recorder};
use crate::shutdown::Shutdown;
use crate::stage::{Budget, Cx, CxParts, StageEntry};

/// A context over topics `names`, with a real clock whose t0 is now.
pub fn context(work_dir: &Path, names: &[&str]) -> Cx {
    let topics: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let ledger = Ledger::create(&work_dir.join("ledger"), &topics).expect("the test folder is writable");
    let phases = Phases::default();
    let clock = RunClock::default();
    clock.set_t0(crate::clock::mono_ns());
    let deadline_ns = 1_000_000_000;
    Cx::new(CxParts {
        stage_id: "under-test".into(),
        run_id: RunId([9; 16]),
        index: 0,
        of: 1,
        seed: 42,
        clock,
        phases: phases.clone(),
        shutdown: Shutdown::default(),
        recorder: Recorder::new(topics, Some(ledger), phases, deadline_ns),
        budget: Budget::default(),
        deadline_ns,
        work_dir: work_dir.to_owned(),
        drain: Mutex::default(),
    })
}

/// An output that keeps what it accepts; `capacity` frames fit until `take` makes room.
pub struct Sink {
    cx: Cx,
    topic: u16,
    capacity: usize,
    held: Mutex<VecDeque<Frame>>,
    taken: Mutex<Vec<Frame>>,
}

impl Sink {
    pub fn new(cx: &Cx, topic: u16, capacity: usize) -> Arc<Self> {
        Arc::new(Sink { cx: cx.clone(), topic, capacity, held: Mutex::default(), taken: Mutex::default() })
    }

    /// Takes out at most `n` held frames, making room.
    pub fn take(&self, n: usize) -> usize {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let n = n.min(held.len());
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).extend(held.drain(..n));
        n
    }

    /// Every accepted frame, in order of acceptance.
    pub fn frames(&self) -> Vec<Frame> {
        self.take(usize::MAX);
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Output for Sink {
    fn try_offer(&self, mut frame: Frame, offered_ns: i64) -> Offer {
        let of = FrameRef {
            topic: self.topic,
            stream: frame.stream,
            seq: frame.seq,
            due_ns: frame.due_ns,
            bytes: frame.payload.len() as u64,
        };
        self.cx.recorder.offered(of, frame.origin.self_lag_ns);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() >= self.capacity {
            return Offer::Full(Box::new(frame));
        }
        let at_ns = self.cx.clock.now_ns();
        frame.origin.enqueue_ns = at_ns - offered_ns;
        frame.produced_ns = at_ns;
        held.push_back(frame);
        self.cx.recorder.acked(of, at_ns);
        Offer::Accepted { at_ns }
    }

    fn wait_for_room(&self, wait: Duration) {
        std::thread::sleep(wait.min(Duration::from_millis(1)));
    }

    fn topic_of(&self, _stream: u32) -> u16 {
        self.topic
    }

    fn flush(&self, _deadline_ns: i64) -> bool {
        true
    }
}

/// An input that hands over prepared frames, then closes.
pub struct Feed {
    cx: Cx,
    frames: VecDeque<Frame>,
    offset: i64,
    done: Arc<Completed>,
}

/// Receipts taken back, in order.
#[derive(Default)]
pub struct Completed(Mutex<Vec<Receipt>>);

impl Completed {
    pub fn receipts(&self) -> Vec<Receipt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Complete for Completed {
    fn complete(&self, receipt: Receipt) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(receipt);
    }
}

impl Feed {
    pub fn new(cx: &Cx, frames: Vec<Frame>) -> (Box<Self>, Arc<Completed>) {
        let done = Arc::new(Completed::default());
        (Box::new(Feed { cx: cx.clone(), frames: frames.into(), offset: 0, done: done.clone() }), done)
    }
}

impl Input for Feed {
    fn next(&mut self, _wait: Duration) -> Result<Next, StageError> {
        let Some(frame) = self.frames.pop_front() else { return Ok(Next::Closed) };
        if self.cx.shutdown.is_stopping() {
            return Ok(Next::Closed);
        }
        let handed_ns = self.cx.clock.now_ns();
        let receipt = Receipt { topic: 0, partition: 0, offset: self.offset };
        let of = FrameRef {
            topic: 0,
            stream: frame.stream,
            seq: frame.seq,
            due_ns: frame.due_ns,
            bytes: frame.payload.len() as u64,
        };
        self.cx.recorder.seen(0, self.offset, of, true, handed_ns);
        self.offset += 1;
        Ok(Next::Item(Box::new(Delivery { frame, receipt, handed_ns })))
    }

    fn completer(&self) -> Arc<dyn Complete> {
        self.done.clone()
    }

    fn close(self: Box<Self>) -> Result<(), StageError> {
        Ok(())
    }
}

/// A frame of stream 0 with a payload, due at `due_ns`.
pub fn frame(seq: u64, due_ns: i64, payload: Bytes) -> Frame {
    Frame {
        run_id: RunId([9; 16]),
        stream: 0,
        seq,
        pts: seq as i64,
        time_base: crate::frame::Rational::new(1, 24),
        due_ns,
        produced_ns: due_ns,
        due_wall_ns: 0,
        geometry: crate::frame::Geometry::new(0, 0),
        encoding: crate::frame::Encoding::Jpeg,
        origin: Default::default(),
        parent: None,
        hop: 0,
        payload,
    }
}

/// What every stage must do: refuse an unknown key, and, stopped at once, end within ten seconds with every input completed.
pub fn assert_stage_contract(entry: &StageEntry, config: serde_json::Value, input: Vec<Frame>) {
    let mut wrong = config.clone();
    wrong["no_such_key"] = serde_json::json!(1);
    assert!((entry.demand)(wrong).is_err(), "{} accepts an unknown key", entry.kind);
    let folder = tempfile_dir();
    let cx = context(&folder, &["in", "out"]);
    let offered = input.len();
    let stage = (entry.open)(config, &cx).unwrap_or_else(|error| panic!("{} does not open: {error}", entry.kind));
    let (feed, done) = Feed::new(&cx, input);
    let io = match entry.ports {
        crate::stage::Ports::Source => Io { input: None, output: Some(Sink::new(&cx, 1, usize::MAX)) },
        crate::stage::Ports::Sink => Io { input: Some(feed), output: None },
        crate::stage::Ports::Transform => Io { input: Some(feed), output: Some(Sink::new(&cx, 1, usize::MAX)) },
        crate::stage::Ports::Alone => Io::default(),
    };
    let (sent, ended) = std::sync::mpsc::sync_channel(1);
    let inside = cx.clone();
    let kind = entry.kind;
    std::thread::Builder::new()
        .name("stage-under-test".into())
        .spawn(move || sent.send(stage.run(io, &inside)))
        .expect("a thread can be started");
    if offered == 0 {
        cx.shutdown.stop();
    }
    let result = ended.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{kind} does not stop"));
    assert!(result.is_ok(), "{kind}: {result:?}");
    assert_eq!(done.receipts().len(), offered, "{kind} does not complete every input");
    let _ = std::fs::remove_dir_all(folder);
}

fn tempfile_dir() -> std::path::PathBuf {
    let name = format!("reelbench-stage-{}-{}", std::process::id(), crate::clock::mono_ns());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    folder
}
