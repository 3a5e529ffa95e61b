//! A full disk: an error for the producer, equal replicas without a restart, and everything stays readable.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use builtin_broker::Broker;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::raw::{ANYONE, Raw, batch};
use crate::support::{
    Fixture, PATIENCE, assert_replicas_equal, consume, consumer, create_topic, finish, options, payload, producer, send,
};

/// A small file system in memory, unmounted in the end.
struct SmallDisk<'a>(&'a Path);

impl SmallDisk<'_> {
    fn mount(path: &Path) -> Option<SmallDisk<'_>> {
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"]).arg(path).output();
        done.is_ok_and(|output| output.status.success()).then_some(SmallDisk(path))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

#[test]
fn a_full_disk_refuses_all_or_nothing_and_stays_readable() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(dir.path()) else {
        println!("SKIPPED: mounting a small file system needs root");
        return;
    };
    let broker = Broker::start(options(dir.path())).unwrap();
    let bootstrap = broker.bootstrap_servers();
    create_topic(&bootstrap, "t", 1, 3, &[]).unwrap();
    let producer = producer(&bootstrap, &[("message.timeout.ms", "4000"), ("batch.num.messages", "1")]);
    for id in 0..12 {
        send(&producer, "t", Some(0), "k", id, &payload(id, 900_000, false)).unwrap();
    }
    let reports = finish(&producer);
    let stored = reports.iter().filter(|(_, report)| report.is_ok()).count();
    assert!((6..12).contains(&stored), "{stored} messages fitted");
    let failed = reports.iter().filter_map(|(_, report)| report.as_ref().err());
    for error in failed {
        let code = match error {
            KafkaError::MessageProduction(code) => *code,
            other => panic!("{other}"),
        };
        assert!(matches!(code, RDKafkaErrorCode::MessageTimedOut | RDKafkaErrorCode::KafkaStorageError), "{code:?}");
    }
    let mut raw = Raw::connect(broker.addresses()[0]);
    assert_eq!(raw.produce("t", 0, &batch(ANYONE, 1, 900_000, 0)).error_code, 56);
    assert!(broker.facts().storage_errors > 0);
    let stored_bytes = assert_replicas_equal(dir.path(), 3);
    assert_eq!(stored_bytes, broker.facts().bytes_appended);

    let reader = consumer(&bootstrap, "g", &[]);
    reader.subscribe(&["t"]).unwrap();
    let mut got = consume(&reader, stored, PATIENCE);
    got.extend(consume(&reader, 1, Duration::from_millis(500)));
    assert_eq!(got.len(), stored, "what was acknowledged, and nothing else");
    assert!(got.iter().all(|got| got.payload == payload(got.id, 900_000, false)));
    drop((reader, producer));

    // After space was made a large batch fits again, without a restart.
    block_delete(&bootstrap, "t");
    create_topic(&bootstrap, "u", 1, 1, &[]).unwrap();
    assert_eq!(raw.produce("u", 0, &batch(ANYONE, 1, 900_000, 0)).error_code, 0);
    drop(raw);
    broker.stop().unwrap();
}

fn block_delete(bootstrap: &str, topic: &str) {
    let admin = crate::support::admin(bootstrap);
    let deleted =
        crate::support::block_on(admin.delete_topics(&[topic], &rdkafka::admin::AdminOptions::new())).unwrap();
    assert!(deleted[0].is_ok());
}

#[test]
fn appends_stop_at_the_free_space_floor() {
    let fixture = Fixture::start(|options| options.disk_floor_bytes = 1 << 60);
    create_topic(&fixture.bootstrap(), "t", 1, 3, &[]).unwrap();
    let mut raw = Raw::connect(fixture.broker().addresses()[0]);
    assert_eq!(raw.produce("t", 0, &batch(ANYONE, 1, 100, 0)).error_code, 56);
    assert_eq!(assert_replicas_equal(fixture.dir.path(), 3), 0);
    assert_eq!(fixture.broker().facts().storage_errors, 1);
}
