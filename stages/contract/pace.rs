//! When frames are due: a pure function of the clip's time line, apart from any waiting, so that a simulation uses the same
//! one. Also the grid that selects frames for inference.

use crate::random::Random;

/// The time line of one loop of a clip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// PTS of each frame of one loop in nanoseconds from the first one, rising.
    pts_ns: Vec<i64>,
    /// Length of one loop: last PTS + last duration.
    loop_ns: i64,
}

impl Timeline {
    /// `None` when empty, not rising, or the loop does not reach past the last frame.
    pub fn new(pts_ns: Vec<i64>, loop_ns: i64) -> Option<Self> {
        let rising = pts_ns.windows(2).all(|pair| pair[0] < pair[1]);
        let usable = rising && pts_ns.first() == Some(&0) && pts_ns.last().is_some_and(|last| *last < loop_ns);
        usable.then_some(Timeline { pts_ns, loop_ns })
    }

    /// Frames at a constant rate, `frames` of them a loop.
    pub fn constant(frames: usize, period_num_ns: i64, period_den: i64) -> Option<Self> {
        let at = |k: usize| (k as i128 * i128::from(period_num_ns) / i128::from(period_den)) as i64;
        Timeline::new((0..frames).map(at).collect(), at(frames))
    }

    pub fn frames(&self) -> usize {
        self.pts_ns.len()
    }

    pub fn loop_ns(&self) -> i64 {
        self.loop_ns
    }

    /// Media time of frame `k` counted over loops.
    pub fn media_ns(&self, k: u64) -> i64 {
        let frames = self.pts_ns.len() as u64;
        (k / frames) as i64 * self.loop_ns + self.pts_ns[(k % frames) as usize]
    }
}

/// The schedule of one stream: frame `k` is due at `phase + PTS`, scaled by the speed; it starts `first` frames into the clip.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub phase_ns: i64,
    /// Clip frames skipped at the start, so that streams of one clip differ (loop position).
    pub first: u64,
    /// 2.0 plays twice as fast.
    pub speed: f64,
}

impl Schedule {
    /// When frame `seq` of the stream is due, in nanoseconds after t0.
    pub fn due_ns(&self, timeline: &Timeline, seq: u64) -> i64 {
        let media = timeline.media_ns(self.first + seq) - timeline.media_ns(self.first);
        let scaled = if self.speed == 1.0 { media } else { (media as f64 / self.speed) as i64 };
        self.phase_ns + scaled
    }

    /// Frames due before `end_ns`.
    pub fn frames_before(&self, timeline: &Timeline, end_ns: i64) -> u64 {
        if end_ns <= self.phase_ns {
            return 0;
        }
        let (mut low, mut high) = (0u64, 1u64);
        while self.due_ns(timeline, high) < end_ns {
            low = high;
            high *= 2;
        }
        // Invariant: due(low) < end <= due(high).
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.due_ns(timeline, middle) < end_ns { low = middle } else { high = middle }
        }
        low + 1
    }
}

/// Which frames of a stream a stage works on: the first frame at or after each point of a grid in PTS, the same in every run.
#[derive(Clone, Debug)]
pub struct Selection {
    period_ns: i64,
    offset_ns: i64,
}

impl Selection {
    /// `rate` frames a second; the grid of each stream is shifted by a seeded share of the period.
    pub fn rate(frames_per_second: f64, seed: u64, stream: u32) -> Self {
        let period_ns = (1e9 / frames_per_second).max(1.0) as i64;
        let offset = Random::named(seed, &format!("selection/{stream}")).below(period_ns as u64);
        Selection { period_ns, offset_ns: offset as i64 }
    }

    /// Whether a frame at `media_ns`, following one at `previous_media_ns` (none for the first), is the first in its cell.
    pub fn selects(&self, previous_media_ns: Option<i64>, media_ns: i64) -> bool {
        let cell = |ns: i64| (ns - self.offset_ns).div_euclid(self.period_ns);
        match previous_media_ns {
            None => media_ns >= self.offset_ns,
            Some(previous) => cell(previous) != cell(media_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_loop_adds_last_pts_plus_last_duration() {
        let timeline = Timeline::new(vec![0, 40, 90], 130).unwrap();
        let due: Vec<i64> =
            (0..7).map(|k| Schedule { phase_ns: 5, first: 0, speed: 1.0 }.due_ns(&timeline, k)).collect();
        assert_eq!(due, [5, 45, 95, 135, 175, 225, 265]);
        let later = Schedule { phase_ns: 0, first: 2, speed: 2.0 };
        assert_eq!([0, 1, 2].map(|k| later.due_ns(&timeline, k)), [0, 20, 40]);
    }

    #[test]
    fn impossible_time_lines_are_refused() {
        assert!(Timeline::new(vec![], 10).is_none());
        assert!(Timeline::new(vec![0, 5, 5], 10).is_none());
        assert!(Timeline::new(vec![0, 10], 10).is_none());
        assert!(Timeline::new(vec![1, 10], 20).is_none());
    }

    #[test]
    fn a_constant_rate_does_not_drift() {
        let timeline = Timeline::constant(30, 1_001_000_000, 30).unwrap();
        // 29.97 fps: after 30,000 frames exactly 1,001 seconds.
        assert_eq!(timeline.media_ns(30_000), 1_001_000_000_000);
    }

    #[test]
    fn selection_takes_the_asked_rate() {
        let timeline = Timeline::constant(24, 1_000_000_000, 24).unwrap();
        for stream in 0..50 {
            let grid = Selection::rate(2.0, 42, stream);
            let picked = (0..2400u64)
                .filter(|k| grid.selects(k.checked_sub(1).map(|p| timeline.media_ns(p)), timeline.media_ns(*k)))
                .count();
            assert!((199..=200).contains(&picked), "{picked}");
        }
    }

    proptest! {
        #[test]
        fn frames_before_counts_exactly_those_due(
            gaps in proptest::collection::vec(1i64..50, 1..12), phase in 0i64..100, first in 0u64..20, end in 0i64..2000
        ) {
            let mut at = 0;
            let pts: Vec<i64> = gaps.iter().map(|gap| { let now = at; at += gap; now }).collect();
            let timeline = Timeline::new(pts, at).unwrap();
            let schedule = Schedule { phase_ns: phase, first, speed: 1.0 };
            let counted = (0u64..).take_while(|k| schedule.due_ns(&timeline, *k) < end).count() as u64;
            prop_assert_eq!(schedule.frames_before(&timeline, end), counted);
        }

        #[test]
        fn due_times_rise(phase in 0i64..100, first in 0u64..20, k in 0u64..100_000) {
            let timeline = Timeline::constant(7, 1_000_000_000, 24).unwrap();
            let schedule = Schedule { phase_ns: phase, first, speed: 1.0 };
            prop_assert!(schedule.due_ns(&timeline, k) < schedule.due_ns(&timeline, k + 1));
        }
    }
}
