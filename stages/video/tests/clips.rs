//! Every clip in testdata decodes to exactly the frames that ffprobe lists, also when it loops; broken ones are refused or
//! counted.

#![allow(clippy::unwrap_used, reason = "a failure anywhere in a test is its result")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use video::decode::Decoder;
use video::source::{Location, OpenOptions};

fn clips() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/clips")
}

fn open(name: &str) -> Decoder {
    let location = Location::file(&clips().join(name)).unwrap();
    Decoder::open(&location, &OpenOptions::default()).unwrap()
}

/// PTS and size of each frame.
type Listed = (Option<i64>, u32, u32);

fn decoded(decoder: &mut Decoder) -> Vec<Listed> {
    let mut found = Vec::new();
    while let Some(frame) = decoder.next_frame().unwrap() {
        found.push((frame.pts, frame.width_px(), frame.height_px()));
    }
    found
}

fn listed(json: &Value) -> Vec<Listed> {
    let number = |frame: &Value, key: &str| frame[key].as_u64().unwrap() as u32;
    let frames = json["frames"].as_array().unwrap();
    frames.iter().map(|f| (f["best_effort_timestamp"].as_i64(), number(f, "width"), number(f, "height"))).collect()
}

fn all_clips() -> Vec<(String, Value)> {
    let golden = clips().join("../golden/video");
    let mut found: Vec<(String, Value)> = golden
        .read_dir()
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap())
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(found.len() >= 14, "golden lists are missing");
    found
}

#[test]
fn frames_and_pts_equal_the_golden_lists() {
    for (name, golden) in all_clips() {
        let mut decoder = open(&name);
        let stream = &golden["streams"][0];
        assert_eq!(decoder.info().codec, stream["codec_name"].as_str().unwrap(), "{name}");
        let base = decoder.time_base();
        assert_eq!(format!("{}/{}", base.num, base.den), stream["time_base"].as_str().unwrap(), "{name}");
        assert_eq!(decoded(&mut decoder), listed(&golden), "{name}");
    }
}

#[test]
fn frames_and_pts_equal_ffprobe_on_this_host() {
    if Command::new("ffprobe").arg("-version").output().is_err() {
        println!("SKIPPED: ffprobe is not installed");
        return;
    }
    for (name, _) in all_clips() {
        let entries = "frame=best_effort_timestamp,width,height";
        let said = Command::new("ffprobe")
            .args(["-v", "quiet", "-select_streams", "v:0", "-print_format", "json", "-show_entries", entries])
            .arg(clips().join(&name))
            .output()
            .unwrap();
        let json: Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!(decoded(&mut open(&name)), listed(&json), "{name}");
    }
}

#[test]
fn every_loop_gives_the_same_frames() {
    for (name, golden) in all_clips() {
        let mut decoder = open(&name);
        for pass in 0..3 {
            assert_eq!(decoded(&mut decoder), listed(&golden), "{name}, pass {pass}");
            decoder.rewind().unwrap();
        }
    }
}

#[test]
fn more_threads_give_the_same_frames() {
    for (name, golden) in all_clips() {
        let location = Location::file(&clips().join(&name)).unwrap();
        let options = OpenOptions { threads: 3, ..OpenOptions::default() };
        let mut decoder = Decoder::open(&location, &options).unwrap();
        assert_eq!(decoded(&mut decoder), listed(&golden), "{name}");
    }
}

#[test]
fn audio_alone_is_refused_by_name() {
    let location = Location::file(&clips().join("audio_only.m4a")).unwrap();
    let error = Decoder::open(&location, &OpenOptions::default()).err().unwrap().to_string();
    assert!(error.contains("audio_only.m4a") && error.contains("no video stream (audio aac)"), "{error}");
}

#[test]
fn files_that_are_not_video_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [("empty.mp4", &b""[..]), ("text.mp4", b"this is not a film at all, only some text")] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = Decoder::open(&Location::file(&path).unwrap(), &OpenOptions::default()).err().unwrap().to_string();
        assert!(error.contains(name) && error.contains("cannot be opened as video"), "{error}");
    }
}

#[test]
fn a_film_without_its_index_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.mp4");
    let whole = std::fs::read(clips().join("vfr.mp4")).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(Decoder::open(&Location::file(&path).unwrap(), &OpenOptions::default()).is_err());
}

#[test]
fn a_truncated_film_gives_what_it_holds_and_counts_the_rest() {
    let mut decoder = open("truncated.mp4");
    let frames = decoded(&mut decoder).len();
    assert!((20..50).contains(&frames), "{frames}");
    assert!(decoder.counts().errors > 0);
}

#[test]
fn a_name_with_a_colon_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("http:clip.mp4");
    std::fs::copy(clips().join("one_frame.mp4"), &path).unwrap();
    let mut decoder = Decoder::open(&Location::file(&path).unwrap(), &OpenOptions::default()).unwrap();
    assert_eq!(decoded(&mut decoder).len(), 1);
}

#[test]
fn seeking_lands_on_a_key_frame_at_or_before_the_wish() {
    let mut decoder = open("bbb_h264.mp4");
    assert!(decoder.seek(1_500_000_000));
    // Key frames are 10 frames (1 s at 1/10240) apart.
    assert_eq!(decoded(&mut decoder)[0].0, Some(10_240));
    assert!(!open("no_pts.h264").seek(100));
}
