//! The audit: every offered frame becomes delivered, lost, dropped or in flight, by set algebra over the merged ledgers.

use std::collections::BTreeMap;

use contract::flow::Spread;
use contract::intervals::IntervalSet;
use contract::ledger::{LedgerSets, Mark};
use contract::recorder::{Counter, Delta};
use contract::summary::{AuditCounts, TopicAudit};

/// What one instance left.
pub struct Books {
    pub stage_id: String,
    /// It ended without giving its final record.
    pub died: bool,
    pub sets: LedgerSets,
    pub delta: Delta,
}

/// What the audit must know of a topic.
pub struct Topic {
    pub name: String,
    pub source: bool,
    /// Ids of the stages that write it.
    pub writers: Vec<String>,
    /// Id of the stage whose group audits it.
    pub audited_by: Option<String>,
    pub partitions: i32,
    pub replication: u32,
    pub spread: Spread,
    /// How many topics its writer spreads over.
    pub spread_over: usize,
    /// With acks "0" a delivery report is not an acknowledgement.
    pub acknowledged: bool,
    /// End offset of each partition after the last write; absent when the broker could not tell.
    pub ends: Option<BTreeMap<i32, i64>>,
}

/// Audits one topic.
pub fn audit(topic: &Topic, books: &[Books]) -> TopicAudit {
    let writers: Vec<&Books> = books.iter().filter(|books| topic.writers.contains(&books.stage_id)).collect();
    let readers: Vec<&Books> =
        books.iter().filter(|books| topic.audited_by.as_deref() == Some(books.stage_id.as_str())).collect();
    let mut counts = AuditCounts::default();
    let writer_died = writers.iter().any(|books| books.died);
    let written = merged(&writers);
    let seen = merged(&readers);
    let mut streams = written.lanes(Mark::Offered, &topic.name);
    streams.extend(seen.lanes(Mark::Seen, &topic.name));
    streams.sort_unstable();
    streams.dedup();
    for stream in streams {
        let partition = topic.spread.partition_of(stream, topic.spread_over, topic.partitions);
        let read_to_end = read_to_end(topic, &seen, partition);
        let stream = Stream::of(&written, &seen, &topic.name, stream);
        classify(&stream, topic, read_to_end, writer_died, &mut counts);
    }
    count_sights(&readers, &topic.name, &mut counts);
    counts.identity_holds =
        counts.unexplained == 0 && counts.offered == counts.delivered + counts.lost + counts.dropped + counts.in_flight;
    if topic.audited_by.is_none() {
        // Nobody read it back: what is not dropped is known only as acknowledged or not.
        counts = AuditCounts {
            offered: counts.offered,
            acked: counts.acked,
            dropped: counts.dropped,
            in_flight: counts.offered - counts.acked - counts.dropped,
            identity_holds: true,
            ..AuditCounts::default()
        };
    }
    TopicAudit {
        topic: topic.name.clone(),
        source: topic.source,
        audited_by: topic.audited_by.clone(),
        payload_bytes: payload_bytes(topic, &writers),
        replication: topic.replication,
        counts,
    }
}

/// A writer over several topics counts its bytes over all of them; the share of one is by frames.
fn payload_bytes(topic: &Topic, writers: &[&Books]) -> u64 {
    let share = |books: &&Books| {
        let total = books.delta.counter(Counter::Acked).max(1);
        let here = books.sets.count(Mark::Acked, &topic.name).min(total);
        (u128::from(books.delta.counter(Counter::AckedBytes)) * u128::from(here) / u128::from(total)) as u64
    };
    writers.iter().map(share).sum()
}

fn merged(books: &[&Books]) -> LedgerSets {
    let mut all = LedgerSets::default();
    books.iter().for_each(|books| all.merge(&books.sets));
    all
}

/// Whether the auditing group read a partition up to where its last record ends.
fn read_to_end(topic: &Topic, seen: &LedgerSets, partition: i32) -> bool {
    let Some(end) = topic.ends.as_ref().and_then(|ends| ends.get(&partition)) else { return false };
    let read = seen.get(Mark::Read, &topic.name, partition as u32);
    let next = read.ranges().last().map_or(0, |(_, end)| *end);
    next >= *end as u64
}

/// The sets of one stream in one topic.
struct Stream {
    offered: IntervalSet,
    acked: IntervalSet,
    failed: IntervalSet,
    dropped: IntervalSet,
    seen: IntervalSet,
}

impl Stream {
    fn of(written: &LedgerSets, read: &LedgerSets, topic: &str, stream: u32) -> Self {
        Stream {
            offered: written.get(Mark::Offered, topic, stream),
            acked: written.get(Mark::Acked, topic, stream),
            failed: written.get(Mark::Failed, topic, stream),
            dropped: written.get(Mark::Dropped, topic, stream),
            seen: read.get(Mark::Seen, topic, stream),
        }
    }
}

fn classify(stream: &Stream, topic: &Topic, read_to_end: bool, writer_died: bool, counts: &mut AuditCounts) {
    counts.offered += stream.offered.len();
    counts.acked += stream.acked.len();
    counts.delivered += stream.seen.intersection(&stream.offered).len();
    counts.unexplained += stream.seen.difference(&stream.offered).len();
    counts.unexplained += stream.seen.intersection(&stream.dropped).len();
    counts.unexplained += stream.dropped.difference(&stream.offered).len();
    let missing = stream.offered.difference(&stream.seen);
    counts.dropped += missing.intersection(&stream.dropped).len();
    let missing = missing.difference(&stream.dropped);
    if !read_to_end {
        counts.in_flight += missing.len();
        return;
    }
    let acked = missing.intersection(&stream.acked).len();
    let unacked = missing.difference(&stream.acked);
    let failed = unacked.intersection(&stream.failed).len();
    let unreported = unacked.difference(&stream.failed).len();
    if topic.acknowledged {
        counts.lost_acked += acked;
    } else {
        counts.lost_unacked += acked;
    }
    counts.lost_unacked += failed;
    if writer_died {
        counts.lost_unacked += unreported;
        counts.lost_stage_died += unreported;
    } else {
        counts.in_flight += unreported;
    }
    counts.lost = counts.lost_acked + counts.lost_unacked;
}

/// Duplicates and redeliveries within each process are counted there; across processes they are overlaps of their ledgers.
fn count_sights(readers: &[&Books], topic: &str, counts: &mut AuditCounts) {
    let sum = |counter| readers.iter().map(|books| books.delta.counter(counter)).sum::<u64>();
    let overlap = |mark| {
        let each: u64 = readers.iter().map(|books| books.sets.count(mark, topic)).sum();
        let refs: Vec<&Books> = readers.to_vec();
        each - merged(&refs).count(mark, topic)
    };
    let (read_again, seen_again) = (overlap(Mark::Read), overlap(Mark::Seen));
    counts.corrupt = sum(Counter::Corrupt);
    counts.foreign = sum(Counter::Foreign);
    counts.reordered = sum(Counter::Reordered);
    counts.redelivered = sum(Counter::Redelivered) + read_again;
    counts.duplicates = sum(Counter::Duplicates) + seen_again.saturating_sub(read_again);
}

/// Sums of the source topics.
pub fn totals(topics: &[TopicAudit]) -> AuditCounts {
    let mut total = AuditCounts { identity_holds: true, ..AuditCounts::default() };
    for counts in topics.iter().filter(|topic| topic.source).map(|topic| &topic.counts) {
        total.offered += counts.offered;
        total.acked += counts.acked;
        total.delivered += counts.delivered;
        total.lost += counts.lost;
        total.lost_acked += counts.lost_acked;
        total.lost_unacked += counts.lost_unacked;
        total.lost_stage_died += counts.lost_stage_died;
        total.dropped += counts.dropped;
        total.in_flight += counts.in_flight;
        total.corrupt += counts.corrupt;
        total.duplicates += counts.duplicates;
        total.redelivered += counts.redelivered;
        total.reordered += counts.reordered;
        total.foreign += counts.foreign;
        total.unexplained += counts.unexplained;
        total.identity_holds &= counts.identity_holds;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::ledger::SetKey;

    fn set(mark: Mark, lane: u32, start: u64, end: u64) -> (SetKey, IntervalSet) {
        let key = SetKey { mark, reason: 0, topic: "t".into(), lane };
        (key, IntervalSet::from_range(start, end))
    }

    fn books(stage_id: &str, died: bool, sets: Vec<(SetKey, IntervalSet)>) -> Books {
        Books { stage_id: stage_id.into(), died, sets: LedgerSets(sets.into_iter().collect()), delta: Delta::default() }
    }

    fn topic(ends: Option<i64>) -> Topic {
        Topic {
            name: "t".into(),
            source: true,
            writers: vec!["w".into()],
            audited_by: Some("r".into()),
            partitions: 1,
            replication: 1,
            spread: Spread::Streams,
            spread_over: 1,
            acknowledged: true,
            ends: ends.map(|end| BTreeMap::from([(0, end)])),
        }
    }

    fn counts(topic: &Topic, books: &[Books]) -> AuditCounts {
        let counts = audit(topic, books).counts;
        assert!(counts.identity_holds, "{counts:?}");
        counts
    }

    #[test]
    fn every_frame_is_delivered_lost_dropped_or_in_flight() {
        let writer = |died| {
            books(
                "w",
                died,
                vec![
                    set(Mark::Offered, 0, 0, 100),
                    set(Mark::Acked, 0, 0, 80),
                    set(Mark::Failed, 0, 80, 85),
                    set(Mark::Dropped, 0, 95, 100),
                ],
            )
        };
        let reader = || books("r", false, vec![set(Mark::Seen, 0, 0, 78), set(Mark::Read, 0, 0, 78)]);
        let read = counts(&topic(Some(78)), &[writer(false), reader()]);
        assert_eq!((read.offered, read.delivered, read.lost_acked, read.lost_unacked), (100, 78, 2, 5));
        assert_eq!((read.dropped, read.in_flight), (5, 10));
        let died = counts(&topic(Some(78)), &[writer(true), reader()]);
        assert_eq!((died.lost_unacked, died.lost_stage_died, died.in_flight), (15, 10, 0));
        let unread = counts(&topic(Some(80)), &[writer(false), reader()]);
        assert_eq!((unread.lost, unread.in_flight), (0, 17));
        let unknown = counts(&topic(None), &[writer(false), reader()]);
        assert_eq!((unknown.lost, unknown.in_flight), (0, 17));
    }

    #[test]
    fn a_frame_seen_but_never_offered_breaks_the_identity() {
        let writer = books("w", false, vec![set(Mark::Offered, 0, 0, 10), set(Mark::Acked, 0, 0, 10)]);
        let reader = books("r", false, vec![set(Mark::Seen, 0, 0, 11), set(Mark::Read, 0, 0, 11)]);
        let counts = audit(&topic(Some(11)), &[writer, reader]).counts;
        assert_eq!((counts.unexplained, counts.identity_holds), (1, false));
    }

    #[test]
    fn a_partition_that_moved_gives_redeliveries_not_duplicates() {
        let writer = books("w", false, vec![set(Mark::Offered, 0, 0, 10), set(Mark::Acked, 0, 0, 10)]);
        let first = books("r", false, vec![set(Mark::Seen, 0, 0, 6), set(Mark::Read, 0, 0, 6)]);
        let second = books("r", false, vec![set(Mark::Seen, 0, 4, 10), set(Mark::Read, 0, 4, 10)]);
        let moved = counts(&topic(Some(10)), &[writer, first, second]);
        assert_eq!((moved.delivered, moved.redelivered, moved.duplicates, moved.lost), (10, 2, 0, 0));
    }

    #[test]
    fn the_same_frame_at_two_offsets_read_by_two_members_is_a_duplicate() {
        let writer = books("w", false, vec![set(Mark::Offered, 0, 0, 10), set(Mark::Acked, 0, 0, 10)]);
        let first = books("r", false, vec![set(Mark::Seen, 0, 0, 10), set(Mark::Read, 0, 0, 10)]);
        let second = books("r", false, vec![set(Mark::Seen, 0, 9, 10), set(Mark::Read, 0, 10, 11)]);
        let found = counts(&topic(Some(11)), &[writer, first, second]);
        assert_eq!((found.redelivered, found.duplicates), (0, 1));
    }

    #[test]
    fn without_acknowledgements_a_lost_frame_is_lost_unacked() {
        let writer = books("w", false, vec![set(Mark::Offered, 0, 0, 10), set(Mark::Acked, 0, 0, 10)]);
        let reader = books("r", false, vec![set(Mark::Seen, 0, 0, 9), set(Mark::Read, 0, 0, 9)]);
        let mut topic = topic(Some(9));
        topic.acknowledged = false;
        let found = counts(&topic, &[writer, reader]);
        assert_eq!((found.lost_acked, found.lost_unacked), (0, 1));
    }
}
