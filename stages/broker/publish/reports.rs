//! What the client library calls back with: delivery reports, statistics, errors, log lines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, ProducerContext};
use rdkafka::{ClientContext, Statistics};

use super::core::Core;
use super::native::Sent;
use crate::client::ClientLog;
use crate::statistics;

/// The producer's context.
pub(crate) struct Reports {
    pub(crate) core: Arc<Core>,
    /// Frames that waited for room are sent from within a report; set once the producer exists.
    pub(crate) producer: OnceLock<Weak<BaseProducer<Reports>>>,
    /// The library gave up for good.
    pub(crate) fatal: AtomicBool,
    log: ClientLog,
}

impl Reports {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Reports { core, producer: OnceLock::new(), fatal: AtomicBool::new(false), log: ClientLog::default() }
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.log.line(level, facility, text);
    }

    fn stats(&self, statistics: Statistics) {
        statistics::of_producer(&statistics, &self.core.recorder);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            self.fatal.store(true, Ordering::Release);
        }
        self.log.error(&error, reason);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<Sent>;

    fn delivery(&self, result: &DeliveryResult<'_>, sent: Box<Sent>) {
        let failure = result.as_ref().err().map(|(error, _)| match error.rdkafka_error_code() {
            Some(code) => code.to_string(),
            None => error.to_string(),
        });
        let producer = self.producer.get().and_then(Weak::upgrade);
        self.core.settle(&sent, failure.as_deref(), producer.as_deref());
    }
}
