//! Sets of sequence numbers as sorted, disjoint, half-open ranges: what ledgers are merged and compared as.

use serde::{Deserialize, Serialize};

/// A set of `u64`, kept as maximal ranges `[start, end)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IntervalSet(Vec<(u64, u64)>);

impl IntervalSet {
    pub fn from_range(start: u64, end: u64) -> Self {
        IntervalSet(if start < end { vec![(start, end)] } else { Vec::new() })
    }

    /// From ranges in any order, overlapping or not.
    pub fn from_ranges(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.retain(|(start, end)| start < end);
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        IntervalSet(merged)
    }

    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    pub fn len(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, value: u64) -> bool {
        let next = self.0.partition_point(|(start, _)| *start <= value);
        next > 0 && value < self.0[next - 1].1
    }

    /// Adds one value; false when it was there. Appending in order costs O(1).
    pub fn insert(&mut self, value: u64) -> bool {
        let next = self.0.partition_point(|(start, _)| *start <= value);
        if next > 0 && value < self.0[next - 1].1 {
            return false;
        }
        let joins_left = next > 0 && self.0[next - 1].1 == value;
        let joins_right = next < self.0.len() && self.0[next].0 == value + 1;
        match (joins_left, joins_right) {
            (true, true) => {
                self.0[next - 1].1 = self.0[next].1;
                self.0.remove(next);
            }
            (true, false) => self.0[next - 1].1 = value + 1,
            (false, true) => self.0[next].0 = value,
            (false, false) => self.0.insert(next, (value, value + 1)),
        }
        true
    }

    pub fn union(&self, other: &IntervalSet) -> IntervalSet {
        IntervalSet::from_ranges(self.0.iter().chain(&other.0).copied().collect())
    }

    pub fn intersection(&self, other: &IntervalSet) -> IntervalSet {
        let (mut a, mut b, mut out) = (0, 0, Vec::new());
        while a < self.0.len() && b < other.0.len() {
            let (start, end) = (self.0[a].0.max(other.0[b].0), self.0[a].1.min(other.0[b].1));
            if start < end {
                out.push((start, end));
            }
            if self.0[a].1 < other.0[b].1 { a += 1 } else { b += 1 }
        }
        IntervalSet(out)
    }

    pub fn difference(&self, other: &IntervalSet) -> IntervalSet {
        let (mut out, mut b) = (Vec::new(), 0);
        for &(mut start, end) in &self.0 {
            while b < other.0.len() && other.0[b].1 <= start {
                b += 1;
            }
            let mut cut = b;
            while cut < other.0.len() && other.0[cut].0 < end {
                if start < other.0[cut].0 {
                    out.push((start, other.0[cut].0));
                }
                start = start.max(other.0[cut].1);
                cut += 1;
            }
            if start < end {
                out.push((start, end));
            }
        }
        IntervalSet(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set_of(values: &BTreeSet<u64>) -> IntervalSet {
        IntervalSet::from_ranges(values.iter().map(|v| (*v, v + 1)).collect())
    }

    fn values_of(set: &IntervalSet) -> BTreeSet<u64> {
        set.ranges().iter().flat_map(|(start, end)| *start..*end).collect()
    }

    fn small_set() -> impl Strategy<Value = BTreeSet<u64>> {
        proptest::collection::btree_set(0u64..200, 0..80)
    }

    proptest! {
        #[test]
        fn algebra_equals_that_of_plain_sets(a in small_set(), b in small_set()) {
            let (x, y) = (set_of(&a), set_of(&b));
            prop_assert_eq!(x.len(), a.len() as u64);
            prop_assert_eq!(values_of(&x.union(&y)), a.union(&b).copied().collect());
            prop_assert_eq!(values_of(&x.intersection(&y)), a.intersection(&b).copied().collect());
            prop_assert_eq!(values_of(&x.difference(&y)), a.difference(&b).copied().collect());
            for v in 0..201 { prop_assert_eq!(x.contains(v), a.contains(&v)); }
        }

        #[test]
        fn insertion_in_any_order_gives_maximal_ranges(values in proptest::collection::vec(0u64..100, 0..150)) {
            let (mut set, mut plain) = (IntervalSet::default(), BTreeSet::new());
            for value in values { prop_assert_eq!(set.insert(value), plain.insert(value)); }
            prop_assert_eq!(set, set_of(&plain));
        }
    }
}
