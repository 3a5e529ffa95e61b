//! What is published for an inferred frame: a JSON record with the frame it came from and its best classes.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use contract::{Cx, Encoding, Frame, Geometry, Offer, Output};
use serde::{Deserialize, Serialize};

use crate::{classes::Ranked, signature::Weights, work::Work};

/// One result. `stream` and `seq` are those of the frame, which is also the parent in the record's header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultRecord {
    pub stream: u32,
    pub seq: u64,
    pub pts: i64,
    /// When the frame was due and when its classes were known, run-relative: their difference is its end-to-end latency.
    pub due_ns: i64,
    pub done_ns: i64,
    pub model: String,
    pub model_weights: Weights,
    /// Best first.
    pub top: Vec<Ranked>,
}

/// Bytes of a result with `top_k` classes, estimated from the longest names.
pub(crate) fn estimated_bytes(top_k: u32) -> u64 {
    160 + u64::from(top_k) * 64
}

/// Bytes that no result with `top_k` classes exceeds.
pub(crate) fn max_bytes(top_k: u32) -> u64 {
    1024 + u64::from(top_k) * 256
}

/// Offers results to the output, waiting for room: a result is never dropped while the stage goes on.
pub(crate) struct Publisher {
    output: Arc<dyn Output>,
    cx: Cx,
    model: String,
    weights: Weights,
    /// When the last wait for room ended; what was due before that was held up by the broker, not by us.
    blocked_until_ns: i64,
}

impl Publisher {
    pub fn new(output: Arc<dyn Output>, cx: &Cx, model: &str, weights: Weights) -> Self {
        Self { output, cx: cx.clone(), model: model.to_owned(), weights, blocked_until_ns: i64::MIN }
    }

    /// Publish the classes of `work`; gives up only when the stage is aborted.
    pub fn publish(&mut self, work: &Work, top: Vec<Ranked>) {
        const LONGEST_WAIT: Duration = Duration::from_millis(50);
        let mut frame = self.record(work, top);
        let offered_ns = self.cx.clock.now_ns();
        // A result is due the moment it is known; see `ResultRecord::due_ns` for the frame's own.
        frame.origin.blocked_ns = self.blocked_until_ns.clamp(frame.due_ns, offered_ns) - frame.due_ns;
        frame.origin.self_lag_ns = offered_ns - frame.due_ns - frame.origin.blocked_ns;
        let mut blocked = false;
        loop {
            match self.output.try_offer(frame, offered_ns) {
                Offer::Accepted { at_ns } => {
                    if blocked {
                        self.blocked_until_ns = at_ns;
                    }
                    return;
                }
                Offer::Dropped(_) => return,
                Offer::Full(back) => {
                    if self.cx.shutdown.is_aborting() {
                        return;
                    }
                    frame = *back;
                    blocked = true;
                    self.output.wait_for_room(LONGEST_WAIT);
                }
            }
        }
    }

    fn record(&self, work: &Work, top: Vec<Ranked>) -> Frame {
        let parent = &work.frame;
        let done_ns = work.chain.end_ns;
        let record = ResultRecord {
            stream: parent.stream,
            seq: parent.seq,
            pts: parent.pts,
            due_ns: parent.due_ns,
            done_ns,
            model: self.model.clone(),
            model_weights: self.weights,
            top,
        };
        let payload = serde_json::to_vec(&record).expect("a record of numbers and text always serialises");
        Frame {
            run_id: parent.run_id,
            stream: parent.stream,
            seq: parent.seq,
            pts: parent.pts,
            time_base: parent.time_base,
            due_ns: done_ns,
            produced_ns: done_ns,
            due_wall_ns: self.cx.clock.wall_ns(done_ns),
            geometry: Geometry::default(),
            encoding: Encoding::Json,
            origin: Default::default(),
            parent: Some((parent.stream, parent.seq)),
            hop: parent.hop.saturating_add(1),
            payload: Bytes::from(payload),
        }
    }
}
