//! CreateTopics and DeleteTopics.

use std::collections::HashMap;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse};

use crate::api::code;
use crate::serve::{Caller, text};
use crate::topics::{Refusal, TopicPlan};

pub(super) fn create(caller: &Caller<'_>, version: i16, request: &CreateTopicsRequest) -> CreateTopicsResponse {
    let mut times: HashMap<&str, usize> = HashMap::new();
    request.topics.iter().for_each(|topic| *times.entry(&topic.name).or_default() += 1);
    let results = request.topics.iter().map(|topic| {
        let result = match times.get(&**topic.name) {
            Some(1) => create_one(caller, version, topic, request.validate_only),
            _ => Err((code::INVALID_REQUEST, format!("topic `{}` is named more than once", &*topic.name))),
        };
        let row = CreatableTopicResult::default().with_name(topic.name.clone());
        match result {
            Ok(()) => row,
            Err((code, problem)) => row.with_error_code(code).with_error_message(Some(text(&problem))),
        }
    });
    CreateTopicsResponse::default().with_topics(results.collect())
}

fn create_one(caller: &Caller<'_>, version: i16, topic: &CreatableTopic, validate_only: bool) -> Result<(), Refusal> {
    if !topic.assignments.is_empty() {
        let problem = "the built-in broker places replicas itself; give partitions and replication".to_owned();
        return Err((code::INVALID_REPLICA_ASSIGNMENT, problem));
    }
    let configs =
        topic.configs.iter().filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string())));
    // "Use the default" exists since version 4; before, -1 was a mistake and stays one.
    let (unset, zero) = (version >= 4, 0);
    let plan = TopicPlan {
        name: topic.name.to_string(),
        partitions: if topic.num_partitions == -1 && !unset { zero } else { topic.num_partitions },
        replication: if topic.replication_factor == -1 && !unset { 0 } else { topic.replication_factor },
        configs: configs.collect(),
    };
    caller.shared.topics.create(&plan, validate_only)
}

pub(super) fn delete(caller: &Caller<'_>, request: &DeleteTopicsRequest) -> DeleteTopicsResponse {
    let results = request.topic_names.iter().map(|name| {
        let result = caller.shared.topics.delete(name);
        if result.is_ok()
            && let Err(error) = caller.shared.offsets.forget_topic(name)
        {
            tracing::error!(topic = &***name, %error, "committed offsets of a deleted topic could not be dropped");
        }
        let error = result.err().map_or(code::NONE, |(code, _)| code);
        DeletableTopicResult::default().with_name(Some(name.clone())).with_error_code(error)
    });
    DeleteTopicsResponse::default().with_responses(results.collect())
}
