//! Classify frames with ONNX Runtime: convert and generate models, load any ResNet50-like classifier, preprocess, run.
//! The only crate that names `ort`.

mod batch;
mod catalogue;
mod classes;
mod convert;
mod error;
mod infer;
mod lite0;
mod model;
pub mod onnx;
mod preprocess;
mod preset;
pub mod resnet50;
mod results;
mod runtime;
mod select;
mod signature;
mod squeezenet;
mod steps;
pub mod unpickle;
mod work;

use contract::StageEntry;

pub use catalogue::{
    ASSETS_VARIABLE, LITE0_FILE, RESNET50_FILE, RESNET50_SEED, RESNET50_SEEDED_FILE, assets_dir, squeezenet,
};
pub use classes::{Ranked, name as class_name, probabilities, top_k};
pub use convert::{
    LITE0_PTH_SHA256, SQUEEZENET_PKL_SHA256, Written, convert_lite0, convert_lite0_stored, convert_squeezenet,
    generate_resnet50, generate_tiny_resnet50, write_model,
};
pub use error::{InferenceError, Result, UnpickleError};
pub use infer::{BatchConfig, Config, Infer};
pub use model::{Model, Output, Source};
pub use preprocess::{Preprocessor, Target};
pub use preset::Preset;
pub use results::ResultRecord;
pub use runtime::{LIBRARY_VARIABLE, Runtime, find_library};
pub use select::Select;
pub use signature::{Batch, Head, Layout, Overrides, Signature, Weights};

/// Stage kinds of this crate.
pub const STAGES: &[StageEntry] = &[StageEntry::of::<Infer>()];
