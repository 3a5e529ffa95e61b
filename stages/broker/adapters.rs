//! Makes the inputs and outputs of a stage over a Kafka broker.

use std::sync::Arc;

use contract::flow::{Adapters, InputSpec, OutputSpec};
use contract::{Cx, Input, Output, StageError};

use crate::consume::Consumer;
use crate::publish::Publisher;

/// `Adapters` over rdkafka.
#[derive(Clone, Copy, Debug, Default)]
pub struct KafkaAdapters;

impl Adapters for KafkaAdapters {
    fn output(&self, cx: &Cx, to: &OutputSpec) -> Result<Arc<dyn Output>, StageError> {
        Ok(Arc::new(Publisher::open(cx, to)?))
    }

    fn input(&self, cx: &Cx, from: &InputSpec) -> Result<Box<dyn Input>, StageError> {
        Ok(Box::new(Consumer::open(cx, from)?))
    }
}
