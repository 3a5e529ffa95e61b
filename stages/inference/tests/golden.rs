//! What real weights must say about real pictures, against values from ONNX Runtime and Pillow in Python
//! (testdata/golden/inference/make.py); and that the usual preprocessing mistakes would be noticed.

use std::{fs, process::Command};

use contract::{Encoding, Geometry};
use inference::{Model, Output, Preprocessor, Preset, Source, Target, squeezenet};
use picture::{ChannelOrder, Filter, JpegDecoder, Normalise, Resizer, RgbImage};
use serde_json::Value;

use crate::support::{asset, best, classify, input, jpeg, load, noise, root, runtime};

const LOGIT_TOLERANCE: f32 = 1e-4;
/// Probabilities are pinned to four digits; a decoder one grey level off moves them by less than this.
const PROBABILITY_TOLERANCE: f64 = 0.02;

fn golden() -> Value {
    serde_json::from_str(&fs::read_to_string(root().join("testdata/golden/inference/classes.json")).unwrap()).unwrap()
}

fn assert_equals_python(model: &mut Model, name: &str) {
    let golden = fs::read(root().join(format!("testdata/golden/inference/{name}-noise.f32"))).unwrap();
    let expected: Vec<f32> = golden.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    let Output::Scores { classes, values } = model.run(&noise(2 * model.image_len())).unwrap() else {
        panic!("{name} gives scores")
    };
    assert_eq!((classes, values.len()), (1000, expected.len()));
    let worst = values.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("{name}: largest difference from Python {worst:e}");
    assert!(worst <= LOGIT_TOLERANCE, "{name}: {worst}");
}

#[test]
fn squeezenet_equals_onnx_runtime_from_python() {
    let Some(runtime) = runtime() else { return };
    assert_equals_python(&mut load(&runtime, &squeezenet()), "squeezenet");
}

#[test]
fn lite0_equals_onnx_runtime_from_python() {
    let (Some(runtime), Some(source)) = (runtime(), asset("models/lite0.onnx")) else { return };
    assert_equals_python(&mut load(&runtime, &source), "lite0");
}

#[test]
fn seeded_resnet50_equals_onnx_runtime_from_python_and_is_finite() {
    let (Some(runtime), Some(source)) = (runtime(), asset("models/resnet50-seeded.onnx")) else { return };
    let mut model = load(&runtime, &source);
    assert_equals_python(&mut model, "resnet50-seeded");
    let target = Target::of(model.signature(), true);
    let Output::Scores { values, .. } = model.run(&input(target, "coffee")).unwrap() else { panic!("scores") };
    let mean = values.iter().sum::<f32>() / values.len() as f32;
    let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / values.len() as f32).sqrt();
    println!("logit standard deviation {deviation}");
    // Neither vanishing nor exploding through fifty layers.
    assert!(values.iter().all(|value| value.is_finite()) && (0.05..1.0).contains(&deviation), "{deviation}");
}

/// The crop before normalisation is Pillow's: decode, resize and crop are the same operations, up to one rounding.
#[test]
fn the_crop_equals_pillows() {
    let golden = golden();
    for image in ["coffee", "chelsea", "rocket"] {
        for side in [224u32, 227] {
            let target = Target {
                normalise: Preset::Raw.normalise(),
                layout: inference::Layout::ChannelsLast,
                crop: Geometry::new(side, side),
                short_side_px: 256,
                jpeg_scaling: true,
            };
            let crop = input(target, image);
            let row = side as usize * 3;
            let sampled = (0..side as usize).step_by(16).flat_map(|y| (0..row).step_by(48).map(move |x| y * row + x));
            let found: Vec<f32> = sampled.flat_map(|at| crop[at..at + 3].iter().copied()).collect();
            let expected = unhex(golden[image]["crop_every_16"][side.to_string()].as_str().unwrap());
            assert_eq!(found.len(), expected.len());
            let differences = || found.iter().zip(&expected).map(|(found, expected)| found - f32::from(*expected));
            let worst = differences().map(f32::abs).fold(0.0, f32::max);
            let mean = differences().sum::<f32>() / found.len() as f32;
            println!("{image} at {side}: worst {worst}, mean {mean}");
            assert!(worst <= 1.0 && mean.abs() < 0.05, "{image} at {side}: worst {worst}, mean {mean}");
        }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// A way to preprocess, right or wrong.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    normalise: Normalise,
    squashed: bool,
}

fn way(name: &'static str, order: ChannelOrder, mean: [f32; 3], scale: [f32; 3]) -> Way {
    Way { name, normalise: Normalise { order, mean, scale }, squashed: false }
}

fn squeezenet_ways() -> Vec<Way> {
    let right = Way { name: "right", normalise: Preset::CaffeBgr.normalise(), squashed: false };
    vec![
        right,
        way("swapped", ChannelOrder::Rgb, [123.68, 116.779, 103.939], [1.0; 3]),
        way("no-mean", ChannelOrder::Bgr, [0.0; 3], [1.0; 3]),
        way("scaled", ChannelOrder::Bgr, [0.0; 3], [1.0 / 255.0; 3]),
        Way { name: "squashed", squashed: true, ..right },
    ]
}

fn lite0_ways() -> Vec<Way> {
    vec![
        Way { name: "right", normalise: Preset::Tf127.normalise(), squashed: false },
        way("swapped", ChannelOrder::Bgr, [127.0; 3], [1.0 / 128.0; 3]),
        Way { name: "torch", normalise: Preset::Torch.normalise(), squashed: false },
    ]
}

/// Probabilities of coffee, chelsea and rocket, preprocessed in one way.
fn classify_all(model: &mut Model, way: Way) -> [Vec<f32>; 3] {
    let target = Target { normalise: way.normalise, ..Target::of(model.signature(), true) };
    ["coffee", "chelsea", "rocket"].map(|image| {
        let input = if way.squashed { squash(target, image) } else { input(target, image) };
        classify(model, &input)
    })
}

fn squash(target: Target, image: &str) -> Vec<f32> {
    let (mut full, mut small) =
        (RgbImage::default(), RgbImage::new(target.crop.width_px, target.crop.height_px).unwrap());
    JpegDecoder::new().unwrap().decode(&jpeg(image), &mut full).unwrap();
    Resizer::new(Filter::Bilinear).resize(full.view(), &mut small).unwrap();
    let mut out = vec![0.0; target.floats()];
    target.normalise.chw(small.view(), &mut out).unwrap();
    out
}

/// The assertions that stand for "the preprocessing is right".
fn squeezenet_is_right([coffee, chelsea, rocket]: &[Vec<f32>; 3]) -> bool {
    coffee[967] >= 0.97 && best(rocket) == 657 && [281, 282, 285].contains(&best(chelsea))
}

fn lite0_is_right([coffee, chelsea, rocket]: &[Vec<f32>; 3]) -> bool {
    coffee[967] >= 0.93 && best(rocket) == 657 && [281, 282, 285].contains(&best(chelsea))
}

fn assert_traps(source: &Source, name: &str, ways: &[Way], is_right: fn(&[Vec<f32>; 3]) -> bool) {
    let Some(runtime) = runtime() else { return };
    let mut model = load(&runtime, source);
    let golden = golden();
    for way in ways {
        let found = classify_all(&mut model, *way);
        for (image, probabilities) in ["coffee", "chelsea", "rocket"].into_iter().zip(&found) {
            let pinned = &golden[image][name][way.name];
            assert_eq!(pinned[0][0], best(probabilities), "{name} {image} {}: top-1 differs from Python", way.name);
            for class in pinned.as_array().unwrap() {
                let index = class[0].as_u64().unwrap() as usize;
                let (found, expected) = (f64::from(probabilities[index]), class[1].as_f64().unwrap());
                let difference = (found - expected).abs();
                assert!(difference < PROBABILITY_TOLERANCE, "{name} {image} {}: {found} {expected}", way.name);
            }
        }
        assert_eq!(
            is_right(&found),
            way.name == "right",
            "{name}: the assertions must hold for `right` alone: {}",
            way.name
        );
    }
}

#[test]
fn squeezenet_names_the_pictures_and_notices_every_preprocessing_mistake() {
    assert_traps(&squeezenet(), "squeezenet", &squeezenet_ways(), squeezenet_is_right);
}

#[test]
fn lite0_names_the_pictures_and_notices_every_preprocessing_mistake() {
    let Some(source) = asset("models/lite0.onnx") else { return };
    assert_traps(&source, "lite0", &lite0_ways(), lite0_is_right);
}

#[test]
fn the_loader_chooses_the_right_preprocessing_by_itself() {
    let Some(runtime) = runtime() else { return };
    let mut model = load(&runtime, &squeezenet());
    let target = Target::of(model.signature(), true);
    let found = ["coffee", "chelsea", "rocket"].map(|image| classify(&mut model, &input(target, image)));
    assert!(squeezenet_is_right(&found));
    assert_eq!(model.signature().weights.name(), "real-standin");
}

/// The man in the car wears a bow tie (457), with swapped channels a Windsor tie (906). Python gives .535 and .491 for the
/// frame at 1.1 s; the one at 1.0 s is 457 either way and would notice nothing.
#[test]
fn lite0_names_a_video_frame_and_notices_swapped_channels() {
    let (Some(runtime), Some(source)) = (runtime(), asset("models/lite0.onnx")) else { return };
    let clip = root().join("assets/carphone_pristine.mp4");
    if !clip.is_file() {
        println!("SKIPPED: {} is missing; run `reelbench assets fetch`", clip.display());
        return;
    }
    let frame = Command::new("ffmpeg")
        .args(["-nostdin", "-loglevel", "error", "-ss", "1.1", "-i"])
        .arg(&clip)
        .args(["-frames:v", "1", "-pix_fmt", "rgb24", "-f", "rawvideo", "-"])
        .output()
        .unwrap();
    assert!(frame.status.success(), "{}", String::from_utf8_lossy(&frame.stderr));
    let mut model = load(&runtime, &source);
    let mut classify_with = |normalise: Normalise| {
        let target = Target { normalise, ..Target::of(model.signature(), true) };
        let mut input = vec![0.0; target.floats()];
        let mut preprocessor = Preprocessor::new(target).unwrap();
        preprocessor.fill(Encoding::Rgb24, Geometry::new(176, 144), &frame.stdout, &mut input).unwrap();
        classify(&mut model, &input)
    };
    let right = classify_with(Preset::Tf127.normalise());
    println!("carphone: 457 at {}", right[457]);
    assert!(best(&right) == 457 && (0.4..0.8).contains(&right[457]), "{} {}", best(&right), right[457]);
    let swapped = classify_with(Normalise { order: ChannelOrder::Bgr, ..Preset::Tf127.normalise() });
    assert_eq!(best(&swapped), 906);
}
