//! Bars: shares of a whole, ranges on a logarithmic scale, and a histogram.

use super::axis::{Scale, decade_text};
use super::{BOTTOM, COLOURS, Caption, Figure, HEIGHT, Key, LEFT, RIGHT, TOP, WIDE, WIDTH, label, rule};
use crate::grid::escape;
use crate::text::{count, percent, short};

/// Names of rows need more room than ticks.
const NAMES: f64 = 104.0;
const ROW: f64 = 24.0;

/// One bar cut into parts by their share; parts below zero (clock error) cannot be drawn and are in the legend alone.
pub fn shares(caption: Caption, parts: &[(String, f64)]) -> Option<Figure> {
    let known: Vec<&(String, f64)> = parts.iter().filter(|(_, share)| share.is_finite()).collect();
    let whole: f64 = known.iter().map(|(_, share)| share.max(0.0)).sum();
    if whole <= 0.0 {
        return None;
    }
    let width = WIDE;
    let (mut body, mut left, mut keys) = (String::new(), 0.0, Vec::new());
    for (index, (name, share)) in known.into_iter().enumerate() {
        let size = share.max(0.0) / whole * width;
        let title = escape(&format!("{name} {}", percent(*share)));
        body.push_str(&format!(
            "<rect x=\"{left:.1}\" y=\"8\" width=\"{size:.1}\" height=\"34\" class=\"f{} part\"><title>{title}</title></rect>",
            index % COLOURS
        ));
        if size > 60.0 {
            body.push_str(&label(left + size / 2.0, 30.0, "inside mid", &percent(*share)));
        }
        keys.push(Key { colour: index, dashed: false, name: name.clone(), figures: percent(*share) });
        left += size;
    }
    Some(caption.wide_figure(50.0, &body, &keys))
}

/// One row of a range chart, in ms.
#[derive(Clone, Debug, Default)]
pub struct Range {
    pub name: String,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
}

impl Range {
    fn marks(&self) -> [(&'static str, Option<f64>); 4] {
        [("p50", self.p50), ("p90", self.p90), ("p99", self.p99), ("max", self.max)]
    }
}

/// Percentiles of several steps on one logarithmic axis of milliseconds, from 1 us; smaller values stand at the edge.
pub fn ranges(caption: Caption, rows: &[Range], limit: Option<(&str, f64)>) -> Option<Figure> {
    let values = rows.iter().flat_map(|row| row.marks().into_iter().filter_map(|(_, value)| value));
    let hi = values.chain(limit.map(|(_, value)| value)).filter(|value| value.is_finite()).fold(f64::MIN, f64::max);
    if rows.iter().all(|row| row.marks().iter().all(|(_, value)| value.is_none())) {
        return None;
    }
    let hi = 10f64.powf(hi.max(0.01).log10().ceil());
    let x = Scale::log(0.001, hi, NAMES, WIDTH - RIGHT - 8.0);
    let height = TOP + ROW * rows.len() as f64 + BOTTOM;
    let mut body = String::new();
    for decade in x.decades() {
        let at = x.at(decade);
        body.push_str(&rule((at, TOP - 6.0), (at, height - BOTTOM), "grid"));
        body.push_str(&label(at, height - BOTTOM + 16.0, "tick mid", &decade_text(decade)));
    }
    body.push_str(&label(4.0, height - BOTTOM + 16.0, "unit", "ms (log)"));
    if let Some((name, value)) = limit.filter(|(_, value)| *value > 0.0) {
        let at = x.at(value);
        body.push_str(&rule((at, TOP - 6.0), (at, height - BOTTOM), "limit"));
        body.push_str(&label(at - 4.0, TOP - 10.0, "limit end", name));
    }
    for (index, row) in rows.iter().enumerate() {
        body.push_str(&range_row(row, TOP + ROW * (index as f64 + 0.5), &x));
    }
    let key = |colour, name: &str| Key { colour, dashed: false, name: name.to_owned(), figures: String::new() };
    Some(caption.figure(height, &body, &[key(0, "p50"), key(2, "p90"), key(1, "p99"), key(7, "max")]))
}

fn range_row(row: &Range, y: f64, x: &Scale) -> String {
    let mut out = label(NAMES - 10.0, y + 4.0, "name end", &row.name);
    let known: Vec<f64> = row.marks().into_iter().filter_map(|(_, value)| value).map(|value| x.at(value)).collect();
    let edges = (known.iter().copied().fold(f64::MAX, f64::min), known.iter().copied().fold(f64::MIN, f64::max));
    if known.len() > 1 {
        out.push_str(&rule((edges.0, y), (edges.1, y), "span"));
    }
    for ((name, value), colour) in row.marks().into_iter().zip([0, 2, 1, 7]) {
        if let Some(value) = value {
            let title = escape(&format!("{} {name} {} ms", row.name, short(value)));
            let at = x.at(value);
            out.push_str(&format!(
                "<circle cx=\"{at:.1}\" cy=\"{y:.1}\" r=\"5\" class=\"f{colour} dot\"><title>{title}</title></circle>"
            ));
        }
    }
    out
}

/// Bars of equal ratio, ten to a decade; both axes logarithmic, so that a single frame in the tail is seen.
pub fn histogram(caption: Caption, buckets: &[(f64, u64)], limit: Option<(&str, f64)>) -> Option<Figure> {
    const BINS: f64 = 10.0;
    let bin = |ms: f64| (ms.max(0.001).log10() * BINS).floor() as i32;
    let mut bins: std::collections::BTreeMap<i32, u64> = Default::default();
    for (ms, frames) in buckets.iter().filter(|(_, frames)| *frames > 0) {
        *bins.entry(bin(*ms)).or_default() += frames;
    }
    let (first, last) = (*bins.keys().next()?, *bins.keys().next_back()?);
    let most = bins.values().copied().max().unwrap_or(1) as f64;
    let edge = |bin: i32| 10f64.powf(f64::from(bin) / BINS);
    let hi = limit.map_or(edge(last + 1), |(_, value)| edge(last + 1).max(value * 1.26));
    let x = Scale::log(edge(first - 1), hi, LEFT, WIDTH - RIGHT);
    let y = Scale::log(0.5, 10f64.powf(most.max(2.0).log10().ceil()), HEIGHT - BOTTOM, TOP);
    let mut body = String::new();
    for decade in y.decades() {
        let at = y.at(decade);
        body.push_str(&rule((LEFT, at), (WIDTH - RIGHT, at), "grid"));
        body.push_str(&label(LEFT - 6.0, at + 4.0, "tick end", &count(decade as u64)));
    }
    for (place, frames) in &bins {
        let (left, right, top) = (x.at(edge(*place)), x.at(edge(place + 1)), y.at(*frames as f64));
        let title = format!("{} to {} ms: {} frames", short(edge(*place)), short(edge(place + 1)), count(*frames));
        body.push_str(&format!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" class=\"f0\"><title>{}</title></rect>",
            (right - left - 1.0).max(0.5),
            HEIGHT - BOTTOM - top,
            escape(&title)
        ));
    }
    body.push_str(&log_axis(&x));
    body.push_str(&label(4.0, TOP - 10.0, "unit", "frames (log)"));
    if let Some((name, value)) = limit.filter(|(_, value)| *value > 0.0) {
        let at = x.at(value);
        body.push_str(&rule((at, TOP), (at, HEIGHT - BOTTOM), "limit"));
        body.push_str(&label(at - 4.0, TOP + 10.0, "limit end", name));
    }
    Some(caption.figure(HEIGHT, &body, &[]))
}

/// 1, 2 and 5 of each decade, in ms.
fn log_axis(x: &Scale) -> String {
    let mut out = rule((LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM), "axis");
    let (first, last) = (x.lo().log10().floor() as i32, x.hi().log10().ceil() as i32);
    for value in (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(power))) {
        if value >= x.lo() && value <= x.hi() {
            let at = x.at(value);
            out.push_str(&rule((at, HEIGHT - BOTTOM), (at, HEIGHT - BOTTOM + 4.0), "axis"));
            out.push_str(&label(at, HEIGHT - BOTTOM + 17.0, "tick mid", &format!("{} ms", decade_text(value))));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPTION: Caption<'static> = Caption { id: "i", title: "t", about: "a" };

    #[test]
    fn the_parts_of_a_share_bar_fill_it() {
        let parts = [("a".to_owned(), 0.75), ("b".to_owned(), 0.25), ("skew".to_owned(), -0.1)];
        let svg = shares(CAPTION, &parts).unwrap().0;
        assert!(svg.contains("width=\"892.5\"") && svg.contains("width=\"297.5\"") && svg.contains("-10.0 %"), "{svg}");
        assert_eq!(shares(CAPTION, &[("a".to_owned(), 0.0)]), None);
    }

    #[test]
    fn every_frame_of_a_histogram_is_in_a_bar() {
        let svg = histogram(CAPTION, &[(0.5, 3), (10.1, 900), (11.0, 100), (1500.0, 1)], Some(("deadline", 1000.0)))
            .unwrap()
            .0;
        assert_eq!(svg.matches("class=\"f0\"").count(), 3);
        assert!(svg.contains("1,000 frames") && svg.contains(": 1 frames"), "{svg}");
    }

    #[test]
    fn a_step_without_percentiles_gets_a_row_without_marks() {
        let row = Range { name: "infer".into(), max: Some(3.0), ..Range::default() };
        let svg = ranges(CAPTION, &[row, Range { name: "ack".into(), ..Range::default() }], None).unwrap().0;
        assert_eq!((svg.matches("<circle").count(), svg.contains(">ack<")), (1, true));
        assert_eq!(ranges(CAPTION, &[Range::default()], None), None);
    }
}
