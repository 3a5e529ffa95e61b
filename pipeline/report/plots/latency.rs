//! Charts of the age of frames.

use contract::histogram::NsHistogram;
use contract::latency::Step;
use contract::summary::Summary;

use super::{line, values};
use crate::charts::bars::{self, Range};
use crate::charts::curve::{self, Curve};
use crate::charts::lines::{Band, Limit, LineChart};
use crate::charts::{Caption, Figure};
use crate::figures::{age, age_words, closed_loop, handed_age, shares};
use crate::load::RunFolder;
use crate::text::ms;

pub fn figures(folder: &RunFolder, bands: &[Band]) -> Vec<Option<Figure>> {
    let summary = folder.summary.as_ref();
    vec![
        summary.and_then(share_bar),
        over_time(folder, bands),
        summary.and_then(by_step),
        summary.and_then(|summary| histogram(folder, summary)),
        summary.and_then(|summary| percentiles(folder, summary)),
    ]
}

fn deadline_ms(summary: &Summary) -> Option<f64> {
    (summary.scenario.deadline_ns > 0 && closed_loop(summary).is_none()).then(|| ms(summary.scenario.deadline_ns))
}

fn over_time(folder: &RunFolder, bands: &[Band]) -> Option<Figure> {
    let lines = vec![
        line("last step, p99", 0, values(folder, |row| row.end_to_end_p99_ns.map(ms))),
        line("handed over, p99", 1, values(folder, |row| row.handed_p99_ns.map(ms))),
        line("acknowledged, p99", 2, values(folder, |row| row.ack_p99_ns.map(ms))),
    ];
    let limit = folder.summary.as_ref().and_then(deadline_ms).map(|value| Limit { name: "deadline".into(), value });
    let caption = Caption {
        id: "chart-p99",
        title: "p99 age over time",
        about: "Of the frames since the look before, from due; a second with fewer than 100 of them has none",
    };
    LineChart { caption, unit: "ms", lines, bands, limit, stacked: false, means: false }.figure()
}

fn share_bar(summary: &Summary) -> Option<Figure> {
    let parts: Vec<(String, f64)> =
        shares(&summary.latency_ns).into_iter().map(|(step, share)| (step.name().to_owned(), share)).collect();
    let caption = Caption {
        id: "chart-shares",
        title: "Where the time goes",
        about: "Share of the mean age that each step took; together they are the whole",
    };
    bars::shares(caption, &parts)
}

fn by_step(summary: &Summary) -> Option<Figure> {
    let rows: Vec<Range> = Step::ALL
        .into_iter()
        .filter_map(|step| {
            let stats = summary.latency_ns.get(&step)?;
            let (p50, p90) = (stats.p50.map(ms), stats.p90.map(ms));
            Some(Range { name: step.name().to_owned(), p50, p90, p99: stats.p99.map(ms), max: stats.max.map(ms) })
        })
        .collect();
    let caption = Caption {
        id: "chart-steps",
        title: "Percentiles of each step",
        about: "Frames due in main, logarithmic; values below 1 us stand at the left edge",
    };
    bars::ranges(caption, &rows, deadline_ms(summary).map(|value| ("deadline", value)))
}

fn histogram(folder: &RunFolder, summary: &Summary) -> Option<Figure> {
    let (step, _) = age(summary)?;
    let buckets: Vec<(f64, u64)> =
        folder.histogram(step)?.buckets().into_iter().map(|(ns, frames)| (ns as f64 / 1e6, frames)).collect();
    let about = format!("Frames due in main, {}; both axes logarithmic", age_words(step));
    let caption = Caption { id: "chart-histogram", title: "Distribution of the age", about: &about };
    bars::histogram(caption, &buckets, deadline_ms(summary).map(|value| ("deadline", value)))
}

/// The age at the last step and, where only some frames come that far, the age at which all were handed over.
fn percentiles(folder: &RunFolder, summary: &Summary) -> Option<Figure> {
    let (step, _) = age(summary)?;
    let also = handed_age(summary).map(|_| Step::Handed);
    let known: Vec<(Step, NsHistogram)> =
        [Some(step), also].into_iter().flatten().filter_map(|step| Some((step, folder.histogram(step)?))).collect();
    let values: Vec<_> = known.iter().map(|(_, histogram)| |q: f64| histogram.quantile(q).map(ms)).collect();
    let curves: Vec<Curve> = known
        .iter()
        .zip(&values)
        .map(|((step, histogram), value)| Curve { name: age_words(*step), samples: histogram.count(), value })
        .collect();
    let caption = Caption {
        id: "chart-percentiles",
        title: "Age by percentile",
        about: "Frames due in main; a line ends at the last percentile its samples support",
    };
    let limit = deadline_ms(summary).map(|value| Limit { name: "deadline".into(), value });
    curve::percentiles(caption, &curves, limit)
}
