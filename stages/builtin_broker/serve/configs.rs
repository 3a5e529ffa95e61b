//! DescribeConfigs and DescribeLogDirs: the values the broker really works with.

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResponse, DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName,
};

use crate::api::{self, code};
use crate::data_dir;
use crate::serve::{Caller, text};
use crate::topic_config::{self, SettingKind, SettingRow};
use crate::topics::Topic;

/// Resource types and value sources as the protocol numbers them.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const SOURCE_TOPIC: i8 = 1;
const SOURCE_BROKER: i8 = 4;
const SOURCE_DEFAULT: i8 = 5;

pub(super) fn describe(caller: &Caller<'_>, version: i16, request: &DescribeConfigsRequest) -> DescribeConfigsResponse {
    let results = request.resources.iter().map(|resource| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match rows_of(caller, resource) {
            Ok((rows, source)) => {
                let wanted = |row: &SettingRow| match resource.configuration_keys.as_deref() {
                    None | Some([]) => true,
                    Some(keys) => keys.iter().any(|key| &**key == row.name),
                };
                let entry = |row| entry(version, request.include_synonyms, row, source);
                result.with_configs(rows.into_iter().filter(wanted).map(entry).collect())
            }
            Err((code, problem)) => result.with_error_code(code).with_error_message(Some(text(&problem))),
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn rows_of(caller: &Caller<'_>, resource: &DescribeConfigsResource) -> Result<(Vec<SettingRow>, i8), (i16, String)> {
    let name = &*resource.resource_name;
    match resource.resource_type {
        TOPIC => match caller.shared.topics.get(name) {
            Some(topic) => Ok((topic_config::rows(&topic.settings, &topic.configs), SOURCE_TOPIC)),
            None => Err((code::UNKNOWN_TOPIC_OR_PARTITION, format!("topic `{name}` does not exist"))),
        },
        // Each node answers for itself, as nodes of a cluster do.
        BROKER if name == caller.node.to_string() => Ok((broker_rows(caller), SOURCE_BROKER)),
        BROKER => Err((code::INVALID_REQUEST, format!("ask node `{name}` itself, this is node {}", caller.node))),
        other => Err((code::INVALID_REQUEST, format!("resource type {other} has no settings here"))),
    }
}

fn broker_rows(caller: &Caller<'_>) -> Vec<SettingRow> {
    let options = &caller.shared.options;
    let never = i64::MAX.unsigned_abs();
    let retention_bytes = options.retention_bytes.map_or("-1".to_owned(), |bytes| bytes.to_string());
    let log_dir = data_dir::node_dir(&caller.shared.data.path, caller.node).display().to_string();
    let int = SettingKind::Int;
    let long = SettingKind::Long;
    let rows = [
        ("broker.id", caller.node.to_string(), int),
        ("group.initial.rebalance.delay.ms", options.initial_rebalance_delay_ms.to_string(), int),
        ("group.min.session.timeout.ms", options.min_session_timeout_ms.to_string(), int),
        ("log.dirs", log_dir, SettingKind::Text),
        ("log.flush.interval.messages", options.flush.every_messages.unwrap_or(never).to_string(), long),
        ("log.flush.interval.ms", options.flush.every_ms.unwrap_or(never).to_string(), long),
        ("log.retention.bytes", retention_bytes, long),
        ("log.retention.check.interval.ms", options.maintenance_ms.to_string(), long),
        ("log.segment.bytes", options.segment_bytes.to_string(), int),
        ("message.max.bytes", options.max_message_bytes.to_string(), int),
        ("socket.request.max.bytes", api::MAX_FRAME_BYTES.to_string(), int),
    ];
    rows.into_iter().map(|(name, value, kind)| SettingRow { name, value, kind, own: true }).collect()
}

fn entry(version: i16, synonyms: bool, row: SettingRow, own_source: i8) -> DescribeConfigsResourceResult {
    let source = if row.own { own_source } else { SOURCE_DEFAULT };
    let value = Some(text(&row.value));
    let result = DescribeConfigsResourceResult::default()
        .with_name(text(row.name))
        .with_value(value.clone())
        // Nothing can be altered after a topic was created.
        .with_read_only(true)
        .with_config_source(source);
    let synonym = || DescribeConfigsSynonym::default().with_name(text(row.name)).with_value(value).with_source(source);
    let result = if synonyms { result.with_synonyms(vec![synonym()]) } else { result };
    if version >= 3 { result.with_config_type(row.kind as i8) } else { result }
}

/// The size of every replica in this node's directory.
pub(super) fn log_dirs(caller: &Caller<'_>, request: &DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    let all = caller.shared.topics.all();
    let topics = all.iter().filter_map(|topic| {
        let asked = match &request.topics {
            None => None,
            Some(asked) => Some(&asked.iter().find(|asked| **asked.topic == *topic.name)?.partitions),
        };
        let partitions = replicas_on(caller.node, topic, asked.map(Vec::as_slice));
        let row = DescribeLogDirsTopic::default().with_name(TopicName(text(&topic.name))).with_partitions(partitions);
        (!row.partitions.is_empty()).then_some(row)
    });
    let dir = data_dir::node_dir(&caller.shared.data.path, caller.node);
    let result = DescribeLogDirsResult::default().with_log_dir(text(&dir.display().to_string()));
    DescribeLogDirsResponse::default().with_results(vec![result.with_topics(topics.collect())])
}

fn replicas_on(node: u16, topic: &Topic, asked: Option<&[i32]>) -> Vec<DescribeLogDirsPartition> {
    let here = topic.partitions.iter().filter(|partition| {
        let placement = &partition.placement;
        placement.replicas.contains(&node) && asked.is_none_or(|asked| asked.contains(&placement.index))
    });
    here.map(|partition| {
        DescribeLogDirsPartition::default()
            .with_partition_index(partition.placement.index)
            .with_partition_size(i64::try_from(partition.log_bytes()).unwrap_or(i64::MAX))
    })
    .collect()
}
