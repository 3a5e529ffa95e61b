//! Hostile bytes: random and mutated requests of every type and version, at the decoder and at a living broker.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use builtin_broker::{SERVED_APIS, fuzz_request};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
    DescribeLogDirsRequest, FindCoordinatorRequest, GroupId, HeartbeatRequest, InitProducerIdRequest, JoinGroupRequest,
    LeaveGroupRequest, ListOffsetsRequest, MetadataRequest, OffsetCommitRequest, OffsetFetchRequest, RequestHeader,
    SyncGroupRequest,
};
use kafka_protocol::protocol::{Encodable, StrBytes};
use proptest::prelude::*;

use crate::child::ServeProcess;
use crate::raw::{ANYONE, Raw, batch, fetch_request, name, produce_request};
use crate::support::create_topic;

fn text(value: &'static str) -> StrBytes {
    StrBytes::from_static_str(value)
}

/// A sound request body of a type, with something in every list.
fn body(key: ApiKey, version: i16) -> BytesMut {
    let mut out = BytesMut::new();
    let group = GroupId(text("group"));
    let encoded = match key {
        ApiKey::Produce => produce_request("t", 0, &batch(ANYONE, 3, 40, 5), -1).encode(&mut out, version),
        ApiKey::Fetch => fetch_request("t", 0, 0, 1_000, 5).encode(&mut out, version),
        ApiKey::ListOffsets => {
            let topic =
                ListOffsetsTopic::default().with_name(name("t")).with_partitions(vec![ListOffsetsPartition::default()]);
            ListOffsetsRequest::default().with_topics(vec![topic]).encode(&mut out, version)
        }
        ApiKey::Metadata => {
            let topic = MetadataRequestTopic::default().with_name(Some(name("t")));
            MetadataRequest::default().with_topics(Some(vec![topic])).encode(&mut out, version)
        }
        ApiKey::OffsetCommit => {
            let partition = OffsetCommitRequestPartition::default().with_committed_metadata(Some(text("m")));
            let topic = OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
            let request = OffsetCommitRequest::default().with_group_id(group).with_generation_id_or_member_epoch(-1);
            request.with_topics(vec![topic]).encode(&mut out, version)
        }
        ApiKey::OffsetFetch => {
            let topic = OffsetFetchRequestTopic::default().with_name(name("t")).with_partition_indexes(vec![0, 1]);
            OffsetFetchRequest::default().with_group_id(group).with_topics(Some(vec![topic])).encode(&mut out, version)
        }
        ApiKey::FindCoordinator => FindCoordinatorRequest::default().with_key(text("group")).encode(&mut out, version),
        ApiKey::JoinGroup => {
            let protocol =
                JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(Bytes::from_static(b"meta"));
            let request = JoinGroupRequest::default().with_group_id(group).with_protocol_type(text("consumer"));
            let request = request.with_session_timeout_ms(6_000).with_protocols(vec![protocol]);
            let request = if version >= 1 { request.with_rebalance_timeout_ms(100) } else { request };
            request.encode(&mut out, version)
        }
        ApiKey::Heartbeat => HeartbeatRequest::default().with_group_id(group).encode(&mut out, version),
        ApiKey::LeaveGroup if version >= 3 => {
            let member = MemberIdentity::default().with_member_id(text("m"));
            LeaveGroupRequest::default().with_group_id(group).with_members(vec![member]).encode(&mut out, version)
        }
        ApiKey::LeaveGroup => LeaveGroupRequest::default().with_group_id(group).encode(&mut out, version),
        ApiKey::SyncGroup => {
            let row = SyncGroupRequestAssignment::default()
                .with_member_id(text("m"))
                .with_assignment(Bytes::from_static(b"a"));
            SyncGroupRequest::default().with_group_id(group).with_assignments(vec![row]).encode(&mut out, version)
        }
        ApiKey::ApiVersions => ApiVersionsRequest::default().encode(&mut out, version),
        ApiKey::CreateTopics => {
            let config = CreatableTopicConfig::default().with_name(text("retention.bytes")).with_value(Some(text("5")));
            let topic =
                CreatableTopic::default().with_name(name("new")).with_num_partitions(1).with_replication_factor(1);
            CreateTopicsRequest::default().with_topics(vec![topic.with_configs(vec![config])]).encode(&mut out, version)
        }
        ApiKey::DeleteTopics => {
            DeleteTopicsRequest::default().with_topic_names(vec![name("new")]).encode(&mut out, version)
        }
        ApiKey::InitProducerId => {
            let request = InitProducerIdRequest::default();
            request.encode(&mut out, version)
        }
        ApiKey::DescribeConfigs => {
            let resource = DescribeConfigsResource::default().with_resource_type(2).with_resource_name(text("t"));
            let resource = resource.with_configuration_keys(Some(vec![text("retention.bytes")]));
            DescribeConfigsRequest::default().with_resources(vec![resource]).encode(&mut out, version)
        }
        ApiKey::DescribeLogDirs => {
            let topic = DescribableLogDirTopic::default().with_topic(name("t")).with_partitions(vec![0]);
            DescribeLogDirsRequest::default().with_topics(Some(vec![topic])).encode(&mut out, version)
        }
        other => panic!("{other:?} has no sample"),
    };
    encoded.unwrap_or_else(|error| panic!("{key:?} v{version}: {error}"));
    out
}

/// A sound frame without its length.
fn sample(key: ApiKey, version: i16) -> Vec<u8> {
    let mut out = BytesMut::new();
    RequestHeader::default()
        .with_request_api_key(key as i16)
        .with_request_api_version(version)
        .with_client_id(Some(text("hostile")))
        .encode(&mut out, key.request_header_version(version))
        .unwrap();
    out.extend(body(key, version));
    out.to_vec()
}

fn samples() -> Vec<Vec<u8>> {
    let versions = |api: &builtin_broker::ServedApi| {
        (api.min_version..=api.max_version).map(move |v| (api.key, v)).collect::<Vec<_>>()
    };
    SERVED_APIS.iter().flat_map(versions).map(|(key, version)| sample(key, version)).collect()
}

/// A change of a frame: where, and what.
#[derive(Debug, Clone)]
enum Mutation {
    Set {
        at: prop::sample::Index,
        value: u8,
    },
    /// The lengths that hurt most.
    Length {
        at: prop::sample::Index,
        value: i32,
    },
    Cut {
        at: prop::sample::Index,
    },
    Insert {
        at: prop::sample::Index,
        bytes: Vec<u8>,
    },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<prop::sample::Index>;
    let lengths = prop::sample::select(vec![-1, -2, i32::MIN, i32::MAX, 0, 1, 0x7fff, 100_001, 0x00ff_ffff]);
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, value)| Mutation::Set { at, value }),
        4 => (at(), lengths).prop_map(|(at, value)| Mutation::Length { at, value }),
        1 => at().prop_map(|at| Mutation::Cut { at }),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Mutation::Insert { at, bytes }),
    ]
}

fn mutate(frame: &mut Vec<u8>, mutation: &Mutation) {
    match mutation {
        Mutation::Set { at, value } => {
            let at = at.index(frame.len());
            frame[at] = *value;
        }
        Mutation::Length { at, value } => {
            let at = at.index(frame.len());
            let bytes = value.to_be_bytes();
            let count = bytes.len().min(frame.len() - at);
            frame[at..at + count].copy_from_slice(&bytes[..count]);
        }
        Mutation::Cut { at } => frame.truncate(at.index(frame.len()).max(1)),
        Mutation::Insert { at, bytes } => {
            let at = at.index(frame.len());
            frame.splice(at..at, bytes.iter().copied());
        }
    }
}

fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let mutated = (prop::sample::select(samples()), prop::collection::vec(mutation(), 0..3));
    let mutated = mutated.prop_map(|(mut frame, mutations)| {
        mutations.iter().for_each(|mutation| mutate(&mut frame, mutation));
        frame
    });
    let random = (prop::sample::select(SERVED_APIS.to_vec()), prop::collection::vec(any::<u8>(), 0..200));
    let random = random.prop_map(|(api, rest)| {
        let front = [(api.key as i16).to_be_bytes(), api.max_version.to_be_bytes()].concat();
        [front, rest].concat()
    });
    prop_oneof![4 => mutated, 1 => random, 1 => prop::collection::vec(any::<u8>(), 0..100)]
}

fn cases(short: u32) -> ProptestConfig {
    let long = std::env::var_os("REELBENCH_LONG").is_some();
    ProptestConfig {
        cases: if long { short * 50 } else { short },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

#[test]
fn every_sound_sample_is_decoded() {
    let broker = crate::support::Fixture::start(|_| {});
    for frame in samples() {
        fuzz_request(&frame);
        let mut stream = TcpStream::connect(broker.broker().addresses()[0]).unwrap();
        stream.write_all(&(frame.len() as u32).to_be_bytes()).unwrap();
        stream.write_all(&frame).unwrap();
    }
    crate::support::wait_until("all are counted", crate::support::PATIENCE, || {
        broker.broker().facts().requests as usize == samples().len()
    });
    assert_eq!(broker.broker().facts().requests_malformed, 0, "the shapes agree with an encoder that is not ours");
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn the_decoder_never_panics(frame in hostile()) {
        fuzz_request(&frame);
    }
}

/// Peak and current memory of a process, in KiB.
fn memory_kib(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (value("VmHWM:"), value("VmRSS:"))
}

/// Send one frame; unless the request may wait, the broker must answer or close.
fn attack(address: SocketAddr, frame: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // Either write may fail: the broker closes as soon as it has seen enough.
    let _ = stream.write_all(&(frame.len() as u32).to_be_bytes()).and_then(|()| stream.write_all(frame));
    let _ = stream.shutdown(Shutdown::Write);
    let key = frame.get(..2).map(|key| i16::from_be_bytes([key[0], key[1]]));
    let may_wait = [ApiKey::Fetch, ApiKey::JoinGroup, ApiKey::SyncGroup].iter().any(|api| Some(*api as i16) == key);
    if may_wait {
        return;
    }
    let read = stream.read(&mut [0; 64]);
    let timed_out = read.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!timed_out, "neither answered nor closed: {frame:02x?}");
}

#[test]
fn a_living_broker_answers_or_closes_and_stays_small() {
    let dir = tempfile::tempdir().unwrap();
    let broker = ServeProcess::start(dir.path(), &["quiet"]);
    create_topic(&broker.bootstrap, "t", 3, 3, &[]).unwrap();
    let address = broker.addresses()[0];
    let mut runner = proptest::test_runner::TestRunner::new(cases(1_500));
    runner
        .run(&hostile(), |frame| {
            attack(address, &frame);
            Ok(())
        })
        .unwrap();
    // Claims without the bytes: each of these asks for 128 MiB and more.
    let silent: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&(128_u32 << 20).to_be_bytes()).unwrap();
            stream
        })
        .collect();
    for length in [0_u32, 7, (128 << 20) + 1, u32::MAX] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&length.to_be_bytes()).unwrap();
        assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)), "a frame of {length} bytes closes the connection");
    }
    let mut raw = Raw::connect(address);
    assert_eq!(raw.call(3, &ApiVersionsRequest::default()).error_code, 0, "the broker still serves");
    let (peak_kib, _) = memory_kib(broker.pid());
    assert!(peak_kib < 300 << 10, "the broker grew to {peak_kib} KiB");
    drop((silent, raw));
    let facts = broker.stop();
    assert_eq!(facts.requests_panicked, 0);
    assert!(facts.requests_malformed > 100, "{} malformed of {}", facts.requests_malformed, facts.requests);
    println!("{} requests, {} malformed, peak {peak_kib} KiB", facts.requests, facts.requests_malformed);
}
