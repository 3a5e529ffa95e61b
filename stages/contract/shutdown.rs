//! Shutdown is two facts: "stop taking in" (drain what you hold) and "abort" (give up what you hold).

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    #[default]
    None,
    Stop,
    Abort,
}

/// A token that every thread of a process shares.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    shared: Arc<(Mutex<Level>, Condvar)>,
}

impl Shutdown {
    /// Take in nothing new, finish what is held.
    pub fn stop(&self) {
        self.raise(Level::Stop);
    }

    /// Give up at once.
    pub fn abort(&self) {
        self.raise(Level::Abort);
    }

    fn raise(&self, level: Level) {
        let mut held = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        *held = (*held).max(level);
        self.shared.1.notify_all();
    }

    fn level(&self) -> Level {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_stopping(&self) -> bool {
        self.level() >= Level::Stop
    }

    pub fn is_aborting(&self) -> bool {
        self.level() >= Level::Abort
    }

    /// Sleeps at most `wait`; returns early, with true, once stopping.
    pub fn wait(&self, wait: Duration) -> bool {
        let end = Instant::now() + wait;
        let mut held = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        while *held < Level::Stop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            held = self.shared.1.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
