//! Topics, preflight, offsets and bytes on disk, and what is said when a broker is not there.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::flow::PublishConfig;
use contract::units::{ByteSize, Span};

use crate::support::{Topic, WAIT, alone, cluster, need, nodes, publish, unique};

#[test]
fn an_unreachable_broker_is_named_with_its_address() {
    let admin = broker::admin("127.0.0.1:1", &BTreeMap::new()).unwrap();
    let text = admin.cluster(Duration::from_millis(500)).unwrap_err().to_string();
    assert!(text.starts_with("127.0.0.1:1: no broker answers"), "{text}");
}

#[test]
fn the_cluster_lists_brokers_and_topics() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "listed", 1, 1_000);
    let view = cluster.admin.cluster(WAIT).unwrap();
    assert!(view.topics.contains(&topic.name));
    assert!(cluster.bootstrap.split(',').any(|address| view.brokers.contains(&address.to_owned())), "{view:?}");
}

#[test]
fn an_existing_topic_is_an_error_unless_it_is_reused_as_it_is() {
    let cluster = cluster();
    let name = unique("existing");
    let mut need = need(&name, 3, 1_000);
    cluster.admin.create_topics(&[need.clone()]).unwrap();
    let error = cluster.admin.create_topics(&[need.clone()]).unwrap_err().to_string();
    assert!(error.contains(&name) && error.contains("reuse: true"), "{error}");
    let links = cluster.admin.preflight(&[need.clone()]).unwrap();
    assert_eq!(links.iter().filter(|link| !link.ok).count(), 1, "{links:?}");
    need.config.reuse = true;
    cluster.admin.create_topics(&[need.clone()]).unwrap();
    let links = cluster.admin.preflight(&[need.clone()]).unwrap();
    assert!(links.iter().all(|link| link.ok), "{links:?}");
    need.config.partitions = 4;
    let error = cluster.admin.create_topics(&[need]).unwrap_err().to_string();
    assert!(error.contains("3 partitions") && error.contains('4'), "{error}");
}

#[test]
fn a_topic_gets_the_settings_of_the_scenario() {
    let cluster = cluster();
    let name = unique("settings");
    let mut need = need(&name, 1, 3_110_400);
    need.config.retention_bytes = Some(ByteSize(64 << 20));
    need.config.retention = Some(Span(Duration::from_secs(3600)));
    cluster.admin.create_topics(&[need.clone()]).unwrap();
    // Read back by the preflight, which asks the broker for the settings of a topic that is reused.
    need.config.reuse = true;
    let links = cluster.admin.preflight(&[need]).unwrap();
    let observed = |what: &str| {
        let link = links.iter().find(|link| link.link == format!("topic {name}: {what}"));
        link.unwrap_or_else(|| panic!("no link {what} in {links:?}")).observed.clone()
    };
    assert_eq!(observed("max.message.bytes"), (8 << 20).to_string());
    assert_eq!(observed("segment.bytes"), (16 << 20).to_string());
    assert!(links.iter().all(|link| link.ok), "{links:?}");
}

#[test]
fn more_replicas_than_brokers_are_refused_by_preflight_and_by_the_broker() {
    let cluster = cluster();
    let name = unique("replicas");
    let mut need = need(&name, 1, 1_000);
    need.config.replication = 9;
    let links = cluster.admin.preflight(&[need.clone()]).unwrap();
    let link = links.iter().find(|link| !link.ok).unwrap();
    assert_eq!(link.link, format!("topic {name}: replication"));
    assert_eq!(link.needed, "9 brokers");
    let error = cluster.admin.create_topics(&[need]).unwrap_err().to_string();
    assert!(error.contains(&name) && error.contains("replication 9"), "{error}");
}

#[test]
fn a_bad_name_is_refused_before_the_broker_is_asked() {
    let cluster = cluster();
    let error = cluster.admin.create_topics(&[need("a b", 1, 1_000)]).unwrap_err().to_string();
    assert!(error.starts_with("topic a b: is not a topic name"), "{error}");
}

#[test]
fn offsets_and_bytes_on_disk_grow_with_what_is_published() {
    let cluster = cluster();
    let topic = Topic::new(&cluster, "offsets", 3, 65_000);
    let admin = &cluster.admin;
    assert_eq!(admin.end_offsets(&topic.name, WAIT).unwrap(), [(0, 0), (1, 0), (2, 0)].into());
    assert_eq!(admin.log_bytes(&topic.name).unwrap(), Some(0));
    let (_folder, cx) = alone(&topic.name);
    publish(&cx, &*topic.output(&cx, PublishConfig::default()), 2, 0..50, 20_000);
    assert_eq!(admin.end_offsets(&topic.name, WAIT).unwrap(), [(0, 50), (1, 50), (2, 0)].into());
    assert_eq!(admin.start_offsets(&topic.name, WAIT).unwrap(), [(0, 0), (1, 0), (2, 0)].into());
    let bytes = admin.log_bytes(&topic.name).unwrap().unwrap();
    let payload = 100 * 20_000;
    assert!((payload..payload * 102 / 100).contains(&bytes), "{bytes} bytes on disk for {payload}");
    let error = admin.end_offsets(&unique("absent"), WAIT).unwrap_err().to_string();
    assert!(error.contains("does not exist"), "{error}");
}

#[test]
fn every_replica_counts_on_disk() {
    let cluster = nodes(3);
    if !cluster.builtin {
        println!("SKIPPED: needs three brokers, and an external cluster may have fewer");
        return;
    }
    let name = unique("three");
    let mut need = need(&name, 3, 65_000);
    need.config.replication = 3;
    cluster.admin.create_topics(&[need]).unwrap();
    let topic = Topic { cluster: &cluster, name: name.clone(), partitions: 3, max_frame_bytes: 65_000 };
    let (_folder, cx) = alone(&name);
    publish(&cx, &*topic.output(&cx, PublishConfig::default()), 3, 0..50, 20_000);
    let bytes = cluster.admin.log_bytes(&name).unwrap().unwrap();
    let payload = 3 * 150 * 20_000;
    assert!((payload..payload * 102 / 100).contains(&bytes), "{bytes} bytes on disk for {payload}");
}

#[test]
fn a_publisher_and_a_consumer_say_what_is_wrong_with_their_topic() {
    use contract::flow::{Adapters, InputSpec, OutputSpec, Spread, TopicRef};
    let cluster = cluster();
    let topic = Topic::new(&cluster, "shape", 3, 1_000);
    let (_folder, cx) = alone(&topic.name);
    let wrong = TopicRef { name: topic.name.clone(), partitions: 5, index: 0 };
    let absent = TopicRef { name: unique("absent"), partitions: 1, index: 0 };
    let output = OutputSpec {
        bootstrap_servers: cluster.bootstrap.clone(),
        client: BTreeMap::new(),
        topics: vec![wrong],
        spread: Spread::Streams,
        publish: PublishConfig::default(),
        max_frame_bytes: 1_000,
    };
    let input = InputSpec {
        bootstrap_servers: cluster.bootstrap.clone(),
        client: BTreeMap::new(),
        topic: absent.clone(),
        group: absent.name.clone(),
        consume: Default::default(),
        max_frame_bytes: 1_000,
    };
    let error = broker::KafkaAdapters.output(&cx, &output).err().unwrap().to_string();
    assert!(error.contains("has 3 partitions") && error.contains("says 5"), "{error}");
    let error = broker::KafkaAdapters.input(&cx, &input).err().unwrap().to_string();
    assert!(error.contains(&absent.name) && error.contains("does not exist"), "{error}");
}
