//! The metric catalogue: one row a metric, and the text that /metrics serves. Docs and dashboards are made from it.

use std::fmt::Write as _;

use crate::latency::Step;
use crate::recorder::{Counter, Delta, Gauge};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Summary,
}

/// One metric as documented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: String,
    pub kind: Kind,
    pub about: String,
    pub labels: &'static [&'static str],
}

const STAGE_LABELS: &[&str] = &["stage", "kind", "instance"];
const STEP_LABELS: &[&str] = &["stage", "kind", "instance", "step", "quantile"];
const REASON_LABELS: &[&str] = &["stage", "kind", "instance", "step", "reason"];

/// Every metric a stage or the runner may serve. No metric has a label per stream.
pub fn catalogue() -> Vec<Metric> {
    let counters = Counter::ALL.iter().map(|counter| Metric {
        name: counter_name(*counter),
        kind: Kind::Counter,
        about: counter.about().trim().to_owned(),
        labels: STAGE_LABELS,
    });
    let gauges = Gauge::ALL.iter().map(|gauge| Metric {
        name: format!("reelbench_{}", gauge.name()),
        kind: Kind::Gauge,
        about: gauge.about().trim().to_owned(),
        labels: STAGE_LABELS,
    });
    let steps = Metric {
        name: "reelbench_step_seconds".into(),
        kind: Kind::Summary,
        about: "Latency of one step of the chain over frames due in main.".into(),
        labels: STEP_LABELS,
    };
    let drops = Metric {
        name: "reelbench_frames_dropped_by_reason_total".into(),
        kind: Kind::Counter,
        about: "Frames given up before the broker, by step and reason.".into(),
        labels: REASON_LABELS,
    };
    counters.chain(gauges).chain([steps, drops]).collect()
}

pub fn counter_name(counter: Counter) -> String {
    format!("reelbench_{}_total", counter.name())
}

/// Who a delta belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub stage: &'a str,
    pub kind: &'a str,
    pub instance: u32,
}

/// Renders deltas in the Prometheus text format 0.0.4. Each family appears once, with all its series.
pub fn render(parts: &[(Source<'_>, &Delta)]) -> String {
    let mut out = String::new();
    for counter in Counter::ALL {
        family(&mut out, &counter_name(*counter), "counter", counter.about());
        for (source, delta) in parts {
            let _ = writeln!(out, "{}{{{}}} {}", counter_name(*counter), labels(source), delta.counter(*counter));
        }
    }
    for gauge in Gauge::ALL {
        let name = format!("reelbench_{}", gauge.name());
        let set: Vec<_> = parts.iter().filter_map(|(s, delta)| delta.gauge(*gauge).map(|value| (s, value))).collect();
        if !set.is_empty() {
            family(&mut out, &name, "gauge", gauge.about());
        }
        for (source, value) in set {
            let _ = writeln!(out, "{name}{{{}}} {value}", labels(source));
        }
    }
    render_drops(&mut out, parts);
    render_steps(&mut out, parts);
    out
}

fn family(out: &mut String, name: &str, kind: &str, about: &str) {
    let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", about.trim());
}

fn labels(source: &Source<'_>) -> String {
    format!("stage=\"{}\",kind=\"{}\",instance=\"{}\"", escape(source.stage), escape(source.kind), source.instance)
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn render_drops(out: &mut String, parts: &[(Source<'_>, &Delta)]) {
    let name = "reelbench_frames_dropped_by_reason_total";
    family(out, name, "counter", "Frames given up before the broker, by step and reason.");
    for (source, delta) in parts {
        for drop in &delta.drops {
            let (step, reason) = (escape(&drop.stage), escape(&drop.reason));
            let _ = writeln!(out, "{name}{{{},step=\"{step}\",reason=\"{reason}\"}} {}", labels(source), drop.count);
        }
    }
}

fn render_steps(out: &mut String, parts: &[(Source<'_>, &Delta)]) {
    let name = "reelbench_step_seconds";
    family(out, name, "summary", "Latency of one step of the chain over frames due in main.");
    for (source, delta) in parts {
        for step in Step::ALL {
            let histogram = delta.main_histogram(step);
            let stats = histogram.stats();
            let Some(mean) = stats.mean else { continue };
            let labels = format!("{},step=\"{}\"", labels(source), step.name());
            for (quantile, value) in [("0.5", stats.p50), ("0.9", stats.p90), ("0.99", stats.p99)] {
                if let Some(ns) = value {
                    let _ = writeln!(out, "{name}{{{labels},quantile=\"{quantile}\"}} {}", ns as f64 / 1e9);
                }
            }
            let _ = writeln!(out, "{name}_sum{{{labels}}} {}", mean * stats.count as f64 / 1e9);
            let _ = writeln!(out, "{name}_count{{{labels}}} {}", stats.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_counters_end_in_total() {
        let all = catalogue();
        let names: BTreeSet<_> = all.iter().map(|metric| metric.name.clone()).collect();
        assert_eq!(names.len(), all.len());
        for metric in &all {
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
            assert!(metric.about.ends_with('.'), "{}", metric.about);
        }
    }

    #[test]
    fn what_is_served_is_in_the_catalogue() {
        let mut delta = Delta::default();
        delta.counters.insert(Counter::Offered.name().into(), 7);
        delta.gauges.insert(Gauge::LagFrames.name().into(), 2.0);
        let source = Source { stage: "ca\"m", kind: "decode", instance: 0 };
        let text = render(&[(source, &delta)]);
        assert!(text.contains("reelbench_frames_offered_total{stage=\"ca\\\"m\",kind=\"decode\",instance=\"0\"} 7"));
        let known: BTreeSet<_> = catalogue().into_iter().map(|metric| metric.name).collect();
        for line in text.lines().filter(|line| line.starts_with("# TYPE")) {
            let name = line.split(' ').nth(2).unwrap();
            assert!(known.contains(name), "{name}");
        }
    }
}
