//! One frame on its way through the stage, and the books that say how it ended: exactly one of inferred, not selected,
//! dropped, failed.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use contract::{
    Counter, Cx, Delivery, Frame, Receipt,
    flow::Complete,
    latency::Chain,
    recorder::{FrameRef, Outcome},
};

/// A selected frame.
#[derive(Debug)]
pub(crate) struct Work {
    /// The frame; its payload is let go once it is preprocessed.
    pub frame: Frame,
    pub payload: Bytes,
    pub of: FrameRef,
    pub receipt: Receipt,
    pub chain: Chain,
    /// Model input, filled by preprocessing.
    pub input: Vec<f32>,
}

impl Work {
    pub fn new(mut delivery: Delivery) -> Self {
        let (of, chain, receipt) = (frame_ref(&delivery), Chain::of(&delivery), delivery.receipt);
        let payload = std::mem::take(&mut delivery.frame.payload);
        Self { frame: delivery.frame, payload, of, receipt, chain, input: Vec::new() }
    }
}

fn frame_ref(delivery: &Delivery) -> FrameRef {
    FrameRef {
        topic: delivery.receipt.topic,
        stream: delivery.frame.stream,
        seq: delivery.frame.seq,
        due_ns: delivery.frame.due_ns,
        bytes: delivery.frame.payload.len() as u64,
    }
}

/// Counts how frames end and takes back their receipts. Shared by all threads of the stage.
pub(crate) struct Books<'a> {
    pub cx: &'a Cx,
    completer: Arc<dyn Complete>,
    failures: AtomicU64,
}

/// Failures described in the log; a broken source would fill it.
const LOGGED_FAILURES: u64 = 20;

impl<'a> Books<'a> {
    pub fn new(cx: &'a Cx, completer: Arc<dyn Complete>) -> Self {
        Self { cx, completer, failures: AtomicU64::new(0) }
    }

    /// The selection left it out: its last step was being handed to the stage.
    pub fn not_selected(&self, delivery: &Delivery) {
        self.cx.recorder.done(frame_ref(delivery), Outcome::NotSelected, delivery.handed_ns);
        self.completer.complete(delivery.receipt);
    }

    /// It was classified; [`Books::complete`] follows once its result is handed on.
    pub fn inferred(&self, work: &Work) {
        work.chain.record(&self.cx.recorder);
        self.cx.recorder.done(work.of, Outcome::Inferred, work.chain.end_ns);
    }

    /// The last step is over, whatever became of the frame.
    pub fn complete(&self, work: &Work) {
        self.completer.complete(work.receipt);
    }

    /// Given up unseen; `reason` is one of few words.
    pub fn dropped(&self, work: &Work, reason: &'static str) {
        self.ended(work, Outcome::Dropped, Counter::InferDropped, reason);
        self.complete(work);
    }

    /// It could not be read or run; `reason` is one of few words, `error` says all.
    pub fn failed(&self, work: &Work, reason: &'static str, error: &str) {
        if self.failures.fetch_add(1, Ordering::Relaxed) < LOGGED_FAILURES {
            tracing::warn!(stream = work.frame.stream, seq = work.frame.seq, reason, error, "inference failed");
        }
        self.ended(work, Outcome::Failed, Counter::InferFailed, reason);
        self.complete(work);
    }

    fn ended(&self, work: &Work, outcome: Outcome, counter: Counter, reason: &str) {
        self.cx.recorder.done(work.of, outcome, self.cx.clock.now_ns());
        self.cx.recorder.because(counter, reason);
    }
}
