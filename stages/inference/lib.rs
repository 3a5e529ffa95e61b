//! Classify frames with ONNX Runtime: convert and generate models, load any ResNet50-like classifier, preprocess, run.
//! The only crate that names `ort`.

mod classes;
mod convert;
mod error;
mod lite0;
mod model;
mod onnx;
mod preprocess;
mod preset;
pub mod resnet50;
mod runtime;
mod signature;
mod squeezenet;
pub mod unpickle;

pub use classes::{Ranked, name as class_name, probabilities, top_k};
pub use convert::{
    LITE0_PTH_SHA256, SQUEEZENET_PKL_SHA256, Written, convert_lite0, convert_lite0_stored, convert_squeezenet,
    generate_resnet50,
};
pub use error::{InferenceError, Result, UnpickleError};
pub use model::{Model, Output, Source};
pub use onnx::Storage;
pub use preprocess::{Preprocessor, Target};
pub use preset::Preset;
pub use runtime::{LIBRARY_VARIABLE, Runtime, find_library};
pub use signature::{Batch, Head, Layout, Overrides, Signature, Weights};
