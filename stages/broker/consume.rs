//! Consumes frames: `Input` over rdkafka's base consumer in a group of its own. A record is noted in the ledger before it is
//! handed over, and its offset is committed only when it and every record before it in the partition are complete.
//!
//! Not handed to the stage, and complete at once: records of another run or not ours (`foreign`), the same offset again
//! (`redelivered`), the same frame at another offset (`duplicate`), and frames whose payload does not have its CRC
//! (`corrupt`): those count as delivered and, because no stage will work on them, end here as corrupt.
//!
//! Instances share the partitions; one that gets none is ready too. Until the stage first asks for a frame the assigned
//! partitions are paused.

mod bell;
mod commit;
mod join;
mod member;
mod partitions;
mod prefix;
mod settings;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use contract::audit::Sight;
use contract::clock::mono_ns;
use contract::flow::{Complete, InputSpec};
use contract::recorder::{FrameRef, Gauge, Outcome};
use contract::stage::DrainTarget;
use contract::{Cx, Delivery, Frame, Input, Next, Receipt, StageError, wire};
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers};

use self::bell::Bell;
use self::commit::Committer;
use self::join::Joining;
use self::member::{Books, Completer, Member};
use self::settings::ConsumeSettings;
use crate::{client, topic};

/// How long the broker may take to answer before t0.
const CONNECT: Duration = Duration::from_secs(15);
/// How long joining the group may take: a broker may hold a new group open for some seconds, and then rebalances for each
/// further instance.
const JOIN: Duration = Duration::from_secs(60);
/// How often positions, gauges and the drain target are looked at.
const TICK_NS: i64 = 50_000_000;
/// Longest wait for the client library: the bell is trusted, but not with a run.
const LISTEN: Duration = Duration::from_millis(50);

/// An `Input` over a Kafka consumer group.
pub struct Consumer {
    cx: Cx,
    books: Arc<Books>,
    consumer: Arc<BaseConsumer<Member>>,
    bell: Arc<Bell>,
    joining: Option<Joining>,
    committer: Option<Committer>,
    next_tick_ns: i64,
    /// Due time of the newest frame handed over, and its age then.
    newest: Option<(i64, i64)>,
    drain: Option<DrainTarget>,
    closed: bool,
}

impl Consumer {
    /// Joins the group; returns once partitions are assigned.
    pub fn open(cx: &Cx, spec: &InputSpec) -> Result<Self, StageError> {
        let settings = ConsumeSettings::new(cx, spec)?;
        cx.recorder.fact("consume", settings.fact());
        let books = Arc::new(Books::new(cx, spec.topic.clone()));
        let bell = Arc::new(Bell::default());
        let mut consumer: BaseConsumer<Member> = client::client_config(&settings.client)
            .create_with_context(Member::new(books.clone(), bell.clone()))
            .map_err(|error| client::creation_error(&spec.bootstrap_servers, &error))?;
        topic::expect(consumer.client(), &spec.bootstrap_servers, std::slice::from_ref(&spec.topic), CONNECT)?;
        consumer
            .subscribe(&[&spec.topic.name])
            .map_err(|error| StageError::broker(format!("topic {}", spec.topic.name), error.to_string()))?;
        let rope = bell.clone();
        consumer.set_nonempty_callback(move || rope.ring());
        let consumer = Arc::new(consumer);
        let joining = Joining::start(consumer.clone(), bell.clone())?;
        wait_joined(cx, spec, &books)?;
        let now_ns = mono_ns();
        let committer = Committer::start(consumer.clone(), books.clone(), settings.commit_interval)?;
        Ok(Consumer {
            cx: cx.clone(),
            books,
            consumer,
            bell,
            joining: Some(joining),
            committer: Some(committer),
            next_tick_ns: now_ns,
            newest: None,
            drain: None,
            closed: false,
        })
    }

    /// Ends the waiting before the first frame.
    fn begin(&mut self) {
        let Some(joining) = self.joining.take() else { return };
        self.books.started.store(true, Ordering::Release);
        drop(joining);
        // The thread has ended: no assignment can come between the flag and this.
        let resumed = self.consumer.assignment().and_then(|list| self.consumer.resume(&list));
        if let Err(error) = resumed {
            tracing::error!(%error, "assigned partitions cannot be resumed");
        }
    }

    /// What is to be done now and then; false when there is nothing more to read.
    fn tick(&mut self, now_ns: i64) -> bool {
        self.next_tick_ns = now_ns + TICK_NS;
        self.books.record_positions();
        self.set_lag_seconds();
        self.drain = self.cx.drain_target();
        !self.is_drained()
    }

    fn set_lag_seconds(&self) {
        let Some((due_ns, age_ns)) = self.newest else { return };
        // While records wait, the newest frame ages; with nothing behind it, its age is what it was when it was handed over.
        let behind = self.books.partitions().lag().is_some_and(|lag| lag > 0);
        let lag_ns = if behind { self.cx.clock.now_ns() - due_ns } else { age_ns };
        self.cx.recorder.set(Gauge::LagSeconds, lag_ns as f64 / 1e9);
    }

    fn is_drained(&self) -> bool {
        let Some(target) = &self.drain else { return false };
        if self.cx.clock.now_ns() >= target.deadline_ns {
            return true;
        }
        let Some(ends) = target.to.get(&self.books.topic.name) else { return false };
        let partitions = self.books.partitions();
        // During a rebalance nothing is assigned, and more may be on its way.
        partitions.is_joined() && partitions.are_read_to(ends)
    }

    /// Notes a record; the delivery, if a stage is to have it.
    fn take(&mut self, message: &BorrowedMessage<'_>) -> Option<Box<Delivery>> {
        let receipt =
            Receipt { topic: self.books.topic.index, partition: message.partition(), offset: message.offset() };
        let is_new = self.books.partitions().read(receipt.partition, receipt.offset);
        let delivery = self.judge(message, receipt);
        if delivery.is_none() && is_new {
            self.books.partitions().complete(receipt.partition, receipt.offset);
        }
        delivery
    }

    fn judge(&mut self, message: &BorrowedMessage<'_>, receipt: Receipt) -> Option<Box<Delivery>> {
        let recorder = &self.cx.recorder;
        let payload = Bytes::copy_from_slice(message.payload().unwrap_or_default());
        let decoded = match wire::decode(header_of(message), payload) {
            Ok(decoded) if decoded.frame.run_id == self.cx.run_id => decoded,
            Ok(_) => {
                recorder.foreign(receipt.topic, receipt.partition, receipt.offset);
                return None;
            }
            Err(error) => {
                tracing::debug!(partition = receipt.partition, offset = receipt.offset, %error, "not a frame");
                recorder.foreign(receipt.topic, receipt.partition, receipt.offset);
                return None;
            }
        };
        let handed_ns = self.cx.clock.now_ns();
        let of = frame_ref(receipt.topic, &decoded.frame);
        match recorder.seen(receipt.partition, receipt.offset, of, decoded.intact, handed_ns) {
            Sight::First { .. } if decoded.intact => {}
            Sight::First { .. } => {
                recorder.done(of, Outcome::Corrupt, handed_ns);
                return None;
            }
            Sight::Duplicate | Sight::Redelivered => return None,
        }
        if self.newest.is_none_or(|(due_ns, _)| due_ns < of.due_ns) {
            self.newest = Some((of.due_ns, handed_ns - of.due_ns));
        }
        Some(Box::new(Delivery { frame: decoded.frame, receipt, handed_ns }))
    }

    /// An error that the client library does not get over by itself.
    fn judge_error(&self, error: &KafkaError) -> Result<(), StageError> {
        let fatal = matches!(error, KafkaError::MessageConsumptionFatal(_))
            || matches!(
                error.rdkafka_error_code(),
                Some(
                    RDKafkaErrorCode::UnknownTopicOrPartition
                        | RDKafkaErrorCode::UnknownTopic
                        | RDKafkaErrorCode::UnknownPartition
                        | RDKafkaErrorCode::TopicAuthorizationFailed
                        | RDKafkaErrorCode::GroupAuthorizationFailed
                        | RDKafkaErrorCode::Fatal
                )
            );
        if fatal {
            let place = format!("topic {}", self.books.topic.name);
            return Err(StageError::broker(place, format!("cannot be read any more: {error}")));
        }
        // Said by the context already, which gets every error of a client.
        tracing::debug!(%error, "the client goes on");
        Ok(())
    }
}

impl Input for Consumer {
    fn next(&mut self, wait: Duration) -> Result<Next, StageError> {
        self.begin();
        let mut now_ns = mono_ns();
        let end_ns = now_ns.saturating_add(i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX));
        loop {
            if self.closed || self.cx.shutdown.is_stopping() {
                self.closed = true;
                return Ok(Next::Closed);
            }
            if now_ns >= self.next_tick_ns && !self.tick(now_ns) {
                self.closed = true;
                self.books.record_positions();
                return Ok(Next::Closed);
            }
            let consumer = self.consumer.clone();
            match consumer.poll(Duration::ZERO) {
                Some(Ok(message)) => {
                    if let Some(delivery) = self.take(&message) {
                        return Ok(Next::Item(delivery));
                    }
                }
                Some(Err(error)) => self.judge_error(&error)?,
                // An event was served by a callback; there may be records behind it.
                None if self.bell.has_rung() => continue,
                None => {
                    let left = Duration::from_nanos((end_ns - now_ns).max(0) as u64);
                    self.bell.wait(left.min(LISTEN));
                }
            }
            now_ns = mono_ns();
            if now_ns >= end_ns {
                return Ok(Next::Idle);
            }
        }
    }

    fn completer(&self) -> Arc<dyn Complete> {
        Arc::new(Completer(self.books.clone()))
    }

    fn close(mut self: Box<Self>) -> Result<(), StageError> {
        self.joining = None;
        if let Some(committer) = self.committer.take()
            && !self.cx.shutdown.is_aborting()
        {
            committer.finish();
        }
        self.books.record_positions();
        Ok(())
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // Without `close` something has failed: leave, and commit nothing that may not be safe.
        self.books.closing.store(true, Ordering::Release);
    }
}

fn header_of<'a>(message: &'a BorrowedMessage<'_>) -> Option<&'a [u8]> {
    message.headers()?.iter().find(|header| header.key == wire::HEADER_NAME)?.value
}

fn frame_ref(topic: u16, frame: &Frame) -> FrameRef {
    FrameRef { topic, stream: frame.stream, seq: frame.seq, due_ns: frame.due_ns, bytes: frame.payload.len() as u64 }
}

/// Waits for the first assignment, so that no frame is offered before its reader is there.
fn wait_joined(cx: &Cx, spec: &InputSpec, books: &Books) -> Result<(), StageError> {
    let place = || format!("topic {}, group {}", spec.topic.name, spec.group);
    let end_ns = mono_ns() + JOIN.as_nanos() as i64;
    while !books.wait_joined(Duration::from_millis(100)) {
        if cx.shutdown.is_stopping() {
            return Err(StageError::broker(place(), "stopped before partitions were assigned"));
        }
        if mono_ns() >= end_ns {
            let message = format!(
                "no partitions assigned by {} within {} s; check that its group coordinator is up",
                spec.bootstrap_servers,
                JOIN.as_secs()
            );
            return Err(StageError::broker(place(), message));
        }
    }
    Ok(())
}
