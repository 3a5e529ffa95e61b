//! The decode stage on channels: exact schedules, loops, modes, blocked partitions, broken sources.

#![allow(clippy::unwrap_used, reason = "a failure anywhere in a test is its result")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::flow::Output;
use contract::phases::Phase;
use contract::testing::{Sink, assert_stage_contract, context};
use contract::{Counter, Cx, Frame, Io, Offer, StageEntry};
use picture::{JpegDecoder, RgbImage};
use serde_json::{Value, json};
use video::STAGES;
use video::pattern::read_counter;

const ENTRY: &StageEntry = &STAGES[0];

fn clip(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/clips").join(name)
}

fn pattern(fps: f64) -> Value {
    json!({ "width": 64, "height": 48, "fps": fps, "frames": 10 })
}

struct Run {
    cx: Cx,
    frames: Vec<Frame>,
    result: Result<(), contract::StageError>,
    _folder: tempfile::TempDir,
}

/// Run a stage for `end_ms` of schedule.
fn run(config: Value, end_ms: i64) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let cx = context(folder.path(), &["frames"]);
    let sink = Sink::new(&cx, 0, usize::MAX);
    let stage = (ENTRY.open)(config, &cx).unwrap();
    // Opening took time; the schedule begins now.
    let begin_ns = cx.clock.now_ns();
    cx.phases.announce(Phase::Main, 0);
    cx.phases.announce(Phase::Drain, end_ms * 1_000_000);
    let result = stage.run(Io { input: None, output: Some(sink.clone()) }, &cx);
    assert!(begin_ns >= 0);
    Run { cx, frames: sink.frames(), result, _folder: folder }
}

fn by_stream(frames: &[Frame]) -> BTreeMap<u32, Vec<&Frame>> {
    let mut streams: BTreeMap<u32, Vec<&Frame>> = BTreeMap::new();
    for frame in frames {
        streams.entry(frame.stream).or_default().push(frame);
    }
    streams
}

fn check_books(run: &Run) {
    for frame in &run.frames {
        let origin = frame.origin;
        assert!(frame.produced_ns >= frame.due_ns, "offered before it was due");
        assert!(origin.blocked_ns >= 0 && origin.self_lag_ns >= 0 && origin.enqueue_ns >= 0);
        assert_eq!(
            frame.due_ns + origin.blocked_ns + origin.self_lag_ns + origin.enqueue_ns,
            frame.produced_ns,
            "the chain has a gap"
        );
    }
    for frames in by_stream(&run.frames).values() {
        for (seq, frame) in frames.iter().enumerate() {
            assert_eq!(frame.seq, seq as u64);
        }
        for pair in frames.windows(2) {
            assert!(pair[0].due_ns < pair[1].due_ns && pair[0].pts < pair[1].pts);
        }
    }
    assert_eq!(run.cx.recorder.get(Counter::Offered), run.frames.len() as u64);
    assert_eq!(run.cx.recorder.get(Counter::Scheduled), run.frames.len() as u64);
}

#[test]
fn the_stage_keeps_the_contract_in_every_mode() {
    for mode in ["each", "shared", "cached"] {
        assert_stage_contract(ENTRY, json!({ "pattern": pattern(25.0), "streams": 2, "mode": mode }), vec![]);
    }
}

#[test]
fn exactly_the_frames_due_before_the_end_are_offered() {
    for mode in ["each", "shared", "cached"] {
        let run = run(json!({ "pattern": pattern(100.0), "streams": 4, "mode": mode }), 600);
        assert!(run.result.is_ok(), "{:?}", run.result);
        check_books(&run);
        let streams = by_stream(&run.frames);
        assert_eq!(streams.len(), 4, "{mode}");
        for (stream, frames) in streams {
            // Phases are quarters of 10 ms: every stream has frames at phase + 0, 10, ..., 590 ms.
            assert_eq!(frames.len(), 60, "{mode}, stream {stream}");
            assert_eq!(frames[0].due_ns, i64::from(stream) * 2_500_000, "{mode}");
            assert_eq!(frames[59].due_ns - frames[0].due_ns, 590_000_000, "{mode}");
        }
    }
}

#[test]
fn payloads_follow_the_counter_of_the_pattern() {
    for mode in ["each", "shared", "cached"] {
        let run =
            run(json!({ "pattern": pattern(100.0), "streams": 3, "mode": mode, "payload": { "quality": 90 } }), 300);
        let mut decoder = JpegDecoder::new().unwrap();
        for (stream, frames) in by_stream(&run.frames) {
            let numbers: Vec<u64> = frames
                .iter()
                .map(|frame| {
                    let mut image = RgbImage::default();
                    decoder.decode(&frame.payload, &mut image).unwrap();
                    read_counter((64, 48), 64, 48, |x, y| image.view().row(y)[x as usize * 3 + 1]).unwrap().0
                })
                .collect();
            let next = |number: u64| if mode == "cached" { (number + 1) % 10 } else { number + 1 };
            assert!(numbers.windows(2).all(|pair| pair[1] == next(pair[0])), "{mode}, stream {stream}: {numbers:?}");
        }
    }
}

#[test]
fn looped_clips_go_on_at_last_pts_plus_last_duration() {
    // vfr.mp4: 24 frames of irregular distance at 1/15360; twenty times as fast to see three loops quickly.
    let golden: Value = serde_json::from_slice(&std::fs::read(clip("../golden/video/vfr.mp4.json")).unwrap()).unwrap();
    let pts: Vec<i64> =
        golden["frames"].as_array().unwrap().iter().map(|f| f["best_effort_timestamp"].as_i64().unwrap()).collect();
    for mode in ["each", "shared", "cached"] {
        let run = run(json!({ "file": clip("vfr.mp4"), "mode": mode, "pace": { "speed": 20.0 } }), 400);
        check_books(&run);
        let frames = &by_stream(&run.frames)[&0];
        assert!(frames.len() > 60, "{mode}: {}", frames.len());
        // A stream may begin anywhere in the clip: compare steps, which must be the clip's own except at the seam.
        let steps: Vec<i64> = frames.windows(2).map(|pair| pair[1].pts - pair[0].pts).collect();
        let mut own: Vec<i64> = pts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let seams: Vec<usize> =
            (0..steps.len()).filter(|i| steps[*i..].starts_with(&own)).map(|i| i + own.len()).collect();
        assert!(!seams.is_empty(), "{mode}: {steps:?}");
        let seam = steps[*seams.first().unwrap()];
        assert!(own.contains(&seam), "{mode}: the seam of {seam} is no usual distance");
        own.push(seam);
        let from = seams[0] + 1;
        assert!(steps[from..].iter().zip(own.iter().cycle()).all(|(a, b)| a == b), "{mode}: {steps:?}");
        for frame in frames {
            let due = (frame.pts as f64 / 15_360.0 / 20.0 * 1e9) as i64;
            assert!((frame.due_ns - due).abs() < 2_000, "{mode}: {} for {due}", frame.due_ns);
        }
    }
}

#[test]
fn a_given_rate_replaces_the_time_stamps() {
    let run = run(json!({ "file": clip("no_pts.h264"), "pace": { "fps": 200 } }), 500);
    check_books(&run);
    assert_eq!(run.frames.len(), 100);
    assert!(run.frames.iter().all(|frame| frame.due_ns == frame.seq as i64 * 5_000_000));
}

#[test]
fn without_loop_every_frame_comes_once() {
    for mode in ["each", "shared", "cached"] {
        let config =
            json!({ "file": clip("bbb_vp9.webm"), "mode": mode, "loop": false, "streams": 2, "pace": { "speed": 10 } });
        let run = run(config, 60_000);
        check_books(&run);
        assert!(by_stream(&run.frames).values().all(|frames| frames.len() == 25), "{mode}");
    }
}

#[test]
fn instances_share_the_streams() {
    let folder = tempfile::tempdir().unwrap();
    let base = context(folder.path(), &["frames"]);
    let mut seen = Vec::new();
    for index in 0..2 {
        let inner = tempfile::tempdir().unwrap();
        let made = context(inner.path(), &["frames"]);
        let cx = Cx::new(contract::stage::CxParts {
            stage_id: "cameras".into(),
            run_id: base.run_id,
            index,
            of: 2,
            seed: 42,
            clock: made.clock.clone(),
            phases: made.phases.clone(),
            shutdown: made.shutdown.clone(),
            recorder: made.recorder.clone(),
            budget: Default::default(),
            deadline_ns: 1_000_000_000,
            work_dir: inner.path().to_owned(),
            drain: Mutex::default(),
        });
        let sink = Sink::new(&cx, 0, usize::MAX);
        let stage = (ENTRY.open)(json!({ "pattern": pattern(50.0), "streams": 5, "mode": "cached" }), &cx).unwrap();
        cx.phases.announce(Phase::Drain, 200_000_000);
        stage.run(Io { input: None, output: Some(sink.clone()) }, &cx).unwrap();
        seen.extend(by_stream(&sink.frames()).into_iter().map(|(stream, frames)| (stream, frames.len())));
    }
    seen.sort_unstable();
    assert_eq!(seen, [(0, 10), (1, 10), (2, 10), (3, 10), (4, 10)]);
}

/// Has no room for one stream until told.
struct OneStuck {
    inner: Arc<Sink>,
    stream: u32,
    stuck: AtomicBool,
}

impl Output for OneStuck {
    fn try_offer(&self, frame: Frame, offered_ns: i64) -> Offer {
        if frame.stream == self.stream && self.stuck.load(Ordering::Relaxed) {
            return Offer::Full(Box::new(frame));
        }
        self.inner.try_offer(frame, offered_ns)
    }
    fn wait_for_room(&self, wait: Duration) {
        self.inner.wait_for_room(wait);
    }
    fn topic_of(&self, _stream: u32) -> u16 {
        0
    }
    fn flush(&self, _deadline_ns: i64) -> bool {
        true
    }
}

#[test]
fn a_blocked_stream_delays_no_other_and_its_wait_is_not_self_lag() {
    for mode in ["each", "shared", "cached"] {
        let folder = tempfile::tempdir().unwrap();
        let cx = context(folder.path(), &["frames"]);
        let inner = Sink::new(&cx, 0, usize::MAX);
        let output = Arc::new(OneStuck { inner: inner.clone(), stream: 1, stuck: AtomicBool::new(true) });
        let config = json!({ "pattern": pattern(50.0), "streams": 3, "mode": mode });
        let stage = (ENTRY.open)(config, &cx).unwrap();
        cx.phases.announce(Phase::Main, 0);
        cx.phases.announce(Phase::Drain, 1_000_000_000);
        let release = output.clone();
        let clock = cx.clock.clone();
        let freed = std::thread::spawn(move || {
            while clock.now_ns() < 600_000_000 {
                std::thread::sleep(Duration::from_millis(1));
            }
            release.stuck.store(false, Ordering::Relaxed);
        });
        stage.run(Io { input: None, output: Some(output) }, &cx).unwrap();
        freed.join().unwrap();
        let run = Run { frames: inner.frames(), cx, result: Ok(()), _folder: folder };
        check_books(&run);
        let streams = by_stream(&run.frames);
        assert!(streams.values().all(|frames| frames.len() == 50), "{mode}");
        for (stream, frames) in &streams {
            let blocked: i64 = frames.iter().map(|frame| frame.origin.blocked_ns).sum();
            assert_eq!(blocked > 0, *stream == 1, "{mode}, stream {stream}: {blocked}");
        }
        // About thirty frames of 20 ms piled up behind the first one; their wait is the output's.
        let first = streams[&1][0];
        assert!(first.origin.enqueue_ns > 500_000_000, "{mode}");
        assert!(streams[&1][20].origin.blocked_ns > 100_000_000, "{mode}");
        // Frames of the other streams were accepted long before the stuck one was freed.
        let early =
            run.frames.iter().filter(|frame| frame.stream != 1 && frame.produced_ns < first.produced_ns).count();
        assert!(early > 30, "{mode}: {early}");
    }
}

#[test]
fn unpaced_streams_take_turns_and_are_due_when_offered() {
    for mode in ["each", "shared", "cached"] {
        let run = run(json!({ "pattern": pattern(50.0), "streams": 3, "mode": mode, "pace": "unpaced" }), 200);
        let streams = by_stream(&run.frames);
        let counts: Vec<usize> = streams.values().map(Vec::len).collect();
        assert_eq!(counts.len(), 3, "{mode}");
        assert!(counts.iter().min() > Some(&20), "{mode}: {counts:?}");
        if mode == "cached" {
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
        assert!(run.frames.iter().all(|f| f.origin.self_lag_ns == 0 && f.origin.blocked_ns == 0));
        assert_eq!(run.cx.recorder.get(Counter::Scheduled), run.frames.len() as u64);
    }
}

#[test]
fn a_loop_larger_than_the_cache_is_refused_with_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let cx = context(folder.path(), &["frames"]);
    let config = json!({
        "pattern": { "width": 320, "height": 240, "fps": 25, "frames": 1000 }, "mode": "cached", "cache": "2MiB",
        "payload": { "encoding": "rgb24" },
    });
    let error = (ENTRY.open)(config, &cx).err().unwrap();
    assert!(error.message.contains("about 219 MiB for 1000 frames") && error.message.contains("2MiB"), "{error}");
}

#[test]
fn damaged_and_useless_files_are_refused_before_the_start_or_counted() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        let cx = context(folder.path(), &["frames"]);
        (ENTRY.open)(json!({ "file": path, "mode": "shared" }), &cx).err().map(|error| error.to_string())
    };
    assert!(open(&clip("audio_only.m4a")).unwrap().contains("no video stream"));
    assert!(open(Path::new("/nowhere/film.mp4")).unwrap().contains("/nowhere/film.mp4"));
    // The index of a film whose pictures are all gone.
    let whole = std::fs::read(clip("truncated.mp4")).unwrap();
    let hollow = folder.path().join("hollow.mp4");
    std::fs::write(&hollow, &whole[..1800]).unwrap();
    assert!(open(&hollow).unwrap().contains("hollow.mp4"));

    let run = run(json!({ "file": clip("truncated.mp4"), "pace": { "speed": 20 } }), 300);
    assert!(run.result.is_ok());
    check_books(&run);
    assert!(run.cx.recorder.get(Counter::DecodeErrors) > 0);
}

#[test]
fn a_change_of_size_is_followed_or_resized_away() {
    let sizes = |payload: Value| {
        let config =
            json!({ "file": clip("geometry_change.ts"), "loop": false, "pace": { "speed": 10 }, "payload": payload });
        let run = run(config, 60_000);
        check_books(&run);
        let mut sizes: Vec<_> = run.frames.iter().map(|f| (f.geometry.width_px, f.geometry.height_px)).collect();
        assert_eq!(sizes.len(), 20);
        sizes.dedup();
        assert_eq!(run.cx.recorder.delta(0, 0).facts["geometry_changes"], 1);
        sizes
    };
    assert_eq!(sizes(json!({})), [(128, 96), (96, 128)]);
    assert_eq!(sizes(json!({ "width": 64, "height": 64, "encoding": "tensor" })), [(64, 64)]);
}

#[test]
fn what_a_slow_generator_leaves_is_scheduled_but_not_offered() {
    let folder = tempfile::tempdir().unwrap();
    let cx = context(folder.path(), &["frames"]);
    let sink = Sink::new(&cx, 0, usize::MAX);
    // 12 MB a frame a thousand times a second: no machine does that.
    let config = json!({
        "pattern": { "width": 2048, "height": 2048, "fps": 1000 }, "streams": 2, "payload": { "encoding": "rgb24" },
    });
    let stage = (ENTRY.open)(config, &cx).unwrap();
    cx.phases.announce(Phase::Main, 0);
    let end_ns = 2_000_000_000;
    cx.phases.announce(Phase::Drain, end_ns);
    cx.set_drain(contract::stage::DrainTarget { deadline_ns: end_ns, ..Default::default() });
    stage.run(Io { input: None, output: Some(sink.clone()) }, &cx).unwrap();
    let offered = cx.recorder.get(Counter::Offered);
    assert_eq!(cx.recorder.get(Counter::Scheduled), 4000);
    assert!(offered > 0 && offered < 4000, "{offered}");
    let last = sink.frames().last().unwrap().origin.self_lag_ns;
    assert!(last > 500_000_000, "being late is the generator's own lag: {last}");
}

#[test]
fn streams_of_their_own_begin_at_places_of_their_own() {
    for mode in ["each", "cached"] {
        let config = json!({ "file": clip("bbb_h264.mp4"), "streams": 6, "mode": mode, "pace": { "speed": 10 } });
        let firsts: Vec<_> =
            by_stream(&run(config.clone(), 150).frames).values().map(|f| f[0].payload.clone()).collect();
        assert_eq!(firsts.len(), 6);
        let distinct: std::collections::HashSet<_> = firsts.iter().collect();
        assert!(distinct.len() >= 3, "{mode}: {} places", distinct.len());
        let again: Vec<_> = by_stream(&run(config, 150).frames).values().map(|f| f[0].payload.clone()).collect();
        assert!(firsts == again, "{mode}: another place with the same seed");
    }
}

#[test]
fn demand_tells_rate_size_and_files() {
    let demand = (ENTRY.demand)(json!({ "file": clip("bbb_h264.mp4"), "streams": 30 })).unwrap();
    assert_eq!(demand.frames_per_second, Some(300.0));
    assert_eq!(demand.files, [clip("bbb_h264.mp4")]);
    assert_eq!(demand.mode.as_deref(), Some("shared"));
    let run = run(json!({ "file": clip("bbb_h264.mp4"), "loop": false, "pace": { "speed": 20 } }), 60_000);
    let mean = run.frames.iter().map(|frame| frame.payload.len() as u64).sum::<u64>() / run.frames.len() as u64;
    let estimate = demand.frame_bytes.unwrap();
    assert!(estimate > mean / 3 && estimate < mean * 3, "{estimate} for {mean}");
    assert!(run.frames.iter().all(|frame| (frame.payload.len() as u64) < demand.max_frame_bytes.unwrap()));
}

#[test]
fn the_byte_budget_stops_a_generator() {
    let folder = tempfile::tempdir().unwrap();
    let made = context(folder.path(), &["frames"]);
    let budget = contract::stage::Budget { max_bytes: 50_000, max_run_ns: 60_000_000_000 };
    let cx = Cx::new(contract::stage::CxParts {
        stage_id: "cameras".into(),
        run_id: made.run_id,
        index: 0,
        of: 1,
        seed: 42,
        clock: made.clock.clone(),
        phases: made.phases.clone(),
        shutdown: made.shutdown.clone(),
        recorder: made.recorder.clone(),
        budget,
        deadline_ns: 1_000_000_000,
        work_dir: folder.path().to_owned(),
        drain: Mutex::default(),
    });
    let sink = Sink::new(&cx, 0, usize::MAX);
    let stage = (ENTRY.open)(json!({ "pattern": pattern(200.0), "payload": { "encoding": "rgb24" } }), &cx).unwrap();
    let error = stage.run(Io { input: None, output: Some(sink.clone()) }, &cx).unwrap_err();
    assert!(error.message.contains("budget of 50000 bytes"), "{error}");
    // 9,216 bytes a frame: the sixth exceeds the budget and is the last.
    assert_eq!(sink.frames().len(), 6);
}
