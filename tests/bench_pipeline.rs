//! The whole pipeline at saturation against its physical limit: frames a second over
//! min(cores / CPU-seconds a frame of all parts, device write rate / bytes a frame on disk), all from the same run.
//! `bench_pipeline [runs, default 5]`; needs the assets.

#![allow(clippy::print_stdout, reason = "a bench prints its result")]

#[path = "support.rs"]
#[expect(dead_code, reason = "the whole-program tests use the rest")]
mod support;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use support::{finish, reelbench, said, summary};

/// As fast as the machine goes: real video decoded by each stream, JPEG at full size, read back and classified sparsely.
const SCENARIO: &str = "
run: { name: saturation, warmup: 6s, main: 20s, drain: 30s }
broker: { disk_budget: 40GiB }
topics:
  - { name: frames, partitions: 4 }
  - { name: results }
stages:
  - id: cameras
    kind: decode
    to: frames
    config: { file: assets/bbb-1080p24.mp4, streams: 4, mode: each, pace: unpaced }
  - id: classify
    kind: infer
    from: frames
    to: results
    config: { model: lite0, select: { every: 24 }, batch: { max: 4 } }
";

struct Row {
    seconds: f64,
    frames: f64,
    bytes: f64,
    cpu_seconds: f64,
}

/// First and last row of main.
fn main_rows(folder: &Path) -> (Row, Row) {
    let text = std::fs::read_to_string(folder.join("series.jsonl")).expect("the run wrote its series");
    let rows: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let main: Vec<&Value> = rows.iter().filter(|row| row["phase"] == "main").collect();
    let row = |row: &Value| {
        let processes = row["host"]["processes"].as_object().expect("the host tells its processes");
        Row {
            seconds: row["run_ns"].as_f64().unwrap_or_default() / 1e9,
            frames: row["frames"]["delivered"].as_f64().unwrap_or_default(),
            bytes: row["frames"]["acked_bytes"].as_f64().unwrap_or_default(),
            cpu_seconds: processes.values().filter_map(|process| process["cpu_seconds"].as_f64()).sum(),
        }
    };
    (row(main.first().expect("main was reached")), row(main.last().expect("main was reached")))
}

fn main() {
    let runs: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let mut ratios = Vec::new();
    for run in 1..=runs {
        let folder = tempfile::tempdir_in(support::root().join("target")).expect("target/ is writable");
        let scenario = folder.path().join("saturation.yaml");
        std::fs::write(&scenario, SCENARIO).expect("target/ is writable");
        let out = folder.path().join("out");
        let output = finish(reelbench(&["run"]).arg(&scenario).arg("--out").arg(&out), Duration::from_secs(180));
        assert!(out.join("summary.json").exists(), "{}", said(&output));
        let (first, last) = main_rows(&out);
        let (seconds, frames) = (last.seconds - first.seconds, last.frames - first.frames);
        let cpu_per_frame = (last.cpu_seconds - first.cpu_seconds) / frames;
        let bytes_per_frame = (last.bytes - first.bytes) / frames;
        let device = summary(&out)["baseline"]["write_bytes_per_second"].as_f64().unwrap_or(f64::INFINITY);
        let (cpu_limit, disk_limit) = (cores / cpu_per_frame, device / bytes_per_frame);
        let limit = cpu_limit.min(disk_limit);
        let rate = frames / seconds;
        ratios.push(rate / limit);
        println!(
            "run {run}: {rate:.1} frames/s, {:.2} CPU-ms a frame, limits: CPU {cpu_limit:.1}, disk {disk_limit:.1} frames/s; ratio {:.3}",
            cpu_per_frame * 1e3,
            rate / limit
        );
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.3} of {runs} runs", ratios[ratios.len() / 2]);
}
