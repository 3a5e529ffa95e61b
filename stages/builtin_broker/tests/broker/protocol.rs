//! What the broker answers on the wire, request by request.

use std::collections::BTreeMap;

use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::describe_log_dirs_response::DescribeLogDirsPartition;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, CreateTopicsRequest, DeleteTopicsRequest, DescribeLogDirsRequest,
    FindCoordinatorRequest, GroupId, HeartbeatRequest, InitProducerIdRequest, ListOffsetsRequest, MetadataRequest,
    OffsetFetchRequest, TransactionalId,
};
use kafka_protocol::protocol::{Decodable, StrBytes};
use rdkafka::admin::{AdminOptions, ConfigSource, ResourceSpecifier};
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use builtin_broker::SERVED_APIS;

use crate::raw::{ANYONE, From, Raw, batch, fetch_request, frame, name, produce_request};
use crate::support::{
    Fixture, PATIENCE, admin, block_on, consume, consumer, create_topic, finish, payload, producer, replicas, send,
};

/// A broker with topic `t`: 3 partitions, one on each of 3 nodes, and the settings given.
fn with_topic(configs: &[(&str, &str)]) -> Fixture {
    let fixture = Fixture::start(|_| {});
    create_topic(&fixture.bootstrap(), "t", 3, 3, configs).unwrap();
    fixture
}

fn node(fixture: &Fixture, node: usize) -> Raw {
    Raw::connect(fixture.broker().addresses()[node - 1])
}

#[test]
fn a_partition_is_served_by_its_leader_only() {
    let fixture = with_topic(&[]);
    let batch = batch(ANYONE, 1, 10, 0);
    for partition in 0..3 {
        let leader = partition as usize % 3 + 1;
        for port in 1..=3 {
            let expected = if port == leader { 0 } else { 6 };
            let mut raw = node(&fixture, port);
            assert_eq!(
                raw.produce("t", partition, &batch).error_code,
                expected,
                "produce to {partition} at node {port}"
            );
            assert_eq!(raw.fetch("t", partition, 0, 1_000).error_code, expected, "fetch of {partition} at node {port}");
        }
    }
    let heartbeat = HeartbeatRequest::default().with_group_id(GroupId(StrBytes::from_static_str("g")));
    assert_eq!(node(&fixture, 2).call(3, &heartbeat).error_code, 16, "groups live on node 1");
    assert_eq!(node(&fixture, 1).call(3, &heartbeat).error_code, 25);
}

#[test]
fn a_batch_above_the_topics_limit_is_refused_and_the_connection_stays_open() {
    let fixture = with_topic(&[("max.message.bytes", "20000")]);
    let mut raw = node(&fixture, 1);
    assert_eq!(raw.produce("t", 0, &batch(ANYONE, 1, 30_000, 0)).error_code, 10);
    assert_eq!(raw.produce("t", 0, &batch(ANYONE, 1, 10_000, 0)).error_code, 0);
    let producer = producer(&fixture.bootstrap(), &[]);
    send(&producer, "t", Some(0), "k", 1, &payload(1, 30_000, false)).unwrap();
    let too_large = KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge);
    assert_eq!(finish(&producer), vec![(1, Err(too_large))]);
}

#[test]
fn every_fault_of_a_batch_has_its_code_and_stores_nothing() {
    let fixture = with_topic(&[]);
    let mut raw = node(&fixture, 1);
    let sound = batch(ANYONE, 3, 50, 1_000);
    let changed = |at: usize, value: u8| {
        let mut bytes = sound.to_vec();
        bytes[at] = value;
        Bytes::from(bytes)
    };
    assert_eq!(raw.produce("t", 0, &changed(sound.len() - 1, 99)).error_code, 2, "flipped byte");
    assert_eq!(raw.produce("t", 0, &sound.slice(..sound.len() - 1)).error_code, 2, "cut");
    assert_eq!(raw.produce("t", 0, &sound.slice(..20)).error_code, 2, "no header");
    assert_eq!(raw.produce("t", 0, &Bytes::new()).error_code, 2, "nothing");
    assert_eq!(raw.produce("t", 0, &changed(16, 1)).error_code, 43, "old format");
    assert_eq!(raw.produce("t", 0, &Bytes::from([&sound[..], &sound[..]].concat())).error_code, 87, "two batches");
    assert_eq!(raw.produce("t", 9, &sound).error_code, 3, "unknown partition");
    assert_eq!(raw.produce("other", 0, &sound).error_code, 3, "unknown topic");
    let stored = raw.produce("t", 0, &sound);
    assert_eq!((stored.error_code, stored.base_offset), (0, 0));
    assert_eq!(raw.produce("t", 0, &sound).base_offset, 3);
    let wrong_acks = raw.call(7, &produce_request("t", 0, &sound, 2));
    assert_eq!(wrong_acks.responses[0].partition_responses[0].error_code, 21);
}

#[test]
fn idempotence_returns_the_old_offset_and_refuses_gaps_and_old_epochs() {
    let fixture = with_topic(&[]);
    let mut raw = node(&fixture, 1);
    let new_id =
        |raw: &mut Raw| raw.call(3, &InitProducerIdRequest::default().with_transactional_id(None)).producer_id.0;
    let (producer, other) = (new_id(&mut raw), new_id(&mut raw));
    assert_ne!(producer, other);
    let part = |epoch, sequence, count| batch(From { producer, epoch, sequence }, count, 10, 0);
    let mut produce = |batch: &Bytes| {
        let answer = raw.produce("t", 0, batch);
        (answer.error_code, answer.base_offset)
    };
    assert_eq!(produce(&part(0, 5, 1)), (45, -1), "the first is not number 0");
    assert_eq!(produce(&part(0, 0, 5)), (0, 0));
    assert_eq!(produce(&part(0, 5, 2)), (0, 5));
    assert_eq!(produce(&part(0, 0, 5)), (0, 0), "a repeat");
    assert_eq!(produce(&part(0, 9, 1)), (45, -1), "a gap");
    assert_eq!(produce(&part(1, 0, 1)), (0, 7), "a new epoch");
    assert_eq!(produce(&part(0, 7, 1)), (47, -1), "an old epoch");
    let facts = fixture.broker().facts();
    assert_eq!((facts.batches_appended, facts.batches_repeated, facts.records_appended), (3, 1, 8));
    let transactional =
        InitProducerIdRequest::default().with_transactional_id(Some(TransactionalId(StrBytes::from_static_str("tx"))));
    assert_eq!(raw.call(3, &transactional).error_code, 42);
}

#[test]
fn without_acknowledgement_there_is_no_response_and_a_refusal_closes_the_connection() {
    let fixture = with_topic(&[]);
    let mut raw = node(&fixture, 1);
    raw.send(&frame(7, &produce_request("t", 0, &batch(ANYONE, 1, 10, 0), 0))).unwrap();
    assert_eq!(raw.fetch("t", 0, 0, 1_000).high_watermark, 1, "the next response belongs to the next request");
    raw.send(&frame(7, &produce_request("t", 9, &batch(ANYONE, 1, 10, 0), 0))).unwrap();
    assert!(raw.receive().is_err(), "closed, as there is no other way to tell");
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let fixture = with_topic(&[]);
    let mut raw = node(&fixture, 1);
    let mut bytes = frame(4, &ApiVersionsRequest::default());
    bytes[6..8].copy_from_slice(&99_i16.to_be_bytes());
    raw.send(&bytes).unwrap();
    let mut response = raw.receive().unwrap().slice(4..);
    let body = ApiVersionsResponse::decode(&mut response, 0).unwrap();
    let told: Vec<(i16, i16, i16)> =
        body.api_keys.iter().map(|row| (row.api_key, row.min_version, row.max_version)).collect();
    let served: Vec<(i16, i16, i16)> =
        SERVED_APIS.iter().map(|api| (api.key as i16, api.min_version, api.max_version)).collect();
    assert_eq!((body.error_code, told), (35, served));
    assert!(raw.call(3, &ApiVersionsRequest::default()).error_code == 0, "the connection goes on");
    raw.send(&frame(12, &fetch_request("t", 0, 0, 1, 0))).unwrap();
    assert!(raw.receive().is_err(), "any other unknown version ends the connection");
}

#[test]
fn topics_that_cannot_be_are_refused_each_with_its_code() {
    let fixture = with_topic(&[]);
    let topic = |text: &str, partitions, replication| {
        CreatableTopic::default()
            .with_name(name(text))
            .with_num_partitions(partitions)
            .with_replication_factor(replication)
    };
    let config = |key: &'static str, value: &'static str| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_static_str(key))
            .with_value(Some(StrBytes::from_static_str(value)))
    };
    let assignment = CreatableReplicaAssignment::default().with_broker_ids(vec![1.into()]);
    let cases = [
        (topic("t", 1, 1), 36),
        (topic("bad name", 1, 1), 17),
        (topic(&"x".repeat(250), 1, 1), 17),
        (topic("a", 0, 1), 37),
        (topic("b", 1, 0), 38),
        (topic("c", 1, 4), 38),
        (topic("d", 1, 1).with_configs(vec![config("cleanup.policy", "compact")]), 40),
        (topic("e", -1, -1).with_assignments(vec![assignment]), 39),
        (topic("f", -1, -1), 0),
    ];
    let request = CreateTopicsRequest::default().with_topics(cases.iter().map(|(topic, _)| topic.clone()).collect());
    let mut raw = node(&fixture, 1);
    let codes = |raw: &mut Raw, request: &CreateTopicsRequest| -> Vec<i16> {
        raw.call(4, request).topics.iter().map(|row| row.error_code).collect()
    };
    let expected: Vec<i16> = cases.iter().map(|(_, code)| *code).collect();
    assert_eq!(codes(&mut raw, &request.clone().with_validate_only(true)), expected);
    let metadata = |raw: &mut Raw| raw.call(8, &MetadataRequest::default().with_topics(None)).topics.len();
    assert_eq!(metadata(&mut raw), 1, "validating creates nothing");
    assert_eq!(codes(&mut raw, &request), expected);
    assert_eq!(metadata(&mut raw), 2);
    let twice = CreateTopicsRequest::default().with_topics(vec![topic("g", 1, 1), topic("g", 1, 1)]);
    assert_eq!(codes(&mut raw, &twice), [42, 42]);
}

#[test]
fn a_deleted_topic_is_gone_with_its_files_and_commits() {
    let fixture = with_topic(&[]);
    let bootstrap = fixture.bootstrap();
    let producer = producer(&bootstrap, &[]);
    send(&producer, "t", Some(0), "k", 1, &payload(1, 100, false)).unwrap();
    finish(&producer);
    let consumer = consumer(&bootstrap, "g", &[]);
    consumer.subscribe(&["t"]).unwrap();
    assert_eq!(consume(&consumer, 1, PATIENCE).len(), 1);
    consumer.commit_consumer_state(CommitMode::Sync).unwrap();
    drop(consumer);
    let mut raw = node(&fixture, 1);
    let topic = OffsetFetchRequestTopic::default().with_name(name("t")).with_partition_indexes(vec![0]);
    let asked = OffsetFetchRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_topics(Some(vec![topic]));
    let committed = |raw: &mut Raw| raw.call(7, &asked).topics[0].partitions[0].committed_offset;
    assert_eq!(committed(&mut raw), 1);
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![name("t"), name("never")]);
    let codes: Vec<i16> = raw.call(3, &delete).responses.iter().map(|row| row.error_code).collect();
    assert_eq!(codes, [0, 3]);
    assert!(replicas(fixture.dir.path()).is_empty());
    create_topic(&bootstrap, "t", 3, 3, &[]).unwrap();
    assert_eq!(committed(&mut raw), -1, "a new topic of the same name starts without commits");
    assert_eq!(raw.fetch("t", 0, 0, 100).high_watermark, 0);
}

#[test]
fn metadata_creates_a_topic_only_where_both_sides_allow_it() {
    let fixture = with_topic(&[]);
    let mut raw = node(&fixture, 2);
    let ask = |text: &str, allow| {
        let topic = MetadataRequestTopic::default().with_name(Some(name(text)));
        MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(allow)
    };
    assert_eq!(raw.call(8, &ask("new", false)).topics[0].error_code, 3);
    assert_eq!(raw.call(8, &ask("not/a/name", true)).topics[0].error_code, 17);
    let created = raw.call(8, &ask("new", true)).topics[0].clone();
    let replication: Vec<usize> = created.partitions.iter().map(|partition| partition.replica_nodes.len()).collect();
    assert_eq!((created.error_code, replication), (0, vec![1, 1, 1]));
    let strict = Fixture::start(|options| options.auto_create_topics = false);
    assert_eq!(node(&strict, 1).call(8, &ask("new", true)).topics[0].error_code, 3);
}

#[test]
fn clients_are_told_the_advertised_host() {
    let fixture = Fixture::start(|options| {
        options.listen = "0.0.0.0:0".parse().unwrap();
        options.advertised_host = Some("broker.example".to_owned());
    });
    let port = fixture.broker().addresses()[1].port();
    let mut raw = Raw::connect(([127, 0, 0, 1], port).into());
    let metadata = raw.call(8, &MetadataRequest::default());
    assert!(metadata.brokers.iter().all(|broker| &*broker.host == "broker.example"));
    assert_eq!(metadata.brokers[1].port, i32::from(port));
    let coordinator = raw.call(2, &FindCoordinatorRequest::default().with_key(StrBytes::from_static_str("g")));
    assert_eq!((&*coordinator.host, coordinator.node_id.0), ("broker.example", 1));
    assert!(fixture.bootstrap().starts_with("broker.example:"));
}

#[test]
fn the_settings_of_a_topic_read_back() {
    let set = [
        ("max.message.bytes", "8388608"),
        ("retention.bytes", "123456789"),
        ("segment.bytes", "1048576"),
        ("flush.messages", "10"),
        ("min.insync.replicas", "2"),
    ];
    let fixture = with_topic(&set);
    let admin = admin(&fixture.bootstrap());
    let asked = [ResourceSpecifier::Topic("t"), ResourceSpecifier::Broker(2)];
    let read = block_on(admin.describe_configs(&asked, &AdminOptions::new())).unwrap();
    let topic = read[0].as_ref().unwrap();
    for (key, value) in set {
        let entry = topic.get(key).unwrap();
        assert_eq!((entry.value.as_deref(), &entry.source), (Some(value), &ConfigSource::DynamicTopic), "{key}");
    }
    let entry = topic.get("retention.ms").unwrap();
    assert_eq!((entry.value.as_deref(), &entry.source), (Some("-1"), &ConfigSource::Default));
    let broker = read[1].as_ref().unwrap();
    assert_eq!(broker.get("message.max.bytes").unwrap().value.as_deref(), Some("1048588"));
    assert_eq!(broker.get("socket.request.max.bytes").unwrap().value.as_deref(), Some("134217728"));
}

#[test]
fn log_dirs_tell_the_size_of_each_replica_on_each_node() {
    let fixture = Fixture::start(|_| {});
    create_topic(&fixture.bootstrap(), "two", 3, 2, &[]).unwrap();
    let producer = producer(&fixture.bootstrap(), &[]);
    for id in 0..30 {
        send(&producer, "two", Some((id % 3) as i32), "k", id, &payload(id, 5_000, false)).unwrap();
    }
    finish(&producer);
    let on_disk = replicas(fixture.dir.path());
    for port in 1..=3_u16 {
        let response = node(&fixture, usize::from(port)).call(2, &DescribeLogDirsRequest::default().with_topics(None));
        assert!(response.results[0].log_dir.ends_with(&format!("broker-{port}")));
        let size =
            |row: &DescribeLogDirsPartition| (format!("two-{}", row.partition_index), row.partition_size as usize);
        let told: BTreeMap<String, usize> = response.results[0].topics[0].partitions.iter().map(size).collect();
        let here = on_disk.iter().filter_map(|(partition, nodes)| {
            Some((partition.clone(), nodes.get(&port)?.values().map(Vec::len).sum::<usize>()))
        });
        assert_eq!(told, here.collect::<BTreeMap<_, _>>(), "node {port}");
        assert_eq!(told.len(), 2);
    }
}

#[test]
fn a_fetch_returns_whole_batches_within_its_limit_and_at_least_one() {
    let fixture = with_topic(&[]);
    let mut raw = node(&fixture, 1);
    let batch = batch(ANYONE, 2, 1_000, 0);
    for _ in 0..10 {
        raw.produce("t", 0, &batch);
    }
    let bytes = |raw: &mut Raw, offset, max| raw.fetch("t", 0, offset, max).records.unwrap().len();
    assert_eq!(bytes(&mut raw, 0, 1), batch.len(), "one batch, although it is larger");
    assert_eq!(bytes(&mut raw, 0, batch.len() as i32 * 3 + 5), batch.len() * 3, "no cut batch");
    assert_eq!(bytes(&mut raw, 0, 1 << 20), batch.len() * 10);
    assert_eq!(bytes(&mut raw, 13, 1 << 20), batch.len() * 4, "from the batch that holds the offset");
    assert_eq!(bytes(&mut raw, 20, 1 << 20), 0, "nothing at the end");
    assert_eq!(raw.fetch("t", 0, 21, 100).error_code, 1, "behind the end");
    assert_eq!(raw.fetch("t", 0, -1, 100).error_code, 1);
    for offset in 0..20 {
        let records = raw.fetch("t", 0, offset, 1).records.unwrap();
        assert_eq!(i64::from_be_bytes(records[..8].try_into().unwrap()), offset / 2 * 2, "batch of offset {offset}");
    }
}

#[test]
fn a_long_poll_is_answered_by_the_append_it_waits_for() {
    let fixture = with_topic(&[]);
    let mut waiting = node(&fixture, 1);
    waiting.send(&frame(11, &fetch_request("t", 0, 0, 1_000, 30_000))).unwrap();
    let batch = batch(ANYONE, 1, 10, 0);
    assert_eq!(node(&fixture, 1).produce("t", 0, &batch).error_code, 0);
    // The records come last in the response.
    assert!(waiting.receive().unwrap().ends_with(&batch[16..]));
}

#[test]
fn stopping_answers_who_waits() {
    let mut fixture = with_topic(&[]);
    let mut waiting = node(&fixture, 1);
    waiting.send(&frame(11, &fetch_request("t", 0, 0, 1_000, 30_000))).unwrap();
    let received = std::thread::spawn(move || waiting.receive().is_ok());
    crate::support::wait_until("the fetch arrived", PATIENCE, || {
        fixture.broker().facts().requests_by_version.contains_key("Fetch v11")
    });
    fixture.broker.take().unwrap().stop().unwrap();
    assert!(received.join().unwrap(), "the poll was answered before the connection ended");
}

#[test]
fn the_client_asks_only_for_what_is_served() {
    let fixture = with_topic(&[]);
    let bootstrap = fixture.bootstrap();
    let producer = producer(&bootstrap, &[]);
    send(&producer, "t", None, "k", 1, &payload(1, 100, false)).unwrap();
    finish(&producer);
    let consumer = consumer(&bootstrap, "g", &[]);
    consumer.subscribe(&["t"]).unwrap();
    assert_eq!(consume(&consumer, 1, PATIENCE).len(), 1);
    consumer.commit_consumer_state(CommitMode::Sync).unwrap();
    drop(consumer);
    let asked = fixture.broker().facts().requests_by_version;
    let (_, version) = rdkafka::util::get_rdkafka_version();
    println!("librdkafka {version} asks for: {asked:?}");
    for api in SERVED_APIS {
        let group = ["Produce", "Fetch", "Metadata", "JoinGroup", "SyncGroup", "OffsetCommit", "OffsetFetch"];
        let name = format!("{:?}", api.key);
        let used = asked.keys().any(|key| key.starts_with(&format!("{name} v")));
        assert!(used || !group.contains(&name.as_str()), "{name} was not asked for");
    }
    assert_eq!(fixture.broker().facts().requests_malformed, 0);
    assert!(
        SERVED_APIS.iter().all(|api| api.key != ApiKey::OffsetForLeaderEpoch),
        "not needed without changing leaders"
    );
    let empty = node(&fixture, 1).call(5, &ListOffsetsRequest::default());
    assert!(empty.topics.is_empty());
}
