//! Starting again: quickly after a clean stop, soundly after anything else.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use builtin_broker::{Broker, BrokerError, BrokerFacts, BrokerOptions};
use rdkafka::TopicPartitionList;
use rdkafka::consumer::{CommitMode, Consumer};

use crate::raw::{ANYONE, From, Raw, batch};
use crate::support::{
    Fixture, PATIENCE, assert_replicas_equal, consume, consumer, create_topic, finish, options, payload, producer,
    send, watermarks,
};

const MESSAGE_BYTES: usize = 20_000;
const MESSAGES: u64 = 300;

/// A stopped broker's directory: topic `t`, 2 partitions, replication 3, several segments each.
fn filled() -> (tempfile::TempDir, u64) {
    let mut fixture = Fixture::start(|_| {});
    let bootstrap = fixture.bootstrap();
    create_topic(&bootstrap, "t", 2, 3, &[("segment.bytes", "500000")]).unwrap();
    let producer = producer(&bootstrap, &[("batch.num.messages", "2")]);
    for id in 0..MESSAGES {
        send(&producer, "t", Some((id % 2) as i32), "k", id, &payload(id, MESSAGE_BYTES, false)).unwrap();
    }
    finish(&producer);
    let reader = consumer(&bootstrap, "g", &[]);
    reader.subscribe(&["t"]).unwrap();
    consume(&reader, MESSAGES as usize, PATIENCE);
    reader.commit_consumer_state(CommitMode::Sync).unwrap();
    drop((reader, producer));
    fixture.broker.take().unwrap().stop().unwrap();
    let bytes = assert_replicas_equal(fixture.dir.path(), 3);
    (fixture.dir, bytes)
}

/// Start again, check that everything is there, stop; what the start did.
fn start_and_check(dir: &Path) -> BrokerFacts {
    let broker = Broker::start(options(dir)).unwrap();
    let facts = broker.facts();
    let bootstrap = broker.bootstrap_servers();
    let reader = consumer(&bootstrap, "fresh", &[]);
    assert_eq!(watermarks(&reader, "t", 2), [(0, 150), (0, 150)]);
    reader.subscribe(&["t"]).unwrap();
    let got = consume(&reader, MESSAGES as usize, PATIENCE);
    assert_eq!(got.len() as u64, MESSAGES);
    assert!(got.iter().all(|got| got.payload == payload(got.id, MESSAGE_BYTES, false)));
    drop(reader);
    let follower = consumer(&bootstrap, "g", &[]);
    let mut asked = TopicPartitionList::new();
    for partition in 0..2 {
        asked.add_partition("t", partition);
    }
    let committed = follower.committed_offsets(asked, PATIENCE).unwrap();
    let offsets: Vec<Option<i64>> = committed.elements().iter().map(|element| element.offset().to_raw()).collect();
    assert_eq!(offsets, [Some(150), Some(150)], "committed offsets");
    // A list keeps parts of its client alive, and the client waits for them when it is dropped.
    drop(committed);
    drop(follower);
    broker.stop().unwrap();
    assert_replicas_equal(dir, 3);
    facts
}

/// As a killed process leaves it: the mark says that a broker was running.
fn forget_clean_stop(dir: &Path, boot_id: Option<&str>) {
    let path = dir.join("shutdown-mark.json");
    let mut mark: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    mark["clean"] = false.into();
    mark["partitions"] = serde_json::json!({});
    if let Some(boot_id) = boot_id {
        mark["boot_id"] = boot_id.into();
    }
    fs::write(path, mark.to_string()).unwrap();
}

/// The log files of a replica, oldest first.
fn logs(dir: &Path, node: u16, partition: i32) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join(format!("broker-{node}/t-{partition}"))).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "log"));
    paths.sort();
    paths
}

fn append(path: &Path, bytes: &[u8]) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

fn shorten(path: &Path, bytes: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - bytes).unwrap();
}

#[test]
fn a_clean_stop_makes_the_next_start_look_at_the_last_segment_only() {
    let (dir, bytes) = filled();
    for _ in 0..2 {
        let facts = start_and_check(dir.path());
        assert_eq!(facts.recovery_scanned_segments, 2, "one for each partition");
        let share = facts.recovery_scanned_bytes as f64 / bytes as f64;
        assert!(
            facts.recovery_scanned_bytes < 200_000,
            "{} bytes scanned, {share} of all",
            facts.recovery_scanned_bytes
        );
        assert_eq!((facts.recovery_cut_bytes, facts.recovery_copied_bytes), (0, 0));
    }
    forget_clean_stop(dir.path(), None);
    let facts = start_and_check(dir.path());
    assert!(facts.recovery_scanned_segments > 12, "{}", facts.recovery_scanned_segments);
}

#[test]
fn a_start_scans_as_little_of_much_as_of_little() {
    let gigabytes = if std::env::var_os("REELBENCH_LONG").is_some() { 10 } else { 1 };
    let mut fixture = Fixture::start(|_| {});
    create_topic(&fixture.bootstrap(), "t", 1, 1, &[("segment.bytes", "100000000")]).unwrap();
    let mut raw = Raw::connect(fixture.broker().addresses()[0]);
    let batch = batch(ANYONE, 1, 1_000_000, 0);
    for _ in 0..gigabytes * 1_000 {
        assert_eq!(raw.produce("t", 0, &batch).error_code, 0);
    }
    drop(raw);
    fixture.broker.take().unwrap().stop().unwrap();
    let broker = Broker::start(options(fixture.dir.path())).unwrap();
    let facts = broker.facts();
    assert_eq!(facts.recovery_scanned_segments, 1);
    assert!(facts.recovery_scanned_bytes < 200_000, "{} bytes scanned", facts.recovery_scanned_bytes);
    let mut raw = Raw::connect(broker.addresses()[0]);
    let middle = raw.fetch("t", 0, gigabytes * 500, 10);
    assert_eq!((middle.error_code, middle.records.unwrap().len()), (0, batch.len()), "old segments are readable");
}

#[test]
fn a_torn_last_batch_is_cut_on_every_replica() {
    let (dir, _) = filled();
    let torn = &batch(ANYONE, 1, 5_000, 0)[..3_000];
    append(logs(dir.path(), 1, 0).last().unwrap(), torn);
    append(logs(dir.path(), 2, 0).last().unwrap(), &torn[..100]);
    forget_clean_stop(dir.path(), None);
    let facts = start_and_check(dir.path());
    assert_eq!(facts.recovery_cut_bytes, 3_100);
}

#[test]
fn a_follower_that_is_behind_is_completed() {
    let (dir, _) = filled();
    shorten(logs(dir.path(), 3, 0).last().unwrap(), 12_345);
    fs::remove_file(&logs(dir.path(), 2, 0)[1]).unwrap();
    forget_clean_stop(dir.path(), None);
    let facts = start_and_check(dir.path());
    assert!(facts.recovery_copied_bytes > 12_345 + 400_000, "{}", facts.recovery_copied_bytes);
}

#[test]
fn a_lost_leader_directory_is_restored_from_a_follower() {
    let (dir, _) = filled();
    fs::remove_dir_all(dir.path().join("broker-1/t-0")).unwrap();
    forget_clean_stop(dir.path(), None);
    start_and_check(dir.path());
}

#[test]
fn after_another_boot_the_longest_sound_replica_wins() {
    let (dir, _) = filled();
    // What a power failure does: the leader's last pages are zeros, one follower's are missing.
    let leader = logs(dir.path(), 1, 0).pop().unwrap();
    let length = fs::metadata(&leader).unwrap().len();
    shorten(&leader, 30_000);
    let file = fs::OpenOptions::new().write(true).open(&leader).unwrap();
    file.set_len(length).unwrap();
    shorten(logs(dir.path(), 2, 0).last().unwrap(), 50_000);
    forget_clean_stop(dir.path(), Some("another boot"));
    let facts = start_and_check(dir.path());
    assert!(facts.recovery_copied_bytes >= 80_000, "{}", facts.recovery_copied_bytes);
}

#[test]
fn files_that_differ_from_the_mark_are_scanned() {
    let (dir, _) = filled();
    append(logs(dir.path(), 2, 1).last().unwrap(), b"garbage");
    let facts = start_and_check(dir.path());
    assert!(facts.recovery_scanned_segments > 2);
    assert_eq!(facts.recovery_cut_bytes, 7);
}

#[test]
fn a_hole_in_the_middle_of_all_replicas_ends_the_log_there() {
    let (dir, _) = filled();
    for node in 1..=3 {
        let second = &logs(dir.path(), node, 0)[1];
        let mut bytes = fs::read(second).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..].fill(0);
        fs::write(second, bytes).unwrap();
    }
    forget_clean_stop(dir.path(), None);
    let broker = Broker::start(options(dir.path())).unwrap();
    let reader = consumer(&broker.bootstrap_servers(), "fresh", &[]);
    let (low, high) = watermarks(&reader, "t", 2)[0];
    assert!(low == 0 && high > 20 && high < 60, "high {high}");
    let mut raw = Raw::connect(broker.addresses()[0]);
    assert_eq!(raw.produce("t", 0, &batch(ANYONE, 1, 10, 0)).base_offset, high, "the log goes on behind the cut");
    drop((reader, raw));
    broker.stop().unwrap();
    assert_replicas_equal(dir.path(), 3);
}

#[test]
fn producers_are_remembered_over_clean_and_unclean_stops() {
    let mut fixture = Fixture::start(|_| {});
    create_topic(&fixture.bootstrap(), "t", 1, 2, &[("segment.bytes", "2000")]).unwrap();
    let part = |sequence| batch(From { producer: 0, epoch: 0, sequence }, 1, 900, 0);
    let mut raw = Raw::connect(fixture.broker().addresses()[0]);
    for sequence in 0..10 {
        assert_eq!(raw.produce("t", 0, &part(sequence)).base_offset, i64::from(sequence));
    }
    drop(raw);
    fixture.broker.take().unwrap().stop().unwrap();
    for clean in [true, false] {
        if !clean {
            forget_clean_stop(fixture.dir.path(), None);
        }
        let broker = Broker::start(options(fixture.dir.path())).unwrap();
        let mut raw = Raw::connect(broker.addresses()[0]);
        assert_eq!(raw.produce("t", 0, &part(9)).base_offset, 9, "a repeat of before the restart");
        assert_eq!(raw.produce("t", 0, &part(12)).error_code, 45);
        drop(raw);
        broker.stop().unwrap();
    }
}

#[test]
fn remains_of_unlisted_topics_are_removed() {
    let (dir, _) = filled();
    let stray = dir.path().join("broker-2/halfway-0");
    fs::create_dir(&stray).unwrap();
    fs::write(stray.join("00000000000000000000.log"), "x").unwrap();
    start_and_check(dir.path());
    assert!(!stray.exists());
}

#[test]
fn a_busy_port_and_a_busy_directory_are_named() {
    let fixture = Fixture::start(|_| {});
    let taken = fixture.broker().addresses()[0];
    let other = tempfile::tempdir().unwrap();
    let error = Broker::start(BrokerOptions { listen: taken, ..options(other.path()) }).err().unwrap();
    assert!(
        matches!(error, BrokerError::Listen { node: 1, .. }) && error.to_string().contains(&taken.to_string()),
        "{error}"
    );
    let error = Broker::start(options(fixture.dir.path())).err().unwrap();
    assert!(matches!(error, BrokerError::Locked { .. }), "{error}");
    // The failed start left nothing that makes the next one think of a crash.
    let facts = Broker::start(options(other.path())).unwrap().stop().unwrap();
    assert_eq!(facts.recovery_scanned_segments, 0);
}
