//! Produce: one batch for each partition, to all its replicas.

use kafka_protocol::messages::produce_request::PartitionProduceData;
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};

use crate::api::code;
use crate::serve::Caller;
use crate::storage::partition::Appended;

/// The response, and whether any batch was refused.
pub(super) fn answer(caller: &Caller<'_>, request: ProduceRequest) -> (ProduceResponse, bool) {
    let valid_acks = matches!(request.acks, -1..=1);
    let refuse_all = match (&request.transactional_id, valid_acks) {
        (Some(_), _) => Some(code::INVALID_REQUEST),
        (None, false) => Some(code::INVALID_REQUIRED_ACKS),
        (None, true) => None,
    };
    let mut refused = false;
    let mut topics = Vec::with_capacity(request.topic_data.len());
    for topic in request.topic_data {
        let mut partitions = Vec::with_capacity(topic.partition_data.len());
        for partition in topic.partition_data {
            let result = match refuse_all {
                Some(error) => Err(error),
                None => append(caller, &topic.name, &partition),
            };
            refused |= result.is_err();
            partitions.push(row(partition.index, result));
        }
        topics.push(TopicProduceResponse::default().with_name(topic.name).with_partition_responses(partitions));
    }
    (ProduceResponse::default().with_responses(topics), refused)
}

fn append(caller: &Caller<'_>, topic: &str, data: &PartitionProduceData) -> Result<Appended, i16> {
    let partition = caller.shared.topics.led_by(caller.node, topic, data.index)?;
    partition.append(data.records.as_deref().unwrap_or_default())
}

fn row(index: i32, result: Result<Appended, i16>) -> PartitionProduceResponse {
    // Timestamps are the producer's, so there is no append time.
    let row = PartitionProduceResponse::default().with_index(index).with_log_append_time_ms(-1);
    match result {
        Ok(appended) => row.with_base_offset(appended.base_offset).with_log_start_offset(appended.log_start_offset),
        Err(error) => row.with_error_code(error).with_base_offset(-1).with_log_start_offset(-1),
    }
}
