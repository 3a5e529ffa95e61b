//! What one partition holds, and whether another frame fits: a byte-bounded window of frames the client library has, then a
//! byte-bounded queue of frames it has not, which a policy may still give up. Pure: no clock, no client.

use std::collections::{HashMap, VecDeque};

/// Bounds of each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneLimits {
    /// Bytes handed to the client library and not yet reported on.
    pub(crate) window_bytes: u64,
    /// Bytes that wait here; 0 where nothing is ever given up after acceptance.
    pub(crate) queue_bytes: u64,
}

/// Where a frame would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Window,
    Queue,
    None,
}

#[derive(Debug)]
pub(crate) struct Waiting<T> {
    pub(crate) item: T,
    pub(crate) bytes: u64,
    pub(crate) due_ns: i64,
}

#[derive(Debug)]
pub(crate) struct Lane<T> {
    window_bytes: u64,
    waiting: VecDeque<Waiting<T>>,
    waiting_bytes: u64,
    /// Streams told `Full`, with the seq that is to come again: it is marked offered already.
    refused: HashMap<u32, u64>,
    /// Scratch for record headers, so that none is allocated per frame.
    pub(crate) header: Vec<u8>,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Lane {
            window_bytes: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            refused: HashMap::new(),
            header: Vec::new(),
        }
    }
}

impl<T> Lane<T> {
    /// A frame alone always fits, however large, so that nothing waits for ever.
    fn fits_window(&self, bytes: u64, limits: LaneLimits) -> bool {
        self.window_bytes == 0 || self.window_bytes + bytes <= limits.window_bytes
    }

    pub(crate) fn room(&self, bytes: u64, limits: LaneLimits) -> Room {
        if self.waiting.is_empty() && self.fits_window(bytes, limits) {
            Room::Window
        } else if limits.queue_bytes > 0
            && (self.waiting.is_empty() || self.waiting_bytes + bytes <= limits.queue_bytes)
        {
            Room::Queue
        } else {
            Room::None
        }
    }

    pub(crate) fn take_window(&mut self, bytes: u64) {
        self.window_bytes += bytes;
    }

    pub(crate) fn free_window(&mut self, bytes: u64) {
        self.window_bytes -= bytes;
    }

    pub(crate) fn queue(&mut self, waiting: Waiting<T>) {
        self.waiting_bytes += waiting.bytes;
        self.waiting.push_back(waiting);
    }

    /// Puts back what could not be handed over after all, ahead of everything that came later.
    pub(crate) fn queue_first(&mut self, waiting: Waiting<T>) {
        self.waiting_bytes += waiting.bytes;
        self.waiting.push_front(waiting);
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the oldest waiting frame, to give it up.
    pub(crate) fn pop_oldest(&mut self) -> Option<Waiting<T>> {
        let waiting = self.waiting.pop_front()?;
        self.waiting_bytes -= waiting.bytes;
        Some(waiting)
    }

    /// Takes the oldest waiting frame if the window has room for it.
    pub(crate) fn pop_fitting(&mut self, limits: LaneLimits) -> Option<Waiting<T>> {
        let bytes = self.waiting.front()?.bytes;
        if self.fits_window(bytes, limits) { self.pop_oldest() } else { None }
    }

    /// Takes the oldest waiting frame if it was due before `horizon_ns`.
    pub(crate) fn pop_stale(&mut self, horizon_ns: i64) -> Option<Waiting<T>> {
        if self.waiting.front()?.due_ns < horizon_ns { self.pop_oldest() } else { None }
    }

    pub(crate) fn was_refused(&self, stream: u32, seq: u64) -> bool {
        !self.refused.is_empty() && self.refused.get(&stream) == Some(&seq)
    }

    pub(crate) fn refuse(&mut self, stream: u32, seq: u64) {
        self.refused.insert(stream, seq);
    }

    pub(crate) fn settle_refusal(&mut self, stream: u32) {
        if !self.refused.is_empty() {
            self.refused.remove(&stream);
        }
    }

    /// Whether a caller waits for room here.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.refused.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: LaneLimits = LaneLimits { window_bytes: 100, queue_bytes: 50 };

    fn waiting(item: u64, bytes: u64) -> Waiting<u64> {
        Waiting { item, bytes, due_ns: item as i64 }
    }

    #[test]
    fn a_frame_larger_than_the_window_passes_alone() {
        let mut lane = Lane::<u64>::default();
        assert_eq!(lane.room(1_000, LIMITS), Room::Window);
        lane.take_window(1_000);
        assert_eq!(lane.room(1, LIMITS), Room::Queue);
        assert_eq!(lane.room(1, LaneLimits { queue_bytes: 0, ..LIMITS }), Room::None);
        lane.free_window(1_000);
        assert_eq!(lane.room(1, LIMITS), Room::Window);
    }

    #[test]
    fn a_frame_never_overtakes_one_that_waits() {
        let mut lane = Lane::default();
        lane.take_window(90);
        lane.queue(waiting(0, 40));
        assert_eq!(lane.room(5, LIMITS), Room::Queue);
        lane.free_window(90);
        assert_eq!(lane.room(5, LIMITS), Room::Queue);
        assert_eq!(lane.pop_fitting(LIMITS).map(|w| w.item), Some(0));
        assert_eq!(lane.room(5, LIMITS), Room::Window);
    }

    #[test]
    fn only_frames_due_before_the_horizon_are_stale() {
        let mut lane = Lane::default();
        lane.queue(waiting(10, 5));
        lane.queue(waiting(20, 5));
        assert!(lane.pop_stale(10).is_none());
        assert_eq!(lane.pop_stale(11).map(|w| w.item), Some(10));
        assert!(lane.pop_stale(11).is_none());
    }

    proptest! {
        #[test]
        fn bounds_hold_and_order_is_kept(steps in proptest::collection::vec((0u8..3, 1u64..60), 1..200)) {
            let mut lane = Lane::default();
            let (mut next, mut sent, mut in_window) = (0u64, Vec::new(), VecDeque::new());
            for (what, bytes) in steps {
                match what {
                    0 => {
                        match lane.room(bytes, LIMITS) {
                            Room::Window => { lane.take_window(bytes); in_window.push_back(bytes); sent.push(next); }
                            Room::Queue => lane.queue(waiting(next, bytes)),
                            Room::None => continue,
                        }
                        next += 1;
                    }
                    1 => if let Some(bytes) = in_window.pop_front() { lane.free_window(bytes) },
                    _ => while let Some(w) = lane.pop_fitting(LIMITS) {
                        lane.take_window(w.bytes);
                        in_window.push_back(w.bytes);
                        sent.push(w.item);
                    },
                }
                prop_assert_eq!(lane.window_bytes, in_window.iter().sum::<u64>());
                prop_assert!(lane.window_bytes <= LIMITS.window_bytes || in_window.len() == 1);
                prop_assert!(lane.waiting_bytes <= LIMITS.queue_bytes || lane.waiting.len() == 1);
                prop_assert_eq!(lane.waiting_bytes, lane.waiting.iter().map(|w| w.bytes).sum::<u64>());
            }
            prop_assert!(sent.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert_eq!(sent.len() + lane.waiting.len(), next as usize);
        }
    }
}
