//! Age by percentile: the higher the percentile, the more room it gets.

use super::axis::{Scale, step, tick_text, ticks};
use super::lines::{Limit, bounds};
use super::{BOTTOM, Caption, Figure, HEIGHT, Key, LEFT, RIGHT, TOP, WIDTH, label, rule};
use crate::text::{count, short};

/// Percentiles named on the axis.
const NAMED: [f64; 7] = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];

/// One distribution: `value(q)` in ms.
pub struct Curve<'a> {
    pub name: &'a str,
    pub samples: u64,
    pub value: &'a dyn Fn(f64) -> Option<f64>,
}

impl Curve<'_> {
    /// The last quantile that the samples support: with 99 % confidence that none is above, ln(0.01) / ln(q) of them are
    /// needed, about 4.6 / (1 - q).
    fn last(&self) -> f64 {
        1.0 - 4.605_170_19 / self.samples as f64
    }

    fn points(&self) -> Vec<(f64, f64)> {
        let end = nines(self.last());
        let steps = (0..=240).map(|step| end * f64::from(step) / 240.0);
        steps.filter_map(|at| Some((at, (self.value)(1.0 - 10f64.powf(-at))?))).collect()
    }
}

fn nines(q: f64) -> f64 {
    -(1.0 - q).log10()
}

/// Each curve ends at the last percentile that its samples support.
pub fn percentiles(caption: Caption, curves: &[Curve], limit: Option<Limit>) -> Option<Figure> {
    let shown: Vec<(&Curve, Vec<(f64, f64)>)> =
        curves.iter().filter(|curve| curve.last() >= 0.5).map(|curve| (curve, curve.points())).collect();
    let last = shown.iter().map(|(curve, _)| curve.last()).fold(0.0, f64::max);
    let (lo, hi) = bounds(shown.iter().flat_map(|(_, points)| points.iter().map(|(_, ms)| *ms)))?;
    let near = limit.as_ref().filter(|limit| limit.value <= hi * 2.5);
    let (lo, hi) = (lo.min(0.0), near.map_or(hi, |limit| hi.max(limit.value)));
    let size = step(hi - lo, 4);
    let x = Scale::linear(0.0, nines(last), LEFT, WIDTH - RIGHT - 14.0);
    let y = Scale::linear((lo / size).floor() * size, (hi * 1.02 / size).ceil() * size, HEIGHT - BOTTOM, TOP);
    let mut body = label(4.0, TOP - 10.0, "unit", "ms");
    for tick in ticks(y.lo(), y.hi(), size) {
        body.push_str(&rule((LEFT, y.at(tick)), (WIDTH - RIGHT, y.at(tick)), "grid"));
        body.push_str(&label(LEFT - 6.0, y.at(tick) + 4.0, "tick end", &tick_text(tick, size)));
    }
    for q in NAMED.into_iter().filter(|q| *q <= last) {
        let at = x.at(nines(q));
        body.push_str(&rule((at, TOP), (at, HEIGHT - BOTTOM), "grid"));
        body.push_str(&label(at, HEIGHT - BOTTOM + 17.0, "tick mid", &name(q)));
    }
    let mut keys = Vec::new();
    for (colour, (curve, points)) in shown.iter().enumerate() {
        let colour = colour * 2;
        let data: Vec<String> = points.iter().map(|(n, ms)| format!("{:.1} {:.1}", x.at(*n), y.at(*ms))).collect();
        body.push_str(&format!("<path d=\"M{}\" class=\"line c{colour}\"/>", data.join("L")));
        let figures = format!("{} frames", count(curve.samples));
        keys.push(Key { colour, dashed: false, name: curve.name.to_owned(), figures });
    }
    body.push_str(&limit.map(|limit| limit_line(&limit, &y)).unwrap_or_default());
    Some(caption.figure(HEIGHT, &body, &keys))
}

fn limit_line(limit: &Limit, y: &Scale) -> String {
    let text = format!("{} {} ms", limit.name, short(limit.value));
    if limit.value > y.hi() {
        return label(WIDTH - RIGHT, TOP - 8.0, "limit end", &format!("{text}, above the scale"));
    }
    let at = y.at(limit.value);
    rule((LEFT, at), (WIDTH - RIGHT, at), "limit") + &label(LEFT + 6.0, at - 5.0, "limit", &text)
}

fn name(q: f64) -> String {
    if q == 0.0 {
        return "min".to_owned();
    }
    let text = format!("{:.3}", q * 100.0);
    format!("p{}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_ends_where_the_samples_do() {
        let caption = Caption { id: "i", title: "t", about: "a" };
        let curve = |samples| Curve { name: "n", samples, value: &|q| Some(q * 100.0) };
        let named = |samples| percentiles(caption, &[curve(samples)], None).map(|figure| figure.0);
        assert!(named(5_000).unwrap().contains(">p99.9<") && !named(4_000).unwrap().contains(">p99.9<"));
        assert!(named(500).unwrap().contains(">p99<") && named(9).is_none() && named(0).is_none());
    }
}
