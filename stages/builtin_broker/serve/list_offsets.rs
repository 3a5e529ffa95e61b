//! ListOffsets: the ends of a log, or the first offset at or after a timestamp.

use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use crate::api::code;
use crate::serve::Caller;
use crate::storage::partition::LEADER_EPOCH;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

pub(super) fn answer(caller: &Caller<'_>, request: &ListOffsetsRequest) -> ListOffsetsResponse {
    let topics = request.topics.iter().map(|topic| {
        let row = |asked| row(asked, find(caller, &topic.name, asked));
        let partitions = topic.partitions.iter().map(row).collect();
        ListOffsetsTopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions)
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

/// Offset and timestamp; -1 for both when nothing is that new.
fn find(caller: &Caller<'_>, topic: &str, asked: &ListOffsetsPartition) -> Result<(i64, i64), i16> {
    let partition = caller.shared.topics.led_by(caller.node, topic, asked.partition_index)?;
    if asked.current_leader_epoch > LEADER_EPOCH {
        return Err(code::UNKNOWN_LEADER_EPOCH);
    }
    match asked.timestamp {
        LATEST => Ok((partition.next_offset(), -1)),
        EARLIEST => Ok((partition.log_start_offset(), -1)),
        timestamp_ms if timestamp_ms >= 0 => match partition.offset_at(timestamp_ms) {
            Ok(found) => Ok(found.unwrap_or((-1, -1))),
            Err(error) => {
                tracing::error!(partition = partition.placement.name(), %error, "cannot search by timestamp");
                Err(code::STORAGE_ERROR)
            }
        },
        _ => Err(code::INVALID_REQUEST),
    }
}

fn row(asked: &ListOffsetsPartition, found: Result<(i64, i64), i16>) -> ListOffsetsPartitionResponse {
    let row = ListOffsetsPartitionResponse::default().with_partition_index(asked.partition_index);
    match found {
        Ok((offset, timestamp)) => row.with_offset(offset).with_timestamp(timestamp),
        Err(error) => row.with_error_code(error).with_offset(-1).with_timestamp(-1),
    }
}
