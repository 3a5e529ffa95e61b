//! Age by percentile: the higher the percentile, the more room it gets.

use super::axis::{Scale, step, tick_text, ticks};
use super::lines::Limit;
use super::{BOTTOM, Caption, Figure, HEIGHT, LEFT, RIGHT, TOP, WIDTH, label, rule};
use crate::text::short;

/// Percentiles named on the axis.
const NAMED: [f64; 7] = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];

/// `value(q)` in ms for quantiles up to the last that `samples` support.
pub fn percentiles(
    caption: Caption,
    samples: u64,
    value: impl Fn(f64) -> Option<f64>,
    limit: Option<Limit>,
) -> Option<Figure> {
    // 99 % confidence without a sample above: ln(0.01) / ln(q) samples are needed, about 4.6 / (1 - q).
    let last = 1.0 - 4.605_170_19 / samples as f64;
    if samples == 0 || last < 0.5 {
        return None;
    }
    let nines = |q: f64| -(1.0 - q).log10();
    let end = nines(last);
    let x = Scale::linear(0.0, end, LEFT, WIDTH - RIGHT - 14.0);
    let points: Vec<(f64, f64)> =
        (0..=240).map(|i| end * f64::from(i) / 240.0).filter_map(|n| Some((n, value(1.0 - 10f64.powf(-n))?))).collect();
    let hi = points.iter().map(|(_, ms)| *ms).fold(f64::MIN, f64::max);
    let lo = points.iter().map(|(_, ms)| *ms).fold(0.0, f64::min);
    if points.is_empty() || !hi.is_finite() {
        return None;
    }
    let shown = limit.as_ref().filter(|limit| limit.value <= hi * 2.5);
    let hi = shown.map_or(hi, |limit| hi.max(limit.value));
    let size = step(hi - lo, 4);
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
    let data: Vec<String> = points.iter().map(|(n, ms)| format!("{:.1} {:.1}", x.at(*n), y.at(*ms))).collect();
    body.push_str(&format!("<path d=\"M{}\" class=\"line c0\"/>", data.join("L")));
    if let Some(limit) = limit {
        let text = format!("{} {} ms", limit.name, short(limit.value));
        if limit.value <= y.hi() {
            body.push_str(&rule((LEFT, y.at(limit.value)), (WIDTH - RIGHT, y.at(limit.value)), "limit"));
            body.push_str(&label(LEFT + 6.0, y.at(limit.value) - 5.0, "limit", &text));
        } else {
            body.push_str(&label(WIDTH - RIGHT, TOP - 8.0, "limit end", &format!("{text}, above the scale")));
        }
    }
    Some(caption.figure(HEIGHT, &body, &[]))
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
        let named = |samples| percentiles(caption, samples, |q| Some(q * 100.0), None).map(|figure| figure.0);
        assert!(named(5_000).unwrap().contains(">p99.9<") && !named(4_000).unwrap().contains(">p99.9<"));
        assert!(named(500).unwrap().contains(">p99<") && named(9).is_none());
    }
}
