//! Tests that load ONNX Runtime: goldens, loader paths, and the stage itself on channels.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "the whole crate is tests, helpers included")]

mod converter;
mod golden;
mod loader;
mod stage;
mod support;
