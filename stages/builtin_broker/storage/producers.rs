//! Idempotence: what the last batches of each producer were. Pure; rebuilt from batch headers after a crash.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::api::code;
use crate::batch::BatchHeader;

/// Clients keep at most five batches in flight, so a repeat is among the last five.
const BATCHES_KEPT: usize = 5;
/// Producers remembered per partition; beyond it the least recently seen is forgotten.
const PRODUCERS_KEPT: usize = 4_096;

/// One remembered batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct SentBatch {
    first_sequence: i32,
    last_sequence: i32,
    base_offset: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Producer {
    epoch: i16,
    batches: VecDeque<SentBatch>,
    /// Rises with every append to the partition: the least value is forgotten first.
    last_seen: u64,
}

/// The producers of one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Producers {
    known: HashMap<i64, Producer>,
    appends: u64,
    /// Once a producer was forgotten, an unknown one may be that one and start anywhere.
    forgot: bool,
}

/// What to do with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sequence {
    Append,
    /// Stored before, at this offset.
    Repeat(i64),
}

/// Sequences count from 0 to the largest 31-bit number and start again.
fn advance(sequence: i32, by: i32) -> i32 {
    let sum = (i64::from(sequence) + i64::from(by)) % (i64::from(i32::MAX) + 1);
    i32::try_from(sum).expect("the remainder of a division by 2^31 fits")
}

impl Producers {
    /// Judge a batch before it is written. `start_moved`: retention deleted batches, so history may be missing.
    pub fn judge(&self, batch: &BatchHeader, start_moved: bool) -> Result<Sequence, i16> {
        if batch.producer_id < 0 {
            return Ok(Sequence::Append);
        }
        let Some(producer) = self.known.get(&batch.producer_id) else {
            // Nothing was forgotten: a first batch that is not number 0 overtook one that failed.
            let first = batch.base_sequence == 0 || start_moved || self.forgot;
            return if first { Ok(Sequence::Append) } else { Err(code::OUT_OF_ORDER_SEQUENCE) };
        };
        if batch.producer_epoch < producer.epoch {
            return Err(code::INVALID_PRODUCER_EPOCH);
        }
        if batch.producer_epoch > producer.epoch {
            return if batch.base_sequence == 0 { Ok(Sequence::Append) } else { Err(code::OUT_OF_ORDER_SEQUENCE) };
        }
        let last_sequence = advance(batch.base_sequence, batch.last_offset_delta);
        let sent =
            |sent: &&SentBatch| sent.first_sequence == batch.base_sequence && sent.last_sequence == last_sequence;
        if let Some(sent) = producer.batches.iter().find(sent) {
            return Ok(Sequence::Repeat(sent.base_offset));
        }
        match producer.batches.back() {
            Some(last) if advance(last.last_sequence, 1) != batch.base_sequence => Err(code::OUT_OF_ORDER_SEQUENCE),
            _ => Ok(Sequence::Append),
        }
    }

    /// Remember a batch that was stored at `base_offset`.
    pub fn record(&mut self, batch: &BatchHeader, base_offset: i64) {
        if batch.producer_id < 0 {
            return;
        }
        self.appends += 1;
        let fresh = || Producer { epoch: batch.producer_epoch, batches: VecDeque::new(), last_seen: 0 };
        let producer = self.known.entry(batch.producer_id).or_insert_with(fresh);
        if producer.epoch != batch.producer_epoch {
            *producer = fresh();
        }
        if producer.batches.len() == BATCHES_KEPT {
            producer.batches.pop_front();
        }
        let last_sequence = advance(batch.base_sequence, batch.last_offset_delta);
        producer.batches.push_back(SentBatch { first_sequence: batch.base_sequence, last_sequence, base_offset });
        producer.last_seen = self.appends;
        self.forget_one_too_many();
    }

    fn forget_one_too_many(&mut self) {
        if self.known.len() <= PRODUCERS_KEPT {
            return;
        }
        if let Some(id) = self.known.iter().min_by_key(|(_, producer)| producer.last_seen).map(|(id, _)| *id) {
            self.known.remove(&id);
            self.forgot = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{parse, tests::sample};
    use proptest::prelude::*;

    fn batch(id: i64, epoch: i16, sequence: i32, count: i32) -> BatchHeader {
        parse(&sample(count, 1, (id, epoch, sequence), 0)).unwrap()
    }

    #[test]
    fn a_repeat_returns_the_old_offset_and_a_gap_is_refused() {
        let mut producers = Producers::default();
        for (sequence, offset) in [(0, 10), (3, 13), (6, 16)] {
            let header = batch(7, 0, sequence, 3);
            assert_eq!(producers.judge(&header, false), Ok(Sequence::Append));
            producers.record(&header, offset);
        }
        assert_eq!(producers.judge(&batch(7, 0, 3, 3), false), Ok(Sequence::Repeat(13)));
        assert_eq!(producers.judge(&batch(7, 0, 12, 3), false), Err(code::OUT_OF_ORDER_SEQUENCE));
        assert_eq!(producers.judge(&batch(7, 0, 3, 2), false), Err(code::OUT_OF_ORDER_SEQUENCE));
    }

    #[test]
    fn sequences_wrap_at_the_largest_31_bit_number() {
        let mut producers = Producers::default();
        producers.record(&batch(1, 0, i32::MAX - 1, 3), 0);
        assert_eq!(producers.judge(&batch(1, 0, 1, 1), false), Ok(Sequence::Append));
        assert_eq!(producers.judge(&batch(1, 0, 2, 1), false), Err(code::OUT_OF_ORDER_SEQUENCE));
    }

    #[test]
    fn an_old_epoch_is_fenced_and_a_new_one_starts_at_zero() {
        let mut producers = Producers::default();
        producers.record(&batch(1, 4, 0, 1), 0);
        assert_eq!(producers.judge(&batch(1, 3, 1, 1), false), Err(code::INVALID_PRODUCER_EPOCH));
        assert_eq!(producers.judge(&batch(1, 5, 1, 1), false), Err(code::OUT_OF_ORDER_SEQUENCE));
        assert_eq!(producers.judge(&batch(1, 5, 0, 1), false), Ok(Sequence::Append));
    }

    #[test]
    fn an_unknown_producer_must_start_at_zero_unless_history_was_deleted() {
        let producers = Producers::default();
        assert_eq!(producers.judge(&batch(1, 0, 5, 1), false), Err(code::OUT_OF_ORDER_SEQUENCE));
        assert_eq!(producers.judge(&batch(1, 0, 5, 1), true), Ok(Sequence::Append));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever is resent among the last five batches, nothing is stored twice or out of order.
        #[test]
        fn resending_never_stores_twice(resends in proptest::collection::vec((0_usize..5, 1_i32..20), 1..60)) {
            let mut producers = Producers::default();
            let (mut sent, mut next_sequence, mut next_offset) = (Vec::new(), 0_i32, 0_i64);
            for (back, count) in resends {
                let header = batch(3, 0, next_sequence, count);
                prop_assert_eq!(producers.judge(&header, false), Ok(Sequence::Append));
                producers.record(&header, next_offset);
                sent.push((header, next_offset));
                next_sequence = advance(next_sequence, count);
                next_offset += i64::from(count);
                let (again, offset) = sent[sent.len() - 1 - back.min(sent.len() - 1)];
                prop_assert_eq!(producers.judge(&again, false), Ok(Sequence::Repeat(offset)));
            }
        }
    }
}
