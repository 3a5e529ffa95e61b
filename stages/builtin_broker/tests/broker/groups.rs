//! Consumer groups beyond the checks: static members, silent members, a second kind of client.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::{GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse};
use kafka_protocol::protocol::StrBytes;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::raw::Raw;
use crate::support::{Fixture, PATIENCE, consume, consumer, create_topic, finish, payload, producer, send, wait_until};

fn fill(bootstrap: &str, messages: u64) {
    create_topic(bootstrap, "t", 4, 1, &[]).unwrap();
    let producer = producer(bootstrap, &[]);
    for id in 0..messages {
        send(&producer, "t", Some((id % 4) as i32), "k", id, &payload(id, 200, false)).unwrap();
    }
    assert!(finish(&producer).iter().all(|(_, report)| report.is_ok()));
}

fn static_member(bootstrap: &str, instance: &str) -> BaseConsumer {
    let member = consumer(bootstrap, "g", &[("group.instance.id", instance), ("session.timeout.ms", "30000")]);
    member.subscribe(&["t"]).unwrap();
    member
}

#[test]
fn a_static_consumer_comes_back_without_a_rebalance() {
    let fixture = Fixture::start(|_| {});
    fill(&fixture.bootstrap(), 40);
    let (first, second) = (static_member(&fixture.bootstrap(), "one"), static_member(&fixture.bootstrap(), "two"));
    let share = |member: &BaseConsumer| {
        member.poll(Duration::from_millis(10));
        member.assignment().map_or(0, |list| list.count())
    };
    wait_until("two partitions each", PATIENCE, || (share(&first), share(&second)) == (2, 2));
    let rebalances = fixture.broker().facts().rebalances;
    drop(first);
    let again = static_member(&fixture.bootstrap(), "one");
    wait_until("its partitions are back", PATIENCE, || share(&again) == 2 && share(&second) == 2);
    assert_eq!(fixture.broker().facts().rebalances, rebalances);
}

#[test]
fn a_member_that_falls_silent_makes_room() {
    let fixture = Fixture::start(|options| options.min_session_timeout_ms = 500);
    fill(&fixture.bootstrap(), 40);
    let mut silent = Raw::connect(fixture.broker().addresses()[0]);
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(StrBytes::from_static_str("range"))
        .with_metadata(Bytes::from_static(&[0, 0, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 0]));
    let join = JoinGroupRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_protocol_type(StrBytes::from_static_str("consumer"))
        .with_session_timeout_ms(1_000)
        .with_rebalance_timeout_ms(60_000)
        .with_protocols(vec![protocol]);
    let told: JoinGroupResponse = silent.call(5, &join);
    assert_eq!(told.error_code, 79, "an id first");
    let joined: JoinGroupResponse = silent.call(5, &join.clone().with_member_id(told.member_id.clone()));
    assert_eq!((joined.error_code, joined.members.len()), (0, 1));
    let too_short = silent.call(5, &join.with_session_timeout_ms(100));
    assert_eq!(too_short.error_code, 26);
    let living = consumer(&fixture.bootstrap(), "g", &[]);
    living.subscribe(&["t"]).unwrap();
    assert_eq!(consume(&living, 40, PATIENCE).len(), 40, "the living member gets everything");
    let late = HeartbeatRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id);
    assert_eq!(silent.call(3, &late).error_code, 25, "a late heartbeat");
}

#[test]
fn kcat_lists_produces_and_consumes() {
    if Command::new("kcat").arg("-V").output().is_err() {
        println!("SKIPPED: kcat is not installed");
        return;
    }
    let fixture = Fixture::start(|_| {});
    let bootstrap = fixture.bootstrap();
    create_topic(&bootstrap, "lines", 2, 3, &[]).unwrap();
    let lines: Vec<String> = (0..500).map(|number| format!("line {number} {}", "x".repeat(200))).collect();
    for codec in ["none", "gzip", "snappy", "lz4"] {
        let mut kcat = Command::new("kcat")
            .args(["-b", &bootstrap, "-t", "lines", "-P", "-z", codec])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        kcat.stdin.take().unwrap().write_all(lines.join("\n").as_bytes()).unwrap();
        assert!(kcat.wait().unwrap().success(), "{codec}");
    }
    let output = |arguments: &[&str]| {
        let output = Command::new("kcat").args(["-q", "-b", &bootstrap]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = output(&["-t", "lines", "-C", "-o", "beginning", "-e"]);
    let mut read: Vec<&str> = text.lines().collect();
    let mut written: Vec<&str> = lines.iter().map(String::as_str).cycle().take(2_000).collect();
    read.sort_unstable();
    written.sort_unstable();
    assert!(read == written, "{} lines came back", read.len());
    let metadata = output(&["-L", "-J"]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    assert_eq!(metadata["brokers"].as_array().unwrap().len(), 3);
    assert_eq!(metadata["topics"][0]["partitions"][1]["isrs"].as_array().unwrap().len(), 3);
}
