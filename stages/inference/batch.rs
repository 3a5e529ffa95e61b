//! Gather prepared images into batches: at most `max`, at most `max_wait` for the oldest, one stream after the other.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use contract::clock::mono_ns;

/// Waiting items of each stream, served in turn, so that a stream with many frames does not delay the others.
#[derive(Debug)]
struct Lanes<T> {
    lanes: BTreeMap<u32, VecDeque<Waiting<T>>>,
    /// The stream served last; the next turn is the following one's.
    served: Option<u32>,
    len: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    since_ns: i64,
}

impl<T> Lanes<T> {
    fn push(&mut self, stream: u32, item: T) {
        self.lanes.entry(stream).or_default().push_back(Waiting { item, since_ns: mono_ns() });
        self.len += 1;
    }

    fn pop(&mut self) -> Option<T> {
        let after = self.served.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.lanes.range((after, Bound::Unbounded)).next().or_else(|| self.lanes.iter().next());
        let stream = *next?.0;
        let lane = self.lanes.get_mut(&stream)?;
        let waiting = lane.pop_front()?;
        if lane.is_empty() {
            self.lanes.remove(&stream);
        }
        self.served = Some(stream);
        self.len -= 1;
        Some(waiting.item)
    }

    fn oldest_ns(&self) -> Option<i64> {
        self.lanes.values().filter_map(|lane| lane.front()).map(|waiting| waiting.since_ns).min()
    }
}

/// How far the queue is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Open,
    /// No more is coming; what is held is still served.
    Closed,
    /// What is held is handed back, nothing more is served.
    Aborted,
}

#[derive(Debug)]
struct State<T> {
    lanes: Lanes<T>,
    flow: Flow,
}

/// A bounded queue between the threads that prepare images and the one that runs the model.
#[derive(Debug)]
pub struct BatchQueue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    /// Largest batch.
    max: usize,
    max_wait: Duration,
    /// Items that may wait; a further push blocks.
    capacity: usize,
}

impl<T> BatchQueue<T> {
    pub fn new(max: usize, max_wait: Duration, capacity: usize) -> Self {
        let lanes = Lanes { lanes: BTreeMap::new(), served: None, len: 0 };
        let state = Mutex::new(State { lanes, flow: Flow::Open });
        Self { state, changed: Condvar::new(), max: max.max(1), max_wait, capacity: capacity.max(max) }
    }

    /// Add an item, waiting for room; gives it back when nothing is served any more.
    pub fn push(&self, stream: u32, item: T) -> Result<(), T> {
        let mut state = self.lock();
        while state.flow == Flow::Open && state.lanes.len >= self.capacity {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.flow != Flow::Open {
            return Err(item);
        }
        state.lanes.push(stream, item);
        self.changed.notify_all();
        Ok(())
    }

    /// Fill `batch` with the next items: as soon as `max` wait, or the oldest has waited `max_wait`, or no more will
    /// come. False when there will never be another.
    pub fn next_batch(&self, batch: &mut Vec<T>) -> bool {
        batch.clear();
        let mut state = self.lock();
        loop {
            if state.flow == Flow::Aborted || (state.flow == Flow::Closed && state.lanes.len == 0) {
                return false;
            }
            let left = state.lanes.oldest_ns().map(|oldest_ns| self.wait_left(oldest_ns));
            if state.lanes.len >= self.max || state.flow == Flow::Closed || left == Some(Duration::ZERO) {
                break;
            }
            state = match left {
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        batch.extend(std::iter::from_fn(|| state.lanes.pop()).take(self.max));
        self.changed.notify_all();
        true
    }

    /// No more items will be pushed.
    pub fn close(&self) {
        let mut state = self.lock();
        if state.flow == Flow::Open {
            state.flow = Flow::Closed;
        }
        self.changed.notify_all();
    }

    /// Serve nothing more; returns what was waiting.
    pub fn abort(&self) -> Vec<T> {
        let mut state = self.lock();
        state.flow = Flow::Aborted;
        self.changed.notify_all();
        std::iter::from_fn(|| state.lanes.pop()).collect()
    }

    fn wait_left(&self, oldest_ns: i64) -> Duration {
        let waited = Duration::from_nanos((mono_ns() - oldest_ns).max(0).cast_unsigned());
        self.max_wait.saturating_sub(waited)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    /// Long enough never to pass in a test.
    const FOREVER: Duration = Duration::from_secs(3600);

    fn drain(queue: &BatchQueue<(u32, u64)>) -> Vec<Vec<(u32, u64)>> {
        let mut batches = Vec::new();
        let mut batch = Vec::new();
        while queue.next_batch(&mut batch) {
            batches.push(std::mem::take(&mut batch));
        }
        batches
    }

    #[test]
    fn a_busy_stream_does_not_delay_the_others() {
        let queue = BatchQueue::new(3, FOREVER, 100);
        for seq in 0..6 {
            queue.push(7, (7, seq)).unwrap();
        }
        queue.push(1, (1, 0)).unwrap();
        queue.push(9, (9, 0)).unwrap();
        queue.close();
        assert_eq!(drain(&queue), [vec![(1, 0), (7, 0), (9, 0)], vec![(7, 1), (7, 2), (7, 3)], vec![(7, 4), (7, 5)]]);
    }

    #[test]
    fn a_part_batch_leaves_once_its_oldest_item_has_waited() {
        let queue = BatchQueue::new(8, Duration::from_millis(5), 8);
        queue.push(0, (0, 0)).unwrap();
        let mut batch = Vec::new();
        assert!(queue.next_batch(&mut batch));
        assert_eq!(batch, [(0, 0)]);
    }

    #[test]
    fn a_full_queue_blocks_until_a_batch_is_taken() {
        let queue = BatchQueue::new(2, FOREVER, 2);
        let mut batch = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| (0..50).for_each(|seq| queue.push(0, (0, seq)).unwrap()));
            for first in (0..50).step_by(2) {
                assert!(queue.next_batch(&mut batch));
                assert_eq!(batch, [(0, first), (0, first + 1)]);
                assert!(queue.lock().lanes.len <= 2);
            }
        });
    }

    #[test]
    fn abort_hands_everything_back_and_wakes_who_waits() {
        let queue = BatchQueue::new(4, FOREVER, 4);
        (0..4).for_each(|seq| queue.push(0, (0, seq)).unwrap());
        let mut batch = Vec::new();
        thread::scope(|scope| {
            let blocked = scope.spawn(|| queue.push(0, (0, 4)));
            let held = loop {
                let held = queue.abort();
                if !held.is_empty() {
                    break held;
                }
            };
            assert_eq!(held.len(), 4);
            assert_eq!(blocked.join().unwrap(), Err((0, 4)));
        });
        assert!(!queue.next_batch(&mut batch));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_each_stream_stays_in_order(
            streams in proptest::collection::vec(0u32..5, 0..60), max in 1usize..9,
        ) {
            let queue = BatchQueue::new(max, FOREVER, 100);
            for (seq, stream) in streams.iter().enumerate() {
                queue.push(*stream, (*stream, seq as u64)).unwrap();
            }
            queue.close();
            let batches = drain(&queue);
            prop_assert!(batches.iter().all(|batch| (1..=max).contains(&batch.len())));
            let all: Vec<(u32, u64)> = batches.into_iter().flatten().collect();
            prop_assert_eq!(all.len(), streams.len());
            for stream in 0..5 {
                let seqs: Vec<u64> = all.iter().filter(|item| item.0 == stream).map(|item| item.1).collect();
                prop_assert!(seqs.is_sorted());
            }
        }
    }
}
