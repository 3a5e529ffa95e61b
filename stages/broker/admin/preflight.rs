//! The preflight: every limit that a scenario depends on, what was found and what is needed. Pure; what the cluster says is
//! given.

use std::collections::BTreeMap;

use contract::admin::{PreflightLink, TopicNeed};

use crate::size_chain::{self, REQUEST_OVERHEAD_BYTES};
use crate::topic::{TopicView, name_problem};

/// Settings of one broker or topic by name; what the broker does not tell is absent.
pub(super) type Told = BTreeMap<String, String>;

/// What the cluster says.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    /// Settings by broker id.
    pub(super) brokers: BTreeMap<i32, Told>,
    pub(super) topics: BTreeMap<String, TopicView>,
    /// Settings of those topics that exist.
    pub(super) topic_settings: BTreeMap<String, Told>,
}

const NOT_TOLD: &str = "not told by the broker";

struct Links(Vec<PreflightLink>);

impl Links {
    fn add(&mut self, link: String, observed: impl ToString, needed: impl ToString, ok: bool, remedy: &str) {
        self.0.push(PreflightLink {
            link,
            observed: observed.to_string(),
            needed: needed.to_string(),
            ok,
            remedy: if ok { String::new() } else { remedy.to_owned() },
        });
    }

    /// A setting that must be at least `needed`; one that is not told cannot be judged and is shown as that.
    fn at_least(&mut self, link: String, told: Option<&String>, needed: u64, remedy: &str) {
        let value = told.and_then(|text| text.parse::<i64>().ok());
        let ok = value.is_none_or(|value| value >= needed.min(i64::MAX as u64) as i64);
        let observed = told.map_or(NOT_TOLD, String::as_str);
        self.add(link, observed, format!(">= {needed}"), ok, remedy);
    }
}

/// Every link of every topic, in the order of the chain from the frame to the disk.
pub(super) fn links(needs: &[TopicNeed], cluster: &Cluster) -> Vec<PreflightLink> {
    let mut links = Links(Vec::new());
    for need in needs {
        topic_links(need, cluster, &mut links);
    }
    links.0
}

fn topic_links(need: &TopicNeed, cluster: &Cluster, links: &mut Links) {
    let config = &need.config;
    let link = |what: &str| format!("topic {}: {what}", config.name);
    let name = name_problem(&config.name);
    let observed = name.clone().unwrap_or_else(|| config.name.clone());
    links.add(link("name"), observed, "1 to 249 of [A-Za-z0-9._-]", name.is_none(), "rename the topic");
    existence(need, cluster, links);
    let (brokers, replication) = (cluster.brokers.len() as u32, config.replication);
    let remedy = format!("use at most {brokers} replicas, or more brokers");
    let ok = (1..=brokers).contains(&replication);
    links.add(link("replication"), format!("{brokers} brokers"), format!("{replication} brokers"), ok, &remedy);
    min_insync(need, cluster, links);
    let largest = format!("{} bytes", need.max_frame_bytes);
    let needed = format!("<= {} bytes", size_chain::CEILING_BYTES / 2);
    let Some(limit) = size_chain::batch_limit_bytes(need.max_frame_bytes) else {
        links.add(link("largest frame"), largest, needed, false, "send smaller or encoded frames");
        return;
    };
    links.add(link("largest frame"), largest, needed, true, "");
    size_links(need, limit, cluster, links);
    broker_links(&config.name, replication, limit, cluster, links);
}

fn existence(need: &TopicNeed, cluster: &Cluster, links: &mut Links) {
    let config = &need.config;
    let link = |what: &str| format!("topic {}: {what}", config.name);
    let Some(view) = cluster.topics.get(&config.name) else {
        links.add(link("existence"), "does not exist", "new, or `reuse: true`", true, "");
        return;
    };
    let remedy = "delete the topic, name another, or set `reuse: true`";
    links.add(link("existence"), "exists", "new, or `reuse: true`", config.reuse, remedy);
    if config.reuse {
        let same = view.partitions as u32 == config.partitions;
        let remedy = "make the scenario agree with the topic, or delete the topic";
        links.add(link("partitions"), view.partitions, config.partitions, same, remedy);
        let same = view.replication as u32 == config.replication;
        links.add(link("replicas of each partition"), view.replication, config.replication, same, remedy);
    }
}

fn min_insync(need: &TopicNeed, cluster: &Cluster, links: &mut Links) {
    let config = &need.config;
    let of_topic = told_of_topic(need, cluster, "min.insync.replicas");
    let of_brokers = || cluster.brokers.values().filter_map(|told| told.get("min.insync.replicas")).max();
    let wanted = config.min_insync_replicas.map(|n| n.to_string());
    let Some(observed) = of_topic.or(wanted.as_ref()).or_else(of_brokers) else { return };
    let ok = observed.parse::<u32>().is_ok_and(|n| n <= config.replication);
    let link = format!("topic {}: min.insync.replicas", config.name);
    let remedy = "lower min_insync_replicas, or raise replication: acks \"all\" can never be had";
    links.add(link, observed, format!("<= {}", config.replication), ok, remedy);
}

/// A setting of a topic that is used as it is; a new topic gets what the scenario says.
fn told_of_topic<'a>(need: &TopicNeed, cluster: &'a Cluster, name: &str) -> Option<&'a String> {
    if !need.config.reuse {
        return None;
    }
    cluster.topic_settings.get(&need.config.name)?.get(name)
}

fn size_links(need: &TopicNeed, limit: u64, cluster: &Cluster, links: &mut Links) {
    let config = &need.config;
    let link = |what: &str| format!("topic {}: {what}", config.name);
    let exists = config.reuse && cluster.topics.contains_key(&config.name);
    let set = |size: Option<u64>| size.map(|bytes| bytes.to_string());
    let batch = if exists {
        told_of_topic(need, cluster, "max.message.bytes").cloned()
    } else {
        set(Some(config.max_message_bytes.map_or(limit, |size| size.0)))
    };
    let remedy = "raise max_message_bytes: it bounds a batch, not a frame";
    links.at_least(link("max.message.bytes"), batch.as_ref(), limit, remedy);
    let of_brokers = || cluster.brokers.values().filter_map(|told| told.get("log.segment.bytes")).min().cloned();
    let segment = if exists {
        told_of_topic(need, cluster, "segment.bytes").cloned()
    } else {
        set(segment_bytes(need, limit)).or_else(of_brokers)
    };
    links.at_least(link("segment.bytes"), segment.as_ref(), limit, "raise segment_bytes: a segment holds a batch");
    let Some(retention) = config.retention_bytes.map(|size| size.0) else { return };
    let held = segment.as_ref().and_then(|text| text.parse::<u64>().ok());
    let ok = held.is_none_or(|segment| segment <= retention);
    let observed = segment.unwrap_or_else(|| NOT_TOLD.to_owned());
    let remedy = "lower segment_bytes: retention deletes whole segments, so the disk budget would not hold";
    links.add(link("segment.bytes and retention_bytes"), observed, format!("<= {retention}"), ok, remedy);
}

/// The segment size a new topic is created with: a quarter of what is kept, unless the scenario says otherwise.
pub(super) fn segment_bytes(need: &TopicNeed, limit: u64) -> Option<u64> {
    const SMALLEST: u64 = 1 << 20;
    const LARGEST: u64 = 128 << 20;
    let quarter = |kept: u64| (kept / 4).clamp(SMALLEST.max(limit), LARGEST.max(limit));
    let config = &need.config;
    config.segment_bytes.map(|size| size.0).or_else(|| config.retention_bytes.map(|size| quarter(size.0)))
}

fn broker_links(topic: &str, replication: u32, limit: u64, cluster: &Cluster, links: &mut Links) {
    for (id, told) in &cluster.brokers {
        let link = |what: &str| format!("topic {topic}, broker {id}: {what}");
        let mut need = |what: &str, needed: u64| {
            links.at_least(link(what), told.get(what), needed, &format!("set {what}={needed} on the broker"));
        };
        need("socket.request.max.bytes", limit + REQUEST_OVERHEAD_BYTES);
        if replication > 1 {
            need("replica.fetch.max.bytes", limit);
            need("replica.fetch.response.max.bytes", 4 * limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::admin::TopicConfig;
    use contract::units::ByteSize;

    fn need(replication: u32, max_frame_bytes: u64) -> TopicNeed {
        let config = TopicConfig {
            name: "frames".into(),
            partitions: 6,
            replication,
            retention_bytes: None,
            retention: None,
            segment_bytes: None,
            max_message_bytes: None,
            min_insync_replicas: None,
            reuse: false,
        };
        TopicNeed { config, max_frame_bytes }
    }

    fn told(settings: &[(&str, &str)]) -> Told {
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Brokers with the defaults of Apache Kafka 4.
    fn cluster(brokers: i32) -> Cluster {
        let defaults = told(&[
            ("socket.request.max.bytes", "104857600"),
            ("replica.fetch.max.bytes", "1048576"),
            ("replica.fetch.response.max.bytes", "10485760"),
            ("log.segment.bytes", "1073741824"),
            ("min.insync.replicas", "1"),
        ]);
        Cluster { brokers: (1..=brokers).map(|id| (id, defaults.clone())).collect(), ..Cluster::default() }
    }

    fn broken(need: TopicNeed, cluster: &Cluster) -> Vec<String> {
        let links = links(&[need], cluster);
        assert!(links.iter().all(|link| link.ok == link.remedy.is_empty()), "{links:?}");
        links.into_iter().filter(|link| !link.ok).map(|link| link.link).collect()
    }

    #[test]
    fn defaults_carry_small_frames_on_one_broker() {
        assert_eq!(broken(need(1, 10_400), &cluster(1)), Vec::<String>::new());
        assert_eq!(broken(need(1, 24_883_200), &cluster(1)), Vec::<String>::new());
    }

    #[test]
    fn replication_names_the_fetch_limits_of_each_broker_that_are_too_small() {
        let links = broken(need(3, 3_110_400), &cluster(3));
        assert_eq!(links.len(), 6, "{links:?}");
        assert_eq!(links[0], "topic frames, broker 1: replica.fetch.max.bytes");
        assert_eq!(links[1], "topic frames, broker 1: replica.fetch.response.max.bytes");
    }

    #[test]
    fn too_few_brokers_and_an_impossible_quorum_are_named() {
        assert_eq!(broken(need(3, 1_000), &cluster(1))[0], "topic frames: replication");
        let mut quorum = need(1, 1_000);
        quorum.config.min_insync_replicas = Some(2);
        assert_eq!(broken(quorum, &cluster(1)), ["topic frames: min.insync.replicas"]);
    }

    #[test]
    fn an_oversized_frame_and_a_bad_name_are_named() {
        let mut wrong = need(1, 40_000_000);
        wrong.config.name = "a b".into();
        assert_eq!(broken(wrong, &cluster(1)), ["topic a b: name", "topic a b: largest frame"]);
    }

    #[test]
    fn a_limit_below_twice_the_frame_breaks_the_chain() {
        let mut small = need(1, 3_110_400);
        small.config.max_message_bytes = Some(ByteSize(4 << 20));
        small.config.segment_bytes = Some(ByteSize(2 << 20));
        assert_eq!(broken(small, &cluster(1)), ["topic frames: max.message.bytes", "topic frames: segment.bytes"]);
    }

    #[test]
    fn an_existing_topic_needs_reuse_and_then_the_same_shape() {
        let mut cluster = cluster(1);
        let view = TopicView { partitions: 3, replication: 1, leaderless: Vec::new() };
        cluster.topics.insert("frames".into(), view);
        cluster.topic_settings.insert("frames".into(), told(&[("max.message.bytes", "1048588")]));
        assert_eq!(broken(need(1, 1_000), &cluster), ["topic frames: existence"]);
        let mut reuse = need(1, 1_000);
        reuse.config.reuse = true;
        assert_eq!(broken(reuse, &cluster), ["topic frames: partitions", "topic frames: max.message.bytes"]);
    }

    #[test]
    fn retention_gets_segments_that_it_can_delete() {
        let mut kept = need(1, 10_400);
        kept.config.retention_bytes = Some(ByteSize(64 << 20));
        assert_eq!(segment_bytes(&kept, 2 << 20), Some(16 << 20));
        assert_eq!(broken(kept.clone(), &cluster(1)), Vec::<String>::new());
        kept.config.segment_bytes = Some(ByteSize(1 << 30));
        assert_eq!(broken(kept, &cluster(1)), ["topic frames: segment.bytes and retention_bytes"]);
    }

    #[test]
    fn what_a_broker_does_not_tell_is_shown_and_not_judged() {
        let mut cluster = cluster(3);
        cluster.brokers.values_mut().for_each(Told::clear);
        let links = links(&[need(3, 3_110_400)], &cluster);
        assert!(links.iter().all(|link| link.ok));
        assert!(links.iter().any(|link| link.observed == NOT_TOLD));
    }
}
