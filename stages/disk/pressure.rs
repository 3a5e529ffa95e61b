//! Pressure stall information: the share of time tasks waited for CPU, memory or a disk.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use crate::root::ProcRoot;

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PressureLine {
    /// Percent of the last 10 seconds, as the kernel averages it.
    pub avg10_percent: f64,
    /// Since boot.
    pub total_microseconds: u64,
    /// Share of the sampled interval, from the totals; absent in the first sample.
    pub fraction: Option<f64>,
}

/// One resource: `some` = at least one task waited, `full` = no task ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    pub some: PressureLine,
    /// Absent for the CPU before Linux 5.13.
    pub full: Option<PressureLine>,
}

/// Each is absent when the kernel has no PSI, or has it switched off at boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressures {
    pub cpu: Option<Pressure>,
    pub io: Option<Pressure>,
    pub memory: Option<Pressure>,
}

impl Pressures {
    pub fn read(root: &ProcRoot) -> Self {
        let resource = |name: &str| from_read(fs::read_to_string(root.proc.join("pressure").join(name)));
        Self { cpu: resource("cpu"), io: resource("io"), memory: resource("memory") }
    }

    /// The same reading with the share of the interval filled in.
    pub fn since(mut self, earlier: &Self, seconds: f64) -> Self {
        let pairs = [(&mut self.cpu, &earlier.cpu), (&mut self.io, &earlier.io), (&mut self.memory, &earlier.memory)];
        for (now, then) in pairs {
            let (Some(now), Some(then)) = (now, then) else { continue };
            now.some.fill(&then.some, seconds);
            if let (Some(now), Some(then)) = (&mut now.full, &then.full) {
                now.fill(then, seconds);
            }
        }
        self
    }
}

impl PressureLine {
    fn fill(&mut self, earlier: &Self, seconds: f64) {
        let stalled = self.total_microseconds.checked_sub(earlier.total_microseconds);
        self.fraction = stalled.filter(|_| seconds > 0.0).map(|stalled| stalled as f64 / 1e6 / seconds);
    }
}

/// `psi=0` at boot leaves the files in place and answers EOPNOTSUPP: every failure means "not offered".
fn from_read(read: io::Result<String>) -> Option<Pressure> {
    parse(&read.ok()?)
}

fn parse(text: &str) -> Option<Pressure> {
    let line = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
        let value = |key: &str| line.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        Some(PressureLine {
            avg10_percent: value("avg10")?.parse().ok()?,
            total_microseconds: value("total")?.trim().parse().ok()?,
            fraction: None,
        })
    };
    Some(Pressure { some: line("some")?, full: line("full") })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Pressures, from_read, parse};
    use crate::root::fixture::Fixture;

    const IO: &str = "some avg10=1.25 avg60=0.50 avg300=0.10 total=1500000\n\
                      full avg10=0.75 avg60=0.25 avg300=0.05 total=700000\n";

    #[test]
    fn some_and_full_are_read_and_an_old_kernel_lacks_full() {
        let pressure = parse(IO).unwrap();
        assert_eq!((pressure.some.avg10_percent, pressure.some.total_microseconds), (1.25, 1_500_000));
        assert_eq!(pressure.full.unwrap().total_microseconds, 700_000);
        assert_eq!(parse(IO.lines().next().unwrap()).unwrap().full, None);
        assert_eq!(parse("some avg10=x total=1"), None);
    }

    #[test]
    fn pressure_switched_off_at_boot_is_absent_not_an_error() {
        const EOPNOTSUPP: i32 = 95;
        assert_eq!(from_read(Err(io::Error::from_raw_os_error(EOPNOTSUPP))), None);
        assert_eq!(Pressures::read(&Fixture::new().root), Pressures::default());
    }

    #[test]
    fn the_share_of_an_interval_comes_from_the_totals() {
        let fixture = Fixture::new();
        fixture.file("proc/pressure/io", IO);
        let before = Pressures::read(&fixture.root);
        fixture.file("proc/pressure/io", &IO.replace("1500000", "2000000").replace("700000", "800000"));
        let after = Pressures::read(&fixture.root).since(&before, 2.0);
        let io = after.io.unwrap();
        assert_eq!((io.some.fraction, io.full.unwrap().fraction), (Some(0.25), Some(0.05)));
        assert_eq!((after.cpu, after.memory), (None, None));
        assert_eq!(before.io.unwrap().some.fraction, None);
    }
}
