//! Tells apart, record by record and in offset order, what a consumer sees: first sights, duplicates, redeliveries, reorders.

use std::collections::HashMap;

/// What a record turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    First {
        /// A later seq of the same stream was seen before, in offset order.
        reordered: bool,
    },
    /// The same (topic, stream, seq) at another offset.
    Duplicate,
    /// The same offset again: legal at-least-once.
    Redelivered,
}

/// Remembers the highest seq of each stream; the ledger remembers what was seen.
#[derive(Debug, Default)]
pub struct OrderAudit {
    highest: HashMap<(u16, u32), u64>,
}

impl OrderAudit {
    /// `new_offset` and `new_seq` say whether the ledger noted the offset and the frame for the first time.
    pub fn observe(&mut self, topic: u16, stream: u32, seq: u64, new_offset: bool, new_seq: bool) -> Sight {
        if !new_offset {
            return Sight::Redelivered;
        }
        if !new_seq {
            return Sight::Duplicate;
        }
        let highest = self.highest.entry((topic, stream)).or_insert(seq);
        let reordered = seq < *highest;
        *highest = seq.max(*highest);
        Sight::First { reordered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_sight_is_told_apart() {
        let mut audit = OrderAudit::default();
        assert_eq!(audit.observe(0, 1, 5, true, true), Sight::First { reordered: false });
        assert_eq!(audit.observe(0, 1, 4, true, true), Sight::First { reordered: true });
        assert_eq!(audit.observe(0, 2, 0, true, true), Sight::First { reordered: false });
        assert_eq!(audit.observe(0, 1, 5, true, false), Sight::Duplicate);
        assert_eq!(audit.observe(0, 1, 5, false, false), Sight::Redelivered);
        // A redelivery of an offset after another frame does not count as reordered.
        assert_eq!(audit.observe(0, 1, 4, false, true), Sight::Redelivered);
    }
}
