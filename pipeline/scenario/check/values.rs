//! Ranges and names that a type alone does not hold.

use std::time::Duration;

use contract::admin::TopicConfig;
use contract::flow::{Acks, Policy};
use contract::units::Span;
use serde::de::DeserializeOwned;

use super::{BUILT_IN_ONLY, entries, label};
use crate::model::{BrokerConfig, RunConfig, StageConfig, VerdictConfig};
use crate::problem::Findings;
use crate::secrets::is_named;
use crate::tree::Node;

/// Longest phase: a month; times stay far from the end of 63 bits.
const LONGEST: Duration = Duration::from_secs(31 * 24 * 3600);
/// Most processes of one stage; more are a typing error.
const MOST_INSTANCES: u32 = 1000;
/// Most partitions of one topic; each is a folder with open files in every replica.
const MOST_PARTITIONS: u32 = 10_000;
/// Most nodes of the built-in broker, which are one process.
const MOST_NODES: u16 = 100;

/// A part as its type, if its own shape is right; what is wrong with the shape is reported elsewhere.
fn read<T: DeserializeOwned>(node: Option<&Node>) -> Option<T> {
    serde_json::from_value(node?.to_json()).ok()
}

pub(super) fn check(root: &Node, found: &mut Findings) {
    if let (Some(node), Some(run)) = (root.get("run"), read(root.get("run"))) {
        check_run(node, &run, found);
    }
    if let (Some(node), Some(broker)) = (root.get("broker"), read(root.get("broker"))) {
        check_broker(node, &broker, found);
    }
    if let (Some(node), Some(verdict)) = (root.get("verdict"), read(root.get("verdict"))) {
        check_verdict(node, &verdict, found);
    }
    let broker: Option<BrokerConfig> =
        root.get("broker").map_or_else(|| Some(BrokerConfig::default()), |node| read(Some(node)));
    for (index, node) in entries(root, "topics").iter().enumerate() {
        if let Some(topic) = read::<TopicConfig>(Some(node)) {
            check_topic(node, &topic, broker.as_ref(), &label("topics", index, node), found);
        }
    }
    for (index, node) in entries(root, "stages").iter().enumerate() {
        if let Some(stage) = read::<StageConfig>(Some(node)) {
            check_stage(node, &stage, &label("stages", index, node), found);
        }
    }
}

fn check_run(node: &Node, run: &RunConfig, found: &mut Findings) {
    if let Err(problem) = plain_name(&run.name) {
        found.error(node.place_of("name"), format!("`run.name` {problem}"));
    }
    let spans = [
        ("warmup", run.warmup),
        ("main", run.main),
        ("drain", run.drain),
        ("deadline", run.deadline),
        ("ready", run.ready),
    ];
    for (key, span) in spans {
        if span.0.is_zero() && key != "warmup" {
            found.error(node.place_of(key), format!("`run.{key}` must be longer than 0"));
        }
        if span.0 > LONGEST {
            found.error(node.place_of(key), format!("`run.{key}` must be at most {}h", LONGEST.as_secs() / 3600));
        }
    }
}

/// Names that become folders, process arguments and metric labels.
pub(super) fn plain_name(name: &str) -> Result<(), String> {
    let wrong = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_')));
    match wrong {
        _ if name.is_empty() => Err("must not be empty".into()),
        Some(c) => Err(format!("may hold letters, digits, `-` and `_`, not {c:?}")),
        None if name.len() > 100 => Err(format!("must have at most 100 characters, not {}", name.len())),
        None if name.starts_with('-') => Err("must not begin with `-`".into()),
        None => Ok(()),
    }
}

/// Kafka's own rule for topic names.
fn topic_name(name: &str) -> Result<(), String> {
    let wrong = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')));
    match wrong {
        _ if name.is_empty() => Err("must not be empty".into()),
        Some(c) => Err(format!("may hold letters, digits, `.`, `_` and `-`, not {c:?}")),
        None if name.len() > 249 => Err(format!("must have at most 249 characters, not {}", name.len())),
        None if name == "." || name == ".." => Err("must not be `.` or `..`".into()),
        None if name.starts_with("__") => Err("must not begin with `__`: Kafka keeps its own topics there".into()),
        None => Ok(()),
    }
}

fn check_broker(node: &Node, broker: &BrokerConfig, found: &mut Findings) {
    if broker.nodes == 0 || broker.nodes > MOST_NODES {
        let message = format!("`broker.nodes` must be between 1 and {MOST_NODES}, not {}", broker.nodes);
        found.error(node.place_of("nodes"), message);
    }
    if broker.disk_budget.0 == 0 {
        found.error(node.place_of("disk_budget"), "`broker.disk_budget` must be more than 0");
    }
    if broker.data_dir.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
        found.error(
            node.place_of("data_dir"),
            "`broker.data_dir` must not be empty: leave it out for a folder in the run's own",
        );
    }
    let flush = node.get("flush");
    if let (Some(flush), Some(0)) = (flush, broker.flush.records) {
        found.error(
            flush.place_of("records"),
            "`broker.flush.records` must be at least 1: leave it out to sync at segment rolls only",
        );
    }
    if let (Some(flush), Some(interval)) = (flush, broker.flush.interval)
        && interval.0.is_zero()
    {
        found.error(flush.place_of("interval"), "`broker.flush.interval` must be longer than 0");
    }
    if let Some(servers) = &broker.bootstrap_servers {
        if let Err(problem) = addresses(servers) {
            found.error(node.place_of("bootstrap_servers"), format!("`broker.bootstrap_servers`: {problem}"));
        }
        for key in BUILT_IN_ONLY {
            if node.get(key).is_some() {
                let message =
                    format!("`broker.{key}` is for the built-in broker: it has no effect with `bootstrap_servers`");
                found.warning(node.key_place(key), message);
            }
        }
    }
    check_client(node, broker, found);
}

fn check_client(node: &Node, broker: &BrokerConfig, found: &mut Findings) {
    let Some(client) = node.get("client") else { return };
    for (key, value) in &broker.client {
        let secret = key.contains("password") || key.ends_with(".pem") || key.ends_with("secret");
        if secret && !is_named(value) {
            let message = format!(
                "`broker.client.{key}` is a secret and would be in the run record: name an environment variable \"${{NAME}}\" or a file \"@path\""
            );
            found.error(client.place_of(key), message);
        }
        if key == "bootstrap.servers" || key == "metadata.broker.list" {
            found.error(client.key_place(key), format!("`{key}` is set by `broker.bootstrap_servers`"));
        }
    }
}

/// `host:port,...`, with IPv6 hosts in brackets.
fn addresses(servers: &str) -> Result<(), String> {
    for server in servers.split(',').map(str::trim) {
        let (host, port) = server.rsplit_once(':').ok_or_else(|| format!("`{server}` has no port: write host:port"))?;
        let bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        if host.is_empty() || bare_v6 || host.contains(char::is_whitespace) {
            return Err(format!("`{server}` is not host:port"));
        }
        if !port.parse::<u16>().is_ok_and(|port| port > 0) {
            return Err(format!("`{port}` in `{server}` is not a port: 1 to 65535"));
        }
    }
    Ok(())
}

fn check_verdict(node: &Node, verdict: &VerdictConfig, found: &mut Findings) {
    for (key, share) in [("budget", verdict.budget), ("max_steal", verdict.max_steal)] {
        if !(0.0..=1.0).contains(&share) {
            found.error(node.place_of(key), format!("`verdict.{key}` is a share between 0 and 1, not {share}"));
        }
    }
    if verdict.p99.is_some_and(|limit| limit.0.is_zero()) {
        found.error(node.place_of("p99"), "`verdict.p99` must be longer than 0: leave it out for no limit");
    }
}

fn check_topic(node: &Node, topic: &TopicConfig, broker: Option<&BrokerConfig>, label: &str, found: &mut Findings) {
    if let Err(problem) = topic_name(&topic.name) {
        found.error(node.place_of("name"), format!("{label}`name` {problem}"));
    }
    if topic.partitions == 0 || topic.partitions > MOST_PARTITIONS {
        let message = format!("{label}`partitions` must be between 1 and {MOST_PARTITIONS}, not {}", topic.partitions);
        found.error(node.place_of("partitions"), message);
    }
    if topic.replication == 0 || topic.replication > u32::from(u16::MAX / 2) {
        found.error(
            node.place_of("replication"),
            format!("{label}`replication` must be at least 1 and at most the brokers"),
        );
    } else if let Some(broker) = broker.filter(|broker| broker.bootstrap_servers.is_none() && broker.nodes > 0)
        && topic.replication > u32::from(broker.nodes)
    {
        let message = format!(
            "{label}`replication` {} needs as many brokers, the built-in broker has {} node{}: raise `broker.nodes`",
            topic.replication,
            broker.nodes,
            if broker.nodes == 1 { "" } else { "s" }
        );
        found.error(node.place_of("replication"), message);
    }
    if let Some(replicas) = topic.min_insync_replicas.filter(|replicas| *replicas == 0 || *replicas > topic.replication)
    {
        let message = format!(
            "{label}`min_insync_replicas` must be between 1 and `replication` ({}), not {replicas}",
            topic.replication
        );
        found.error(node.place_of("min_insync_replicas"), message);
    }
    let sizes = [
        ("retention_bytes", topic.retention_bytes),
        ("segment_bytes", topic.segment_bytes),
        ("max_message_bytes", topic.max_message_bytes),
    ];
    for (key, _) in sizes.into_iter().filter(|(_, size)| size.is_some_and(|size| size.0 == 0)) {
        found.error(node.place_of(key), format!("{label}`{key}` must be more than 0"));
    }
    if topic.retention.is_some_and(|retention| retention.0.is_zero()) {
        found.error(node.place_of("retention"), format!("{label}`retention` must be longer than 0"));
    }
    if let (Some(segment), Some(message)) = (topic.segment_bytes, topic.max_message_bytes)
        && message > segment
    {
        let text = format!("{label}`max_message_bytes` ({message}) does not fit a segment (`segment_bytes` {segment})");
        found.error(node.place_of("max_message_bytes"), text);
    }
}

fn check_stage(node: &Node, stage: &StageConfig, label: &str, found: &mut Findings) {
    if let Err(problem) = plain_name(&stage.id) {
        found.error(node.place_of("id"), format!("{label}`id` {problem}"));
    }
    if stage.instances == 0 || stage.instances > MOST_INSTANCES {
        let message = format!("{label}`instances` must be between 1 and {MOST_INSTANCES}, not {}", stage.instances);
        found.error(node.place_of("instances"), message);
    }
    if let Some(publish) = node.get("publish") {
        check_publish(publish, stage, label, found);
    }
    if let Some(consume) = node.get("consume") {
        let spans =
            [("commit_interval", stage.consume.commit_interval), ("session_timeout", stage.consume.session_timeout)];
        positive(consume, "consume", &spans, label, found);
        if stage.consume.queue.is_some_and(|queue| queue.0 == 0) {
            found.error(consume.place_of("queue"), format!("{label}`consume.queue` must be more than 0"));
        }
    }
}

fn check_publish(node: &Node, stage: &StageConfig, label: &str, found: &mut Findings) {
    let publish = &stage.publish;
    if publish.idempotence == Some(true) && publish.acks != Acks::All {
        let message = format!("{label}`publish.idempotence` needs `acks: all`");
        found.error(node.place_of("idempotence"), message);
    }
    if publish.deadline.is_some() && publish.policy != Policy::Deadline {
        let message = format!("{label}`publish.deadline` has no effect without `policy: deadline`");
        found.error(node.key_place("deadline"), message);
    }
    let spans = [("deadline", publish.deadline), ("message_timeout", publish.message_timeout)];
    positive(node, "publish", &spans, label, found);
    for (key, size) in [("queue", publish.queue), ("batch_size", publish.batch_size)] {
        if size.is_some_and(|size| size.0 == 0) {
            found.error(node.place_of(key), format!("{label}`publish.{key}` must be more than 0"));
        }
    }
    if let (Some(linger), Some(timeout)) = (publish.linger, publish.message_timeout)
        && linger >= timeout
    {
        let message = format!("{label}`publish.linger` ({linger}) must be shorter than `message_timeout` ({timeout})");
        found.error(node.place_of("linger"), message);
    }
}

fn positive(node: &Node, part: &str, spans: &[(&str, Option<Span>)], label: &str, found: &mut Findings) {
    for (key, _) in spans.iter().filter(|(_, span)| span.is_some_and(|span| span.0.is_zero())) {
        found.error(node.place_of(key), format!("{label}`{part}.{key}` must be longer than 0"));
    }
}
