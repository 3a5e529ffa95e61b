//! Processes, warnings, and the facts that a result depends on: host, drives, clocks, preflight, phases, recipe.

use contract::host::{Baseline, StorageFacts};
use contract::summary::Summary;

use super::Section;
use crate::grid::Grid;
use crate::load::RunFolder;
use crate::processes::processes as process_uses;
use crate::text::{BLANK, blank, bytes, bytes_or_blank, count, fixed, fixed_or_blank, ms, short, short_or_blank};

pub fn processes(folder: &RunFolder) -> Option<Section> {
    let mut grid = Grid::new(&["<process", ">CPU s", ">cores", ">peak RSS", ">read", ">written"]);
    for (role, used) in process_uses(folder) {
        let measured = used.cores().map(|_| used.cpu_seconds);
        grid.push(vec![
            role,
            fixed_or_blank(measured, 1),
            fixed_or_blank(used.cores(), 2),
            bytes(used.peak_rss_bytes),
            bytes_or_blank(used.read_bytes),
            bytes_or_blank(used.write_bytes),
        ]);
    }
    Section::new("processes", "Processes", "in main; written counts when dirtied").grid(grid).shown()
}

pub fn warnings(folder: &RunFolder) -> Option<Section> {
    let warnings = folder.summary.iter().flat_map(|summary| summary.warnings.iter());
    Section::new("warnings", "Warnings", "").lines(folder.notes.iter().chain(warnings).cloned()).shown()
}

fn facts(id: &'static str, title: &'static str, rows: Vec<(String, String)>) -> Option<Section> {
    let mut grid = Grid::new(&["<fact", "<value"]);
    rows.into_iter().for_each(|(name, value)| grid.push(vec![name, value]));
    Section::new(id, title, "").grid(grid).html_only().shown()
}

fn fact(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

pub fn host(summary: &Summary) -> Option<Section> {
    let host = &summary.host;
    let mut rows = vec![
        fact("name", &host.name),
        fact("kernel", &host.kernel),
        fact("CPU", host.cpu_model.clone().unwrap_or_else(blank)),
        fact("cores", count(u64::from(host.cores))),
        fact("memory", bytes(host.memory_bytes)),
        fact("boot id", &host.boot_id),
        fact("time namespace", &host.time_namespace),
    ];
    rows.extend(host.settings.iter().map(|(name, value)| (name.clone(), value.clone())));
    facts("host", "Host", rows)
}

pub fn drives(summary: &Summary) -> Option<Section> {
    let mut grid = Grid::new(&["<path", "<fact", "<value"]);
    let mut put = |path: &str, rows: Vec<(String, String)>| {
        for (index, (name, value)) in rows.into_iter().enumerate() {
            let path = if index == 0 { path.to_owned() } else { String::new() };
            grid.push(vec![path, name, value]);
        }
    };
    summary.storage.iter().for_each(|storage| put(&storage.path, storage_rows(storage)));
    summary.baseline.iter().for_each(|baseline| put(&baseline.path, baseline_rows(baseline)));
    Section::new("drives", "Drives and file systems", "as the kernel names them").grid(grid).html_only().shown()
}

fn storage_rows(storage: &StorageFacts) -> Vec<(String, String)> {
    let no_device = storage.no_device_reason.clone().map(|reason| format!("{BLANK} ({reason})"));
    let mut rows = vec![
        fact("device", storage.device.clone().or(no_device).unwrap_or_else(blank)),
        fact("file system", storage.file_system.clone().unwrap_or_else(blank)),
        fact("mount options", storage.mount_options.clone().unwrap_or_else(blank)),
        fact("size", bytes_or_blank(storage.size_bytes)),
        fact("free", bytes_or_blank(storage.free_bytes)),
        fact("in memory", if storage.ram { "yes, not a disk" } else { "no" }),
    ];
    rows.extend(storage.device_facts.iter().map(|(name, value)| (name.clone(), value.clone())));
    rows
}

fn baseline_rows(baseline: &Baseline) -> Vec<(String, String)> {
    let rate = |value: Option<f64>| match value {
        Some(value) => format!("{} MiB/s", short(value / f64::from(1 << 20))),
        None => blank(),
    };
    let mut rows = vec![
        fact("baseline, sequential write", rate(baseline.write_bytes_per_second)),
        fact("baseline, sequential read", rate(baseline.read_bytes_per_second)),
        fact("baseline, how", format!("{}, {}", baseline.method, bytes(baseline.bytes))),
    ];
    rows.extend(baseline.note.as_ref().map(|note| fact("baseline, note", note)));
    rows
}

pub fn clocks(summary: &Summary) -> Option<Section> {
    let mut grid = Grid::new(&["<host", "<boot id", ">offset ms", ">error ms", ">drift ppm"]);
    for host in &summary.hosts {
        grid.push(vec![
            host.name.clone(),
            host.boot_id.clone(),
            fixed(ms(host.offset_ns), 3),
            fixed(ms(host.error_ns), 3),
            short_or_blank(host.drift_ppm),
        ]);
    }
    Section::new("clocks", "Clocks", "against the runner's").grid(grid).html_only().shown()
}

pub fn preflight(summary: &Summary) -> Option<Section> {
    let mut grid = Grid::new(&["<link", "<observed", "<needed", "<holds", "<remedy"]);
    for link in &summary.preflight {
        let remedy = if link.remedy.is_empty() { blank() } else { link.remedy.clone() };
        let ok = if link.ok { "yes" } else { "NO" };
        grid.push(vec![link.link.clone(), link.observed.clone(), link.needed.clone(), ok.to_owned(), remedy]);
    }
    Section::new("preflight", "Preflight", "every link from frame size to disk space").grid(grid).html_only().shown()
}

pub fn phases(summary: &Summary) -> Option<Section> {
    let mut grid = Grid::new(&["<phase", ">begins s", ">ends s", ">seconds"]);
    for phase in &summary.phases {
        let (start, end) = (phase.start_ns as f64 / 1e9, phase.end_ns as f64 / 1e9);
        grid.push(vec![phase.name.name().to_owned(), fixed(start, 3), fixed(end, 3), fixed(end - start, 3)]);
    }
    Section::new("phases", "Phases", "seconds from the first frame due").grid(grid).html_only().shown()
}

pub fn recipe(summary: &Summary) -> Option<Section> {
    let scenario = &summary.scenario;
    let overrides = if scenario.overrides.is_empty() { "none".to_owned() } else { scenario.overrides.join("; ") };
    facts(
        "recipe",
        "Recipe",
        vec![
            fact("run", &summary.run_id),
            fact("scenario", format!("{} ({})", scenario.name, scenario.path)),
            fact("SHA-256 of the text as run", &scenario.sha256),
            fact("changes on the command line", overrides),
            fact("seed", scenario.seed.to_string()),
            fact("deadline", format!("{} ms", short(ms(scenario.deadline_ns)))),
            fact("reelbench", &scenario.version),
            fact("summary schema", summary.schema_version.to_string()),
            fact("started", &summary.started),
        ],
    )
}
