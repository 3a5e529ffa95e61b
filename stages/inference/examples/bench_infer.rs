//! Images per CPU-second of our inference loop, beside ONNX Runtime from Python with the same threads and batch.
//!
//! ```text
//! cargo run --release -p inference --example bench_infer -- MODEL [--batch N] [--threads N] [--images N] [--pairs N]
//!     [--loop run|stage] [--python PYTHON]
//! ```
//! `MODEL` is the path of an .onnx file or a name the stage knows. `--loop run` (default) times the model alone,
//! `--loop stage` the whole stage on JPEG frames: decode, resize, batch, run, results. With `--python` (an interpreter
//! with numpy and onnxruntime) each pair runs both sides, each in a process of its own and in alternating order; the
//! result is the median of the pairs' ratios.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use bytes::Bytes;
use contract::{
    Encoding, Geometry, Io, Stage,
    testing::{self, Feed, Sink},
};
use inference::{Config, Infer, Model, Overrides, Runtime, Source, assets_dir, squeezenet};
use serde::{Deserialize, Serialize};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What one side measured.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Measured {
    images: u64,
    wall_seconds: f64,
    cpu_seconds: f64,
}

impl Measured {
    fn per_cpu_second(self) -> f64 {
        self.images as f64 / self.cpu_seconds
    }

    fn per_second(self) -> f64 {
        self.images as f64 / self.wall_seconds
    }
}

#[derive(Debug, Clone)]
struct Options {
    model: String,
    batch: usize,
    threads: usize,
    images: usize,
    pairs: usize,
    whole_stage: bool,
    python: Option<PathBuf>,
    /// Set for the child that measures one side and prints it.
    child: bool,
}

fn main() -> Outcome<()> {
    let options = parse(env::args().skip(1))?;
    if options.child || options.python.is_none() {
        let measured = if options.whole_stage { measure_stage(&options)? } else { measure_run(&options)? };
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(());
    }
    compare(&options)
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Options> {
    let model = arguments.next().ok_or("usage: bench_infer MODEL [--batch N] [--threads N] [--images N] ...")?;
    let mut options =
        Options { model, batch: 1, threads: 1, images: 64, pairs: 5, whole_stage: false, python: None, child: false };
    while let Some(name) = arguments.next() {
        if name == "--child" {
            options.child = true;
            continue;
        }
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        match name.as_str() {
            "--batch" => options.batch = value.parse()?,
            "--threads" => options.threads = value.parse()?,
            "--images" => options.images = value.parse()?,
            "--pairs" => options.pairs = value.parse()?,
            "--loop" => options.whole_stage = value == "stage",
            "--python" => options.python = Some(value.into()),
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(options)
}

/// Runs of one batch, at least one.
fn runs(options: &Options) -> usize {
    options.images.div_ceil(options.batch).max(1)
}

fn measure_run(options: &Options) -> Outcome<Measured> {
    let runtime = Runtime::load(&assets_dir())?;
    let source = match model_path(&options.model) {
        Some(path) => Source::File(path),
        None => squeezenet(),
    };
    let mut model = Model::load(&runtime, &source, &Overrides::default(), options.threads)?;
    let len = model.image_len() * options.batch;
    let input: Vec<f32> = (0..len).map(|i| -2.0 + 4.0 * i as f32 / len as f32).collect();
    for _ in 0..3 {
        model.run(&input)?;
    }
    let (wall, cpu) = (Instant::now(), cpu_seconds()?);
    for _ in 0..runs(options) {
        model.run(&input)?;
    }
    let images = (runs(options) * options.batch) as u64;
    Ok(Measured { images, wall_seconds: wall.elapsed().as_secs_f64(), cpu_seconds: cpu_seconds()? - cpu })
}

fn measure_stage(options: &Options) -> Outcome<Measured> {
    let folder = tempfile::tempdir()?;
    let cx = testing::context(folder.path(), &["frames", "results"]);
    let config: Config = serde_json::from_value(serde_json::json!({
        "model": options.model, "threads": options.threads, "batch": { "max": options.batch, "max_wait": "1s" },
    }))?;
    let stage = Infer::open(config, &cx)?;
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/images/coffee.jpg");
    let payload = Bytes::from(std::fs::read(image)?);
    let frames = (0..runs(options) * options.batch).map(|seq| {
        let mut frame = testing::frame(seq as u64, 0, payload.clone());
        (frame.encoding, frame.geometry) = (Encoding::Jpeg, Geometry::new(408, 272));
        frame
    });
    let (feed, completed) = Feed::new(&cx, frames.collect());
    let io = Io { input: Some(feed), output: Some(Sink::new(&cx, 1, usize::MAX)) };
    let (wall, cpu) = (Instant::now(), cpu_seconds()?);
    stage.run(io, &cx)?;
    let (wall_seconds, cpu_seconds) = (wall.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    Ok(Measured { images: completed.receipts().len() as u64, wall_seconds, cpu_seconds })
}

/// CPU time of this process, threads that ended included, user and system.
fn cpu_seconds() -> Outcome<f64> {
    /// USER_HZ: the unit of /proc/PID/stat, 100 on every Linux this runs on.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The command name may hold blanks; what follows its bracket does not. utime and stime are fields 14 and 15.
    let after_name = stat.rsplit_once(')').ok_or("stat has no command name")?.1;
    let ticks = after_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / TICKS_PER_SECOND)
}

/// The file of a named model, or the path itself; `None` for the embedded one.
fn model_path(model: &str) -> Option<PathBuf> {
    match model {
        "squeezenet" => None,
        "lite0" => Some(assets_dir().join(inference::LITE0_FILE)),
        "resnet50-seeded" => Some(assets_dir().join(inference::RESNET50_SEEDED_FILE)),
        path => Some(path.into()),
    }
}

fn compare(options: &Options) -> Outcome<()> {
    let mut ratios = Vec::new();
    for pair in 0..options.pairs {
        // Alternate who goes first, so that a slow drift of the machine favours neither.
        let (ours, peer) = if pair % 2 == 0 {
            let ours = run_ours()?;
            (ours, run_peer(options)?)
        } else {
            let peer = run_peer(options)?;
            (run_ours()?, peer)
        };
        let ratio = ours.per_cpu_second() / peer.per_cpu_second();
        println!(
            "pair {}: ours {:.2} images/CPU-s ({:.2}/s), python {:.2} images/CPU-s ({:.2}/s), ratio {ratio:.3}",
            pair + 1,
            ours.per_cpu_second(),
            ours.per_second(),
            peer.per_cpu_second(),
            peer.per_second()
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios.get(ratios.len() / 2).ok_or("no pairs were run")?;
    println!("median ratio {median:.3} of {} pairs, images per CPU-second", ratios.len());
    Ok(())
}

fn run_ours() -> Outcome<Measured> {
    measured(Command::new(env::current_exe()?).args(env::args().skip(1)).arg("--child"))
}

fn run_peer(options: &Options) -> Outcome<Measured> {
    let python = options.python.as_ref().ok_or("--python is needed")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench_peer.py");
    let embedded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/models/squeezenet11-fp16.onnx");
    let model = model_path(&options.model).unwrap_or(embedded);
    let mut peer = Command::new(python);
    peer.arg(script).arg(model);
    measured(peer.args([options.batch, options.threads, runs(options)].map(|number| number.to_string())))
}

fn measured(command: &mut Command) -> Outcome<Measured> {
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
