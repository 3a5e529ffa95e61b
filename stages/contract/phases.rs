//! The phases of a run as announced by the runner: a frame belongs to the phase its due time falls into.

use std::sync::{Arc, PoisonError, RwLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The named parts of a run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Init,
    Ready,
    WarmUp,
    Main,
    Drain,
    Sync,
    End,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Init => "init",
            Phase::Ready => "ready",
            Phase::WarmUp => "warm-up",
            Phase::Main => "main",
            Phase::Drain => "drain",
            Phase::Sync => "sync",
            Phase::End => "end",
        }
    }
}

/// Which frames latency and lateness count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Due in main.
    Main,
    /// Due before or after: start-up, shown apart.
    Outside,
}

/// When main begins and ends, once known. Cheap to clone; all clones share it.
#[derive(Clone, Debug, Default)]
pub struct Phases(Arc<RwLock<Bounds>>);

#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    main_ns: Option<i64>,
    drain_ns: Option<i64>,
}

impl Phases {
    /// Notes the start of a phase; only `Main` and `Drain` bound anything. A second announcement is ignored, but for an
    /// earlier end: a run that is cut short.
    pub fn announce(&self, phase: Phase, at_ns: i64) {
        let mut bounds = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match phase {
            Phase::Main => bounds.main_ns = bounds.main_ns.or(Some(at_ns)),
            Phase::Drain => bounds.drain_ns = Some(bounds.drain_ns.map_or(at_ns, |known| known.min(at_ns))),
            _ => {}
        }
    }

    fn bounds(&self) -> Bounds {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn main_ns(&self) -> Option<i64> {
        self.bounds().main_ns
    }

    /// When the schedule ends: no frame is due at or after it.
    pub fn drain_ns(&self) -> Option<i64> {
        self.bounds().drain_ns
    }

    pub fn window(&self, due_ns: i64) -> Window {
        let bounds = self.bounds();
        let begun = bounds.main_ns.is_some_and(|main| due_ns >= main);
        let over = bounds.drain_ns.is_some_and(|drain| due_ns >= drain);
        if begun && !over { Window::Main } else { Window::Outside }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_belongs_to_main_by_its_due_time() {
        let phases = Phases::default();
        assert_eq!(phases.window(5), Window::Outside);
        phases.announce(Phase::Main, 10);
        phases.announce(Phase::Drain, 20);
        phases.announce(Phase::Main, 0);
        let windows = [9, 10, 19, 20].map(|due| phases.window(due));
        assert_eq!(windows, [Window::Outside, Window::Main, Window::Main, Window::Outside]);
        phases.announce(Phase::Drain, 30);
        assert_eq!(phases.drain_ns(), Some(20));
        phases.announce(Phase::Drain, 15);
        assert_eq!((phases.drain_ns(), phases.window(15)), (Some(15), Window::Outside));
    }
}
