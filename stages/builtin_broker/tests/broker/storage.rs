//! What happens on disk: retention, seeking by timestamp, forcing to the device.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kafka_protocol::messages::ListOffsetsRequest;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use rdkafka::consumer::Consumer;
use rdkafka::producer::BaseRecord;
use rdkafka::{Offset, TopicPartitionList};

use crate::child::{ServeProcess, serve_path};
use crate::raw::{ANYONE, Raw, batch, name};
use crate::support::{
    Fixture, PATIENCE, assert_replicas_equal, consume, consumer, create_topic, finish, payload, producer, send,
    wait_until, watermarks,
};

/// Bytes of all segment files, while some of them go away.
fn log_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let bytes = |entry: &std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => log_bytes(&entry.path()),
        Ok(metadata) if entry.path().extension().is_some_and(|end| end == "log") => metadata.len(),
        _ => 0,
    };
    entries.iter().map(bytes).sum()
}

#[test]
fn retention_deletes_whole_segments_and_moves_the_start() {
    let mut fixture = Fixture::start(|_| {});
    let bootstrap = fixture.bootstrap();
    let (kept, segment, message) = (1_000_000, 250_000, 50_000);
    let settings = [("retention.bytes", "1000000"), ("segment.bytes", "250000")];
    create_topic(&bootstrap, "t", 1, 3, &settings).unwrap();
    let producer = producer(&bootstrap, &[("linger.ms", "0"), ("batch.num.messages", "1")]);
    for id in 0..200 {
        send(&producer, "t", Some(0), "k", id, &payload(id, message, false)).unwrap();
    }
    assert!(finish(&producer).iter().all(|(_, report)| report.is_ok()));
    let most = (kept + segment + 2 * message) as u64;
    wait_until("disk use is bounded, and nothing is being deleted", PATIENCE, || {
        let facts = fixture.broker().facts();
        let bytes = log_bytes(fixture.dir.path());
        bytes <= 3 * most && bytes == facts.bytes_replicated - 3 * facts.bytes_deleted
    });
    assert!(assert_replicas_equal(fixture.dir.path(), 3) <= most);
    let reader = consumer(&bootstrap, "g", &[]);
    let (low, high) = watermarks(&reader, "t", 1)[0];
    assert!(low > 150 && high == 200, "low {low}, high {high}");
    let mut raw = Raw::connect(fixture.broker().addresses()[0]);
    assert_eq!(raw.fetch("t", 0, low - 1, 1_000).error_code, 1, "below the start");
    let first = raw.fetch("t", 0, low, 1_000);
    assert_eq!((first.error_code, first.log_start_offset), (0, low));
    let facts = fixture.broker().facts();
    assert!(facts.segments_deleted >= 30 && facts.bytes_deleted + most >= facts.bytes_appended, "{facts:?}");

    reader.subscribe(&["t"]).unwrap();
    let got = consume(&reader, (high - low) as usize, PATIENCE);
    assert_eq!((got[0].offset, got.len() as i64), (low, high - low), "earliest is the new start");
    drop(reader);
    fixture.broker.take().unwrap().stop().unwrap();
    let again = Fixture { broker: None, dir: fixture.dir };
    let broker = builtin_broker::Broker::start(crate::support::options(again.dir.path())).unwrap();
    let reader = consumer(&broker.bootstrap_servers(), "g2", &[]);
    assert_eq!(watermarks(&reader, "t", 1), [(low, high)], "the start survives a restart");
}

#[test]
fn retention_by_age_spares_what_is_young_and_what_is_active() {
    let fixture = Fixture::start(|_| {});
    create_topic(&fixture.bootstrap(), "t", 1, 1, &[("retention.ms", "3600000"), ("segment.bytes", "2000")]).unwrap();
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    let mut raw = Raw::connect(fixture.broker().addresses()[0]);
    for age_hours in [9, 8, 7, 0, 0, 5] {
        raw.produce("t", 0, &batch(ANYONE, 1, 1_500, now_ms - age_hours * 3_600_000));
    }
    wait_until("old segments are gone", PATIENCE, || raw.fetch("t", 0, 4, 1).log_start_offset == 3);
}

fn offset_at(raw: &mut Raw, timestamp_ms: i64) -> (i64, i64) {
    let partition = ListOffsetsPartition::default().with_timestamp(timestamp_ms);
    let topic = ListOffsetsTopic::default().with_name(name("t")).with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
    let row = raw.call(5, &request).topics[0].partitions[0].clone();
    (row.offset, row.timestamp)
}

#[test]
fn a_timestamp_finds_the_first_message_that_is_not_older() {
    let fixture = Fixture::start(|_| {});
    create_topic(&fixture.bootstrap(), "t", 1, 1, &[("segment.bytes", "5000")]).unwrap();
    let mut raw = Raw::connect(fixture.broker().addresses()[0]);
    for first in 0..30 {
        raw.produce("t", 0, &batch(ANYONE, 10, 100, 1_000_000 + first * 1_000));
    }
    assert!(fixture.broker().facts().segments_rolled >= 5, "the search has to cross segments");
    assert_eq!(offset_at(&mut raw, 0), (0, 1_000_000));
    assert_eq!(offset_at(&mut raw, 1_015_000), (150, 1_015_000));
    assert_eq!(offset_at(&mut raw, 1_015_004), (154, 1_015_004));
    assert_eq!(offset_at(&mut raw, 1_015_010), (160, 1_016_000));
    assert_eq!(offset_at(&mut raw, 1_029_010), (-1, -1), "nothing is that new");
    assert_eq!((offset_at(&mut raw, -2).0, offset_at(&mut raw, -1).0), (0, 300));
}

#[test]
fn the_client_seeks_to_the_middle_of_a_run() {
    for (codec, exact) in [("none", true), ("lz4", false)] {
        let fixture = Fixture::start(|_| {});
        let bootstrap = fixture.bootstrap();
        create_topic(&bootstrap, "t", 1, 1, &[]).unwrap();
        let producer = producer(&bootstrap, &[("linger.ms", "50"), ("compression.type", codec)]);
        for id in 0..300_u64 {
            let payload = payload(id, 2_000, true);
            let record = BaseRecord::with_opaque_to("t", Box::new(id)).key("k").payload(&payload);
            producer
                .send(record.partition(0).timestamp(5_000_000 + id as i64 * 40))
                .map_err(|(error, _)| error)
                .unwrap();
        }
        finish(&producer);
        let reader = consumer(&bootstrap, "g", &[]);
        let mut wanted = TopicPartitionList::new();
        wanted.add_partition_offset("t", 0, Offset::Offset(5_000_000 + 150 * 40)).unwrap();
        let found = reader.offsets_for_times(wanted, PATIENCE).unwrap();
        reader.assign(&found).unwrap();
        let got = consume(&reader, 1, PATIENCE);
        match exact {
            true => assert_eq!(got[0].id, 150, "{codec}"),
            // Batches are not decompressed: the search stops at the batch, early but never late.
            false => assert!(got[0].id <= 150, "{codec}: {}", got[0].id),
        }
    }
}

#[test]
fn forcing_every_message_costs_one_fsync_for_each_replica_and_batch() {
    let fixture = Fixture::start(|_| {});
    create_topic(&fixture.bootstrap(), "t", 1, 3, &[("flush.messages", "1")]).unwrap();
    create_topic(&fixture.bootstrap(), "every-ten", 1, 2, &[("flush.messages", "10")]).unwrap();
    let mut raw = Raw::connect(fixture.broker().addresses()[0]);
    (0..5).for_each(|_| assert_eq!(raw.produce("t", 0, &batch(ANYONE, 4, 100, 0)).error_code, 0));
    assert_eq!(fixture.broker().facts().fsyncs, 15);
    (0..6).for_each(|_| assert_eq!(raw.produce("every-ten", 0, &batch(ANYONE, 4, 100, 0)).error_code, 0));
    assert_eq!(fixture.broker().facts().fsyncs, 15 + 4, "after messages 12 and 24");
}

#[test]
fn forcing_by_time_happens_once_for_what_was_appended() {
    let fixture = Fixture::start(|options| options.flush.every_ms = Some(1));
    create_topic(&fixture.bootstrap(), "t", 1, 3, &[]).unwrap();
    let mut raw = Raw::connect(fixture.broker().addresses()[0]);
    raw.produce("t", 0, &batch(ANYONE, 4, 100, 0));
    wait_until("the append is forced", PATIENCE, || fixture.broker().facts().fsyncs == 3);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(fixture.broker().facts().fsyncs, 3, "nothing new, nothing to force");
}

#[test]
fn a_roll_forces_the_closed_segment_once_on_every_replica() {
    let mut fixture = Fixture::start(|options| options.segment_bytes = 3_000);
    create_topic(&fixture.bootstrap(), "t", 1, 3, &[]).unwrap();
    let mut raw = Raw::connect(fixture.broker().addresses()[0]);
    (0..10).for_each(|_| assert_eq!(raw.produce("t", 0, &batch(ANYONE, 1, 1_000, 0)).error_code, 0));
    drop(raw);
    let facts = fixture.broker.take().unwrap().stop().unwrap();
    assert_eq!((facts.segments_rolled, facts.fsyncs), (4, 12), "nothing else is forced");
}

#[test]
fn the_kernel_sees_one_fsync_for_each_replica_file_on_a_roll() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("SKIPPED: strace is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-e", "trace=fsync,fdatasync,sync_file_range", "-o"]).arg(&trace);
    command.arg(serve_path()).arg(dir.path().join("data")).args(["segment_bytes=3000", "disk_floor_bytes=0"]);
    let broker = ServeProcess::spawn(&mut command);
    create_topic(&broker.bootstrap, "t", 1, 3, &[]).unwrap();
    let mut raw = Raw::connect(broker.addresses()[0]);
    (0..10).for_each(|_| assert_eq!(raw.produce("t", 0, &batch(ANYONE, 1, 1_000, 0)).error_code, 0));
    drop(raw);
    broker.stop();
    let text = std::fs::read_to_string(&trace).unwrap();
    let of_log = |base: &str, node: u16| {
        let file = format!("broker-{node}/t-0/{base}.log>");
        text.lines().filter(|line| line.contains("sync(") && line.contains(&file)).count()
    };
    for node in 1..=3 {
        for base in ["00000000000000000000", "00000000000000000002", "00000000000000000004", "00000000000000000006"] {
            assert_eq!(of_log(base, node), 1, "segment {base} on node {node}");
        }
        assert_eq!(of_log("00000000000000000008", node), 0, "the active segment is left to the kernel");
    }
}
