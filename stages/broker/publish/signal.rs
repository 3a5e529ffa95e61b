//! Wakes callers that were told `Full` once room may have come, without missing the moment between the refusal and the wait.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

thread_local! {
    /// Generation this thread was refused at; the wait ends when it is over.
    static REFUSED_AT: Cell<Option<u64>> = const { Cell::new(None) };
}

#[derive(Debug, Default)]
pub(crate) struct Signal {
    generation: Mutex<u64>,
    changed: Condvar,
}

impl Signal {
    /// Notes, before the lane is let go, that the calling thread was refused.
    pub(crate) fn refused(&self) {
        let generation = *self.generation.lock().unwrap_or_else(PoisonError::into_inner);
        REFUSED_AT.set(Some(generation));
    }

    /// Room has come, or the last frame was reported on.
    pub(crate) fn notify(&self) {
        *self.generation.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits, at most `wait`, for a notification since this thread's last refusal (or since now).
    pub(crate) fn wait(&self, wait: Duration) {
        let held = self.generation.lock().unwrap_or_else(PoisonError::into_inner);
        let since = REFUSED_AT.take().unwrap_or(*held);
        let same = |generation: &mut u64| *generation == since;
        drop(self.changed.wait_timeout_while(held, wait, same).unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_between_refusal_and_wait_is_not_missed() {
        let signal = Signal::default();
        signal.refused();
        signal.notify();
        // An hour: returns at once or the test does not end.
        signal.wait(Duration::from_secs(3600));
    }

    #[test]
    fn a_waiter_is_woken_by_another_thread() {
        let signal = Signal::default();
        std::thread::scope(|scope| {
            signal.refused();
            scope.spawn(|| signal.notify());
            signal.wait(Duration::from_secs(3600));
        });
    }
}
