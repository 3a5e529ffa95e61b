//! The converters write the pinned bytes from the published weights, and halving the weights changes little.

use std::fs;

use inference::{
    Output, Source, Target, Written, convert_lite0, convert_lite0_stored, convert_squeezenet, onnx::Storage,
};

use crate::support::{assets, best, input, load, root, runtime};

/// The published weight file, or `None` after saying why the test is skipped.
fn weights(name: &str) -> Option<std::path::PathBuf> {
    let path = assets().join("models").join(name);
    if !path.is_file() {
        println!("SKIPPED: {} is missing; run `reelbench assets fetch`", path.display());
        return None;
    }
    Some(path)
}

fn assert_pinned(name: &str, written: &Written) {
    let pinned = fs::read_to_string(root().join("testdata/fingerprints/converted-models.txt")).unwrap();
    let found = format!("{name} bytes={} sha256={}", written.bytes, written.sha256);
    assert!(pinned.lines().any(|line| line == found), "not pinned: {found}");
    assert_eq!(fs::metadata(&written.path).unwrap().len(), written.bytes);
}

#[test]
fn squeezenet_in_the_test_data_is_what_the_converter_writes() {
    let Some(pkl) = weights("squeezenet_weights.pkl") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("squeezenet.onnx");
    assert_pinned("squeezenet11-fp16.onnx", &convert_squeezenet(&pkl, &out, Storage::Float16).unwrap());
    let committed = fs::read(root().join("testdata/models/squeezenet11-fp16.onnx")).unwrap();
    assert!(fs::read(&out).unwrap() == committed, "the committed model is not the converter's");
}

#[test]
fn lite0_is_converted_to_the_pinned_bytes() {
    let Some(pth) = weights("efficientnet-lite0-57934424.pth") else { return };
    let folder = tempfile::tempdir().unwrap();
    assert_pinned("lite0.onnx", &convert_lite0(&pth, &folder.path().join("lite0.onnx")).unwrap());
}

#[test]
fn half_the_bytes_give_nearly_the_same_logits() {
    let (Some(runtime), Some(pth)) = (runtime(), weights("efficientnet-lite0-57934424.pth")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let paths = [("full.onnx", Storage::Float32), ("half.onnx", Storage::Float16)].map(|(name, storage)| {
        let path = folder.path().join(name);
        (convert_lite0_stored(&pth, &path, storage).unwrap().bytes, path)
    });
    assert!(paths[1].0 * 100 < paths[0].0 * 51);
    let [full, half] = paths.map(|(_, path)| {
        let mut model = load(&runtime, &Source::File(path));
        let target = Target::of(model.signature(), true);
        let Output::Scores { values, .. } = model.run(&input(target, "coffee")).unwrap() else { panic!("scores") };
        values
    });
    let worst = full.iter().zip(&half).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("largest difference of logits {worst}");
    assert!(worst > 0.0 && worst < 0.05 && best(&full) == best(&half), "{worst}");
}
