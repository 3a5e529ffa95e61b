//! Damaged files never crash or hang the decoder: seeded mutants of every clip are decoded, converted and counted.
//!
//! Mutants run in child processes, so that a crash is seen and counted instead of ending the test. `REELBENCH_LONG=1` runs
//! 10,000 of them.

#![allow(clippy::unwrap_used, reason = "a failure anywhere in a test is its result")]

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use contract::Encoding;
use contract::random::Random;
use picture::Filter;
use video::convert::{Converter, PayloadSpec, Picture, SizeSpec};
use video::decode::Decoder;
use video::error::VideoError;
use video::media_clock::MediaClock;
use video::source::{Location, OpenOptions};

const RANGE: &str = "REELBENCH_MUTANTS";
/// No mutant takes a second; this much silence is a hang.
const HANG: Duration = Duration::from_secs(60);
/// A damaged file may claim more frames than anybody wants to see.
const MAX_FRAMES: usize = 200;

fn clips() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/clips");
    let mut found: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|ending| ending != "sh"));
    found.sort();
    assert!(found.len() >= 15);
    found
}

/// Mutant `number`: which clip, what damage.
fn mutant(number: u64, clips: &[PathBuf]) -> Vec<u8> {
    let mut random = Random::named(number, "mutant");
    let mut bytes = std::fs::read(&clips[random.below(clips.len() as u64) as usize]).unwrap();
    for _ in 0..=random.below(4) {
        let len = bytes.len() as u64;
        // A quarter of the damage goes to the first kilobyte, where headers are.
        let reach = if random.below(4) == 0 { len.min(1024) } else { len };
        let at = random.below(reach) as usize;
        let run = (random.below(64) as usize + 1).min(bytes.len() - at);
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => random.fill(&mut bytes[at..at + run]),
            2 => bytes[at..at + run].fill(0),
            3 => bytes[at..at + run].fill(0xff),
            4 => bytes.truncate(at.max(1)),
            5 => drop(bytes.drain(at..at + run)),
            _ => {
                let again = bytes[at..at + run].to_vec();
                bytes.splice(at..at, again);
            }
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes
}

/// Decode and convert as a stage would; frames and errors.
fn play(path: &Path) -> Result<(usize, u64), VideoError> {
    let options = OpenOptions { timeout: Duration::from_secs(20), ..OpenOptions::default() };
    let mut decoder = Decoder::open(&Location::file(path)?, &options)?;
    let spec =
        PayloadSpec { encoding: Encoding::Jpeg, quality: 50, size: SizeSpec::Exact(64, 48), filter: Filter::Area };
    let mut converter = Converter::new(spec, decoder.info().orientation)?;
    let mut clock = MediaClock::new(decoder.time_base(), decoder.info().frame_period_ns());
    let (mut frames, mut last) = (0, -1);
    for pass in 0..2 {
        while let Some(frame) = decoder.next_frame()? {
            let time = clock.place(frame.pts, frame.duration);
            assert!(time.ticks > last, "media time fell back");
            last = time.ticks;
            converter.convert(&Picture::Decoded(frame))?;
            frames += 1;
            if frames >= MAX_FRAMES {
                return Ok((frames, decoder.counts().errors));
            }
        }
        if pass == 0 {
            decoder.rewind()?;
            clock.next_loop();
        }
    }
    Ok((frames, decoder.counts().errors))
}

/// Runs only as the child of the test below.
#[test]
fn child() {
    let Ok(range) = std::env::var(RANGE) else { return };
    let (from, to) = range.split_once("..").unwrap();
    let clips = clips();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mutant");
    for number in from.parse::<u64>().unwrap()..to.parse().unwrap() {
        println!("\nMUTANT {number} begins");
        std::fs::write(&path, mutant(number, &clips)).unwrap();
        match play(&path) {
            Ok((frames, errors)) => println!("\nMUTANT {number} handled: {frames} frames, {errors} errors"),
            Err(error) => println!("\nMUTANT {number} refused: {error}"),
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    handled: u64,
    refused: u64,
    /// Number of each mutant that ended its process or never came back.
    crashed: Vec<u64>,
    hung: Vec<u64>,
}

/// Run a range in one child; returns where to go on after a crash or hang.
fn run_child(range: Range<u64>, tally: &mut Tally) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(RANGE, format!("{}..{}", range.start, range.end))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, lines) = sync_channel(1024);
    let reader = thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut present = range.start;
    let mut hung = false;
    loop {
        match lines.recv_timeout(HANG) {
            Ok(line) => {
                let Some((number, what)) = line.strip_prefix("MUTANT ").and_then(|rest| rest.split_once(' ')) else {
                    continue;
                };
                present = number.parse().unwrap();
                tally.handled += u64::from(what.starts_with("handled"));
                tally.refused += u64::from(what.starts_with("refused"));
                if !what.starts_with("begins") {
                    present += 1;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                hung = true;
                child.kill().unwrap();
                break;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait().unwrap();
    let _ = reader.join();
    if hung {
        tally.hung.push(present);
    } else if !status.success() {
        tally.crashed.push(present);
    } else {
        return range.end;
    }
    present + 1
}

#[test]
fn mutants_are_handled_or_refused_and_never_crash_or_hang() {
    let long = std::env::var("REELBENCH_LONG").is_ok_and(|value| value == "1");
    let total = if long { 10_000 } else { 200 };
    let mut tally = Tally::default();
    let mut next = 0;
    while next < total {
        next = run_child(next..(next + 500).min(total), &mut tally);
    }
    println!(
        "{total} mutants: {} handled, {} refused, {:?}",
        tally.handled,
        tally.refused,
        (&tally.crashed, &tally.hung)
    );
    assert!(tally.crashed.is_empty() && tally.hung.is_empty(), "crashed {:?}, hung {:?}", tally.crashed, tally.hung);
    assert_eq!(tally.handled + tally.refused, total);
    assert!(tally.handled > total / 4 && tally.refused > 0);
}
