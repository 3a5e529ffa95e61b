//! What a member of the group knows of each partition of its topic: whether it is assigned, how far it was read, done and
//! committed, and where it ends.

use std::collections::BTreeMap;

use super::prefix::Prefix;

#[derive(Debug, Default)]
pub(crate) struct Partition {
    assigned: bool,
    /// Next offset to be read; unknown until a record or the group says.
    position: Option<i64>,
    prefix: Prefix,
    /// Highest offset known to be committed.
    committed: Option<i64>,
    /// One past the last record, as the broker last said.
    end: Option<i64>,
    /// Where the last look at the statistics found nothing left to fetch or to hand over.
    exhausted_at: Option<i64>,
    /// Held until the rebalance that is going on: nobody else has read it meanwhile, so reading goes on where it stopped.
    carried: bool,
}

/// What the client's statistics say of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// First offset still kept.
    pub(crate) start: i64,
    /// One past the last record.
    pub(crate) end: i64,
    /// Set when fetching reached the end and nothing fetched waits.
    pub(crate) exhausted_at: Option<i64>,
}

/// All partitions of one topic.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    by_number: BTreeMap<i32, Partition>,
    /// Between losing an assignment and getting the next one.
    rebalancing: bool,
    /// Assignments so far.
    generation: u64,
}

impl Partitions {
    fn assigned(&self) -> impl Iterator<Item = (i32, &Partition)> {
        self.by_number.iter().filter(|(_, p)| p.assigned).map(|(number, p)| (*number, p))
    }

    pub(crate) fn is_joined(&self) -> bool {
        self.generation > 0 && !self.rebalancing
    }

    /// Takes an assignment; the result says where to go on reading partitions that were held without a break.
    pub(crate) fn assign(&mut self, numbers: &[i32]) -> BTreeMap<i32, i64> {
        self.generation += 1;
        self.rebalancing = false;
        let mut go_on = BTreeMap::new();
        for number in numbers {
            let partition = self.by_number.entry(*number).or_default();
            partition.assigned = true;
            match partition.position {
                Some(position) if partition.carried => {
                    go_on.insert(*number, position);
                }
                _ => {
                    partition.prefix.forget_end();
                    (partition.position, partition.committed) = (None, None);
                }
            }
            partition.exhausted_at = None;
        }
        self.by_number.values_mut().for_each(|partition| partition.carried = false);
        go_on
    }

    /// Gives every partition back. `lost`: the group has given them to others already.
    pub(crate) fn revoke(&mut self, lost: bool) {
        self.rebalancing = true;
        for partition in self.by_number.values_mut().filter(|partition| partition.assigned) {
            partition.assigned = false;
            partition.carried = !lost;
        }
    }

    /// Notes a record as read. False when its work is under way or done.
    pub(crate) fn read(&mut self, number: i32, offset: i64) -> bool {
        let partition = self.by_number.entry(number).or_default();
        partition.position = partition.position.max(Some(offset + 1));
        partition.exhausted_at = None;
        partition.prefix.read(offset)
    }

    pub(crate) fn complete(&mut self, number: i32, offset: i64) {
        if let Some(partition) = self.by_number.get_mut(&number) {
            partition.prefix.complete(offset);
        }
    }

    /// Offsets to commit, where there is something new.
    pub(crate) fn to_commit(&self) -> Vec<(i32, i64)> {
        let new = |(number, partition): (i32, &Partition)| {
            let end = partition.prefix.committable()?;
            (Some(end) > partition.committed).then_some((number, end))
        };
        self.assigned().filter_map(new).collect()
    }

    pub(crate) fn committed(&mut self, number: i32, offset: i64) {
        if let Some(partition) = self.by_number.get_mut(&number) {
            partition.committed = partition.committed.max(Some(offset));
        }
    }

    /// Learns from the statistics where a partition ends, and that records before some offset will not come: deleted by
    /// retention, or committed by a member before. One look alone may be from before a rebalance; two that agree are not.
    pub(crate) fn observe(&mut self, number: i32, look: Look) {
        let Some(partition) = self.by_number.get_mut(&number).filter(|partition| partition.assigned) else { return };
        partition.end = partition.end.max(Some(look.end));
        if look.start > 0 {
            partition.position = partition.position.max(Some(look.start));
        }
        let before = std::mem::replace(&mut partition.exhausted_at, look.exhausted_at);
        if before.is_some() && before == look.exhausted_at {
            partition.position = partition.position.max(before);
        }
    }

    pub(crate) fn positions(&self) -> Vec<(i32, i64)> {
        self.assigned().filter_map(|(number, p)| p.position.map(|position| (number, position))).collect()
    }

    /// Records between position and end, over the assigned partitions; `None` until an end is known.
    pub(crate) fn lag(&self) -> Option<i64> {
        let lag = |(_, p): (i32, &Partition)| p.end.map(|end| (end - p.position.unwrap_or(0)).max(0));
        self.assigned().filter_map(lag).fold(None, |sum, lag| Some(sum.unwrap_or(0) + lag))
    }

    /// Whether every assigned partition is read to its place in `ends`; one that is not named there has no records.
    pub(crate) fn are_read_to(&self, ends: &BTreeMap<i32, i64>) -> bool {
        let is_read = |(number, p): (i32, &Partition)| {
            let end = ends.get(&number).copied().unwrap_or(0);
            end <= 0 || p.position.is_some_and(|position| position >= end)
        };
        self.assigned().all(is_read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(partitions: &mut Partitions, number: i32, offsets: std::ops::Range<i64>, complete: bool) {
        for offset in offsets {
            assert!(partitions.read(number, offset));
            if complete {
                partitions.complete(number, offset);
            }
        }
    }

    #[test]
    fn only_new_completed_offsets_of_own_partitions_are_committed() {
        let mut partitions = Partitions::default();
        partitions.assign(&[0, 1]);
        read_all(&mut partitions, 0, 0..5, true);
        read_all(&mut partitions, 1, 0..5, false);
        assert_eq!(partitions.to_commit(), [(0, 5)]);
        partitions.committed(0, 5);
        assert!(partitions.to_commit().is_empty());
        partitions.complete(1, 0);
        assert_eq!(partitions.to_commit(), [(1, 1)]);
        partitions.revoke(false);
        assert!(partitions.to_commit().is_empty());
    }

    #[test]
    fn reading_goes_on_where_it_stopped_unless_someone_else_had_the_partition() {
        let mut partitions = Partitions::default();
        partitions.assign(&[0, 1]);
        read_all(&mut partitions, 0, 0..5, true);
        read_all(&mut partitions, 1, 0..7, true);
        partitions.revoke(false);
        assert!(!partitions.is_joined());
        assert_eq!(partitions.assign(&[1]), [(1, 7)].into());
        partitions.revoke(false);
        // Partition 0 was with another member for one generation.
        assert_eq!(partitions.assign(&[0, 1]), [(1, 7)].into());
        partitions.revoke(true);
        assert_eq!(partitions.assign(&[0, 1]), BTreeMap::new());
    }

    fn look(end: i64, exhausted_at: Option<i64>) -> Look {
        Look { start: 0, end, exhausted_at }
    }

    #[test]
    fn partitions_are_read_when_every_position_reached_its_end() {
        let mut partitions = Partitions::default();
        partitions.assign(&[0, 1, 2]);
        let ends: BTreeMap<i32, i64> = [(0, 3), (1, 4)].into();
        read_all(&mut partitions, 0, 0..3, false);
        assert!(!partitions.are_read_to(&ends));
        read_all(&mut partitions, 1, 0..4, false);
        assert!(partitions.are_read_to(&ends));
        assert_eq!(partitions.positions(), [(0, 3), (1, 4)]);
    }

    #[test]
    fn a_partition_that_no_record_comes_from_is_read_when_two_looks_agree() {
        let mut partitions = Partitions::default();
        let ends: BTreeMap<i32, i64> = [(0, 4)].into();
        partitions.assign(&[0]);
        partitions.observe(0, look(4, Some(4)));
        assert!(!partitions.are_read_to(&ends), "one look may be old");
        partitions.revoke(true);
        partitions.assign(&[0]);
        partitions.observe(0, look(4, Some(4)));
        assert!(!partitions.are_read_to(&ends), "the looks are of two assignments");
        partitions.observe(0, look(4, None));
        partitions.observe(0, look(4, Some(4)));
        assert!(!partitions.are_read_to(&ends), "something came between");
        partitions.observe(0, look(4, Some(4)));
        assert!(partitions.are_read_to(&ends));
    }

    #[test]
    fn what_retention_deleted_is_not_behind() {
        let mut partitions = Partitions::default();
        partitions.assign(&[0]);
        partitions.observe(0, Look { start: 90, end: 100, exhausted_at: None });
        assert_eq!((partitions.lag(), partitions.positions()), (Some(10), vec![(0, 90)]));
    }

    #[test]
    fn lag_is_unknown_before_the_broker_says_where_a_partition_ends() {
        let mut partitions = Partitions::default();
        partitions.assign(&[0, 1]);
        assert_eq!(partitions.lag(), None);
        read_all(&mut partitions, 0, 0..3, false);
        partitions.observe(0, look(10, None));
        partitions.observe(1, look(4, None));
        assert_eq!(partitions.lag(), Some(7 + 4));
    }
}
