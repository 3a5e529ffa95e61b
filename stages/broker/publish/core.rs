//! The books and lanes of a publisher, shared by the threads that offer and the thread that takes delivery reports.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use contract::flow::{DropReason, Policy};
use contract::recorder::{FrameRef, Gauge};
use contract::{Frame, Recorder, RunClock, StageError, wire};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::BaseProducer;

use super::checksum::Checksum;
use super::lane::{Lane, Waiting};
use super::native::{Record, Sent, produce};
use super::reports::Reports;
use super::routes::Routes;
use super::settings::PublishSettings;
use super::signal::Signal;
use crate::size_chain::record_bytes;

/// Name of the step that frames are dropped in.
pub(crate) const STEP: &str = "publish";

pub(crate) struct Core {
    pub(crate) recorder: Recorder,
    pub(crate) clock: RunClock,
    pub(crate) settings: PublishSettings,
    pub(crate) routes: Routes,
    lanes: Vec<PartitionLane>,
    checksum: Checksum,
    pub(crate) signal: Signal,
    /// Frames accepted and not reported on.
    outstanding: AtomicU64,
    outstanding_bytes: AtomicU64,
    /// Reports that come while the producer is taken down say nothing about the frames.
    pub(crate) closing: AtomicBool,
}

/// One partition.
pub(crate) struct PartitionLane {
    name: CString,
    partition: i32,
    /// Index in `Recorder::topics`.
    topic: u16,
    state: Mutex<Lane<Frame>>,
}

/// A lane while its lock is held.
pub(crate) struct Held<'a> {
    pub(crate) index: usize,
    pub(crate) lane: MutexGuard<'a, Lane<Frame>>,
}

impl Core {
    pub(crate) fn new(cx: &contract::Cx, settings: PublishSettings, routes: Routes) -> Result<Self, StageError> {
        let lane = |(topic, partition): (&contract::flow::TopicRef, i32)| {
            let name = CString::new(topic.name.as_str())
                .map_err(|_| StageError::config("topic", "a topic name cannot contain a zero byte"))?;
            Ok(PartitionLane { name, partition, topic: topic.index, state: Mutex::default() })
        };
        Ok(Core {
            recorder: cx.recorder.clone(),
            clock: cx.clock.clone(),
            lanes: routes.lanes().map(lane).collect::<Result<_, StageError>>()?,
            settings,
            routes,
            checksum: Checksum::default(),
            signal: Signal::default(),
            outstanding: AtomicU64::new(0),
            outstanding_bytes: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        })
    }

    pub(crate) fn hold(&self, index: usize) -> Held<'_> {
        let lane = self.lanes[index].state.lock().unwrap_or_else(PoisonError::into_inner);
        Held { index, lane }
    }

    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding.load(Ordering::Acquire)
    }

    pub(crate) fn frame_ref(&self, frame: &Frame, lane: usize) -> FrameRef {
        FrameRef {
            topic: self.lanes[lane].topic,
            stream: frame.stream,
            seq: frame.seq,
            due_ns: frame.due_ns,
            bytes: frame.payload.len() as u64,
        }
    }

    pub(crate) fn set_gauges(&self) {
        self.recorder.set(Gauge::QueueFrames, self.outstanding() as f64);
        self.recorder.set(Gauge::QueueBytes, self.outstanding_bytes.load(Ordering::Relaxed) as f64);
    }

    /// A frame is the publisher's now.
    pub(crate) fn take(&self, frame: &Frame) {
        self.outstanding.fetch_add(1, Ordering::AcqRel);
        self.outstanding_bytes.fetch_add(frame.payload.len() as u64, Ordering::Relaxed);
    }

    fn release(&self, payload_bytes: u64) {
        self.outstanding_bytes.fetch_sub(payload_bytes, Ordering::Relaxed);
        if self.outstanding.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.signal.notify();
        }
    }

    /// Gives up a frame that was accepted before.
    pub(crate) fn give_up(&self, lane: usize, waiting: &Waiting<Frame>, reason: DropReason) {
        self.recorder.dropped(self.frame_ref(&waiting.item, lane), STEP, reason);
        self.release(waiting.item.payload.len() as u64);
    }

    /// Hands a frame to the client library; one the library has no room for waits first in line.
    pub(crate) fn send(&self, producer: &BaseProducer<Reports>, held: &mut Held<'_>, frame: Frame) {
        let lane = &mut *held.lane;
        let to = &self.lanes[held.index];
        wire::encode_header(&frame, self.checksum.of(&frame.payload), &mut lane.header);
        let of = self.frame_ref(&frame, held.index);
        let bytes = record_bytes(of.bytes);
        let record =
            Record { topic: &to.name, partition: to.partition, key: wire::key(frame.stream), header: &lane.header };
        let sent = Box::new(Sent { payload: frame.payload.clone(), of, lane: held.index, bytes });
        // The report may come before the call returns; it waits for this lane's lock.
        match produce(producer, &record, sent) {
            Ok(()) => lane.take_window(bytes),
            Err((RDKafkaErrorCode::QueueFull, _)) => {
                lane.queue_first(Waiting { bytes, due_ns: frame.due_ns, item: frame });
            }
            Err((code, sent)) => self.refused_by_library(&sent, code),
        }
    }

    /// Nothing was sent: the frame is failed, and the stage with it, because the next one would fare no better.
    fn refused_by_library(&self, sent: &Sent, code: RDKafkaErrorCode) {
        self.recorder.delivery_failed(sent.of, &code.to_string());
        let to = &self.lanes[sent.lane];
        let place = format!("topic {}, partition {}", to.name.to_string_lossy(), to.partition);
        self.recorder.fail(StageError::broker(place, format!("the client library refuses a frame: {code}")));
        self.release(sent.of.bytes);
    }

    /// Sends what waits as far as the window goes, giving up what has become too old.
    pub(crate) fn pump(&self, producer: &BaseProducer<Reports>, held: &mut Held<'_>) {
        while held.lane.has_waiting() {
            if self.settings.policy == Policy::Deadline
                && let Some(stale) = held.lane.pop_stale(self.horizon_ns())
            {
                self.give_up(held.index, &stale, DropReason::Deadline);
                continue;
            }
            let Some(waiting) = held.lane.pop_fitting(self.settings.limits) else { return };
            let before = held.lane.waiting_count();
            self.send(producer, held, waiting.item);
            if held.lane.waiting_count() > before {
                return;
            }
        }
    }

    /// A frame due before this is older than the deadline.
    pub(crate) fn horizon_ns(&self) -> i64 {
        self.clock.now_ns().saturating_sub(self.settings.deadline_ns)
    }

    /// Pumps every lane that has frames waiting; the poll thread's safety net.
    pub(crate) fn pump_all(&self, producer: &BaseProducer<Reports>) {
        for index in 0..self.lanes.len() {
            let mut held = self.hold(index);
            if held.lane.has_waiting() {
                self.pump(producer, &mut held);
                if held.lane.is_wanted() {
                    self.signal.notify();
                }
            }
        }
    }

    /// Takes one delivery report.
    pub(crate) fn settle(&self, sent: &Sent, failure: Option<&str>, producer: Option<&BaseProducer<Reports>>) {
        if self.closing.load(Ordering::Acquire) {
            return;
        }
        match failure {
            Some(reason) => self.recorder.delivery_failed(sent.of, reason),
            None if self.settings.reports_are_acks => self.recorder.acked(sent.of, self.clock.now_ns()),
            None => {}
        }
        let mut held = self.hold(sent.lane);
        held.lane.free_window(sent.bytes);
        if let Some(producer) = producer {
            self.pump(producer, &mut held);
        }
        let wanted = held.lane.is_wanted();
        drop(held);
        if wanted {
            self.signal.notify();
        }
        self.release(sent.of.bytes);
    }
}
