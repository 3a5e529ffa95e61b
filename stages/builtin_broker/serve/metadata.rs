//! Metadata: nodes, topics, leaders and replicas; creates a topic that is asked for when both sides allow it.

use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};

use crate::api::code;
use crate::serve::{COORDINATOR_NODE, Caller, text};
use crate::storage::partition::{LEADER_EPOCH, Partition};
use crate::topics::Topic;

pub(super) fn answer(caller: &Caller<'_>, version: i16, request: &MetadataRequest) -> MetadataResponse {
    let shared = caller.shared;
    let asked = request.topics.as_deref().filter(|topics| version > 0 || !topics.is_empty());
    let topics = match asked {
        None => shared.topics.all().iter().map(|topic| describe(version, topic)).collect(),
        Some(asked) => {
            let names = asked.iter().filter_map(|topic| topic.name.as_ref());
            let may_create = request.allow_auto_topic_creation && shared.options.auto_create_topics;
            names.map(|name| describe_or_create(caller, version, name, may_create)).collect()
        }
    };
    let brokers = shared.endpoints.iter().map(|endpoint| {
        MetadataResponseBroker::default()
            .with_node_id(i32::from(endpoint.node).into())
            .with_host(text(&endpoint.host))
            .with_port(i32::from(endpoint.port))
    });
    MetadataResponse::default()
        .with_brokers(brokers.collect())
        .with_cluster_id((version >= 2).then(|| text(&shared.data.cluster_id)))
        .with_controller_id(i32::from(COORDINATOR_NODE).into())
        .with_topics(topics)
}

fn describe_or_create(caller: &Caller<'_>, version: i16, name: &TopicName, may_create: bool) -> MetadataResponseTopic {
    let topics = &caller.shared.topics;
    let mut error = code::UNKNOWN_TOPIC_OR_PARTITION;
    if topics.get(name).is_none() && may_create {
        error = topics.create_on_demand(name).err().unwrap_or(error);
    }
    match topics.get(name) {
        Some(topic) => describe(version, &topic),
        None => MetadataResponseTopic::default().with_error_code(error).with_name(Some(name.clone())),
    }
}

fn describe(version: i16, topic: &Topic) -> MetadataResponseTopic {
    MetadataResponseTopic::default()
        .with_name(Some(TopicName(text(&topic.name))))
        .with_partitions(topic.partitions.iter().map(|partition| describe_partition(version, partition)).collect())
}

/// Replicas are written together, so all of them are always in sync.
fn describe_partition(version: i16, partition: &Partition) -> MetadataResponsePartition {
    let placement = &partition.placement;
    let replicas: Vec<BrokerId> = placement.replicas.iter().map(|node| i32::from(*node).into()).collect();
    let row = MetadataResponsePartition::default()
        .with_partition_index(placement.index)
        .with_leader_id(i32::from(placement.leader()).into())
        .with_replica_nodes(replicas.clone())
        .with_isr_nodes(replicas);
    if version >= 7 { row.with_leader_epoch(LEADER_EPOCH) } else { row }
}
