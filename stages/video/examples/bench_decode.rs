//! Frames per CPU-second of our decoder against the ffmpeg program, same threads, in alternation.
//!
//! `bench_decode [--pairs N] [--threads N] [clip ...]`; without clips it makes a 1080p and a 2160p one in a temporary folder.
//! Both run as child processes and are charged whole: start-up, probing, decoding.

#![allow(clippy::print_stdout, reason = "a bench prints its table")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use video::decode::Decoder;
use video::source::{Location, OpenOptions};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, clip, threads] = arguments.as_slice()
        && mode == "--child"
    {
        return decode_all(Path::new(clip), threads.parse()?);
    }
    let (mut pairs, mut threads, mut clips) = (5usize, 1u32, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--pairs" => pairs = rest.next().ok_or("--pairs needs a number")?.parse()?,
            "--threads" => threads = rest.next().ok_or("--threads needs a number")?.parse()?,
            clip => clips.push(PathBuf::from(clip)),
        }
    }
    let folder = std::env::temp_dir().join(format!("reelbench-bench-{}", std::process::id()));
    if clips.is_empty() {
        std::fs::create_dir_all(&folder)?;
        clips = vec![make_clip(&folder, 1920, 1080, 480)?, make_clip(&folder, 3840, 2160, 180)?];
    }
    let result = clips.iter().try_for_each(|clip| compare(clip, pairs, threads));
    let _ = std::fs::remove_dir_all(&folder);
    result
}

/// The film in testdata, scaled and repeated: real texture, without a download.
fn make_clip(folder: &Path, width: u32, height: u32, frames: u32) -> Outcome<PathBuf> {
    let film = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/clips/bbb_h264.mp4");
    let clip = folder.join(format!("{width}x{height}.mp4"));
    let filter = format!("scale={width}:{height},setpts=N/24/TB");
    let status = Command::new("ffmpeg")
        .args(["-v", "error", "-y", "-stream_loop", "-1", "-i"])
        .arg(film)
        .args(["-vf", &filter, "-frames:v", &frames.to_string(), "-c:v", "libx264", "-preset", "veryfast"])
        .args(["-crf", "20", "-pix_fmt", "yuv420p"])
        .arg(&clip)
        .status()?;
    if status.success() { Ok(clip) } else { Err("ffmpeg could not make a clip".into()) }
}

fn decode_all(clip: &Path, threads: u32) -> Outcome<()> {
    let options = OpenOptions { threads, ..OpenOptions::default() };
    let mut decoder = Decoder::open(&Location::file(clip)?, &options)?;
    while decoder.next_frame()?.is_some() {}
    if decoder.counts().frames == 0 { Err(decoder.no_frames().into()) } else { Ok(()) }
}

fn compare(clip: &Path, pairs: usize, threads: u32) -> Outcome<()> {
    let mut decoder = Decoder::open(&Location::file(clip)?, &OpenOptions::default())?;
    let mut frames = 0u32;
    while decoder.next_frame()?.is_some() {
        frames += 1;
    }
    let ours = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--child").arg(clip).arg(threads.to_string());
        measure(command)
    };
    let theirs = || {
        let mut command = Command::new("ffmpeg");
        command.args(["-v", "quiet", "-threads", &threads.to_string(), "-i"]).arg(clip);
        command.args(["-an", "-vsync", "passthrough", "-f", "null", "-"]);
        measure(command)
    };
    let mut ratios = Vec::new();
    println!("{}: {frames} frames, {threads} threads", clip.display());
    println!("  ours: CPU s, wall s, frames/CPU-s | ffmpeg: the same | ratio");
    for pair in 0..pairs {
        // Whoever goes second finds warmer caches: take turns.
        let (a, b) = if pair % 2 == 0 {
            let a = ours()?;
            (a, theirs()?)
        } else {
            let b = theirs()?;
            (ours()?, b)
        };
        let rate = |cost: (f64, f64)| f64::from(frames) / cost.0;
        let ratio = rate(a) / rate(b);
        ratios.push(ratio);
        println!("  {:.2} {:.2} {:.1} | {:.2} {:.2} {:.1} | {ratio:.3}", a.0, a.1, rate(a), b.0, b.1, rate(b));
    }
    ratios.sort_by(f64::total_cmp);
    println!("  median ratio {:.3} of {pairs} pairs", ratios[ratios.len() / 2]);
    Ok(())
}

/// CPU-seconds and wall seconds of a child.
fn measure(mut command: Command) -> Outcome<(f64, f64)> {
    let (cpu, begun) = (children_cpu_seconds(), Instant::now());
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    let wall = begun.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("{command:?} failed").into());
    }
    Ok((children_cpu_seconds() - cpu, wall))
}

#[repr(C)]
#[derive(Default)]
struct Usage {
    user: [i64; 2],
    system: [i64; 2],
    rest: [i64; 14],
}

#[expect(unsafe_code, reason = "the standard library does not tell what a child cost")]
fn children_cpu_seconds() -> f64 {
    unsafe extern "C" {
        fn getrusage(who: i32, usage: *mut Usage) -> i32;
    }
    const RUSAGE_CHILDREN: i32 = -1;
    let mut usage = Usage::default();
    // SAFETY: `Usage` has the layout of struct rusage on 64-bit Linux and is exclusively borrowed.
    unsafe { getrusage(RUSAGE_CHILDREN, &mut usage) };
    let seconds = |time: [i64; 2]| time[0] as f64 + time[1] as f64 / 1e6;
    seconds(usage.user) + seconds(usage.system)
}
