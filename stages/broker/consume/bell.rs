//! Waits for the client library to have something to say. rdkafka's own timed poll spins through the last millisecond of its
//! wait, which an idle reader would do for 5 % of a core; so it is only ever asked without waiting, after this has rung. It
//! rings when the library's queue is no longer empty, and after each event that rdkafka serves by a callback: such an event
//! looks like an empty queue to whoever polls.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(crate) fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Whether it has rung since the last look or wait.
    pub(crate) fn has_rung(&self) -> bool {
        std::mem::take(&mut *self.rung.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits, at most `wait`, until it rings; a ring since the last wait counts.
    pub(crate) fn wait(&self, wait: Duration) {
        let held = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut held, _) =
            self.changed.wait_timeout_while(held, wait, |rung| !*rung).unwrap_or_else(PoisonError::into_inner);
        *held = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_wait_is_heard_once() {
        let bell = Bell::default();
        bell.ring();
        // An hour: returns at once or the test does not end.
        bell.wait(Duration::from_secs(3600));
        bell.wait(Duration::from_millis(1));
        assert!(!bell.has_rung());
        bell.ring();
        assert!(bell.has_rung() && !bell.has_rung());
    }
}
