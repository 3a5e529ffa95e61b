//! The models the tool knows by name, and where their files are.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::model::Source;

/// Folder of downloaded and generated files, unless [`ASSETS_VARIABLE`] names another.
const ASSETS_DIR: &str = "assets";
/// Names another assets folder.
pub const ASSETS_VARIABLE: &str = "REELBENCH_ASSETS";

/// EfficientNet-Lite0, converted from its published weights.
pub const LITE0_FILE: &str = "models/lite0.onnx";
/// ResNet50 v1.5 with seeded weights.
pub const RESNET50_SEEDED_FILE: &str = "models/resnet50-seeded.onnx";
/// ResNet50 as the user supplies it.
pub const RESNET50_FILE: &str = "models/resnet50.onnx";
/// Seed of the generated ResNet50 that `assets fetch` makes.
pub const RESNET50_SEED: u64 = 42;

/// SqueezeNet 1.1 is small enough to be part of the program: something real runs without any download.
static SQUEEZENET: &[u8] = include_bytes!("../../testdata/models/squeezenet11-fp16.onnx");

/// Names that may stand in a scenario instead of a path.
const NAMES: &str = "lite0, squeezenet, resnet50, resnet50-seeded";

/// The assets folder of this process.
pub fn assets_dir() -> PathBuf {
    env::var_os(ASSETS_VARIABLE)
        .filter(|name| !name.is_empty())
        .map_or_else(|| PathBuf::from(ASSETS_DIR), PathBuf::from)
}

/// The embedded SqueezeNet 1.1.
pub fn squeezenet() -> Source {
    Source::Embedded("squeezenet", SQUEEZENET)
}

/// A model by name, or by a path ending in `.onnx`; the error says what is known.
pub fn find(model: &str, assets_dir: &Path) -> Result<Source, String> {
    let file = |name: &str| Ok(Source::File(assets_dir.join(name)));
    match model {
        "squeezenet" => Ok(squeezenet()),
        "lite0" => file(LITE0_FILE),
        "resnet50" => file(RESNET50_FILE),
        "resnet50-seeded" => file(RESNET50_SEEDED_FILE),
        path if path.ends_with(".onnx") => Ok(Source::File(PathBuf::from(path))),
        other => Err(format!("unknown model `{other}`, expected one of {NAMES} or the path of an .onnx file")),
    }
}

/// What to do when the file of a named model is absent.
pub fn remedy(model: &str) -> &'static str {
    match model {
        "lite0" | "resnet50-seeded" => "run `reelbench assets fetch`",
        "resnet50" => "put an official ResNet50 file there, or use lite0 (real classes) or resnet50-seeded (real load)",
        _ => "check the path",
    }
}

/// CPU-seconds of one image on one thread, measured on a 2-core virtual machine with wide vectors; other hosts need up to
/// four times as much, so this is for estimates only.
pub fn cpu_seconds_per_image(model: &str) -> Option<f64> {
    match model {
        "lite0" => Some(0.010),
        "squeezenet" => Some(0.006),
        "resnet50" | "resnet50-seeded" => Some(0.065),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_found_and_typing_errors_are_not() {
        let assets = Path::new("somewhere");
        let place = |model: &str| find(model, assets).map(|source| source.place());
        assert_eq!(place("lite0"), Ok(PathBuf::from("somewhere/models/lite0.onnx")));
        assert_eq!(place("my/own.onnx"), Ok(PathBuf::from("my/own.onnx")));
        assert_eq!(place("squeezenet"), Ok(PathBuf::from("<squeezenet>")));
        let problem = place("lite-0").unwrap_err();
        assert!(problem.contains("`lite-0`") && problem.contains("resnet50-seeded"), "{problem}");
    }
}
