//! Publishes frames: `Output` over rdkafka's base producer. Each partition has a byte-bounded window of frames in flight and,
//! under a policy that gives frames up, a byte-bounded queue before it, so that a partition without room delays no other and a
//! policy acts on exactly the frames it names. Delivery reports are taken by a thread of its own, `publish-poll`.
//!
//! Policies, when a frame's partition has no room:
//! - `block`: the frame is refused (`Full`) and comes again; nothing is given up.
//! - `drop-new`: the frame is given up.
//! - `drop-old`: the oldest frames that wait in the partition's queue are given up until it fits.
//! - `deadline`: as `block`, and a frame older than the deadline is given up wherever it waits, also when it comes too late.
//!
//! What the client library already has is never given up by a policy: the broker may have it too.

mod checksum;
mod core;
mod lane;
mod native;
mod reports;
mod routes;
mod settings;
mod signal;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use contract::flow::{DropReason, OutputSpec, Policy};
use contract::{Cx, Frame, Offer, Output, Shutdown, StageError};
use rdkafka::producer::{BaseProducer, Producer};

use self::core::{Core, Held, STEP};
use self::lane::{Room, Waiting};
use self::reports::Reports;
use self::routes::Routes;
use self::settings::PublishSettings;
use crate::{client, size_chain, topic};

/// How often gauges are set and frames that wait are looked at when no report comes. Not shorter: rdkafka's timed poll spins
/// through the last millisecond of its wait.
const TICK: Duration = Duration::from_millis(250);
/// How long the broker may take to answer before t0.
const CONNECT: Duration = Duration::from_secs(15);
/// Longest pause in `flush` between looks at the deadline and at an abort.
const FLUSH_STEP: Duration = Duration::from_millis(20);

/// An `Output` over a Kafka producer.
pub struct Publisher {
    core: Arc<Core>,
    producer: Arc<BaseProducer<Reports>>,
    shutdown: Shutdown,
    stop: Arc<AtomicBool>,
    poll: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Connects, and checks that the topics are as the scenario says.
    pub fn open(cx: &Cx, spec: &OutputSpec) -> Result<Self, StageError> {
        let publisher = Publisher::unconnected(cx, spec)?;
        topic::expect(publisher.producer.client(), &spec.bootstrap_servers, &spec.topics, CONNECT)?;
        Ok(publisher)
    }

    /// Without a look at the broker.
    fn unconnected(cx: &Cx, spec: &OutputSpec) -> Result<Self, StageError> {
        let settings = PublishSettings::new(cx, spec)?;
        cx.recorder.fact("publish", settings.fact());
        let config = client::client_config(&settings.client);
        let core = Arc::new(Core::new(cx, settings, Routes::new(&spec.topics, spec.spread))?);
        let producer: BaseProducer<Reports> = config
            .create_with_context(Reports::new(core.clone()))
            .map_err(|error| client::creation_error(&spec.bootstrap_servers, &error))?;
        let producer = Arc::new(producer);
        // Cannot be set already: the context was made above.
        let _ = producer.context().producer.set(Arc::downgrade(&producer));
        let stop = Arc::new(AtomicBool::new(false));
        let poll = {
            let (core, producer, stop) = (core.clone(), producer.clone(), stop.clone());
            let place = spec.bootstrap_servers.clone();
            std::thread::Builder::new()
                .name("publish-poll".into())
                .spawn(move || take_reports(&core, &producer, &stop, &place))
                .map_err(|error| StageError::limit("thread publish-poll", error.to_string()))?
        };
        Ok(Publisher { core, producer, shutdown: cx.shutdown.clone(), stop, poll: Some(poll) })
    }

    fn offer(&self, frame: Frame, offered_ns: i64, lanes: &mut [Held<'_>]) -> Offer {
        let core = &*self.core;
        if !lanes.iter().any(|held| held.lane.was_refused(frame.stream, frame.seq)) {
            for held in &*lanes {
                core.recorder.offered(core.frame_ref(&frame, held.index), frame.origin.self_lag_ns);
            }
        }
        let bytes = size_chain::record_bytes(frame.payload.len() as u64);
        if bytes > core.settings.batch_limit_bytes {
            return self.drop_offered(&frame, lanes, DropReason::TooLarge);
        }
        if core.settings.policy == Policy::Deadline && frame.due_ns < core.horizon_ns() {
            return self.drop_offered(&frame, lanes, DropReason::Deadline);
        }
        for held in &mut *lanes {
            self.make_room(held, bytes);
        }
        let is_full = |held: &Held<'_>| held.lane.room(bytes, core.settings.limits) == Room::None;
        if lanes.iter().any(is_full) {
            if core.settings.policy == Policy::DropNew {
                return self.drop_offered(&frame, lanes, DropReason::DropNew);
            }
            for held in &mut *lanes {
                held.lane.refuse(frame.stream, frame.seq);
            }
            core.signal.refused();
            return Offer::Full(Box::new(frame));
        }
        self.accept(frame, offered_ns, bytes, lanes)
    }

    /// Gives up what the policy says is to go before the offered frame is looked at.
    fn make_room(&self, held: &mut Held<'_>, bytes: u64) {
        match self.core.settings.policy {
            Policy::Block | Policy::DropNew => {}
            Policy::Deadline => self.core.pump(&self.producer, held),
            Policy::DropOld => {
                while held.lane.room(bytes, self.core.settings.limits) == Room::None {
                    // Not empty: an empty queue has room for any frame.
                    let Some(oldest) = held.lane.pop_oldest() else { return };
                    self.core.give_up(held.index, &oldest, DropReason::DropOld);
                }
            }
        }
    }

    fn drop_offered(&self, frame: &Frame, lanes: &mut [Held<'_>], reason: DropReason) -> Offer {
        for held in lanes {
            held.lane.settle_refusal(frame.stream);
            self.core.recorder.dropped(self.core.frame_ref(frame, held.index), STEP, reason);
        }
        Offer::Dropped(reason)
    }

    fn accept(&self, mut frame: Frame, offered_ns: i64, bytes: u64, lanes: &mut [Held<'_>]) -> Offer {
        let at_ns = self.core.clock.now_ns();
        frame.origin.enqueue_ns = at_ns - offered_ns;
        frame.produced_ns = at_ns;
        for held in lanes {
            held.lane.settle_refusal(frame.stream);
            self.core.take(&frame);
            if held.lane.room(bytes, self.core.settings.limits) == Room::Window {
                self.core.send(&self.producer, held, frame.clone());
            } else {
                held.lane.queue(Waiting { bytes, due_ns: frame.due_ns, item: frame.clone() });
            }
        }
        Offer::Accepted { at_ns }
    }
}

impl Output for Publisher {
    fn try_offer(&self, frame: Frame, offered_ns: i64) -> Offer {
        if self.core.routes.copies() {
            // Rising lane numbers, so that two copies cannot wait for each other's locks.
            let mut lanes: Vec<Held<'_>> =
                self.core.routes.copies_of(frame.stream).map(|index| self.core.hold(index)).collect();
            return self.offer(frame, offered_ns, &mut lanes);
        }
        let held = self.core.hold(self.core.routes.lane_of(frame.stream));
        self.offer(frame, offered_ns, &mut [held])
    }

    fn wait_for_room(&self, wait: Duration) {
        self.core.signal.wait(wait);
    }

    fn topic_of(&self, stream: u32) -> u16 {
        self.core.routes.topic_of(stream)
    }

    fn flush(&self, deadline_ns: i64) -> bool {
        loop {
            if self.core.outstanding() == 0 {
                return true;
            }
            let left = self.core.clock.until(deadline_ns);
            if left.is_zero() || self.shutdown.is_aborting() {
                return false;
            }
            self.core.signal.wait(left.min(FLUSH_STEP));
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.core.closing.store(true, Ordering::Release);
        self.stop.store(true, Ordering::Release);
        if let Some(poll) = self.poll.take()
            && poll.join().is_err()
        {
            tracing::error!("thread publish-poll ended by a panic");
        }
    }
}

/// Takes delivery reports until told to stop.
fn take_reports(core: &Core, producer: &BaseProducer<Reports>, stop: &AtomicBool, place: &str) {
    let mut failed = false;
    while !stop.load(Ordering::Acquire) {
        producer.poll(TICK);
        core.pump_all(producer);
        core.set_gauges();
        if !failed && producer.context().fatal.load(Ordering::Acquire) {
            failed = true;
            let reason = producer.client().fatal_error().map_or_else(String::new, |(_, reason)| reason);
            core.recorder.fail(StageError::broker(place, format!("the producer cannot go on: {reason}")));
        }
    }
}

#[cfg(test)]
mod tests;
