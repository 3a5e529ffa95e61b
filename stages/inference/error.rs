//! What can go wrong while converting, loading or running a model; each message names the thing and the remedy.

use std::{io, path::PathBuf};

/// Result of this crate.
pub type Result<T, E = InferenceError> = std::result::Result<T, E>;

/// Errors of conversion, loading, preprocessing and running.
#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    #[error("{doing} {path}: {source}", path = path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },

    #[error(
        "{path}: sha256 is {found}, expected {expected}: not the pinned file; fetch it again with `reelbench assets fetch`",
        path = path.display()
    )]
    WrongHash { path: PathBuf, found: String, expected: String },

    #[error("{path}: {source}", path = path.display())]
    Weights { path: PathBuf, source: UnpickleError },

    #[error("weights: tensor `{name}` {problem}")]
    Tensor { name: String, problem: String },

    #[error(
        "libonnxruntime not found (looked at ORT_DYLIB_PATH and {looked}); run `reelbench assets fetch` or set ORT_DYLIB_PATH",
        looked = looked.display()
    )]
    NoRuntime { looked: PathBuf },

    #[error(
        "load {path}: {problem}; ONNX Runtime 1.24 or newer is needed: run `reelbench assets fetch` or set ORT_DYLIB_PATH",
        path = path.display()
    )]
    Runtime { path: PathBuf, problem: String },

    #[error("model {path} does not exist; {remedy}", path = path.display())]
    NoModel { path: PathBuf, remedy: String },

    #[error("model {path}: {problem}", path = path.display())]
    Load { path: PathBuf, problem: String },

    #[error("model {path} is not a classifier this tool recognises: {problem}\n{listing}", path = path.display())]
    Unrecognised { path: PathBuf, problem: String, listing: String },

    #[error("run model {path} on a batch of {images}: {problem}", path = path.display())]
    Run { path: PathBuf, images: usize, problem: String },

    #[error("payload {encoding} {width_px}x{height_px} of {bytes} bytes: {problem}")]
    Payload { encoding: String, width_px: u32, height_px: u32, bytes: usize, problem: String },
}

/// Why a pickle was refused. Nothing of the file is ever executed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UnpickleError {
    #[error("pickle ends inside {what} at byte {at}")]
    Truncated { what: &'static str, at: usize },

    #[error("pickle opcode 0x{opcode:02x} at byte {at} is not allowed")]
    ForbiddenOpcode { opcode: u8, at: usize },

    #[error("pickle names global `{name}` at byte {at}, which is not allowed")]
    ForbiddenGlobal { name: String, at: usize },

    #[error("pickle at byte {at}: {problem}")]
    Malformed { problem: String, at: usize },

    #[error("{thing} claims {claimed} bytes, but only {available} are in the file")]
    TooLarge { thing: String, claimed: u128, available: usize },
}
