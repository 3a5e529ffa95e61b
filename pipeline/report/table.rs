//! The result in the terminal: plain text of at most 100 columns. Its first five lines say whether it held, how many frames and
//! bytes, how old they were, what the disk saw, and which limit was nearest.

use contract::phases::Phase;
use contract::summary::{Status, Summary};

use crate::figures::{Frames, age, age_words, closed_loop, frames, handed_age, main_disk, payload_rate, phase_seconds};
use crate::limits::nearest_limits;
use crate::load::RunFolder;
use crate::sections::sections;
use crate::text::{
    BLANK, blank, bytes_or_blank, count, exact_percent, fixed, fixed_or_blank, ms, plain, short, short_or_blank, wrap,
};
use crate::truth::storage_truth;

/// Widest line.
pub const WIDTH: usize = 100;
/// Columns of the names in front of the first lines.
const LABEL: usize = 8;

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// Colour the verdict by ANSI escapes.
    pub colour: bool,
}

/// The result as plain text.
pub fn table(folder: &RunFolder) -> String {
    table_with(folder, TableOptions::default())
}

pub fn table_with(folder: &RunFolder, options: TableOptions) -> String {
    let mut out = String::new();
    let first = clip(&plain(&first_line(folder)));
    out.push_str(&if options.colour { coloured(folder, &first) } else { first });
    out.push('\n');
    for (name, text) in head(folder) {
        for (place, line) in wrap(&plain(&text), WIDTH - LABEL).into_iter().enumerate() {
            out.push_str(&format!("{:<LABEL$}{line}\n", if place == 0 { name } else { "" }));
        }
    }
    why(folder, &mut out);
    for section in sections(folder).into_iter().filter(|section| !section.html_only) {
        let about = if section.about.is_empty() { String::new() } else { format!("  {}", section.about) };
        out.push_str(&format!("\n{}{about}\n", section.title.to_uppercase()));
        section.lines.iter().for_each(|line| indented(&mut out, line));
        if let Some(grid) = &section.grid {
            grid.text(WIDTH - 2).lines().for_each(|line| out.push_str(&format!("  {line}\n")));
        }
    }
    out
}

/// Reasons in full: the first line may have cut them.
fn why(folder: &RunFolder, out: &mut String) {
    let Some(summary) = &folder.summary else { return };
    let reasons = &summary.verdict.reasons;
    let all_said = reasons.len() < 2 && verdict_line(summary).chars().count() <= WIDTH;
    if !all_said {
        out.push_str("\nWHY\n");
        reasons.iter().for_each(|reason| indented(out, reason));
    }
}

fn indented(out: &mut String, text: &str) {
    out.push_str(&format!("{}\n", hanging(&format!("  {}", plain(text)), 4)));
}

/// A line that fits stays; a longer one goes on below, indented.
fn hanging(line: &str, indent: usize) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    let lead = line.chars().take_while(|c| *c == ' ').count();
    let first = wrap(line, WIDTH - lead).into_iter().next().unwrap_or_default();
    let rest: String =
        line.split_whitespace().collect::<Vec<_>>().join(" ").chars().skip(first.chars().count()).collect();
    let mut lines = vec![format!("{}{first}", " ".repeat(lead))];
    lines.extend(wrap(&rest, WIDTH - indent).into_iter().map(|line| format!("{}{line}", " ".repeat(indent))));
    lines.join("\n")
}

fn clip(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    let mut cut: String = line.chars().take(WIDTH - 3).collect();
    cut.push_str("...");
    cut
}

fn coloured(folder: &RunFolder, line: &str) -> String {
    let code = match folder.summary.as_ref().map(|summary| summary.verdict.status) {
        Some(Status::Pass) => "1;32",
        Some(Status::Fail) => "1;31",
        Some(Status::Invalid) | None => "1;33",
    };
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    format!("\u{1b}[{code}m{word}\u{1b}[0m {rest}")
}

/// The verdict and its first reason; cut where it is long, because reasons stand in full below.
fn first_line(folder: &RunFolder) -> String {
    match &folder.summary {
        Some(summary) => verdict_line(summary),
        None => format!("UNFINISHED  {}: no verdict, no audit", folder.name()),
    }
}

/// The lines below the verdict, with their names; figures are never cut.
pub fn head(folder: &RunFolder) -> Vec<(&'static str, String)> {
    match &folder.summary {
        Some(summary) => {
            let mut lines = vec![
                ("frames", frames_line(folder, summary)),
                ("age", age_line(summary)),
                ("disk", disk_line(summary)),
                ("nearest", limits_line(folder)),
            ];
            lines.extend(debt_line(summary).map(|line| ("debt", line)));
            lines
        }
        None => vec![("last", last_second(folder)), ("nearest", limits_line(folder))],
    }
}

fn verdict_line(summary: &Summary) -> String {
    let status = summary.verdict.status.name();
    let main = phase_seconds(summary, Phase::Main).map(|seconds| format!(", {} s in main", fixed(seconds, 1)));
    let interrupted = if summary.interrupted { ", interrupted" } else { "" };
    let reason = summary.verdict.reasons.first().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{status:<LABEL$}{}{}{interrupted}{reason}", summary.scenario.name, main.unwrap_or_default())
}

pub fn frames_line(folder: &RunFolder, summary: &Summary) -> String {
    let Some(frames) = frames(summary) else { return "no frames in this run".to_owned() };
    let (rate, of) = (short_or_blank(frames.on_time_per_second), on_time_words(&frames));
    let bytes = match payload_rate(folder) {
        Some(rate) => {
            let (mb, mib) = (rate.bytes_per_second / 1e6, rate.bytes_per_second / f64::from(1 << 20));
            let over = if rate.over == "main" { String::new() } else { format!(" over {}", rate.over) };
            format!("{} MB/s ({} MiB/s) payload{over}", short(mb), short(mib))
        }
        None => format!("{BLANK} MB/s payload"),
    };
    format!("{} offered/s, {rate} on time/s ({of}), {bytes}", short_or_blank(frames.offered_per_second),)
}

/// `11,513 of 11,520, 99.939 %`.
pub fn on_time_words(frames: &Frames) -> String {
    let at_least = if frames.at_least { "at least " } else { "" };
    let offered = count(frames.offered);
    match frames.on_time {
        Some(on_time) => {
            let share = exact_percent(on_time, frames.offered).unwrap_or_else(blank);
            format!("{at_least}{} of {offered}, {share}", count(on_time))
        }
        None => format!("of {offered}"),
    }
}

/// What an age is held against.
pub fn deadline_words(summary: &Summary) -> String {
    match closed_loop(summary) {
        Some(label) => label.to_owned(),
        None => format!("deadline {} ms", short(ms(summary.scenario.deadline_ns))),
    }
}

pub fn age_line(summary: &Summary) -> String {
    let Some((step, stats)) = age(summary) else { return "no frame was timed".to_owned() };
    let value = |ns: Option<i64>| ns.map_or_else(blank, |ns| short(ms(ns)));
    let frames = count(stats.count);
    // Both ages and the deadline fit a line only without the median; it is in the latency table.
    let (median, handed) = match handed_age(summary) {
        Some(all) => (String::new(), format!("; p99 {} handed over of {}", value(all.p99), count(all.count))),
        None => (format!(" p50 {},", value(stats.p50)), String::new()),
    };
    format!(
        "p99 {} ms,{median} max {} {} of {frames}{handed}; {}",
        value(stats.p99),
        value(stats.max),
        age_words(step),
        deadline_words(summary)
    )
}

pub fn disk_line(summary: &Summary) -> String {
    let Some((disk, main)) = main_disk(summary) else { return "no device was measured".to_owned() };
    format!(
        "{} write {} MiB/s in {} w/s of {} KiB, await {} ms, queue {}{}",
        disk.device,
        short_or_blank(main.write_mib_per_second),
        short_or_blank(main.write_iops),
        short_or_blank(main.write_request_kib),
        short_or_blank(main.write_await_ms),
        fixed_or_blank(main.queue, 2),
        reads(main.read_mib_per_second)
    )
}

/// What was still to be written when the load ended, and what the device took in the end; `None` without either.
pub fn debt_line(summary: &Summary) -> Option<String> {
    let sync = summary.sync.as_ref().map(|sync| {
        let dirty = bytes_or_blank(sync.dirty_before_bytes);
        match sync.seconds {
            Some(seconds) => format!("{dirty} unwritten before the sync, which took {} s", short(seconds)),
            None => format!("{dirty} unwritten before the sync, which did not end"),
        }
    });
    let truth = storage_truth(summary);
    let times = truth.amplification().map(|times| format!("device took {} x payload x RF", fixed(times, 2)));
    let parts: Vec<String> = [sync, times].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn reads(mib_per_second: Option<f64>) -> String {
    mib_per_second.filter(|rate| *rate >= 0.05).map(|rate| format!("; read {} MiB/s", short(rate))).unwrap_or_default()
}

pub fn limits_line(folder: &RunFolder) -> String {
    let limits = nearest_limits(folder);
    if limits.is_empty() {
        return "limits not measured".to_owned();
    }
    let mut line = String::new();
    for limit in limits {
        if !line.is_empty() && line.chars().count() + 2 + limit.words.chars().count() > WIDTH - LABEL {
            break;
        }
        line.push_str(if line.is_empty() { "" } else { ", " });
        line.push_str(&limit.words);
    }
    line
}

fn last_second(folder: &RunFolder) -> String {
    let Some(row) = folder.series.last() else { return "no second of it was recorded".to_owned() };
    let f = &row.frames;
    format!(
        "in {} at {} s: offered {}, acked {}, delivered {}, inferred {}, dropped {}, late {}",
        row.phase.name(),
        fixed(row.run_ns as f64 / 1e9, 1),
        count(f.offered),
        count(f.acked),
        count(f.delivered),
        count(f.inferred),
        count(f.dropped),
        count(f.late)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_table_of_the_fixture_is_the_golden_one() {
        fixture::assert_golden("quickstart.table.txt", &table(&fixture::folder()));
    }

    #[test]
    fn the_first_five_lines_answer_first() {
        let text = table(&fixture::folder());
        let starts: Vec<&str> = text.lines().take(5).map(|line| line.split_whitespace().next().unwrap()).collect();
        assert_eq!(starts, ["PASS", "frames", "age", "disk", "nearest"]);
    }

    #[test]
    fn lines_stay_within_the_width_and_are_free_of_escapes() {
        let mut folder = fixture::folder();
        let summary = folder.summary.as_mut().unwrap();
        summary.scenario.name = "long-".repeat(60);
        summary.verdict.reasons = vec![format!("\u{1b}[31m{}", "why ".repeat(90))];
        summary.warnings.push("w".repeat(333));
        let text = table(&folder);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(!text.contains('\u{1b}'));
        assert!(table_with(&folder, TableOptions { colour: true }).starts_with("\u{1b}[1;32mPASS\u{1b}[0m "));
    }

    #[test]
    fn an_unfinished_run_says_so_and_how_far_it_came() {
        let mut folder = fixture::folder();
        folder.summary = None;
        folder.series.truncate(35);
        let text = table(&folder);
        assert!(
            text.starts_with("UNFINISHED  quickstart: no verdict, no audit\nlast    in main at 34.0 s: offered"),
            "{text}"
        );
    }

    #[test]
    fn figures_that_are_not_known_are_blank_and_never_zero() {
        let mut summary = fixture::summary();
        summary.disks[0].phases.values_mut().for_each(|phase| {
            phase.write_iops = None;
            phase.write_await_ms = None;
        });
        summary.stages.values_mut().for_each(|stage| stage.instances.iter_mut().for_each(|i| i.cpu_seconds = None));
        let folder = RunFolder::of(summary);
        let text = table(&folder);
        let disk = text.lines().find(|line| line.starts_with("disk ")).unwrap();
        assert!(disk.contains(" - w/s of ") && disk.contains("await - ms"), "{disk}");
        let limits = text.lines().find(|line| line.starts_with("nearest ")).unwrap();
        assert!(!limits.contains("CPU"), "{limits}");
    }

    #[test]
    fn a_frame_lost_in_ten_million_is_seen_in_the_share() {
        let mut summary = fixture::summary();
        let audit = summary.audit.as_mut().unwrap();
        (audit.offered_main, audit.late) = (10_000_000, 1);
        assert!(frames_line(&RunFolder::default(), &summary).contains("99.999 %"));
    }
}
