//! Tests that load ONNX Runtime: goldens, loader paths, and the stage itself on channels.

mod golden;
mod loader;
mod stage;
mod support;
