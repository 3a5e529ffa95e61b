//! /proc/stat: how the host's CPUs spent an interval.

use serde::{Deserialize, Serialize};

use crate::root::ProcRoot;

/// Ticks of one CPU, or of all together, since boot. Guest time is part of user time already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCounters {
    pub user: u64,
    pub nice: u64,
    pub system: u64,
    pub idle: u64,
    pub iowait: u64,
    pub irq: u64,
    pub softirq: u64,
    pub steal: u64,
}

/// Shares of an interval; they sum to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuFractions {
    /// User time, low-priority included.
    pub user: f64,
    pub system: f64,
    /// Interrupts, hard and soft.
    pub irq: f64,
    /// Idle while a task waited for a disk. Unreliable by nature: it depends on which CPU the task last ran on.
    pub iowait: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
    pub idle: f64,
    /// 1 - idle - iowait of the busiest single CPU: one full core hides in the average of many.
    pub busiest_cpu: Option<f64>,
}

impl CpuFractions {
    pub fn busy(&self) -> f64 {
        1.0 - self.idle - self.iowait
    }
}

/// All CPUs together and each one, in the order of /proc/stat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuSnapshot {
    pub all: CpuCounters,
    pub each: Vec<(u32, CpuCounters)>,
}

impl CpuSnapshot {
    pub fn read(root: &ProcRoot) -> Option<Self> {
        Self::parse(&root.proc_optional("stat")?)
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let all = CpuCounters::parse(lines.next()?.strip_prefix("cpu ")?)?;
        let each = lines.map_while(|line| {
            let (number, rest) = line.strip_prefix("cpu")?.split_once(' ')?;
            Some((number.parse().ok()?, CpuCounters::parse(rest)?))
        });
        Some(Self { all, each: each.collect() })
    }

    /// `None` when no tick has passed.
    pub fn since(&self, earlier: &Self) -> Option<CpuFractions> {
        let mut fractions = self.all.since(&earlier.all)?;
        // CPUs can go offline in between: compare by number.
        let pairs = self.each.iter().filter_map(|(number, now)| {
            let (_, then) = earlier.each.iter().find(|(other, _)| other == number)?;
            Some(now.since(then)?.busy())
        });
        fractions.busiest_cpu = pairs.reduce(f64::max);
        Some(fractions)
    }
}

impl CpuCounters {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>());
        let mut next = || numbers.next()?.ok();
        let (user, nice, system, idle) = (next()?, next()?, next()?, next()?);
        // Columns after idle were added one by one up to 2.6.11; a missing one counted nothing.
        let mut later = || next().unwrap_or(0);
        Some(Self { user, nice, system, idle, iowait: later(), irq: later(), softirq: later(), steal: later() })
    }

    fn since(&self, earlier: &Self) -> Option<CpuFractions> {
        // iowait and idle of an offline or tickless CPU can step back (proc(5)): no time passed in that state then.
        let ticks = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let user = ticks(self.user, earlier.user) + ticks(self.nice, earlier.nice);
        let system = ticks(self.system, earlier.system);
        let irq = ticks(self.irq, earlier.irq) + ticks(self.softirq, earlier.softirq);
        let (iowait, idle) = (ticks(self.iowait, earlier.iowait), ticks(self.idle, earlier.idle));
        let steal = ticks(self.steal, earlier.steal);
        let total = user + system + irq + iowait + idle + steal;
        (total > 0.0).then(|| CpuFractions {
            user: user / total,
            system: system / total,
            irq: irq / total,
            iowait: iowait / total,
            steal: steal / total,
            idle: idle / total,
            busiest_cpu: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::CpuSnapshot;

    fn snapshot(text: &str) -> CpuSnapshot {
        CpuSnapshot::parse(text).unwrap()
    }

    #[test]
    fn an_interval_is_split_into_shares_that_sum_to_one() {
        let before = snapshot("cpu  100 10 50 1000 20 5 5 3 40 0\ncpu0 100 10 50 1000 20 5 5 3 40 0\nintr 1 2\n");
        let after = snapshot("cpu  130 20 70 1100 40 7 13 13 60 0\ncpu0 130 20 70 1100 40 7 13 13 60 0\nintr 1 2\n");
        let shares = after.since(&before).unwrap();
        assert_eq!((shares.user, shares.system, shares.irq), (0.2, 0.1, 0.05));
        assert_eq!((shares.iowait, shares.steal, shares.idle), (0.1, 0.05, 0.5));
        assert!((shares.busy() - 0.4).abs() < 1e-12);
    }

    #[test]
    fn one_full_core_shows_beside_the_average() {
        let before = snapshot("cpu  0 0 0 0\ncpu0 0 0 0 0\ncpu1 0 0 0 0\ncpu7 0 0 0 0\n");
        let after = snapshot("cpu  100 0 0 100\ncpu0 0 0 0 100\ncpu7 100 0 0 0\n");
        let shares = after.since(&before).unwrap();
        assert_eq!((shares.user, shares.busiest_cpu), (0.5, Some(1.0)));
    }

    #[test]
    fn iowait_that_steps_back_is_no_negative_share() {
        let shares = snapshot("cpu  10 0 0 10 90\n").since(&snapshot("cpu  0 0 0 0 100\n")).unwrap();
        assert_eq!((shares.iowait, shares.user, shares.idle), (0.0, 0.5, 0.5));
    }

    #[test]
    fn no_tick_no_shares_and_other_text_is_no_snapshot() {
        let same = snapshot("cpu  1 2 3 4 5 6 7 8\n");
        assert_eq!(same.since(&same), None);
        assert_eq!(CpuSnapshot::parse("intr 1 2 3\n"), None);
        assert_eq!(CpuSnapshot::parse("cpu  1 2 x\n"), None);
    }
}
