//! Time is given: the only place that reads a clock. Run-relative nanoseconds are CLOCK_MONOTONIC since t0, so that a step of
//! the wall clock cannot corrupt a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in nanoseconds.
pub fn mono_ns() -> i64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// CLOCK_REALTIME in nanoseconds since 1970.
pub fn real_ns() -> i64 {
    let t = clock_gettime(ClockId::Realtime);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// CPU time of the calling thread in nanoseconds.
pub fn thread_cpu_ns() -> i64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

const NOT_SET: i64 = i64::MIN;

/// The run's clock in one process: maps t0 to this process's CLOCK_MONOTONIC. Cheap to clone; all clones share t0.
#[derive(Clone, Debug)]
pub struct RunClock {
    t0_mono_ns: Arc<AtomicI64>,
    /// A clock moved by hand, for simulation and tests; `None` reads the real one.
    manual_mono_ns: Option<Arc<AtomicI64>>,
}

impl Default for RunClock {
    fn default() -> Self {
        RunClock { t0_mono_ns: Arc::new(AtomicI64::new(NOT_SET)), manual_mono_ns: None }
    }
}

impl RunClock {
    /// A clock that stands still until `advance_to` moves it; t0 is 0.
    pub fn manual() -> Self {
        RunClock { t0_mono_ns: Arc::new(AtomicI64::new(0)), manual_mono_ns: Some(Arc::new(AtomicI64::new(0))) }
    }

    /// Sets t0 once; a second call is ignored, because frames may already be stamped.
    pub fn set_t0(&self, t0_mono_ns: i64) -> bool {
        self.t0_mono_ns.compare_exchange(NOT_SET, t0_mono_ns, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub fn t0_mono_ns(&self) -> Option<i64> {
        Some(self.t0_mono_ns.load(Ordering::Acquire)).filter(|t0| *t0 != NOT_SET)
    }

    fn mono(&self) -> i64 {
        self.manual_mono_ns.as_ref().map_or_else(mono_ns, |manual| manual.load(Ordering::Acquire))
    }

    /// Nanoseconds since t0; negative before it. Before t0 is known the run has not begun: `i64::MIN / 2`.
    pub fn now_ns(&self) -> i64 {
        match self.t0_mono_ns() {
            Some(t0) => self.mono() - t0,
            None => NOT_SET / 2,
        }
    }

    /// Moves a manual clock; a real one ignores it.
    pub fn advance_to(&self, run_ns: i64) {
        if let Some(manual) = &self.manual_mono_ns {
            manual.store(run_ns, Ordering::Release);
        }
    }

    /// How long until `run_ns`; zero when it has passed.
    pub fn until(&self, run_ns: i64) -> Duration {
        Duration::from_nanos(run_ns.saturating_sub(self.now_ns()).max(0) as u64)
    }

    /// The wall-clock instant of a run-relative one, for tools outside the run.
    pub fn wall_ns(&self, run_ns: i64) -> i64 {
        real_ns() - self.now_ns() + run_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_is_set_once_and_shared_by_clones() {
        let clock = RunClock::default();
        assert_eq!(clock.t0_mono_ns(), None);
        assert!(clock.now_ns() < -1_000_000_000_000);
        let other = clock.clone();
        assert!(clock.set_t0(mono_ns() + 1_000_000_000));
        assert!(!other.set_t0(5));
        assert!(other.now_ns() < 0 && other.now_ns() > -2_000_000_000);
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = RunClock::manual();
        assert_eq!(clock.now_ns(), 0);
        clock.advance_to(42);
        assert_eq!((clock.now_ns(), clock.until(142)), (42, Duration::from_nanos(100)));
    }
}
