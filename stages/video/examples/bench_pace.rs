//! How punctual the pacer is and what it costs: many streams into an output that takes everything.
//!
//! `bench_pace '{"pattern": {...}, "streams": 300}' [seconds]`: the argument is the `config:` of a decode stage.

#![allow(clippy::print_stdout, reason = "a bench prints its table")]

use std::error::Error;

use contract::clock::{mono_ns, thread_cpu_ns};
use contract::phases::Phase;
use contract::testing::{Sink, context};
use contract::{Counter, Io};
use video::STAGES;

const DEFAULT: &str = r#"{ "pattern": { "width": 224, "height": 224, "fps": 24 }, "streams": 300 }"#;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let config = serde_json::from_str(arguments.first().map_or(DEFAULT, String::as_str))?;
    let seconds: i64 = arguments.get(1).map_or(Ok(10), |text| text.parse())?;
    let folder = std::env::temp_dir().join(format!("reelbench-pace-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let cx = context(&folder, &["frames"]);
    let sink = Sink::new(&cx, 0, usize::MAX);
    let stage = (STAGES[0].open)(config, &cx)?;
    // Opening is not part of the schedule: what fell due meanwhile is outside of main.
    let main_ns = cx.clock.now_ns() + 1_000_000_000;
    cx.phases.announce(Phase::Main, main_ns);
    cx.phases.announce(Phase::Drain, main_ns + seconds * 1_000_000_000);
    let (cpu, wall) = (thread_cpu_ns(), mono_ns());
    let result = stage.run(Io { input: None, output: Some(sink.clone()) }, &cx);
    let (cpu_ns, wall_ns) = (thread_cpu_ns() - cpu, mono_ns() - wall);
    let _ = std::fs::remove_dir_all(&folder);
    result?;
    let frames = sink.frames();
    let mut lags: Vec<i64> =
        frames.iter().filter(|frame| frame.due_ns >= main_ns).map(|frame| frame.origin.self_lag_ns).collect();
    lags.sort_unstable();
    let at = |share: f64| lags.get((lags.len() as f64 * share) as usize).map_or(f64::NAN, |ns| *ns as f64 / 1e6);
    println!("{} frames due in main, {} decode errors", lags.len(), cx.recorder.get(Counter::DecodeErrors));
    println!(
        "self-lag ms: p50 {:.3}, p99 {:.3}, p99.9 {:.3}, most {:.3}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.999_999_9)
    );
    let per_frame = cpu_ns as f64 / frames.len() as f64 / 1e3;
    println!("pacer thread: {:.1} % of one core, {per_frame:.1} us a frame", cpu_ns as f64 / wall_ns as f64 * 100.0);
    Ok(())
}
