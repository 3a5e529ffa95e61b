//! A figure over the time of the run: lines, or areas stacked on each other. Phases are shaded; a missing second is a gap.

use super::axis::{Scale, step, tick_text, ticks, time_step, time_text};
use super::{BOTTOM, COLOURS, Caption, Figure, HEIGHT, Key, LEFT, RIGHT, TOP, WIDTH, label, rule};
use crate::grid::escape;
use crate::text::short;

/// A line with more points is thinned: of each bucket the smallest and the largest stay, so that no peak is lost.
const MOST_POINTS: usize = 700;

/// Values by seconds of the run.
pub type Points = Vec<(f64, Option<f64>)>;

#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub colour: usize,
    pub dashed: bool,
    pub points: Points,
}

/// A phase of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    pub name: &'static str,
    pub from: f64,
    pub to: f64,
}

/// A value to hold against, such as the deadline.
#[derive(Clone, Debug)]
pub struct Limit {
    pub name: String,
    pub value: f64,
}

pub struct LineChart<'a> {
    pub caption: Caption<'a>,
    pub unit: &'a str,
    pub lines: Vec<Line>,
    pub bands: &'a [Band],
    pub limit: Option<Limit>,
    pub stacked: bool,
    /// Whether a mean over seconds means anything: not for percentiles, nor for means over differing numbers of requests.
    pub means: bool,
}

impl LineChart<'_> {
    /// `None` when there is nothing to show.
    pub fn figure(mut self) -> Option<Figure> {
        self.lines.iter_mut().for_each(|line| drop_unreal(&mut line.points));
        self.lines.retain(|line| line.points.iter().any(|(_, value)| value.is_some()));
        let seconds = self.lines.iter().flat_map(|line| line.points.iter().map(|(at, _)| *at));
        let (from, to) = bounds(seconds)?;
        let x = Scale::linear(from, to, LEFT, WIDTH - RIGHT);
        let keys: Vec<Key> = self.lines.iter().map(|line| self.key(line)).collect();
        let layers = if self.stacked { self.layers() } else { Vec::new() };
        let y = self.y_scale(&layers);
        let mut body = self.phases(&x);
        body.push_str(&grid(&x, &y, self.unit));
        if self.stacked {
            for (line, layer) in self.lines.iter().zip(&layers) {
                body.push_str(&area(layer, &x, &y, line.colour));
            }
        } else {
            self.lines.iter().for_each(|line| body.push_str(&path(line, &x, &y)));
        }
        body.push_str(&self.limit_line(&y));
        Some(self.caption.figure(HEIGHT, &body, &keys))
    }

    fn y_scale(&self, layers: &[Vec<Layer>]) -> Scale {
        let tops = layers.iter().flatten().flatten().map(|(_, _, top)| *top);
        let values = self.lines.iter().flat_map(|line| line.points.iter().filter_map(|(_, value)| *value));
        let (lo, mut hi) = if self.stacked { bounds(tops) } else { bounds(values) }.unwrap_or((0.0, 1.0));
        // A limit far above would press the lines to the floor; then the legend alone names it.
        if let Some(limit) = &self.limit
            && limit.value <= hi * 2.5
        {
            hi = hi.max(limit.value);
        }
        let lo = lo.min(0.0);
        let size = step(hi - lo, 4);
        Scale::linear((lo / size).floor() * size, ((hi * 1.02) / size).ceil() * size, HEIGHT - BOTTOM, TOP)
    }

    fn phases(&self, x: &Scale) -> String {
        let mut out = String::new();
        for band in self.bands {
            let (left, right) = (x.at(band.from), x.at(band.to));
            if right - left < 0.5 {
                continue;
            }
            out.push_str(&format!(
                "<rect x=\"{left:.1}\" y=\"{TOP}\" width=\"{1:.1}\" height=\"{2:.1}\" class=\"phase-{0}\"><title>{0}</title></rect>",
                band.name,
                right - left,
                HEIGHT - TOP - BOTTOM
            ));
            if right - left > 7.0 * band.name.len() as f64 {
                out.push_str(&label(left + 4.0, TOP + 12.0, "phase", band.name));
            }
        }
        out
    }

    fn limit_line(&self, y: &Scale) -> String {
        let Some(limit) = &self.limit else { return String::new() };
        let text = format!("{} {} {}", limit.name, short(limit.value), self.unit);
        if limit.value > y.hi() {
            return label(WIDTH - RIGHT, TOP - 8.0, "limit end", &format!("{text}, above the scale"));
        }
        let at = y.at(limit.value);
        rule((LEFT, at), (WIDTH - RIGHT, at), "limit") + &label(WIDTH - RIGHT - 4.0, at - 4.0, "limit end", &text)
    }

    /// Mean and largest value, in main where the line has any there.
    fn key(&self, line: &Line) -> Key {
        let main = self.bands.iter().find(|band| band.name == "main");
        let within = |at: f64| main.is_none_or(|main| at >= main.from && at <= main.to);
        let all: Vec<f64> = line.points.iter().filter_map(|(_, value)| *value).collect();
        let in_main: Vec<f64> =
            line.points.iter().filter(|(at, _)| within(*at)).filter_map(|(_, value)| *value).collect();
        let values = if in_main.is_empty() { all } else { in_main };
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let most = values.iter().copied().fold(f64::MIN, f64::max);
        let mean = if self.means { format!("mean {}, ", short(mean)) } else { String::new() };
        let figures = format!("{mean}max {} {}", short(most), self.unit);
        Key { colour: line.colour, dashed: line.dashed, name: line.name.clone(), figures }
    }

    /// (second, bottom, top) of each line on those below it; a second that no line knows is a gap in all.
    fn layers(&self) -> Vec<Vec<Layer>> {
        let mut floor: Vec<f64> = Vec::new();
        let mut layers = Vec::new();
        let thinned: Vec<Points> = self.lines.iter().map(|line| averaged(&line.points)).collect();
        let known =
            |index: usize| thinned.iter().any(|points| points.get(index).is_some_and(|(_, value)| value.is_some()));
        for points in &thinned {
            floor.resize(floor.len().max(points.len()), 0.0);
            let layer = points.iter().enumerate().map(|(index, (at, value))| {
                let bottom = floor[index];
                floor[index] += value.unwrap_or(0.0).max(0.0);
                known(index).then_some((*at, bottom, floor[index]))
            });
            layers.push(layer.collect());
        }
        layers
    }
}

type Layer = Option<(f64, f64, f64)>;

fn drop_unreal(points: &mut Points) {
    points.retain(|(at, _)| at.is_finite());
    points.iter_mut().for_each(|(_, value)| *value = value.filter(|value| value.is_finite()));
}

pub fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |range: Option<(f64, f64)>, value| {
        let (lo, hi) = range.unwrap_or((value, value));
        Some((lo.min(value), hi.max(value)))
    })
}

/// Lines and texts of both axes.
fn grid(x: &Scale, y: &Scale, unit: &str) -> String {
    let mut out = String::new();
    let size = step(y.hi() - y.lo(), 4);
    for tick in ticks(y.lo(), y.hi(), size) {
        let at = y.at(tick);
        out.push_str(&rule((LEFT, at), (WIDTH - RIGHT, at), "grid"));
        out.push_str(&label(LEFT - 6.0, at + 4.0, "tick end", &tick_text(tick, size)));
    }
    let size = time_step(x.hi() - x.lo(), 8);
    for tick in ticks(x.lo(), x.hi(), size) {
        let at = x.at(tick);
        out.push_str(&rule((at, HEIGHT - BOTTOM), (at, HEIGHT - BOTTOM + 4.0), "axis"));
        out.push_str(&label(at, HEIGHT - BOTTOM + 17.0, "tick mid", &time_text(tick, size)));
    }
    out.push_str(&rule((LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM), "axis"));
    out.push_str(&label(4.0, TOP - 10.0, "unit", unit));
    out
}

fn path(line: &Line, x: &Scale, y: &Scale) -> String {
    let mut data = String::new();
    let mut pen_down = false;
    let points = thinned(&line.points);
    for (index, (at, value)) in points.iter().enumerate() {
        let Some(value) = value else {
            pen_down = false;
            continue;
        };
        let (px, py) = (x.at(*at), y.at(*value));
        let alone = !pen_down && points.get(index + 1).is_none_or(|(_, next)| next.is_none());
        // A single second between gaps would be a line of no length.
        let tail = if alone { "h1" } else { "" };
        data.push_str(&format!("{}{px:.1} {py:.1}{tail}", if pen_down { "L" } else { "M" }));
        pen_down = true;
    }
    let dashed = if line.dashed { " dashed" } else { "" };
    format!(
        "<path d=\"{data}\" class=\"line c{}{dashed}\"><title>{}</title></path>",
        line.colour % COLOURS,
        escape(&line.name)
    )
}

fn area(layer: &[Layer], x: &Scale, y: &Scale, colour: usize) -> String {
    let mut out = String::new();
    for part in layer.split(Option::is_none).filter(|part| !part.is_empty()) {
        let points: Vec<(f64, f64, f64)> = part.iter().copied().flatten().collect();
        let tops = points.iter().map(|(at, _, top)| format!("{:.1} {:.1}", x.at(*at), y.at(*top)));
        let bottoms = points.iter().rev().map(|(at, bottom, _)| format!("{:.1} {:.1}", x.at(*at), y.at(*bottom)));
        let outline: Vec<String> = tops.chain(bottoms).collect();
        out.push_str(&format!("<path d=\"M{}Z\" class=\"area f{}\"/>", outline.join("L"), colour % COLOURS));
    }
    out
}

/// The smallest and largest of each bucket, in the order they came.
fn thinned(points: &Points) -> Points {
    if points.len() <= MOST_POINTS {
        return points.clone();
    }
    let bucket = points.len().div_ceil(MOST_POINTS / 2);
    let mut kept = Points::new();
    for chunk in points.chunks(bucket) {
        let known = || chunk.iter().enumerate().filter_map(|(index, (_, value))| value.map(|value| (index, value)));
        let least = known().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index);
        let most = known().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index);
        match (least, most) {
            (Some(least), Some(most)) => {
                kept.push(chunk[least.min(most)]);
                if least != most {
                    kept.push(chunk[least.max(most)]);
                }
            }
            _ => kept.push(chunk[0]),
        }
    }
    kept
}

/// The mean of each bucket: the parts of a stack must be of the same seconds.
fn averaged(points: &Points) -> Points {
    let bucket = points.len().div_ceil(MOST_POINTS).max(1);
    let mean = |chunk: &[(f64, Option<f64>)]| {
        let known: Vec<f64> = chunk.iter().filter_map(|(_, value)| *value).collect();
        (chunk[0].0, (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64))
    };
    points.chunks(bucket).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Points, stacked: bool) -> Option<String> {
        let caption = Caption { id: "x", title: "T <b>", about: "about" };
        let line = Line { name: "a & b".into(), colour: 0, dashed: false, points };
        let limit = Some(Limit { name: "deadline".into(), value: 1000.0 });
        let chart = LineChart { caption, unit: "ms", lines: vec![line], bands: &[], limit, stacked, means: true };
        chart.figure().map(|figure| figure.0)
    }

    #[test]
    fn a_missing_second_is_a_gap_and_never_zero() {
        let svg = chart(vec![(0.0, Some(5.0)), (1.0, None), (2.0, Some(5.0)), (3.0, Some(6.0))], false).unwrap();
        let path = svg.split("<path d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(
            (path.matches('M').count(), path.matches('L').count(), path.matches('h').count()),
            (2, 1, 1),
            "{path}"
        );
        assert!(svg.contains("mean 5.33, max 6.00 ms"), "{svg}");
    }

    #[test]
    fn nothing_known_is_no_chart() {
        assert_eq!(chart(vec![], false), None);
        assert_eq!(chart(vec![(0.0, None), (1.0, Some(f64::NAN))], true), None);
    }

    #[test]
    fn names_are_escaped_and_a_far_limit_is_said_in_words() {
        let svg = chart(vec![(0.0, Some(1.0)), (1.0, Some(2.0))], false).unwrap();
        assert!(svg.contains("T &lt;b&gt;") && svg.contains("a &amp; b") && !svg.contains("<b>"));
        assert!(svg.contains("deadline 1,000 ms, above the scale"));
    }

    #[test]
    fn thinning_keeps_the_one_high_second_of_a_long_run() {
        let mut points: Points = (0..20_000).map(|second| (f64::from(second), Some(1.0))).collect();
        points[12_345].1 = Some(99.0);
        let kept = thinned(&points);
        assert!(kept.len() <= MOST_POINTS && kept.contains(&(12_345.0, Some(99.0))));
    }
}
