//! The figures that answer first: did it hold, how many frames and bytes, how old, what did the disk see. All taken from the
//! summary and the series; nothing is estimated.

use std::collections::BTreeMap;

use contract::histogram::LatencyStats;
use contract::latency::Step;
use contract::phases::Phase;
use contract::summary::{Audit, DiskFacts, DiskPhase, StageFacts, Summary};

use crate::load::RunFolder;

/// Seconds of a phase; `None` when the run did not reach it.
pub fn phase_seconds(summary: &Summary, name: Phase) -> Option<f64> {
    let phase = summary.phases.iter().find(|phase| phase.name == name)?;
    let seconds = phase.end_ns.saturating_sub(phase.start_ns) as f64 / 1e9;
    (seconds > 0.0).then_some(seconds)
}

/// Name of the figures of a device over the whole run, beside those of each phase.
pub const WHOLE_RUN: &str = "all";

/// Fact by which a source says that its load adapted to the system under test.
pub const LOOP_KIND: &str = "loop_kind";

/// Set when a source was not paced: lateness is then blank, and ages count from the sending.
pub fn closed_loop(summary: &Summary) -> Option<&str> {
    summary.stages.values().find_map(|stage| stage.facts.get(LOOP_KIND)?.as_str())
}

/// Frames due in main and what became of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frames {
    pub offered: u64,
    /// Offered less late, dropped, lost and in flight; blank in a closed loop, where no frame can be late.
    pub on_time: Option<u64>,
    /// Frames lost or in flight at the end count as not on time, wherever they were due.
    pub at_least: bool,
    pub offered_per_second: Option<f64>,
    pub on_time_per_second: Option<f64>,
}

pub fn frames(summary: &Summary) -> Option<Frames> {
    let audit = summary.audit.as_ref()?;
    let seconds = phase_seconds(summary, Phase::Main);
    let missed = not_on_time(audit);
    let on_time = closed_loop(summary).is_none().then(|| audit.offered_main.saturating_sub(missed));
    let rate = |frames: u64| seconds.map(|seconds| frames as f64 / seconds);
    Some(Frames {
        offered: audit.offered_main,
        on_time,
        at_least: audit.totals.in_flight > 0 || audit.totals.lost > 0,
        offered_per_second: rate(audit.offered_main),
        on_time_per_second: on_time.and_then(rate),
    })
}

fn not_on_time(audit: &Audit) -> u64 {
    [audit.dropped_main, audit.totals.lost, audit.totals.in_flight].into_iter().fold(audit.late, u64::saturating_add)
}

/// Payload bytes each second that the sources offered, and over which time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PayloadRate {
    pub bytes_per_second: f64,
    pub over: &'static str,
}

/// Over main from the series; without one, over the whole schedule from the counters of the sources.
pub fn payload_rate(folder: &RunFolder) -> Option<PayloadRate> {
    let mut rows = folder.rows(Phase::Main);
    let first = rows.next();
    let last = rows.last();
    if let (Some(first), Some(last)) = (first, last) {
        let seconds = last.run_ns.saturating_sub(first.run_ns) as f64 / 1e9;
        let bytes = last.frames.offered_bytes.checked_sub(first.frames.offered_bytes)?;
        return (seconds > 0.0).then_some(PayloadRate { bytes_per_second: bytes as f64 / seconds, over: "main" });
    }
    let summary = folder.summary.as_ref()?;
    let end_ns = summary.phases.iter().find(|phase| phase.name == Phase::Main)?.end_ns;
    let sources: Vec<&StageFacts> = summary.stages.values().filter(|stage| is_source(stage)).collect();
    let bytes: Option<u64> = sources.iter().map(|stage| stage.counters.get("frames_offered_bytes").copied()).sum();
    let seconds = end_ns as f64 / 1e9;
    (seconds > 0.0 && !sources.is_empty())
        .then_some(bytes)
        .flatten()
        .map(|bytes| PayloadRate { bytes_per_second: bytes as f64 / seconds, over: "warm-up and main" })
}

pub fn is_source(stage: &StageFacts) -> bool {
    stage.from.is_none() && !stage.to.is_empty()
}

/// The age of a frame at its last step: `end_to_end`, else handed to a stage, else acknowledged.
pub fn age(summary: &Summary) -> Option<(Step, &LatencyStats)> {
    [Step::EndToEnd, Step::Handed, Step::Ack]
        .into_iter()
        .filter_map(|step| summary.latency_ns.get(&step).map(|stats| (step, stats)))
        .find(|(_, stats)| stats.count > 0)
}

/// What `age` measures, in words.
pub fn age_words(step: Step) -> &'static str {
    match step {
        Step::Handed => "handed over",
        Step::Ack => "acknowledged",
        _ => "end to end",
    }
}

/// The age at which frames were handed over, where more were than went through every step: only some are selected.
pub fn handed_age(summary: &Summary) -> Option<&LatencyStats> {
    let (step, stats) = age(summary)?;
    let handed = summary.latency_ns.get(&Step::Handed)?;
    (step == Step::EndToEnd && handed.count > stats.count).then_some(handed)
}

/// The whole device behind the broker's data directory.
pub fn data_device(summary: &Summary) -> Option<&str> {
    let dir = summary.broker.as_ref()?.data_dir.as_deref()?;
    let by_storage = summary.storage.iter().find(|storage| storage.path == dir).and_then(|s| s.device.as_deref());
    by_storage.or_else(|| summary.disks.iter().find(|disk| disk.path == dir).map(|disk| disk.device.as_str()))
}

/// The disk that the logs are on; without that knowledge the one written most.
pub fn main_disk(summary: &Summary) -> Option<(&DiskFacts, &DiskPhase)> {
    let measured = |disk: &'_ &DiskFacts| disk.phases.contains_key(Phase::Main.name());
    let device = data_device(summary);
    let named = summary.disks.iter().filter(measured).find(|disk| Some(disk.device.as_str()) == device);
    let busiest = || {
        let written = |disk: &&DiskFacts| disk.phases.get(Phase::Main.name()).map_or(0, |phase| phase.write_bytes);
        summary.disks.iter().filter(measured).max_by_key(written)
    };
    let disk = named.or_else(busiest)?;
    disk.phases.get(Phase::Main.name()).map(|phase| (disk, phase))
}

/// Share of CPU time that was busy in main (user and system), averaged over its seconds.
pub fn cpu_busy(folder: &RunFolder) -> Option<f64> {
    mean(folder.rows(Phase::Main).filter_map(|row| row.host.as_ref()?.cpu).map(|cpu| cpu.user + cpu.system))
}

pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u32);
    for value in values.filter(|value| value.is_finite()) {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / f64::from(count))
}

/// Share of the mean age that each step of the chain took.
pub fn shares(latency_ns: &BTreeMap<Step, LatencyStats>) -> Vec<(Step, f64)> {
    let mean = |step: Step| latency_ns.get(&step).and_then(|stats| stats.mean);
    let Some(whole) = mean(Step::EndToEnd).filter(|whole| *whole > 0.0) else { return Vec::new() };
    Step::CHAIN.into_iter().filter_map(|step| mean(step).map(|part| (step, part / whole))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn frames_in_flight_are_never_on_time() {
        let mut summary = fixture::summary();
        let before = frames(&summary).unwrap();
        let audit = summary.audit.as_mut().unwrap();
        audit.totals.in_flight = 10;
        audit.dropped_main = 5;
        let after = frames(&summary).unwrap();
        assert_eq!(
            (before.on_time.unwrap() - after.on_time.unwrap(), before.at_least, after.at_least),
            (15, false, true)
        );
    }

    #[test]
    fn no_frame_of_a_closed_loop_is_on_time_or_late() {
        let mut summary = fixture::summary();
        let source = summary.stages.values_mut().next().unwrap();
        source.facts.insert(LOOP_KIND.into(), "closed loop, send-anchored".into());
        assert_eq!(frames(&summary).unwrap().on_time, None);
        let text = crate::table(&RunFolder::of(summary)).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("- on time/s") && text.contains("; closed loop, send-anchored"), "{text}");
    }

    #[test]
    fn a_payload_rate_says_over_which_time_it_was_taken() {
        let folder = fixture::folder();
        let main = payload_rate(&folder).unwrap();
        let whole = payload_rate(&RunFolder::of(fixture::summary())).unwrap();
        assert_eq!((main.over, whole.over), ("main", "warm-up and main"));
        assert!((main.bytes_per_second / whole.bytes_per_second - 1.0).abs() < 0.02, "{main:?} {whole:?}");
    }

    #[test]
    fn the_shares_of_the_chain_sum_to_the_whole() {
        let sum: f64 = shares(&fixture::summary().latency_ns).iter().map(|(_, share)| share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn the_disk_shown_first_is_the_one_with_the_logs() {
        let mut summary = fixture::summary();
        let mut other = summary.disks[0].clone();
        other.device = "sdz".into();
        other.phases.values_mut().for_each(|phase| phase.write_bytes *= 9);
        summary.disks.insert(0, other);
        assert_eq!(main_disk(&summary).unwrap().0.device, "vda");
        summary.broker = None;
        assert_eq!(main_disk(&summary).unwrap().0.device, "sdz");
    }
}
