//! Encoded frames between the threads that make them and the pacer that offers them: bounded ahead, bounded behind.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use contract::pace::Timeline;
use contract::{Geometry, StageError};

use crate::media_clock::MediaTime;

/// One encoded frame on its media time line.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) payload: Bytes,
    pub(crate) geometry: Geometry,
    pub(crate) time: MediaTime,
}

/// Takes what a producer makes.
pub(crate) trait ItemSink: Send + Sync {
    /// False when nothing more is wanted.
    fn put(&self, item: Item) -> bool;
    /// The producer has ended; with the reason if it could not go on.
    fn end(&self, result: Result<(), StageError>);
}

/// Rouses the pacer when a frame it waits for has come.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    wanted: AtomicBool,
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Wake {
    fn ring(&self) {
        // Most frames are made ahead of time: nobody waits for them, and the pacer sleeps on.
        if self.wanted.swap(false, Ordering::AcqRel) {
            *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.bell.notify_one();
        }
    }

    /// Ask to be roused by the next frame; call before looking whether it is there.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// Sleep at most `wait`.
    pub(crate) fn sleep(&self, wait: Duration) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !*rung && !wait.is_zero() {
            rung = self.bell.wait_timeout(rung, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        *rung = false;
    }
}

/// How much a feed may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FeedBounds {
    /// Frames ahead of the foremost stream.
    pub(crate) look_ahead: usize,
    /// Bytes kept for streams that are behind because their partition blocks.
    pub(crate) bytes: u64,
}

/// Frames of one live source for one or many streams. Each frame stays until every stream has taken it.
#[derive(Debug)]
pub(crate) struct Feed {
    bounds: FeedBounds,
    state: Mutex<FeedState>,
    room: Condvar,
    wake: Arc<Wake>,
}

#[derive(Debug)]
struct FeedState {
    /// Number of the first item held.
    base: u64,
    items: VecDeque<(Item, u32)>,
    bytes: u64,
    /// The next frame the foremost stream wants.
    foremost: u64,
    streams: u32,
    closed: bool,
    ended: Option<Result<(), StageError>>,
}

impl FeedState {
    /// Where frame `k` is held; past the end when it is not.
    fn index(&self, k: u64) -> usize {
        k.checked_sub(self.base).and_then(|index| usize::try_from(index).ok()).unwrap_or(usize::MAX)
    }

    /// Drop what every stream has taken.
    fn discard(&mut self) {
        while self.items.front().is_some_and(|(_, waiting)| *waiting == 0) {
            if let Some((item, _)) = self.items.pop_front() {
                self.bytes -= item.payload.len() as u64;
                self.base += 1;
            }
        }
    }
}

/// What a feed answers.
#[derive(Debug)]
pub(crate) enum Fetch {
    Ready(Item),
    NotYet,
    End(Result<(), StageError>),
}

impl Feed {
    pub(crate) fn new(streams: u32, bounds: FeedBounds, wake: Arc<Wake>) -> Feed {
        let state =
            FeedState { base: 0, items: VecDeque::new(), bytes: 0, foremost: 0, streams, closed: false, ended: None };
        Feed { bounds, state: Mutex::new(state), room: Condvar::new(), wake }
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frame `k`, which the asking stream has not taken yet.
    pub(crate) fn fetch(&self, k: u64) -> Fetch {
        let state = self.lock();
        match (state.items.get(state.index(k)), &state.ended) {
            (Some((item, _)), _) => Fetch::Ready(item.clone()),
            (None, Some(result)) => Fetch::End(result.clone()),
            (None, None) => Fetch::NotYet,
        }
    }

    /// One stream is done with frame `k`.
    pub(crate) fn take(&self, k: u64) {
        let mut state = self.lock();
        let before = (state.foremost, state.base);
        state.foremost = state.foremost.max(k + 1);
        let index = state.index(k);
        if let Some((_, waiting)) = state.items.get_mut(index) {
            *waiting = waiting.saturating_sub(1);
        }
        state.discard();
        let made_room = (state.foremost, state.base) != before;
        drop(state);
        // Of hundreds of streams only the first and the last to take a frame make room: spare the other wake-ups.
        if made_room {
            self.room.notify_one();
        }
    }

    /// One stream wants neither frame `k` nor any later one.
    pub(crate) fn leave(&self, k: u64) {
        let mut state = self.lock();
        state.streams = state.streams.saturating_sub(1);
        let index = state.index(k);
        for (_, waiting) in state.items.iter_mut().skip(index) {
            *waiting = waiting.saturating_sub(1);
        }
        state.closed |= state.streams == 0;
        state.discard();
        drop(state);
        self.room.notify_one();
    }

    /// Wait until the first frame is there or the source has failed; true once that is so.
    pub(crate) fn wait_for_first(&self, wait: Duration) -> Result<bool, StageError> {
        let state = self.lock();
        let missing = |state: &mut FeedState| state.items.is_empty() && state.ended.is_none() && !state.closed;
        let (state, _) = self.room.wait_timeout_while(state, wait, missing).unwrap_or_else(PoisonError::into_inner);
        match &state.ended {
            Some(Err(error)) if state.items.is_empty() => Err(error.clone()),
            ended => Ok(!state.items.is_empty() || ended.is_some()),
        }
    }

    /// No stream wants anything more: lets the producer end.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.items.clear();
        drop(state);
        self.room.notify_all();
    }

    fn is_full(&self, state: &FeedState) -> bool {
        let next = state.base + state.items.len() as u64;
        let ahead = next - state.foremost.max(state.base);
        let backlog = state.items.len() > self.bounds.look_ahead && state.bytes >= self.bounds.bytes;
        ahead >= self.bounds.look_ahead as u64 || backlog
    }
}

impl ItemSink for Feed {
    fn put(&self, item: Item) -> bool {
        let mut state = self.lock();
        while !state.closed && self.is_full(&state) {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return false;
        }
        let streams = state.streams;
        state.bytes += item.payload.len() as u64;
        state.items.push_back((item, streams));
        drop(state);
        self.room.notify_all();
        self.wake.ring();
        true
    }

    fn end(&self, result: Result<(), StageError>) {
        self.lock().ended.get_or_insert(result);
        self.room.notify_all();
        self.wake.ring();
    }
}

/// A whole loop in memory.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) items: Vec<Item>,
    pub(crate) timeline: Timeline,
    pub(crate) loop_ticks: i64,
}

impl Cached {
    pub(crate) fn item(&self, k: u64) -> &Item {
        &self.items[(k % self.items.len() as u64) as usize]
    }

    /// Media time of frame `k`, counted over loops.
    pub(crate) fn ticks(&self, k: u64) -> i64 {
        (k / self.items.len() as u64) as i64 * self.loop_ticks + self.item(k).time.ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn item(k: i64) -> Item {
        Item {
            payload: Bytes::from(vec![0; 100]),
            geometry: Geometry::new(1, 1),
            time: MediaTime { ns: k * 10, ticks: k, duration_ns: 10, duration_ticks: 1 },
        }
    }

    fn number(fetch: Fetch) -> Option<i64> {
        match fetch {
            Fetch::Ready(item) => Some(item.time.ticks),
            _ => None,
        }
    }

    fn fill(feed: &Arc<Feed>, frames: i64) -> thread::JoinHandle<i64> {
        let feed = feed.clone();
        thread::spawn(move || {
            let put = (0..frames).take_while(|k| feed.put(item(*k))).count() as i64;
            feed.end(Ok(()));
            put
        })
    }

    fn settled(feed: &Feed) -> usize {
        // The producer stops by itself at the bound; give it ample time to overshoot.
        thread::sleep(Duration::from_millis(50));
        feed.lock().items.len()
    }

    #[test]
    fn no_more_than_look_ahead_frames_are_made_ahead() {
        let feed = Arc::new(Feed::new(1, FeedBounds { look_ahead: 3, bytes: 1 << 20 }, Arc::default()));
        let producer = fill(&feed, 10);
        assert_eq!(settled(&feed), 3);
        for k in 0..10 {
            while number(feed.fetch(k)) != Some(k as i64) {
                feed.wake.sleep(Duration::from_millis(1));
            }
            feed.take(k);
        }
        assert!(matches!(feed.fetch(10), Fetch::NotYet | Fetch::End(Ok(()))));
        assert_eq!(producer.join().unwrap(), 10);
        assert!(matches!(feed.fetch(10), Fetch::End(Ok(()))));
    }

    #[test]
    fn a_stream_that_is_behind_holds_frames_until_the_byte_bound() {
        let feed = Arc::new(Feed::new(2, FeedBounds { look_ahead: 2, bytes: 500 }, Arc::default()));
        let producer = fill(&feed, 100);
        let mut k = 0;
        // The fast stream goes on; the slow one takes nothing: five frames of 100 bytes is the most that is kept.
        loop {
            settled(&feed);
            if number(feed.fetch(k)).is_none() {
                break;
            }
            feed.take(k);
            k += 1;
        }
        assert_eq!(k, 5);
        assert_eq!(number(feed.fetch(0)), Some(0));
        feed.take(0);
        settled(&feed);
        assert_eq!(number(feed.fetch(5)), Some(5));
        feed.close();
        assert!(producer.join().unwrap() < 10);
    }

    #[test]
    fn a_stream_that_leaves_holds_nothing_any_more() {
        let feed = Arc::new(Feed::new(2, FeedBounds { look_ahead: 2, bytes: 300 }, Arc::default()));
        let producer = fill(&feed, 100);
        while number(feed.fetch(0)).is_none() {
            settled(&feed);
        }
        feed.leave(0);
        for k in 0..100 {
            while number(feed.fetch(k)).is_none() {
                thread::sleep(Duration::from_millis(1));
            }
            feed.take(k);
        }
        assert_eq!(producer.join().unwrap(), 100);
    }

    #[test]
    fn a_failed_source_is_told_before_the_first_frame() {
        let feed = Feed::new(1, FeedBounds { look_ahead: 2, bytes: 500 }, Arc::default());
        assert!(!feed.wait_for_first(Duration::from_millis(1)).unwrap());
        feed.end(Err(StageError::missing("clip", "is damaged")));
        assert!(feed.wait_for_first(Duration::from_secs(5)).is_err());
        assert!(matches!(feed.fetch(0), Fetch::End(Err(_))));
    }
}
