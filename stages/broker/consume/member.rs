//! One member of a consumer group: what the client library calls back with (assignments, commits, statistics), and the books
//! that the reading thread and the threads that complete receipts share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::flow::{Complete, TopicRef};
use contract::recorder::{Counter, Gauge};
use contract::{Receipt, Recorder, RunClock};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, Statistics, TopicPartitionList};

use super::bell::Bell;
use super::partitions::{Look, Partitions};
use crate::client::ClientLog;
use crate::statistics;

pub(crate) struct Books {
    pub(crate) recorder: Recorder,
    pub(crate) clock: RunClock,
    pub(crate) topic: TopicRef,
    partitions: Mutex<Partitions>,
    joined: Condvar,
    /// Reading has begun; until then what is assigned is paused, so that nothing is fetched before a stage asks.
    pub(crate) started: AtomicBool,
    /// The input is being closed: what can be committed has been.
    pub(crate) closing: AtomicBool,
    /// Held from reading what is complete until the answer, so that no commit is sent after the partition was given away.
    committing: Mutex<()>,
}

impl Books {
    pub(crate) fn new(cx: &contract::Cx, topic: TopicRef) -> Self {
        Books {
            recorder: cx.recorder.clone(),
            clock: cx.clock.clone(),
            topic,
            partitions: Mutex::default(),
            joined: Condvar::new(),
            started: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            committing: Mutex::default(),
        }
    }

    pub(crate) fn partitions(&self) -> MutexGuard<'_, Partitions> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, at most `wait`, for an assignment.
    pub(crate) fn wait_joined(&self, wait: Duration) -> bool {
        let held = self.partitions();
        let waiting = |partitions: &mut Partitions| !partitions.is_joined();
        let (held, _) = self.joined.wait_timeout_while(held, wait, waiting).unwrap_or_else(PoisonError::into_inner);
        held.is_joined()
    }

    /// Commits what is complete and waits for the answer.
    pub(crate) fn commit(&self, consumer: &BaseConsumer<Member>) {
        let _alone = self.committing.lock().unwrap_or_else(PoisonError::into_inner);
        let offsets = self.partitions().to_commit();
        if !offsets.is_empty() {
            let list = self.list(&offsets);
            self.commit_outcome(&consumer.commit(&list, CommitMode::Sync), &list);
        }
    }

    /// A list of this topic's partitions with offsets.
    fn list(&self, offsets: &[(i32, i64)]) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for (number, offset) in offsets {
            // Fails only for an offset that does not fit; every offset here came from the broker.
            let _ = list.add_partition_offset(&self.topic.name, *number, Offset::Offset(*offset));
        }
        list
    }

    fn note_committed(&self, list: &TopicPartitionList) {
        let mut partitions = self.partitions();
        for element in list.elements() {
            if let (Ok(()), Offset::Offset(offset)) = (element.error(), element.offset()) {
                partitions.committed(element.partition(), offset);
            }
        }
    }

    /// Counts the outcome of a commit. One that will be repeated is no error.
    fn commit_outcome(&self, result: &KafkaResult<()>, list: &TopicPartitionList) {
        let refused = list.elements().iter().find_map(|element| element.error().err());
        let code = match (result, refused) {
            (Ok(()), None) => {
                self.recorder.add(Counter::Commits, 1);
                self.note_committed(list);
                return;
            }
            (Err(error), _) => error.rdkafka_error_code(),
            (Ok(()), Some(error)) => error.rdkafka_error_code(),
        };
        self.note_committed(list);
        match code {
            Some(RDKafkaErrorCode::NoOffset) => {}
            Some(code) if is_repeated(code) => {
                tracing::debug!(topic = %self.topic.name, %code, "the commit is repeated");
                self.recorder.because(Counter::CommitErrors, &format!("repeated, not an error: {code}"));
            }
            Some(code) => self.commit_error(&code.to_string()),
            None => self.commit_error("unknown"),
        }
    }

    fn commit_error(&self, reason: &str) {
        tracing::warn!(topic = %self.topic.name, reason, "offsets were not committed");
        self.recorder.reason(Counter::CommitErrors, reason);
    }

    pub(crate) fn record_positions(&self) {
        for (number, position) in self.partitions().positions() {
            self.recorder.position(self.topic.index, number, position);
        }
    }
}

/// The group moved on, or nobody answered: the member joins again and commits the same offsets or later ones. What the group
/// reads twice until then is counted as redelivered.
fn is_repeated(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::RebalanceInProgress
            | RDKafkaErrorCode::IllegalGeneration
            | RDKafkaErrorCode::UnknownMemberId
            | RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::RequestTimedOut
    )
}

/// Completes receipts from any thread.
pub(crate) struct Completer(pub(crate) Arc<Books>);

impl Complete for Completer {
    fn complete(&self, receipt: Receipt) {
        self.0.partitions().complete(receipt.partition, receipt.offset);
    }
}

/// The consumer's context. Every callback rings the bell, because there may be more behind what it served.
pub(crate) struct Member {
    pub(crate) books: Arc<Books>,
    bell: Arc<Bell>,
    log: ClientLog,
}

impl Member {
    pub(crate) fn new(books: Arc<Books>, bell: Arc<Bell>) -> Self {
        Member { books, bell, log: ClientLog::default() }
    }

    fn assigned(&self, consumer: &BaseConsumer<Member>, list: &mut TopicPartitionList) {
        let numbers: Vec<i32> = list.elements().iter().map(|element| element.partition()).collect();
        let go_on = self.books.partitions().assign(&numbers);
        for (number, position) in go_on {
            let _ = list.set_partition_offset(&self.books.topic.name, number, Offset::Offset(position));
        }
        if let Err(error) = consumer.assign(list) {
            tracing::error!(%error, "assigned partitions cannot be taken");
        }
        if !self.books.started.load(Ordering::Acquire)
            && let Err(error) = consumer.pause(list)
        {
            tracing::warn!(%error, "assigned partitions cannot be paused");
        }
        self.books.joined.notify_all();
    }

    fn revoked(&self, consumer: &BaseConsumer<Member>) {
        let lost = consumer.assignment_lost();
        if !lost && !self.books.closing.load(Ordering::Acquire) {
            self.books.commit(consumer);
        }
        self.books.partitions().revoke(lost);
        if let Err(error) = consumer.unassign() {
            tracing::error!(%error, "revoked partitions cannot be given back");
        }
    }
}

fn look(partition: &rdkafka::statistics::Partition) -> Look {
    let exhausted = partition.fetch_state == "active" && partition.fetchq_cnt == 0 && partition.eof_offset >= 0;
    Look {
        start: partition.lo_offset,
        end: partition.hi_offset,
        exhausted_at: exhausted.then_some(partition.eof_offset),
    }
}

impl ClientContext for Member {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.bell.ring();
        self.log.line(level, facility, text);
    }

    fn stats(&self, statistics: Statistics) {
        self.bell.ring();
        statistics::of_consumer(&statistics, &self.books.recorder, self.books.clock.now_ns());
        let Some(topic) = statistics.topics.get(&self.books.topic.name) else { return };
        let mut partitions = self.books.partitions();
        for (number, partition) in topic.partitions.iter().filter(|(_, partition)| partition.hi_offset >= 0) {
            partitions.observe(*number, look(partition));
        }
        if let Some(lag) = partitions.lag() {
            self.books.recorder.set(Gauge::LagFrames, lag as f64);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.log.error(&error, reason);
    }
}

impl ConsumerContext for Member {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, event: RDKafkaRespErr, list: &mut TopicPartitionList) {
        self.bell.ring();
        match event {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assigned(consumer, list),
            _ => self.revoked(consumer),
        }
    }
}
