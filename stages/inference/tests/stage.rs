//! The stage on channels: every frame is accounted for, latencies add up, results belong to their frames.

use std::{collections::BTreeMap, thread, time::Duration};

use bytes::Bytes;
use contract::{
    Counter, Cx, Encoding, Frame, Geometry, Io, Stage,
    latency::Step,
    phases::Phase,
    testing::{self, Feed, Sink},
};
use inference::{Config, Infer, ResultRecord, STAGES, Weights};
use picture::{JpegDecoder, RgbImage, rgb_to_chw};
use serde_json::json;

use crate::support::{assets, jpeg, runtime};

const IMAGES: [&str; 3] = ["coffee", "chelsea", "rocket"];

/// The stage looks for the runtime where the process says; tests run in the crate's folder. True when it is there.
fn runtime_is_there() -> bool {
    runtime().is_some()
}

fn config(more: serde_json::Value) -> serde_json::Value {
    let mut config = json!({ "model": "squeezenet", "warmup": 1 });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

fn open(more: serde_json::Value, cx: &Cx) -> Infer {
    let config: Config = serde_json::from_value(config(more)).unwrap();
    Infer::open(config, cx).unwrap()
}

fn frame(stream: u32, seq: u64, encoding: Encoding, geometry: Geometry, payload: Vec<u8>) -> Frame {
    let mut frame = testing::frame(seq, 1_000 * seq as i64, Bytes::from(payload));
    (frame.stream, frame.encoding, frame.geometry) = (stream, encoding, geometry);
    frame
}

/// Streams 0, 1 and 2 show one picture each.
fn jpegs(per_stream: u64) -> Vec<Frame> {
    let payloads = IMAGES.map(jpeg);
    let streams = |seq: u64| (0..3u32).map(move |stream| (stream, seq));
    (0..per_stream)
        .flat_map(streams)
        .map(|(stream, seq)| frame(stream, seq, Encoding::Jpeg, Geometry::default(), payloads[stream as usize].clone()))
        .collect()
}

struct Ran {
    cx: Cx,
    results: Vec<Frame>,
    completed: usize,
    _folder: tempfile::TempDir,
}

impl Ran {
    fn count(&self, counter: Counter) -> u64 {
        self.cx.recorder.get(counter)
    }

    fn records(&self) -> Vec<ResultRecord> {
        self.results.iter().map(|frame| serde_json::from_slice(&frame.payload).unwrap()).collect()
    }

    /// Delivered to the stage = inferred + not selected + dropped + failed, and every receipt is taken back.
    fn assert_identity(&self, delivered: u64) {
        let ends = [Counter::Inferred, Counter::NotSelected, Counter::InferDropped, Counter::InferFailed];
        assert_eq!(ends.iter().map(|counter| self.count(*counter)).sum::<u64>(), delivered);
        assert_eq!(self.count(Counter::Delivered), delivered);
        assert_eq!(self.completed as u64, delivered);
        assert_eq!(self.count(Counter::ChainBroken), 0);
    }
}

fn run(more: serde_json::Value, frames: Vec<Frame>) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let cx = testing::context(folder.path(), &["frames", "results"]);
    cx.phases.announce(Phase::Main, 0);
    let stage = open(more, &cx);
    let (feed, completed) = Feed::new(&cx, frames);
    let sink = Sink::new(&cx, 1, usize::MAX);
    stage.run(Io { input: Some(feed), output: Some(sink.clone()) }, &cx).unwrap();
    let mut receipts = completed.receipts();
    let all = receipts.len();
    receipts.sort_by_key(|receipt| receipt.offset);
    receipts.dedup();
    assert_eq!(receipts.len(), all, "a receipt was taken back twice");
    Ran { cx, results: sink.frames(), completed: all, _folder: folder }
}

#[test]
fn every_frame_is_classified_as_what_its_stream_shows() {
    if !runtime_is_there() {
        return;
    }
    let ran = run(json!({ "batch": { "max": 4 }, "preprocess_threads": 2 }), jpegs(4));
    ran.assert_identity(12);
    assert_eq!(ran.count(Counter::Inferred), 12);
    let mut seqs: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (frame, record) in ran.results.iter().zip(ran.records()) {
        assert_eq!((frame.stream, frame.seq, frame.encoding), (record.stream, record.seq, Encoding::Json));
        assert_eq!((frame.parent, frame.hop), (Some((record.stream, record.seq)), 1));
        assert_eq!((record.top.len(), record.model_weights), (5, Weights::RealStandin));
        let class = record.top[0].class;
        let expected: &[i64] = [&[967][..], &[281, 282, 285], &[657]][record.stream as usize];
        assert!(expected.contains(&class), "stream {} is {class}", record.stream);
        assert!(record.done_ns > record.due_ns);
        seqs.entry(record.stream).or_default().push(record.seq);
    }
    assert!(seqs.values().all(|seqs| seqs == &[0, 1, 2, 3]), "a stream's results keep its order: {seqs:?}");
}

#[test]
fn every_payload_encoding_is_read() {
    if !runtime_is_there() {
        return;
    }
    let mut coffee = RgbImage::default();
    JpegDecoder::new().unwrap().decode(&jpeg("coffee"), &mut coffee).unwrap();
    let geometry = Geometry::new(coffee.width(), coffee.height());
    let mut tensor = Vec::new();
    rgb_to_chw(coffee.view(), &mut tensor);
    let frames = vec![
        frame(0, 0, Encoding::Jpeg, geometry, jpeg("coffee")),
        frame(1, 0, Encoding::Rgb24, geometry, coffee.pixels().to_vec()),
        frame(2, 0, Encoding::Tensor, geometry, tensor),
    ];
    let ran = run(json!({}), frames);
    ran.assert_identity(3);
    for record in ran.records() {
        let top = &record.top[0];
        assert!(top.class == 967 && top.probability.unwrap() > 0.97, "stream {}: {top:?}", record.stream);
    }
}

#[test]
fn the_latency_chain_of_every_frame_adds_up_and_covers_the_work() {
    if !runtime_is_there() {
        return;
    }
    // Without results, whose own offering is counted as a step of this process too.
    let folder = tempfile::tempdir().unwrap();
    let cx = testing::context(folder.path(), &["frames"]);
    cx.phases.announce(Phase::Main, 0);
    let (feed, _completed) = Feed::new(&cx, jpegs(3));
    open(json!({ "batch": { "max": 3 } }), &cx).run(Io { input: Some(feed), output: None }, &cx).unwrap();
    let delta = cx.recorder.delta(0, 0);
    for step in Step::CHAIN.into_iter().chain([Step::EndToEnd]) {
        assert_eq!(delta.main_histogram(step).count(), 9, "{step:?}");
    }
    let mean = |step| delta.main_histogram(step).stats().mean.unwrap();
    assert!(mean(Step::Preprocess) > 0.0 && mean(Step::Infer) > 0.0);
    assert_eq!(cx.recorder.get(Counter::ChainBroken), 0);
    // Means are kept exactly, so the sum of the parts is the whole up to rounding of the division.
    let sum: f64 = Step::CHAIN.into_iter().map(mean).sum();
    assert!((sum - mean(Step::EndToEnd)).abs() < 10.0, "{sum} {}", mean(Step::EndToEnd));
}

#[test]
fn frames_that_are_not_selected_are_completed_at_once() {
    if !runtime_is_there() {
        return;
    }
    let ran = run(json!({ "select": { "every": 5 } }), jpegs(20));
    ran.assert_identity(60);
    assert_eq!((ran.count(Counter::Inferred), ran.count(Counter::NotSelected)), (12, 48));
    assert_eq!(ran.count(Counter::Done), 60);
    let again = run(json!({ "select": { "every": 5 } }), jpegs(20));
    let picked = |ran: &Ran| {
        let mut picked: Vec<_> = ran.records().iter().map(|record| (record.stream, record.seq)).collect();
        picked.sort_unstable();
        picked
    };
    assert_eq!(picked(&ran), picked(&again), "the same frames in every run");
}

#[test]
fn a_broken_payload_is_counted_and_the_rest_goes_on() {
    if !runtime_is_there() {
        return;
    }
    let mut frames = jpegs(3);
    frames[4].payload = Bytes::from_static(b"no picture");
    frames[7].payload = frames[7].payload.slice(..500);
    let ran = run(json!({ "batch": { "max": 2 } }), frames);
    ran.assert_identity(9);
    assert_eq!((ran.count(Counter::InferFailed), ran.count(Counter::Inferred)), (2, 7));
    assert_eq!(ran.cx.recorder.delta(0, 0).reasons["frames_inference_failed: payload"], 2);
}

#[test]
fn frames_past_their_use_are_dropped_with_a_reason() {
    if !runtime_is_there() {
        return;
    }
    let mut frames = jpegs(2);
    frames.iter_mut().take(3).for_each(|frame| frame.due_ns -= 3_600_000_000_000);
    let ran = run(json!({ "drop_older_than": "60s" }), frames);
    ran.assert_identity(6);
    assert_eq!((ran.count(Counter::InferDropped), ran.count(Counter::Inferred)), (3, 3));
    assert_eq!(ran.cx.recorder.delta(0, 0).reasons["frames_inference_dropped: too old"], 3);
}

#[test]
fn a_full_output_delays_results_and_loses_none() {
    if !runtime_is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cx = testing::context(folder.path(), &["frames", "results"]);
    let stage = open(json!({ "batch": { "max": 3 } }), &cx);
    let (feed, completed) = Feed::new(&cx, jpegs(4));
    let sink = Sink::new(&cx, 1, 1);
    let ran = thread::scope(|scope| {
        let io = Io { input: Some(feed), output: Some(sink.clone()) };
        let (cx, stage_cx) = (cx.clone(), cx.clone());
        let running = scope.spawn(move || stage.run(io, &stage_cx));
        while !running.is_finished() {
            sink.take(1);
            cx.shutdown.wait(Duration::from_millis(2));
        }
        running.join().unwrap()
    });
    assert_eq!((ran, completed.receipts().len(), sink.frames().len()), (Ok(()), 12, 12));
    for frame in sink.frames() {
        let origin = frame.origin;
        let sum = frame.due_ns + origin.blocked_ns + origin.self_lag_ns + origin.enqueue_ns;
        assert_eq!(sum, frame.produced_ns, "a result's own chain is exact");
        assert!(origin.blocked_ns >= 0 && origin.self_lag_ns >= 0);
    }
}

#[test]
fn an_abort_accounts_for_every_frame_taken_in() {
    if !runtime_is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cx = testing::context(folder.path(), &["frames", "results"]);
    let stage = open(json!({ "batch": { "max": 2 } }), &cx);
    let (feed, completed) = Feed::new(&cx, jpegs(400));
    let waiting = completed.clone();
    let result = thread::scope(|scope| {
        let (inside, io) = (cx.clone(), Io { input: Some(feed), output: None });
        let running = scope.spawn(move || stage.run(io, &inside));
        while waiting.receipts().len() < 4 {
            thread::sleep(Duration::from_millis(1));
        }
        cx.shutdown.abort();
        running.join().unwrap()
    });
    assert_eq!(result, Ok(()));
    let count = |counter| cx.recorder.get(counter);
    assert!(count(Counter::InferDropped) > 0 && count(Counter::Delivered) < 1200);
    assert_eq!(count(Counter::Inferred) + count(Counter::InferDropped), count(Counter::Delivered));
    assert_eq!(completed.receipts().len() as u64, count(Counter::Delivered));
}

#[test]
fn the_stage_keeps_the_stage_contract() {
    if !runtime_is_there() {
        return;
    }
    testing::assert_stage_contract(&STAGES[0], config(json!({})), jpegs(2));
    testing::assert_stage_contract(&STAGES[0], config(json!({})), Vec::new());
}

#[test]
fn wrong_settings_are_named_before_anything_runs() {
    for (wrong, word) in [
        (json!({ "model": "resnet-50" }), "`resnet-50`"),
        (json!({ "batch": { "max": 0 } }), "`batch.max`"),
        (json!({ "select": { "rate": -1 } }), "`rate`"),
        (json!({ "top_k": 0 }), "`top_k`"),
        (json!({ "preset": "imagenet" }), "imagenet"),
        (json!({ "batch": { "max_wait": 20 } }), "max_wait"),
    ] {
        let error = (STAGES[0].demand)(config(wrong.clone())).unwrap_err().to_string();
        assert!(error.contains(word) || wrong.to_string().contains("max_wait"), "{wrong}: {error}");
    }
}

#[test]
fn a_missing_model_file_says_how_to_get_it() {
    if !runtime_is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cx = testing::context(folder.path(), &["frames"]);
    let config: Config = serde_json::from_value(json!({ "model": "absent.onnx" })).unwrap();
    let error = Infer::open(config, &cx).err().unwrap();
    assert!(error.to_string().contains("absent.onnx does not exist"), "{error}");
    // What is missing is told by `demand` too, before a broker is started; here the assets folder is not the repository's.
    let error = (STAGES[0].demand)(json!({ "model": "absent.onnx" })).unwrap_err().to_string();
    assert!(error.contains("absent.onnx does not exist") || error.contains("reelbench assets fetch"), "{error}");
    assert!(assets().ends_with("assets"));
}
