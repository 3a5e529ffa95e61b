//! `report.html`: one file that needs nothing else, no script and no network. Every text from the run is escaped.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use contract::phases::Phase;
use contract::summary::{Status, Summary};

use crate::REPORT_FILE;
use crate::charts::Figure;
use crate::figures::{age, age_words, closed_loop, frames, handed_age, main_disk, payload_rate, phase_seconds};
use crate::grid::escape;
use crate::limits::nearest_limits;
use crate::load::{ReportError, RunFolder};
use crate::plots::plots;
use crate::sections::{Section, broker_label, sections};
use crate::table::{deadline_words, debt_line, head, on_time_words};
use crate::text::{BLANK, count, fixed, ms, percent, short, short_or_blank};

const CSS: &str = include_str!("report.css");
/// What the shades behind the charts mean.
const SHADES: &str = "<p class=\"shades\">Charts are shaded by phase: <span class=\"shade warm-up\"></span><span>warm-up</span>\
    <span class=\"shade\"></span><span>main, which the verdict judges</span><span class=\"shade drain\"></span><span>drain</span>\
    <span class=\"shade sync\"></span><span>sync</span></p>";
/// Rows shown of one table.
const MOST_ROWS: usize = 120;
/// Characters of scenario text shown; the file itself is beside the report.
const MOST_SCENARIO: usize = 100_000;

/// The parts of the page, in order: anchor, heading, sections it holds.
const PARTS: [(&str, &str, &[&str]); 6] = [
    ("verdict", "Verdict", &["checks", "audit", "inference"]),
    ("frames", "Frames", &["stages", "sources", "settings"]),
    ("latency", "Latency", &["latency", "latency-outside"]),
    ("disk", "Disk", &["disks", "device-bytes", "broker", "drives"]),
    ("host", "Host", &["processes", "instances", "host", "clocks"]),
    ("recipe", "Recipe", &["recipe", "phases", "preflight"]),
];

/// The whole page.
pub fn render_html(folder: &RunFolder) -> Result<String, ReportError> {
    let sections = sections(folder);
    let plots = plots(folder);
    let mut out = page_head(folder);
    out.push_str("<main>");
    warnings(&mut out, &sections);
    for (id, heading, held) in PARTS {
        let charts: &[Figure] = match id {
            "frames" => &plots.frames,
            "latency" => &plots.latency,
            "disk" => &plots.disk,
            "host" => &plots.host,
            _ => &[],
        };
        let tables: Vec<&Section> =
            held.iter().filter_map(|id| sections.iter().find(|section| section.id == *id)).collect();
        let scenario = folder.scenario.as_deref().filter(|_| id == "recipe");
        if charts.is_empty() && tables.is_empty() && scenario.is_none() {
            continue;
        }
        out.push_str(&format!("<section id=\"{id}\"><h2>{heading}</h2>"));
        if !charts.is_empty() {
            if id == "frames" {
                out.push_str(SHADES);
            }
            out.push_str("<div class=\"charts\">");
            charts.iter().for_each(|chart| out.push_str(&chart.0));
            out.push_str("</div>");
        }
        tables.into_iter().for_each(|section| table(&mut out, section));
        if let Some(text) = scenario {
            scenario_text(&mut out, text);
        }
        out.push_str("</section>");
    }
    out.push_str("</main><footer>A dash is a value that is not known; it is never 0. Times count from the moment a frame was due.</footer></body></html>\n");
    Ok(out)
}

/// Writes `report.html` into a run folder, all of it or nothing.
pub fn write_html(dir: &Path) -> Result<PathBuf, ReportError> {
    let html = render_html(&RunFolder::read(dir)?)?;
    let path = dir.join(REPORT_FILE);
    let draft = dir.join(format!(".{REPORT_FILE}.{}", std::process::id()));
    let written = fs::File::create(&draft)
        .and_then(|mut file| file.write_all(html.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&draft, &path));
    written.map_err(|source| {
        // The draft is of no use to anyone; that it may not exist is no second error.
        let _ = fs::remove_file(&draft);
        ReportError::Write { path: path.clone(), source }
    })?;
    Ok(path)
}

fn status(folder: &RunFolder) -> (&'static str, &'static str) {
    match folder.summary.as_ref().map(|summary| summary.verdict.status) {
        Some(Status::Pass) => ("PASS", "good"),
        Some(Status::Fail) => ("FAIL", "bad"),
        Some(Status::Invalid) => ("INVALID", "odd"),
        None => ("UNFINISHED", "odd"),
    }
}

fn page_head(folder: &RunFolder) -> String {
    let (word, class) = status(folder);
    let name = escape(&folder.name());
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{word} {name} - reelbench</title><style>{CSS}</style></head><body>\
         <header class=\"{class}\"><div class=\"title\"><strong class=\"badge {class}\">{word}</strong><div><h1>{name}</h1>\
         <p class=\"sub\">{}</p></div></div>",
        escape(&subtitle(folder))
    );
    match &folder.summary {
        Some(summary) => {
            reasons(&mut out, summary);
            tiles(&mut out, folder, summary);
        }
        None => {
            let lines = head(folder).into_iter().map(|(name, text)| format!("<li>{name}: {}</li>", escape(&text)));
            let lines: String = lines.collect();
            out.push_str(&format!("<ul class=\"reasons\">{lines}</ul>"));
        }
    }
    out.push_str("<nav aria-label=\"parts of the report\">");
    PARTS.iter().for_each(|(id, heading, _)| out.push_str(&format!("<a href=\"#{id}\">{heading}</a>")));
    out.push_str("</nav></header>");
    out
}

fn subtitle(folder: &RunFolder) -> String {
    let Some(summary) = &folder.summary else { return "the run did not finish: no verdict, no audit".to_owned() };
    let main = phase_seconds(summary, Phase::Main).map(|seconds| format!("{} s in main", fixed(seconds, 1)));
    let parts = [
        main,
        summary.interrupted.then(|| "interrupted".to_owned()),
        Some(summary.started.clone()),
        Some(summary.host.name.clone()).filter(|name| !name.is_empty()),
        Some(format!("seed {}", summary.scenario.seed)),
        Some(format!("reelbench {}", summary.scenario.version)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

fn reasons(out: &mut String, summary: &Summary) {
    out.push_str("<ul class=\"reasons\">");
    summary.verdict.reasons.iter().for_each(|reason| out.push_str(&format!("<li>{}</li>", escape(reason))));
    out.push_str("</ul>");
    let labels = [summary.broker.as_ref().map(broker_label), closed_loop(summary).map(str::to_owned)];
    for label in labels.into_iter().flatten() {
        out.push_str(&format!("<p class=\"label\">{}</p> ", escape(&label)));
    }
}

/// A figure that is read from afar.
struct Tile {
    name: &'static str,
    value: String,
    unit: &'static str,
    detail: String,
}

fn tiles(out: &mut String, folder: &RunFolder, summary: &Summary) {
    let tiles = [frames_tile(summary), payload_tile(folder), age_tile(summary), disk_tile(summary), limit_tile(folder)];
    out.push_str("<dl class=\"tiles\">");
    for tile in tiles.into_iter().flatten() {
        out.push_str(&format!(
            "<div><dt>{}</dt><dd><span class=\"value\">{}</span> {}<span class=\"detail\">{}</span></dd></div>",
            tile.name,
            escape(&tile.value),
            tile.unit,
            escape(&tile.detail)
        ));
    }
    out.push_str("</dl>");
}

fn frames_tile(summary: &Summary) -> Option<Tile> {
    let frames = frames(summary)?;
    let detail = on_time_words(&frames);
    Some(Tile { name: "On time", value: short_or_blank(frames.on_time_per_second), unit: "frames/s", detail })
}

fn payload_tile(folder: &RunFolder) -> Option<Tile> {
    let rate = payload_rate(folder)?;
    let detail = format!("{} MiB/s over {}", short(rate.bytes_per_second / f64::from(1 << 20)), rate.over);
    Some(Tile { name: "Payload", value: short(rate.bytes_per_second / 1e6), unit: "MB/s", detail })
}

fn age_tile(summary: &Summary) -> Option<Tile> {
    let (step, stats) = age(summary)?;
    let value = |ns: Option<i64>| ns.map_or_else(|| BLANK.to_owned(), |ns| short(ms(ns)));
    let (p50, max, held) = (value(stats.p50), value(stats.max), deadline_words(summary));
    let handed = handed_age(summary);
    let handed = handed.map(|stats| format!("handed over: p99 {} ms of {}; ", value(stats.p99), count(stats.count)));
    let (words, frames, handed) = (age_words(step), count(stats.count), handed.unwrap_or_default());
    let detail = format!("{words} of {frames} frames: p50 {p50}, max {max} ms; {handed}{held}");
    Some(Tile { name: "p99 age", value: value(stats.p99), unit: "ms", detail })
}

fn disk_tile(summary: &Summary) -> Option<Tile> {
    let (disk, main) = main_disk(summary)?;
    let detail = format!(
        "{}: {} w/s of {} KiB, await {} ms, queue {}",
        disk.device,
        short_or_blank(main.write_iops),
        short_or_blank(main.write_request_kib),
        short_or_blank(main.write_await_ms),
        short_or_blank(main.queue)
    );
    let debt = debt_line(summary).map(|debt| format!("; {debt}")).unwrap_or_default();
    let detail = format!("{detail}{debt}");
    Some(Tile { name: "Disk writes", value: short_or_blank(main.write_mib_per_second), unit: "MiB/s", detail })
}

fn limit_tile(folder: &RunFolder) -> Option<Tile> {
    let limits = nearest_limits(folder);
    let words: Vec<String> = limits.iter().map(|limit| limit.words.clone()).collect();
    let nearest = limits.first()?;
    Some(Tile { name: "Nearest limit", value: percent(nearest.share), unit: "used", detail: words.join("; ") })
}

fn warnings(out: &mut String, sections: &[Section]) {
    let Some(section) = sections.iter().find(|section| section.id == "warnings") else { return };
    out.push_str("<aside aria-label=\"warnings\"><h2>Warnings</h2><ul>");
    let lines = section.lines.iter().take(MOST_ROWS);
    lines.for_each(|line| out.push_str(&format!("<li>{}</li>", escape(line))));
    out.push_str("</ul></aside>");
}

/// Tables that are looked up rather than read.
const FOLDED: [&str; 4] = ["latency-outside", "settings", "instances", "preflight"];

fn table(out: &mut String, section: &Section) {
    let folded = FOLDED.contains(&section.id);
    out.push_str(&format!("<article id=\"t-{}\">", section.id));
    out.push_str(&match folded {
        true => format!("<details><summary><h3>{}</h3></summary>", section.title),
        false => format!("<h3>{}</h3>", section.title),
    });
    if !section.about.is_empty() {
        out.push_str(&format!("<p class=\"about\">{}</p>", escape(section.about)));
    }
    for line in section.lines.iter().take(MOST_ROWS) {
        out.push_str(&format!("<p class=\"said\">{}</p>", escape(line)));
    }
    if let Some(grid) = &section.grid {
        out.push_str(&grid.html(section.title, MOST_ROWS));
    }
    out.push_str(if folded { "</details></article>" } else { "</article>" });
}

fn scenario_text(out: &mut String, text: &str) {
    let shown: String = text.chars().take(MOST_SCENARIO).collect();
    let cut = if shown.len() < text.len() { "\n... the rest is in scenario.yaml" } else { "" };
    out.push_str(&format!(
        "<article id=\"t-scenario\"><h3>Scenario as run</h3><pre>{}{cut}</pre></article>",
        escape(&shown)
    ));
}

#[cfg(test)]
mod tests;
