//! The charts of a report, made from the series, the summary and the histograms. Each is left out when its figures are missing.

mod host;
mod latency;

use contract::phases::Phase;
use contract::series::{FrameFigures, SeriesRow};

use crate::charts::lines::{Band, Line, LineChart, Points};
use crate::charts::{Caption, Figure};
use crate::load::RunFolder;

/// Charts by the part of the report they stand in.
#[derive(Clone, Debug, Default)]
pub struct Plots {
    pub frames: Vec<Figure>,
    pub latency: Vec<Figure>,
    pub disk: Vec<Figure>,
    pub host: Vec<Figure>,
}

pub fn plots(folder: &RunFolder) -> Plots {
    let bands = bands(folder);
    let all = |figures: Vec<Option<Figure>>| figures.into_iter().flatten().collect();
    Plots {
        frames: all(vec![frames(folder, &bands), lag(folder, &bands)]),
        latency: all(latency::figures(folder, &bands)),
        disk: all(host::disk_figures(folder, &bands)),
        host: all(host::host_figures(folder, &bands)),
    }
}

/// Phases from the summary, else from the rows.
fn bands(folder: &RunFolder) -> Vec<Band> {
    let shown = |phase: Phase| matches!(phase, Phase::WarmUp | Phase::Main | Phase::Drain | Phase::Sync);
    let seconds = |ns: i64| ns as f64 / 1e9;
    if let Some(summary) = &folder.summary {
        let phases = summary.phases.iter().filter(|phase| shown(phase.name));
        return phases
            .map(|phase| Band { name: phase.name.name(), from: seconds(phase.start_ns), to: seconds(phase.end_ns) })
            .collect();
    }
    let mut bands: Vec<Band> = Vec::new();
    for row in folder.series.iter().filter(|row| shown(row.phase)) {
        let (name, at) = (row.phase.name(), seconds(row.run_ns));
        match bands.last_mut() {
            Some(band) if band.name == name => band.to = at,
            last => {
                if let Some(band) = last {
                    band.to = at;
                }
                bands.push(Band { name, from: at, to: at });
            }
        }
    }
    bands
}

fn at(row: &SeriesRow) -> f64 {
    row.run_ns as f64 / 1e9
}

/// A figure of each row as it stands.
fn values(folder: &RunFolder, of: impl Fn(&SeriesRow) -> Option<f64>) -> Points {
    folder.series.iter().map(|row| (at(row), of(row))).collect()
}

/// The increase of a cumulative figure each second; a figure that goes back is a gap.
fn rates(folder: &RunFolder, of: impl Fn(&SeriesRow) -> Option<f64>) -> Points {
    let pairs = folder.series.windows(2).map(|pair| {
        let seconds = pair[1].mono_ns.saturating_sub(pair[0].mono_ns) as f64 / 1e9;
        let rate = of(&pair[1]).zip(of(&pair[0])).map(|(to, from)| (to - from) / seconds);
        (at(&pair[1]), rate.filter(|rate| seconds > 0.0 && *rate >= 0.0))
    });
    pairs.collect()
}

fn line(name: &str, colour: usize, points: Points) -> Line {
    Line { name: name.to_owned(), colour, dashed: false, points }
}

fn dashed(name: &str, colour: usize, points: Points) -> Line {
    Line { dashed: true, ..line(name, colour, points) }
}

/// A count that stays 0 is nothing to draw, but for dropped and late: there 0 is the news.
fn frames(folder: &RunFolder, bands: &[Band]) -> Option<Figure> {
    let last = folder.series.last()?.frames;
    let rate = |of: fn(&FrameFigures) -> u64| rates(folder, move |row| Some(of(&row.frames) as f64));
    let mut lines = vec![line("offered", 0, rate(|f| f.offered))];
    if last.delivered > 0 {
        lines.push(dashed("delivered", 2, rate(|f| f.delivered)));
    } else {
        lines.push(dashed("acked", 2, rate(|f| f.acked)));
    }
    if last.inferred > 0 {
        lines.push(line("inferred", 4, rate(|f| f.inferred)));
    }
    lines.push(line("late", 5, rate(|f| f.late)));
    lines.push(line("dropped", 1, rate(|f| f.dropped)));
    let caption = Caption {
        id: "chart-frames",
        title: "Frames offered, delivered, inferred, late, dropped",
        about: "Each second, over all streams; delivered covers offered where the system keeps up",
    };
    LineChart { caption, unit: "frames/s", lines, bands, limit: None, stacked: false, means: true }.figure()
}

/// Consuming stages drawn one by one; more would be a tangle.
const STAGES_SHOWN: usize = 6;

fn lag(folder: &RunFolder, bands: &[Band]) -> Option<Figure> {
    let mut stages: Vec<&String> = folder.series.iter().flat_map(|row| row.lag_by_stage.keys()).collect();
    stages.sort_unstable();
    stages.dedup();
    let mut lines = vec![line("all stages", 0, values(folder, |row| row.lag_frames))];
    if stages.len() > 1 {
        let by_stage = stages.iter().take(STAGES_SHOWN).enumerate();
        lines.extend(by_stage.map(|(index, stage)| {
            dashed(stage, index + 1, values(folder, |row| row.lag_by_stage.get(*stage).copied()))
        }));
    }
    let caption = Caption {
        id: "chart-lag",
        title: "Lag",
        about: "Frames behind the end of the topics; a rising line is a growing backlog",
    };
    LineChart { caption, unit: "frames", lines, bands, limit: None, stacked: false, means: true }.figure()
}
