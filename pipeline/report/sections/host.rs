//! Processes, warnings, and the facts that a result depends on: host, drives, clocks, preflight, phases, recipe.

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
    let mut rows = Vec::new();
    for storage in &summary.storage {
        let named = |name: &str| format!("{}: {name}", storage.path);
        let no_device = storage.no_device_reason.clone().map(|reason| format!("{BLANK} ({reason})"));
        rows.push((named("device"), storage.device.clone().or(no_device).unwrap_or_else(blank)));
        rows.push((named("file system"), storage.file_system.clone().unwrap_or_else(blank)));
        rows.push((named("mount options"), storage.mount_options.clone().unwrap_or_else(blank)));
        rows.push((named("size"), bytes_or_blank(storage.size_bytes)));
        rows.push((named("free"), bytes_or_blank(storage.free_bytes)));
        rows.push((named("in memory"), if storage.ram { "yes, not a disk" } else { "no" }.to_owned()));
        rows.extend(storage.device_facts.iter().map(|(name, value)| (named(name), value.clone())));
    }
    if let Some(baseline) = &summary.baseline {
        let rate = |value: Option<f64>| match value {
            Some(value) => format!("{} MiB/s", short(value / f64::from(1 << 20))),
            None => blank(),
        };
        rows.push(fact("baseline: sequential write", rate(baseline.write_bytes_per_second)));
        rows.push(fact("baseline: sequential read", rate(baseline.read_bytes_per_second)));
        rows.push(fact(
            "baseline: how",
            format!("{}, {} in {}", baseline.method, bytes(baseline.bytes), baseline.path),
        ));
        rows.extend(baseline.note.as_ref().map(|note| fact("baseline: note", note)));
    }
    facts("drives", "Drives and file systems", rows)
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
