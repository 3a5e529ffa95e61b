//! Paths, fixtures and the runtime, or a printed reason why a test cannot run.

use std::{fs, path::PathBuf};

use contract::{Encoding, Geometry};
use inference::{Model, Output, Overrides, Preprocessor, Runtime, Source, Target, probabilities};

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn assets() -> PathBuf {
    root().join("assets")
}

/// The runtime, or `None` after saying why the test is skipped.
pub fn runtime() -> Option<Runtime> {
    match Runtime::load(&assets()) {
        Ok(runtime) => Some(runtime),
        Err(error) => {
            println!("SKIPPED: {error}");
            None
        }
    }
}

/// A model of the assets folder, or `None` after saying why the test is skipped.
pub fn asset(name: &str) -> Option<Source> {
    let path = assets().join(name);
    if path.is_file() {
        return Some(Source::File(path));
    }
    println!("SKIPPED: {} is missing; run `reelbench assets fetch`", path.display());
    None
}

pub fn load(runtime: &Runtime, source: &Source) -> Model {
    Model::load(runtime, source, &Overrides::default(), 1).unwrap()
}

pub fn jpeg(image: &str) -> Vec<u8> {
    fs::read(root().join("testdata/images").join(format!("{image}.jpg"))).unwrap()
}

pub fn input(target: Target, image: &str) -> Vec<f32> {
    let mut out = vec![0.0; target.floats()];
    let geometry = Geometry::default();
    Preprocessor::new(target).unwrap().fill(Encoding::Jpeg, geometry, &jpeg(image), &mut out).unwrap();
    out
}

/// Probabilities of one image.
pub fn classify(model: &mut Model, input: &[f32]) -> Vec<f32> {
    match model.run(input).unwrap() {
        Output::Scores { values, .. } => probabilities(&values),
        Output::Best(best) => panic!("scores were expected, not {best:?}"),
    }
}

pub fn best(probabilities: &[f32]) -> usize {
    (0..probabilities.len()).max_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b])).unwrap()
}

/// Top bytes of SplitMix64, moved to [-2, 2): the recipe `make.py` uses.
pub fn noise(count: usize) -> Vec<f32> {
    let mut random = contract::random::Random::new(2024);
    (0..count).map(|_| ((random.next_u64() >> 56) as f32 - 128.0) / 64.0).collect()
}
