//! The figures of both runs, in the order they are read.

use std::collections::BTreeMap;

use contract::latency::Step;
use contract::summary::Summary;

use super::FigurePair;
use crate::figures::{cpu_busy, frames, payload_rate};
use crate::load::RunFolder;
use crate::processes::processes;
use crate::truth::storage_truth;

/// A figure of one run.
struct Figure {
    id: String,
    unit: &'static str,
    value: Option<f64>,
}

/// Figures of either run; those that neither knows are left out.
pub fn figures(a: &RunFolder, b: &RunFolder) -> Vec<FigurePair> {
    let (ours, theirs) = (of_run(a), of_run(b));
    let values = |figures: &[Figure]| -> BTreeMap<String, Option<f64>> {
        figures.iter().map(|figure| (figure.id.clone(), figure.value)).collect()
    };
    let (in_a, in_b) = (values(&ours), values(&theirs));
    let only_b = theirs.iter().filter(|figure| !in_a.contains_key(&figure.id));
    let pairs = ours.iter().chain(only_b).map(|figure| {
        let value = |of: &BTreeMap<String, Option<f64>>| of.get(&figure.id).copied().flatten();
        pair(figure, value(&in_a), value(&in_b))
    });
    pairs.filter(|pair| pair.a.is_some() || pair.b.is_some()).collect()
}

fn pair(figure: &Figure, a: Option<f64>, b: Option<f64>) -> FigurePair {
    let difference = a.zip(b).map(|(a, b)| b - a);
    let relative = difference.zip(a).filter(|(_, a)| *a != 0.0).map(|(difference, a)| difference / a.abs());
    FigurePair { id: figure.id.clone(), unit: figure.unit, a, b, difference, relative }
}

fn of_run(folder: &RunFolder) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut push = |id: String, unit, value: Option<f64>| {
        figures.push(Figure { id, unit, value: value.filter(|value| value.is_finite()) });
    };
    if let Some(summary) = &folder.summary {
        frame_figures(summary, &mut push);
    }
    push("payload".into(), "MB/s", payload_rate(folder).map(|rate| rate.bytes_per_second / 1e6));
    if let Some(summary) = &folder.summary {
        latency_figures(summary, &mut push);
        disk_figures(summary, &mut push);
    }
    push("CPU busy in main".into(), "%", cpu_busy(folder).map(|share| share * 100.0));
    for (role, used) in processes(folder) {
        push(format!("CPU of {role} in main"), "cores", used.cores());
        push(format!("peak RSS of {role}"), "MiB", Some(used.peak_rss_bytes as f64 / f64::from(1 << 20)));
    }
    figures
}

type Push<'a> = &'a mut dyn FnMut(String, &'static str, Option<f64>);

fn frame_figures(summary: &Summary, push: Push) {
    if let Some(frames) = frames(summary) {
        push("frames offered".into(), "1/s", frames.offered_per_second);
        push("frames on time".into(), "1/s", frames.on_time_per_second);
    }
    if let Some(audit) = &summary.audit {
        let totals = &audit.totals;
        let counts = [
            ("frames offered in main", audit.offered_main),
            ("frames late", audit.late),
            ("frames dropped", totals.dropped),
            ("frames lost", totals.lost),
            ("frames in flight", totals.in_flight),
            ("duplicates", totals.duplicates),
            ("reordered", totals.reordered),
            ("corrupt", totals.corrupt),
        ];
        counts.into_iter().for_each(|(id, value)| push(id.into(), "frames", Some(value as f64)));
    }
}

fn latency_figures(summary: &Summary, push: Push) {
    for step in Step::ALL {
        let Some(stats) = summary.latency_ns.get(&step) else { continue };
        let ms = |ns: Option<i64>| ns.map(|ns| ns as f64 / 1e6);
        let name = step.name();
        push(format!("{name} mean"), "ms", stats.mean.map(|mean| mean / 1e6));
        push(format!("{name} p50"), "ms", ms(stats.p50));
        push(format!("{name} p99"), "ms", ms(stats.p99));
        if step == Step::EndToEnd {
            push(format!("{name} p99.9"), "ms", ms(stats.p99_9));
            push(format!("{name} max"), "ms", ms(stats.max));
        }
    }
}

fn disk_figures(summary: &Summary, push: Push) {
    for disk in &summary.disks {
        let Some(main) = disk.phases.get("main") else { continue };
        let mut of = |what: &str, unit, value| push(format!("disk {} main {what}", disk.device), unit, value);
        of("r/s", "1/s", main.read_iops);
        of("w/s", "1/s", main.write_iops);
        of("read", "MiB/s", main.read_mib_per_second);
        of("written", "MiB/s", main.write_mib_per_second);
        of("write request", "KiB", main.write_request_kib);
        of("r_await", "ms", main.read_await_ms);
        of("w_await", "ms", main.write_await_ms);
        of("aqu-sz", "", main.queue);
    }
    let truth = storage_truth(summary);
    push("device bytes per payload byte".into(), "", truth.per_payload_byte());
    push("device bytes per payload byte and replica".into(), "", truth.amplification());
    push("sync".into(), "s", summary.sync.as_ref().and_then(|sync| sync.seconds));
}
