//! Make the models of the test data and the assets folder from published weight files.
//!
//! `cargo run --release -p inference --example convert_models -- squeezenet WEIGHTS.pkl OUT.onnx`; also `lite0 WEIGHTS.pth
//! OUT.onnx`, `lite0-fp16 WEIGHTS.pth OUT.onnx` and `resnet50 SEED OUT.onnx`.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::{env, error::Error, path::Path};

use inference::{convert_lite0, convert_lite0_stored, convert_squeezenet, generate_resnet50, onnx::Storage};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [what, from, out] = arguments.as_slice() else {
        return Err("usage: convert_models squeezenet|lite0|lite0-fp16|resnet50 WEIGHTS|SEED OUT".into());
    };
    let out = Path::new(out);
    let written = match what.as_str() {
        "squeezenet" => convert_squeezenet(Path::new(from), out, Storage::Float16)?,
        "lite0" => convert_lite0(Path::new(from), out)?,
        "lite0-fp16" => convert_lite0_stored(Path::new(from), out, Storage::Float16)?,
        "resnet50" => generate_resnet50(out, from.parse()?)?,
        other => return Err(format!("unknown model `{other}`").into()),
    };
    println!("{} bytes={} sha256={}", written.path.display(), written.bytes, written.sha256);
    Ok(())
}
