//! One thread that offers the frames of all streams of an instance when they are due, and never before.
//!
//! A stream is in one of four places: in the heap (its next frame is there and has a due time), starved (its next frame is
//! not decoded yet), blocked (the output had no room for its frame), or finished. A blocked or starved stream never delays
//! another. What lateness is whose fault is settled here: waiting for room is `blocked` of the following frame, everything
//! else after due is `self_lag`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use contract::flow::Output;
use contract::latency::Step;
use contract::pace::Schedule;
use contract::recorder::FrameRef;
use contract::{Counter, Cx, Encoding, Frame, Offer, Origin, Rational, StageError};

use crate::feed::{Cached, Feed, Fetch, Item, Wake};

/// Longest sleep: how late the pacer learns of phases and shutdown.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// Shortest sleep: with hundreds of streams, frames due within it are offered together. Far below any frame period, and
/// it saves most wake-ups.
const SHORTEST_SLEEP: Duration = Duration::from_micros(500);
/// Pause before blocked frames are offered again when a round brought nothing; bounds the CPU a full queue costs.
const RETRY_PAUSE: Duration = Duration::from_micros(500);
/// Longest wait for room while a stream waits for its decoder.
const STARVED_WAIT: Duration = Duration::from_millis(2);
/// How long frames that were due before the end may still be offered when the runner names no deadline.
const DEFAULT_CATCH_UP_NS: i64 = 30_000_000_000;
/// One look at whether everything is delivered.
const FLUSH_SLICE_NS: i64 = 200_000_000;
/// Frames offered before the pacer looks at phases, shutdown and blocked streams again.
const OFFERS_A_ROUND: usize = 256;

/// Where a stream's frames come from.
#[derive(Clone)]
pub(crate) enum Supply {
    Live(Arc<Feed>),
    Cached(Arc<Cached>),
}

/// One stream as it is to be played.
pub(crate) struct StreamPlan {
    pub(crate) stream: u32,
    pub(crate) supply: Supply,
    /// Phase, start in the loop (cached only) and speed.
    pub(crate) schedule: Schedule,
    /// Loops over a cached video: `None` without end.
    pub(crate) loops: Option<u64>,
    pub(crate) time_base: Rational,
    /// The usual distance between due times; counts what a source too slow has left.
    pub(crate) period_ns: i64,
    pub(crate) encoding: Encoding,
}

struct Stream {
    plan: StreamPlan,
    /// Number of the next frame.
    seq: u64,
    /// The next frame and when it is due.
    next: Option<(Item, i64)>,
    /// Due time of the last frame taken from the supply.
    last_due_ns: i64,
    /// When the last blocked offer of this stream was taken.
    unblocked_ns: i64,
    /// A frame the output had no room for, with the moment of its first offer.
    waiting: Option<(Box<Frame>, i64)>,
    finished: bool,
}

/// Offers frames until the schedule ends.
pub(crate) struct Pacer<'a> {
    cx: &'a Cx,
    output: &'a dyn Output,
    wake: Arc<Wake>,
    unpaced: bool,
    streams: Vec<Stream>,
    due: BinaryHeap<Reverse<(i64, usize)>>,
    starved: Vec<usize>,
    blocked: Vec<usize>,
    offered_bytes: u64,
    stopped_ns: Option<i64>,
    failure: Option<StageError>,
}

impl<'a> Pacer<'a> {
    pub(crate) fn new(
        cx: &'a Cx,
        output: &'a dyn Output,
        wake: Arc<Wake>,
        unpaced: bool,
        plans: Vec<StreamPlan>,
    ) -> Self {
        let streams: Vec<Stream> = plans
            .into_iter()
            .map(|plan| Stream {
                last_due_ns: plan.schedule.phase_ns - plan.period_ns,
                plan,
                seq: 0,
                next: None,
                unblocked_ns: i64::MIN,
                waiting: None,
                finished: false,
            })
            .collect();
        let starved = (0..streams.len()).collect();
        Pacer {
            cx,
            output,
            wake,
            unpaced,
            streams,
            due: BinaryHeap::new(),
            starved,
            blocked: Vec::new(),
            offered_bytes: 0,
            stopped_ns: None,
            failure: None,
        }
    }

    /// Offer everything that is due before the end, then wait for delivery.
    pub(crate) fn run(mut self) -> Result<(), StageError> {
        while !self.all_finished() {
            self.note_stop();
            if self.cx.shutdown.is_aborting() || self.is_past_catch_up() {
                break;
            }
            self.feed_starved();
            let taken = self.retry_blocked();
            self.offer_due();
            if !self.starved.is_empty() {
                // Ask first, look then: a frame that comes in between rings.
                self.wake.want();
                if self.feed_starved() {
                    continue;
                }
            }
            self.rest(taken);
        }
        self.count_missing();
        self.flush();
        self.failure.map_or(Ok(()), Err)
    }

    fn all_finished(&self) -> bool {
        self.due.is_empty() && self.starved.is_empty() && self.blocked.is_empty()
    }

    /// No frame due at or after this is offered.
    fn end_ns(&self) -> i64 {
        let announced = self.cx.phases.drain_ns().unwrap_or(i64::MAX).min(self.cx.budget.max_run_ns);
        announced.min(self.stopped_ns.unwrap_or(i64::MAX))
    }

    fn note_stop(&mut self) {
        let failed = self.failure.is_some() || self.cx.recorder.failure().is_some();
        if self.stopped_ns.is_none() && (failed || self.cx.shutdown.is_stopping()) {
            self.stopped_ns = Some(self.cx.clock.now_ns());
        }
    }

    fn is_past_catch_up(&self) -> bool {
        let end_ns = self.end_ns();
        end_ns < i64::MAX && self.cx.clock.now_ns() > self.last_ns(end_ns)
    }

    /// When even late work is given up, for a schedule that ends at `end_ns`.
    fn last_ns(&self, end_ns: i64) -> i64 {
        match self.cx.drain_target() {
            Some(target) => target.deadline_ns.max(end_ns),
            None => end_ns.saturating_add(DEFAULT_CATCH_UP_NS),
        }
    }

    /// Look whether the frames that streams wait for have come; true when one has.
    fn feed_starved(&mut self) -> bool {
        let before = self.starved.len();
        let mut index = 0;
        while index < self.starved.len() {
            if self.prepare(self.starved[index]) {
                self.starved.swap_remove(index);
            } else {
                index += 1;
            }
        }
        self.starved.len() < before
    }

    /// Fetch the next frame of a stream and put it into the heap; false when it is not there yet.
    fn prepare(&mut self, index: usize) -> bool {
        let stream = &mut self.streams[index];
        let item = match stream.fetch() {
            Fetch::Ready(item) => item,
            Fetch::NotYet => return false,
            Fetch::End(result) => {
                stream.finish();
                if let Err(error) = result {
                    self.failure.get_or_insert(error);
                }
                return true;
            }
        };
        let due_ns = stream.due_ns(&item);
        stream.last_due_ns = due_ns;
        stream.next = Some((item, due_ns));
        // Unpaced streams take turns: the one with the fewest frames offered comes first.
        let key = if self.unpaced { i64::try_from(stream.seq).unwrap_or(i64::MAX) } else { due_ns };
        self.due.push(Reverse((key, index)));
        true
    }

    /// Offer again what had no room; true when something was taken.
    fn retry_blocked(&mut self) -> bool {
        let mut progress = false;
        for index in std::mem::take(&mut self.blocked) {
            let Some((frame, offered_ns)) = self.streams[index].waiting.take() else { continue };
            progress |= self.offer(index, *frame, offered_ns, true);
        }
        progress
    }

    /// Offer every frame whose time has come, up to a round's worth.
    fn offer_due(&mut self) {
        for _ in 0..OFFERS_A_ROUND {
            let end_ns = self.end_ns();
            let now_ns = self.cx.clock.now_ns();
            let Some(due_ns) = self.next_due_ns() else { return };
            let over = if self.unpaced { now_ns >= end_ns } else { due_ns >= end_ns };
            if now_ns < due_ns && !over {
                return;
            }
            let Some(Reverse((_, index))) = self.due.pop() else { return };
            if over {
                self.streams[index].finish();
                continue;
            }
            let Some((item, due_ns)) = self.streams[index].next.take() else { continue };
            let frame = self.make_frame(index, item, due_ns, now_ns);
            self.cx.recorder.add(Counter::Scheduled, 1);
            self.spend(frame.payload.len());
            self.offer(index, frame, now_ns, false);
        }
    }

    /// When the first frame of the heap may be offered.
    fn next_due_ns(&self) -> Option<i64> {
        let Reverse((due_ns, _)) = self.due.peek()?;
        Some(if self.unpaced { 0 } else { *due_ns })
    }

    /// Count against the budget that keeps an orphan from filling a disk.
    fn spend(&mut self, bytes: usize) {
        self.offered_bytes = self.offered_bytes.saturating_add(bytes as u64);
        let budget = self.cx.budget.max_bytes;
        if self.offered_bytes > budget && self.failure.is_none() {
            let message = format!("offered more than its budget of {budget} bytes; it stops");
            self.failure = Some(StageError::limit(self.cx.stage_id.clone(), message));
            // Not even what is due already: the schedule ends before its first frame.
            self.stopped_ns = Some(0);
        }
    }

    /// The record of a frame that is offered now. Unpaced, it is due when it is offered.
    fn make_frame(&self, index: usize, item: Item, due_ns: i64, now_ns: i64) -> Frame {
        let stream = &self.streams[index];
        let due_ns = if self.unpaced { now_ns } else { due_ns };
        let ready_ns = due_ns.max(stream.unblocked_ns);
        let origin = Origin { blocked_ns: ready_ns - due_ns, self_lag_ns: now_ns - ready_ns, enqueue_ns: 0 };
        Frame {
            run_id: self.cx.run_id,
            stream: stream.plan.stream,
            seq: stream.seq,
            pts: stream.ticks(&item),
            time_base: stream.plan.time_base,
            due_ns,
            produced_ns: now_ns,
            due_wall_ns: self.cx.clock.wall_ns(due_ns),
            geometry: item.geometry,
            encoding: stream.plan.encoding,
            origin,
            parent: None,
            hop: 0,
            payload: item.payload,
        }
    }

    /// Offer a frame, first or again; true unless there was no room.
    fn offer(&mut self, index: usize, frame: Frame, offered_ns: i64, again: bool) -> bool {
        let (due_ns, origin) = (frame.due_ns, frame.origin);
        if !again {
            // Of every frame, whatever becomes of it: a full queue must not hide the generator's own lateness.
            self.cx.recorder.step(Step::SelfLag, due_ns, origin.self_lag_ns);
        }
        let taken_ns = match self.output.try_offer(frame, offered_ns) {
            Offer::Full(frame) => {
                self.streams[index].waiting = Some((frame, offered_ns));
                self.blocked.push(index);
                return false;
            }
            Offer::Accepted { at_ns } => {
                let recorder = &self.cx.recorder;
                recorder.step(Step::Blocked, due_ns, origin.blocked_ns);
                recorder.step(Step::Enqueue, due_ns, at_ns - offered_ns);
                at_ns
            }
            Offer::Dropped(_) => self.cx.clock.now_ns(),
        };
        let stream = &mut self.streams[index];
        if again {
            stream.unblocked_ns = taken_ns;
        }
        stream.take();
        if !self.prepare(index) {
            self.starved.push(index);
        }
        true
    }

    /// Sleep until something is due, has come, or may have room; `taken` says that the last round found room.
    fn rest(&self, taken: bool) {
        let until_due =
            |longest: Duration| self.next_due_ns().map_or(longest, |due_ns| self.cx.clock.until(due_ns).min(longest));
        let wait = until_due(LONGEST_SLEEP);
        if wait.is_zero() || self.all_finished() {
            return;
        }
        if self.blocked.is_empty() {
            return self.wake.sleep(wait.max(SHORTEST_SLEEP));
        }
        if !taken {
            self.wake.sleep(wait.min(RETRY_PAUSE));
        }
        // A frame that comes for a starved stream cannot end the wait for room: keep it short then.
        let longest = if self.starved.is_empty() { LONGEST_SLEEP } else { STARVED_WAIT };
        self.output.wait_for_room(until_due(longest));
    }

    /// Frames that were due before the end and were never offered are scheduled all the same.
    fn count_missing(&self) {
        let end_ns = self.end_ns();
        if self.unpaced || end_ns == i64::MAX || self.cx.shutdown.is_aborting() {
            return;
        }
        for stream in &self.streams {
            let missing = stream.missing(end_ns);
            self.cx.recorder.add(Counter::Scheduled, missing);
            // Behind a blocked frame the generator waits for the broker: what was due is offered and in flight. Behind a slow
            // decoder it is the generator's own failing and stays unoffered.
            if stream.waiting.is_some() {
                self.offer_in_the_books(stream, missing, end_ns);
            }
        }
    }

    fn offer_in_the_books(&self, stream: &Stream, missing: u64, end_ns: i64) {
        let number = stream.plan.stream;
        for k in 1..=missing {
            let seq = stream.seq + k;
            let due_ns = (stream.last_due_ns + k as i64 * stream.plan.period_ns).min(end_ns - 1);
            let of = FrameRef { topic: self.output.topic_of(number), stream: number, seq, due_ns, bytes: 0 };
            self.cx.recorder.offered(of, 0);
        }
    }

    /// Wait until everything accepted has a delivery report, at most until late work is given up.
    fn flush(&self) {
        let begun_ns = self.cx.clock.now_ns();
        loop {
            let last_ns = self.last_ns(begun_ns);
            let now_ns = self.cx.clock.now_ns();
            let delivered = self.output.flush((now_ns + FLUSH_SLICE_NS).min(last_ns));
            if delivered || self.cx.shutdown.is_aborting() || now_ns >= last_ns {
                return;
            }
        }
    }
}

impl Stream {
    fn fetch(&self) -> Fetch {
        match &self.plan.supply {
            Supply::Live(feed) => feed.fetch(self.seq),
            Supply::Cached(cached) => {
                let frames = cached.items.len() as u64;
                let over = self.plan.loops.is_some_and(|loops| self.seq >= loops.saturating_mul(frames));
                if over {
                    Fetch::End(Ok(()))
                } else {
                    Fetch::Ready(cached.item(self.plan.schedule.first + self.seq).clone())
                }
            }
        }
    }

    fn due_ns(&self, item: &Item) -> i64 {
        match &self.plan.supply {
            Supply::Live(_) => {
                let speed = self.plan.schedule.speed;
                let media_ns = item.time.ns;
                let scaled = if speed == 1.0 { media_ns } else { (media_ns as f64 / speed) as i64 };
                self.plan.schedule.phase_ns.saturating_add(scaled)
            }
            Supply::Cached(cached) => self.plan.schedule.due_ns(&cached.timeline, self.seq),
        }
    }

    /// Media time since the first frame of this stream, in its time base.
    fn ticks(&self, item: &Item) -> i64 {
        match &self.plan.supply {
            Supply::Live(_) => item.time.ticks,
            Supply::Cached(cached) => {
                let first = self.plan.schedule.first;
                cached.ticks(first + self.seq) - cached.ticks(first)
            }
        }
    }

    /// The present frame has gone; the next one is wanted.
    fn take(&mut self) {
        if let Supply::Live(feed) = &self.plan.supply {
            feed.take(self.seq);
        }
        self.seq += 1;
    }

    fn finish(&mut self) {
        self.next = None;
        if !self.finished {
            self.finished = true;
            if let Supply::Live(feed) = &self.plan.supply {
                feed.leave(self.seq);
            }
        }
    }

    /// Frames due before `end_ns` that were not offered: exact for a cached loop, by the usual distance otherwise.
    fn missing(&self, end_ns: i64) -> u64 {
        if self.finished {
            return 0;
        }
        let offered = self.seq + u64::from(self.waiting.is_some());
        match &self.plan.supply {
            Supply::Cached(cached) => {
                self.plan.schedule.frames_before(&cached.timeline, end_ns).saturating_sub(offered)
            }
            Supply::Live(_) => {
                let next_ns = match &self.next {
                    Some((_, due_ns)) => *due_ns,
                    None => self.last_due_ns.saturating_add(self.plan.period_ns),
                };
                let left_ns = end_ns.saturating_sub(next_ns);
                if left_ns <= 0 { 0 } else { (left_ns - 1) as u64 / self.plan.period_ns as u64 + 1 }
            }
        }
    }
}
