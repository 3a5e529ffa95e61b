//! Let a long poll sleep until one of its partitions has new data.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::storage::partition::lock;

/// One sleeping connection.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Waiter {
    /// Sleep until woken or until the time is over; a wake-up from before the call counts.
    pub fn sleep(&self, timeout: Duration) {
        let woken = lock(&self.woken);
        let waited = self.changed.wait_timeout_while(woken, timeout, |woken| !*woken);
        let (mut woken, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        *woken = false;
    }

    pub fn wake(&self) {
        *lock(&self.woken) = true;
        self.changed.notify_one();
    }
}

/// Everyone who waits for the same thing.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// Lets an append without waiting consumers skip the lock.
    count: AtomicUsize,
    waiting: Mutex<Vec<Arc<Waiter>>>,
}

impl Waiters {
    pub fn add(&self, waiter: &Arc<Waiter>) {
        let mut waiting = lock(&self.waiting);
        waiting.push(Arc::clone(waiter));
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    pub fn remove(&self, waiter: &Arc<Waiter>) {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|other| !Arc::ptr_eq(other, waiter));
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    pub fn wake(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            lock(&self.waiting).iter().for_each(|waiter| waiter.wake());
        }
    }
}
