//! OffsetCommit and OffsetFetch.

use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::offset_fetch_response::{OffsetFetchResponsePartition, OffsetFetchResponseTopic};
use kafka_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse, TopicName,
};

use crate::api::code;
use crate::facts::add;
use crate::group::Identity;
use crate::offsets::{Commit, Committed};
use crate::serve::{Caller, groups, text};

/// Longest text a consumer may store with its offset.
const METADATA_MAX: usize = 4_096;

pub(super) fn commit(caller: &Caller<'_>, request: &OffsetCommitRequest) -> OffsetCommitResponse {
    let mut commits = Vec::new();
    let mut answers: Vec<Vec<(i32, i16)>> = Vec::new();
    for topic in &request.topics {
        let answer = |partition: &OffsetCommitRequestPartition| {
            let result = to_commit(caller, &topic.name, partition);
            (partition.partition_index, result.map(|commit| commits.push(commit)).err().unwrap_or(code::NONE))
        };
        answers.push(topic.partitions.iter().map(answer).collect());
    }
    let refused = groups::refusal(caller, &request.group_id).or_else(|| store(caller, request, commits).err());
    let topics = request.topics.iter().zip(answers).map(|(topic, answers)| {
        let row = |(index, error)| {
            let error = refused.unwrap_or(error);
            OffsetCommitResponsePartition::default().with_partition_index(index).with_error_code(error)
        };
        let partitions = answers.into_iter().map(row).collect();
        OffsetCommitResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions)
    });
    OffsetCommitResponse::default().with_topics(topics.collect())
}

fn to_commit(caller: &Caller<'_>, topic: &str, asked: &OffsetCommitRequestPartition) -> Result<Commit, i16> {
    let known = caller.shared.topics.get(topic).ok_or(code::UNKNOWN_TOPIC_OR_PARTITION)?;
    let position = usize::try_from(asked.partition_index).unwrap_or(usize::MAX);
    known.partitions.get(position).ok_or(code::UNKNOWN_TOPIC_OR_PARTITION)?;
    let metadata = asked.committed_metadata.as_deref().unwrap_or_default().to_owned();
    if metadata.len() > METADATA_MAX {
        return Err(code::OFFSET_METADATA_TOO_LARGE);
    }
    Ok(Commit { topic: topic.to_owned(), partition: asked.partition_index, offset: asked.committed_offset, metadata })
}

fn store(caller: &Caller<'_>, request: &OffsetCommitRequest, commits: Vec<Commit>) -> Result<(), i16> {
    let who = Identity { member_id: &request.member_id, instance_id: request.group_instance_id.as_deref() };
    let shared = caller.shared;
    let mut stored = Ok(());
    shared.coordinator.commit(&request.group_id, who, request.generation_id_or_member_epoch, || {
        add(&shared.counters.offsets_committed, commits.len() as u64);
        stored = shared.offsets.store(&request.group_id, commits);
    })?;
    stored.map_err(|error| {
        tracing::error!(group = &**request.group_id, %error, "cannot store committed offsets");
        code::STORAGE_ERROR
    })
}

pub(super) fn fetch(caller: &Caller<'_>, version: i16, request: &OffsetFetchRequest) -> OffsetFetchResponse {
    let response = OffsetFetchResponse::default();
    if let Some(error) = groups::refusal(caller, &request.group_id)
        && version >= 2
    {
        return response.with_error_code(error);
    }
    let offsets = &caller.shared.offsets;
    let Some(asked) = &request.topics else {
        let mut topics: Vec<OffsetFetchResponseTopic> = Vec::new();
        for ((topic, index), committed) in offsets.all(&request.group_id) {
            let row = row(version, index, Some(committed));
            match topics.last_mut().filter(|last| **last.name == *topic) {
                Some(last) => last.partitions.push(row),
                None => topics.push(
                    OffsetFetchResponseTopic::default().with_name(TopicName(text(&topic))).with_partitions(vec![row]),
                ),
            }
        }
        return response.with_topics(topics);
    };
    let topics = asked.iter().map(|topic| {
        let row = |index: &i32| row(version, *index, offsets.get(&request.group_id, &topic.name, *index));
        let partitions = topic.partition_indexes.iter().map(row).collect();
        OffsetFetchResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions)
    });
    response.with_topics(topics.collect())
}

/// An unknown offset is -1; epochs are not kept.
fn row(version: i16, index: i32, committed: Option<Committed>) -> OffsetFetchResponsePartition {
    let (offset, metadata) = committed.map_or((-1, String::new()), |committed| (committed.offset, committed.metadata));
    let row = OffsetFetchResponsePartition::default()
        .with_partition_index(index)
        .with_committed_offset(offset)
        .with_metadata(Some(text(&metadata)));
    if version >= 5 { row.with_committed_leader_epoch(-1) } else { row }
}
