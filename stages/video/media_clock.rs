//! Media time of decoded frames: one rising line over loops, whatever the time stamps of the source do.

use contract::Rational;

/// A step forwards longer than this is damage, not a pause.
const LONGEST_GAP_NS: i64 = 3_600_000_000_000;

/// Repairs made to the time stamps of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockRepairs {
    /// Frames without a time stamp.
    pub missing: u64,
    /// Time stamps that did not rise, or rose by more than an hour.
    pub jumps: u64,
}

/// Where a frame is on the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaTime {
    /// Nanoseconds from the first frame of the first loop.
    pub ns: i64,
    /// The same in the source's time base.
    pub ticks: i64,
    /// Until the frame after it, as far as known now.
    pub duration_ns: i64,
    pub duration_ticks: i64,
}

/// Turns time stamps into media time. The first frame is at 0; a loop follows the one before at last PTS + last duration.
#[derive(Debug, Clone)]
pub struct MediaClock {
    time_base: Rational,
    /// Ticks between frames where the source does not say: from its frame rate.
    usual_ticks: i64,
    /// Added to a time stamp of the present stretch (until a loop or a jump) to give media ticks.
    shift_ticks: Option<i64>,
    last_ticks: Option<i64>,
    last_duration_ticks: i64,
    repairs: ClockRepairs,
}

impl MediaClock {
    pub fn new(time_base: Rational, usual_period_ns: i64) -> MediaClock {
        let ticks = i128::from(usual_period_ns) * i128::from(time_base.den);
        let per_tick = i128::from(time_base.num.max(1)) * 1_000_000_000;
        let usual_ticks = i64::try_from((ticks + per_tick / 2) / per_tick).unwrap_or(i64::MAX).max(1);
        MediaClock {
            time_base,
            usual_ticks,
            shift_ticks: None,
            last_ticks: None,
            last_duration_ticks: usual_ticks,
            repairs: ClockRepairs::default(),
        }
    }

    pub fn repairs(&self) -> ClockRepairs {
        self.repairs
    }

    /// Media time of the next frame.
    pub fn place(&mut self, pts: Option<i64>, duration_ticks: i64) -> MediaTime {
        let follows = self.last_ticks.map_or(0, |last| last.saturating_add(self.last_duration_ticks));
        let ticks = match (pts, self.shift_ticks) {
            (None, _) => {
                self.repairs.missing += 1;
                follows
            }
            (Some(pts), None) => {
                self.shift_ticks = Some(follows.saturating_sub(pts));
                follows
            }
            (Some(pts), Some(shift)) => self.checked(pts, shift, follows),
        };
        self.last_ticks = Some(ticks);
        self.last_duration_ticks = if self.is_plausible(duration_ticks) { duration_ticks } else { self.usual_ticks };
        let ns = self.to_ns(ticks);
        let duration_ticks = self.last_duration_ticks;
        MediaTime { ns, ticks, duration_ns: self.to_ns(ticks.saturating_add(duration_ticks)) - ns, duration_ticks }
    }

    /// The source starts again: its next frame follows the last one.
    pub fn next_loop(&mut self) {
        self.shift_ticks = None;
    }

    fn checked(&mut self, pts: i64, shift: i64, follows: i64) -> i64 {
        let ticks = pts.saturating_add(shift);
        let step = self.last_ticks.map_or(1, |last| ticks.saturating_sub(last));
        if step > 0 && self.to_ns(step) <= LONGEST_GAP_NS {
            return ticks;
        }
        self.repairs.jumps += 1;
        self.shift_ticks = Some(follows.saturating_sub(pts));
        follows
    }

    fn is_plausible(&self, duration_ticks: i64) -> bool {
        duration_ticks > 0 && self.to_ns(duration_ticks) <= LONGEST_GAP_NS
    }

    fn to_ns(&self, ticks: i64) -> i64 {
        let ns = i128::from(ticks) * i128::from(self.time_base.num) * 1_000_000_000;
        i64::try_from(ns / i128::from(self.time_base.den.max(1))).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILLISECONDS: Rational = Rational::new(1, 1000);

    #[test]
    fn the_first_frame_is_at_zero_and_loops_follow_the_last_duration() {
        let mut clock = MediaClock::new(MILLISECONDS, 40_000_000);
        let mut times = Vec::new();
        for _ in 0..2 {
            for (pts, duration) in [(1400, 40), (1440, 50), (1490, 33)] {
                times.push(clock.place(Some(pts), duration).ns / 1_000_000);
            }
            clock.next_loop();
        }
        assert_eq!(times, [0, 40, 90, 123, 163, 213]);
        assert_eq!(clock.repairs(), ClockRepairs::default());
    }

    #[test]
    fn frames_without_time_stamps_follow_at_the_usual_distance() {
        let mut clock = MediaClock::new(Rational::new(1, 90_000), 40_000_000);
        let times: Vec<i64> = (0..4).map(|_| clock.place(None, 0).ns).collect();
        assert_eq!(times, [0, 40_000_000, 80_000_000, 120_000_000]);
        assert_eq!(clock.repairs().missing, 4);
    }

    #[test]
    fn a_time_stamp_that_falls_back_goes_on_from_the_last_frame() {
        let mut clock = MediaClock::new(MILLISECONDS, 40_000_000);
        let given = [0, 40, 80, 5, 45, 10_000_000_000, 10_000_000_040];
        let times: Vec<i64> = given.iter().map(|pts| clock.place(Some(*pts), 40).ticks).collect();
        assert_eq!(times, [0, 40, 80, 120, 160, 200, 240]);
        assert_eq!(clock.repairs().jumps, 2);
    }

    proptest! {
        #[test]
        fn media_time_rises_whatever_comes(
            stamps in proptest::collection::vec((proptest::option::of(any::<i64>()), any::<i64>(), any::<bool>()), 1..60),
            num in 1u32..2000, den in 1u32..2_000_000,
        ) {
            let mut clock = MediaClock::new(Rational::new(num, den), 40_000_000);
            let mut last = -1;
            for (pts, duration, again) in stamps {
                let time = clock.place(pts, duration);
                prop_assert!(time.ticks > last);
                last = time.ticks;
                if again {
                    clock.next_loop();
                }
            }
        }
    }
}
