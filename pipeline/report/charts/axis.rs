//! Scales from values to places on the chart, and ticks at round values.

use crate::text::fixed;

/// Maps values to pixels, straight or by logarithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    lo: f64,
    hi: f64,
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    /// From `lo..hi` to `from..to` pixels; an empty range is widened.
    pub fn linear(lo: f64, hi: f64, from: f64, to: f64) -> Self {
        let hi = if hi > lo { hi } else { lo + 1.0 };
        Scale { lo, hi, from, to, log: false }
    }

    /// `lo` must be above 0; smaller values stand at the edge.
    pub fn log(lo: f64, hi: f64, from: f64, to: f64) -> Self {
        let hi = if hi > lo { hi } else { lo * 10.0 };
        Scale { lo, hi, from, to, log: true }
    }

    pub fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.lo) / self.lo).ln() / (self.hi / self.lo).ln()
        } else {
            (value - self.lo) / (self.hi - self.lo)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    pub fn hi(&self) -> f64 {
        self.hi
    }

    pub fn lo(&self) -> f64 {
        self.lo
    }

    /// Powers of ten within a logarithmic scale.
    pub fn decades(&self) -> Vec<f64> {
        let (first, last) = (self.lo.log10().ceil() as i32, (self.hi.log10() + 1e-9).floor() as i32);
        (first..=last).map(|power| 10f64.powi(power)).collect()
    }
}

/// 1, 2 or 5 times a power of ten, so that about `wanted` steps fit.
pub fn step(range: f64, wanted: usize) -> f64 {
    if !range.is_finite() || range <= 0.0 {
        return 1.0;
    }
    let rough = range / wanted.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * 0.999_999).unwrap_or(10.0);
    factor * power
}

/// Steps of time that people count in.
pub fn time_step(seconds: f64, wanted: usize) -> f64 {
    const STEPS: [f64; 15] =
        [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0];
    let rough = seconds / wanted.max(1) as f64;
    STEPS.into_iter().find(|step| *step >= rough).unwrap_or_else(|| step(seconds, wanted))
}

/// Multiples of `step` from `lo` to `hi`; never more than a page can show.
pub fn ticks(lo: f64, hi: f64, step: f64) -> Vec<f64> {
    if !(step > 0.0 && lo.is_finite() && hi.is_finite()) {
        return Vec::new();
    }
    let first = (lo / step - 1e-9).ceil();
    (0..60).map(|index| (first + f64::from(index)) * step).take_while(|tick| *tick <= hi + step * 1e-6).collect()
}

/// A tick as text, with the decimals its step needs.
pub fn tick_text(value: f64, step: f64) -> String {
    let decimals = if step >= 1.0 { 0 } else { (-step.log10()).ceil().clamp(0.0, 9.0) as usize };
    fixed(value, decimals)
}

/// A time of the run, in the unit its step counts in.
pub fn time_text(seconds: f64, step: f64) -> String {
    match step {
        _ if step >= 3600.0 => format!("{} h", tick_text(seconds / 3600.0, step / 3600.0)),
        _ if step >= 60.0 => format!("{} min", tick_text(seconds / 60.0, step / 60.0)),
        _ => format!("{} s", tick_text(seconds, step)),
    }
}

/// A decade of milliseconds as text: `0.01`, `1`, `1,000`.
pub fn decade_text(value: f64) -> String {
    tick_text(value, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps_are_round() {
        assert_eq!([step(192.0, 4), step(0.86, 4), step(1000.0, 5), step(0.0, 4)], [50.0, 0.5, 200.0, 1.0]);
        assert_eq!([time_step(74.0, 8), time_step(3600.0, 8), time_step(90_000.0, 8)], [10.0, 600.0, 14400.0]);
        assert_eq!(tick_text(0.25, 0.05), "0.25");
        assert_eq!(
            [time_text(20.0, 10.0), time_text(1200.0, 600.0), time_text(7200.0, 3600.0)],
            ["20 s", "20 min", "2 h"]
        );
        assert_eq!(Scale::log(0.001, 1000.0, 0.0, 1.0).decades().len(), 7);
    }

    #[test]
    fn a_scale_never_leaves_its_pixels() {
        let scale = Scale::log(0.001, 1000.0, 10.0, 110.0);
        assert_eq!([scale.at(-5.0), scale.at(0.0), scale.at(1e9)], [10.0, 10.0, 110.0]);
        assert!((scale.at(1.0) - 60.0).abs() < 1e-9);
        let empty = Scale::linear(3.0, 3.0, 0.0, 1.0);
        assert_eq!(empty.at(3.0), 0.0);
    }

    proptest! {
        #[test]
        fn ticks_are_few_and_within_the_range(lo in -1e6f64..1e6, range in 1e-6f64..1e9) {
            let hi = lo + range;
            let found = ticks(lo, hi, step(range, 5));
            prop_assert!(found.len() <= 7, "{found:?}");
            prop_assert!(found.iter().all(|tick| *tick >= lo - range * 1e-3 && *tick <= hi + range * 1e-3));
        }
    }
}
