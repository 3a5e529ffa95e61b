//! Which offset of a partition may be committed: the end of the contiguous prefix of completed records, in the order they
//! were read. Pure. Offsets may have gaps, so "contiguous" is by reading order, not by number.

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Prefix {
    /// Read and not yet in the prefix, in offset order, with whether the work on it is done.
    open: VecDeque<(i64, bool)>,
    /// One past the last record of the prefix.
    end: Option<i64>,
    /// Others may have read on since; what was known counts again once the next record shows where this member stands.
    resync: bool,
}

impl Prefix {
    /// The partition was given away and came back: someone else may have committed more than is known here.
    pub(crate) fn forget_end(&mut self) {
        self.resync = true;
    }

    /// Notes a record that was read. False when it is known already: its work is under way or done.
    pub(crate) fn read(&mut self, offset: i64) -> bool {
        if std::mem::take(&mut self.resync) {
            // Records before the one that comes now were committed by someone.
            while self.open.front().is_some_and(|(open, _)| *open < offset) {
                self.open.pop_front();
            }
            if self.end.is_some_and(|end| end < offset) {
                self.end = None;
            }
        }
        let known = self.open.back().map(|(last, _)| last + 1).or(self.end);
        if known.is_some_and(|next| offset < next) {
            return false;
        }
        self.open.push_back((offset, false));
        true
    }

    /// Notes that the work on a record is done; one that is not open is ignored.
    pub(crate) fn complete(&mut self, offset: i64) {
        let Ok(at) = self.open.binary_search_by_key(&offset, |(open, _)| *open) else { return };
        self.open[at].1 = true;
        while let Some((done, true)) = self.open.front().copied() {
            self.open.pop_front();
            self.end = Some(done + 1);
        }
    }

    /// The offset to commit: everything before it is done.
    pub(crate) fn committable(&self) -> Option<i64> {
        if self.resync { None } else { self.end }
    }

    /// Records read whose work is not done, or that wait for an earlier one.
    #[cfg(test)]
    fn open_count(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn nothing_is_committed_past_an_open_record() {
        let mut prefix = Prefix::default();
        for offset in [10, 11, 13] {
            assert!(prefix.read(offset));
        }
        assert_eq!(prefix.committable(), None);
        prefix.complete(11);
        prefix.complete(13);
        assert_eq!(prefix.committable(), None);
        prefix.complete(10);
        assert_eq!(prefix.committable(), Some(14));
        assert!(!prefix.read(13), "read again");
        assert!(prefix.read(14));
    }

    #[test]
    fn a_partition_that_comes_back_does_not_commit_less_than_others_did() {
        let mut prefix = Prefix::default();
        for offset in 5..10 {
            prefix.read(offset);
        }
        prefix.complete(5);
        prefix.forget_end();
        // Between coming back and the first record nothing is known.
        prefix.complete(6);
        assert_eq!(prefix.committable(), None);
        assert!(prefix.read(20));
        for late in 7..10 {
            prefix.complete(late);
        }
        assert_eq!(prefix.committable(), None);
        prefix.complete(20);
        assert_eq!(prefix.committable(), Some(21));
    }

    #[test]
    fn records_read_again_after_coming_back_still_wait_for_their_work() {
        let mut prefix = Prefix::default();
        for offset in 5..8 {
            prefix.read(offset);
        }
        prefix.forget_end();
        assert!(!prefix.read(5) && !prefix.read(6) && !prefix.read(7));
        assert!(prefix.read(8));
        prefix.complete(8);
        assert_eq!(prefix.committable(), None);
        for offset in 5..8 {
            prefix.complete(offset);
        }
        assert_eq!(prefix.committable(), Some(9));
        assert_eq!(prefix.open_count(), 0);
    }

    proptest! {
        #[test]
        fn the_prefix_is_exactly_what_is_done_without_a_gap(
            gaps in proptest::collection::vec(1i64..4, 1..60),
            order in proptest::collection::vec(any::<u16>(), 0..120),
            start in 0i64..1000,
        ) {
            let offsets: Vec<i64> =
                gaps.iter().scan(start, |at, gap| { let here = *at; *at += gap; Some(here) }).collect();
            let mut prefix = Prefix::default();
            let (mut read, mut done) = (0, BTreeSet::new());
            let mut last = None;
            for pick in order {
                // Reading and completing interleave; a completion may come twice or for a record never read.
                if pick % 3 == 0 && read < offsets.len() {
                    prop_assert!(prefix.read(offsets[read]));
                    read += 1;
                } else {
                    let at = usize::from(pick) % offsets.len();
                    prefix.complete(offsets[at]);
                    if at < read { done.insert(at); }
                }
                let contiguous = (0..read).take_while(|at| done.contains(at)).count();
                let expected = contiguous.checked_sub(1).map(|at| offsets[at] + 1);
                prop_assert_eq!(prefix.committable(), expected);
                prop_assert!(prefix.committable() >= last);
                last = prefix.committable();
                prop_assert_eq!(prefix.open_count(), read - contiguous);
            }
        }
    }
}
