//! Checks, audit, inference, latency and stages.

use std::collections::BTreeMap;

use contract::histogram::LatencyStats;
use contract::latency::Step;
use contract::summary::{Audit, InferenceIdentity, InstanceFacts, StageFacts, Summary, TopicAudit};

use super::Section;
use crate::figures::{age, handed_age, is_source, shares};
use crate::grid::Grid;
use crate::text::{BLANK, blank, bytes_or_blank, count, count_or_blank, fixed_or_blank, ms_or_blank, percent_or_blank};

pub fn checks(summary: &Summary) -> Option<Section> {
    let mut grid = Grid::new(&["<rule", "<of", "<limit", "<observed", "<status"]);
    for check in &summary.verdict.checks {
        let status = check.status.map_or(BLANK, |status| status.name());
        grid.push(vec![
            check.id.clone(),
            check.stage.clone().unwrap_or_else(blank),
            check.limit.clone(),
            check.observed.clone(),
            status.to_owned(),
        ]);
    }
    Section::new("checks", "Rules", "limit and observed of every rule").grid(grid).shown()
}

fn holds(yes: bool) -> &'static str {
    if yes { "holds" } else { "BROKEN" }
}

pub fn audit(summary: &Summary) -> Option<Section> {
    let audit = summary.audit.as_ref()?;
    Section::new("audit", "Audit", "every frame of the run")
        .line(identity(audit))
        .lines(audit_lines(audit))
        .grid(topics(audit))
        .shown()
}

/// The identity with its numbers; what breaks it is named.
pub fn identity(audit: &Audit) -> String {
    let totals = &audit.totals;
    let words = if totals.identity_holds { "exact".to_owned() } else { "IDENTITY BROKEN".to_owned() };
    let unexplained = match totals.unexplained {
        0 => String::new(),
        frames => format!(", {} unexplained", count(frames)),
    };
    format!(
        "offered {} = delivered {} + lost {} + dropped {} + in flight {}   {words}{unexplained}",
        count(totals.offered),
        count(totals.delivered),
        count(totals.lost),
        count(totals.dropped),
        count(totals.in_flight)
    )
}

fn audit_lines(audit: &Audit) -> Vec<String> {
    let totals = &audit.totals;
    let mut lines = vec![format!(
        "scheduled {}, acked {}, corrupt {}, duplicates {}, redelivered {}, reordered {}, foreign {}",
        count(audit.scheduled),
        count(totals.acked),
        count(totals.corrupt),
        count(totals.duplicates),
        count(totals.redelivered),
        count(totals.reordered),
        count(totals.foreign)
    )];
    lines.push(format!(
        "due in main {}: late {}, dropped {}",
        count(audit.offered_main),
        count(audit.late),
        count(audit.dropped_main)
    ));
    if totals.lost > 0 {
        lines.push(format!(
            "lost: {} acknowledged, {} not acknowledged (of these {} because the stage died)",
            count(totals.lost_acked),
            count(totals.lost_unacked),
            count(totals.lost_stage_died)
        ));
    }
    lines.extend(
        audit.drops.iter().map(|drop| format!("dropped by {}: {} ({})", drop.stage, count(drop.count), drop.reason)),
    );
    if !audit.acknowledged_only.is_empty() {
        let topics = audit.acknowledged_only.join(", ");
        lines.push(format!("acknowledged only, no stage read them back: {topics}"));
    }
    lines
}

fn topics(audit: &Audit) -> Grid {
    let mut grid = Grid::new(&[
        "<topic",
        ">RF",
        "+<audited by",
        ">offered",
        ">delivered",
        ">lost",
        ">dropped",
        ">in flight",
        ">dup",
        ">reord",
        ">corrupt",
        "+>redelivered",
        "+>foreign",
        "+>payload",
        "<exact",
    ]);
    audit.topics.iter().for_each(|topic| grid.push(topic_row(topic)));
    grid
}

fn topic_row(topic: &TopicAudit) -> Vec<String> {
    let counts = &topic.counts;
    // Nobody read the topic back: what reached it is not known.
    let read = |value: u64| topic.audited_by.as_ref().map_or_else(blank, |_| count(value));
    let exact = if topic.audited_by.is_some() || !counts.identity_holds { holds(counts.identity_holds) } else { BLANK };
    vec![
        topic.topic.clone(),
        count(u64::from(topic.replication)),
        topic.audited_by.clone().unwrap_or_else(blank),
        count(counts.offered),
        read(counts.delivered),
        read(counts.lost),
        count(counts.dropped),
        count(counts.in_flight),
        read(counts.duplicates),
        read(counts.reordered),
        read(counts.corrupt),
        read(counts.redelivered),
        read(counts.foreign),
        bytes_or_blank(Some(topic.payload_bytes)),
        exact.to_owned(),
    ]
}

pub fn inference(summary: &Summary) -> Option<Section> {
    let mut grid = Grid::new(&[
        "<stage",
        ">delivered",
        ">inferred",
        ">unselected",
        ">dropped",
        ">failed",
        ">corrupt",
        ">unfinished",
        "<exact",
    ]);
    summary.inference.iter().for_each(|(id, row)| grid.push(inference_row(id, row)));
    let models = summary.inference.iter().map(|(id, row)| format!("{id}: {}", model_words(row)));
    (!grid.is_empty())
        .then(|| Section::new("inference", "Inference", "every frame handed to the stage").lines(models).grid(grid))
}

/// Seeded weights do the work of real ones, and predict nothing.
fn model_words(row: &InferenceIdentity) -> String {
    let model = row.model.as_deref().unwrap_or(BLANK);
    match row.model_weights.as_deref() {
        Some("seeded") => format!("{model}, seeded weights: the work is real, the predictions mean nothing"),
        Some(weights) => format!("{model}, weights {weights}"),
        None => model.to_owned(),
    }
}

fn inference_row(id: &str, row: &InferenceIdentity) -> Vec<String> {
    let numbers = [row.delivered, row.inferred, row.not_selected, row.dropped, row.failed, row.corrupt, row.unfinished];
    let mut cells = vec![id.to_owned()];
    cells.extend(numbers.map(count));
    cells.push(holds(row.identity_holds).to_owned());
    cells
}

pub fn latency(summary: &Summary) -> Option<Section> {
    Section::new("latency", "Latency", "ms, frames due in main; indented steps sum to end_to_end")
        .lines(negative_note(&summary.latency_ns))
        .lines(selection_note(summary))
        .grid(latency_grid(&summary.latency_ns))
        .shown()
}

pub fn latency_outside(summary: &Summary) -> Option<Section> {
    Section::new("latency-outside", "Latency outside main", "ms, frames due before or after main")
        .lines(negative_note(&summary.latency_outside_main_ns))
        .grid(latency_grid(&summary.latency_outside_main_ns))
        .html_only()
        .shown()
}

fn latency_grid(latency: &BTreeMap<Step, LatencyStats>) -> Grid {
    let shares: BTreeMap<Step, f64> = shares(latency).into_iter().collect();
    let heads = ["<step", ">n", ">p50", ">p90", ">p99", ">p99.9", ">max", ">mean", ">share of mean"];
    let mut grid = Grid::new(&heads);
    for step in Step::ALL {
        let Some(stats) = latency.get(&step) else { continue };
        let in_chain = if Step::CHAIN.contains(&step) { "  " } else { "" };
        let mut row = vec![format!("{in_chain}{}", step.name()), count(stats.count)];
        row.extend([stats.p50, stats.p90, stats.p99, stats.p99_9, stats.max].map(ms_or_blank));
        row.push(ms_or_blank(stats.mean.map(|mean| mean.round() as i64)));
        row.push(if step == Step::EndToEnd {
            "= sum".to_owned()
        } else {
            percent_or_blank(shares.get(&step).copied())
        });
        grid.push(row);
    }
    grid
}

/// Which frames went through every step, where not all did.
fn selection_note(summary: &Summary) -> Option<String> {
    let handed = handed_age(summary)?;
    let (_, whole) = age(summary)?;
    let (selected, all) = (count(whole.count), count(handed.count));
    Some(format!("end_to_end and its steps: the {selected} of {all} frames that were selected for inference"))
}

fn negative_note(latency: &BTreeMap<Step, LatencyStats>) -> Vec<String> {
    let negative = latency.iter().filter(|(_, stats)| stats.negative_count > 0);
    negative
        .map(|(step, stats)| {
            let (frames, least) = (count(stats.negative_count), ms_or_blank(stats.min));
            format!("{}: {frames} samples below zero (clock error between hosts), the least {least} ms", step.name())
        })
        .collect()
}

pub fn stages(summary: &Summary) -> Option<Section> {
    let heads = [
        "<stage",
        "<kind",
        ">n",
        ">offered",
        ">achieved",
        ">dropped",
        ">late",
        ">errors",
        ">CPU s",
        ">RSS",
        "+<from",
        "+<to",
        "<state",
    ];
    let mut grid = Grid::new(&heads);
    summary.stages.iter().for_each(|(id, stage)| grid.push(stage_row(id, stage)));
    let reasons = summary.stages.iter().flat_map(|(id, stage)| {
        stage.reasons.iter().map(move |(reason, frames)| format!("{id}: {reason}: {}", count(*frames)))
    });
    Section::new("stages", "Stages", "whole run; offered and acked by a source, handed to and done by the others")
        .lines(reasons)
        .grid(grid)
        .shown()
}

/// A process reports only counters above 0; a stage that reported none at all is not known.
fn counter_sum(stage: &StageFacts, names: &[&str]) -> Option<u64> {
    let counted = |name: &&str| stage.counters.get(*name).copied().unwrap_or(0);
    (!stage.counters.is_empty()).then(|| names.iter().map(counted).fold(0, u64::saturating_add))
}

/// The sum over all instances; blank when one of them is not known.
fn all<T: std::iter::Sum>(stage: &StageFacts, of: impl Fn(&InstanceFacts) -> Option<T>) -> Option<T> {
    if stage.instances.is_empty() {
        return None;
    }
    stage.instances.iter().map(of).sum()
}

fn stage_row(id: &str, stage: &StageFacts) -> Vec<String> {
    let (offered, achieved) =
        if is_source(stage) { ("frames_offered", "frames_acked") } else { ("frames_delivered", "frames_done") };
    let rss = all(stage, |instance| instance.rss_bytes.map(u128::from));
    // Frames are late at their last step: in a source only where nothing consumes them.
    let late = counter_sum(stage, &["frames_late"]).filter(|late| *late > 0 || !is_source(stage));
    let errors = ["frames_delivery_failed", "frames_inference_failed", "decode_errors", "commit_errors"];
    vec![
        id.to_owned(),
        stage.kind.clone(),
        count(stage.instances.len() as u64),
        count_or_blank(counter_sum(stage, &[offered])),
        count_or_blank(counter_sum(stage, &[achieved])),
        count_or_blank(counter_sum(stage, &["frames_dropped", "frames_inference_dropped"])),
        count_or_blank(late),
        count_or_blank(counter_sum(stage, &errors)),
        fixed_or_blank(all(stage, |instance| instance.cpu_seconds), 1),
        bytes_or_blank(rss.map(|sum| u64::try_from(sum).unwrap_or(u64::MAX))),
        stage.from.clone().unwrap_or_else(blank),
        if stage.to.is_empty() { blank() } else { stage.to.join(", ") },
        states(stage),
    ]
}

/// The states its instances ended in, each once.
fn states(stage: &StageFacts) -> String {
    let mut states: Vec<&str> = stage.instances.iter().map(|instance| instance.state.as_str()).collect();
    states.sort_unstable();
    states.dedup();
    if states.is_empty() { blank() } else { states.join(", ") }
}

pub fn instances(summary: &Summary) -> Option<Section> {
    let heads = ["<process", "<host", ">pid", "<state", ">CPU s", ">RSS", ">read", ">written", "<error"];
    let mut grid = Grid::new(&heads);
    for (id, stage) in &summary.stages {
        for instance in &stage.instances {
            grid.push(vec![
                format!("{id}-{}", instance.index),
                instance.host.clone(),
                instance.pid.to_string(),
                instance.state.clone(),
                fixed_or_blank(instance.cpu_seconds, 1),
                bytes_or_blank(instance.rss_bytes),
                bytes_or_blank(instance.read_bytes),
                bytes_or_blank(instance.write_bytes),
                instance.error.clone().unwrap_or_else(blank),
            ]);
        }
    }
    Section::new("instances", "Stage processes", "whole run").grid(grid).html_only().shown()
}
