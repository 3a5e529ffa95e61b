//! Every shape of published ResNet50 loads, by tiny seeded networks that carry its names; what is no classifier is refused.

use std::{fs, path::Path};

use contract::Geometry;
use inference::{
    Batch, Head, InferenceError, Layout, Model, Output, Overrides, Preset, Runtime, Source, Weights,
    generate_tiny_resnet50,
    onnx::{Dim, Element, Graph, Storage},
    resnet50::Variant,
    squeezenet, top_k, write_model,
};

use crate::support::{load, noise, root, runtime};

fn tiny(runtime: &Runtime, folder: &Path, variant: Variant) -> Model {
    let path = folder.join(format!("{variant:?}.onnx"));
    generate_tiny_resnet50(&path, variant, 42).unwrap();
    load(runtime, &Source::File(path))
}

#[test]
fn every_published_shape_loads_with_its_own_rules() {
    let Some(runtime) = runtime() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (variant, input, layout, batch, output, head, offset, preset) in [
        (Variant::Plain, "input", Layout::ChannelsFirst, Batch::Free, "output", Head::Scores, 0, Some(Preset::Torch)),
        (
            Variant::ZooV1,
            "data",
            Layout::ChannelsFirst,
            Batch::Free,
            "resnetv17_dense0_fwd",
            Head::Scores,
            0,
            Some(Preset::Torch),
        ),
        (
            Variant::Mlperf,
            "input_tensor:0",
            Layout::ChannelsFirst,
            Batch::Free,
            "ArgMax:0",
            Head::BestClass,
            -1,
            Some(Preset::VggRgb),
        ),
        (
            Variant::MlperfNhwc,
            "input_tensor:0",
            Layout::ChannelsLast,
            Batch::Free,
            "ArgMax:0",
            Head::BestClass,
            -1,
            Some(Preset::VggRgb),
        ),
        (
            Variant::Caffe2,
            "gpu_0/data_0",
            Layout::ChannelsFirst,
            Batch::Fixed(1),
            "gpu_0/softmax_1",
            Head::Scores,
            0,
            Some(Preset::CaffeBgr),
        ),
    ] {
        let mut model = tiny(&runtime, folder.path(), variant);
        let found = model.signature().clone();
        assert_eq!((found.input.as_str(), found.layout, found.batch), (input, layout, batch), "{variant:?}");
        assert_eq!((found.output.as_str(), found.head, found.label_offset), (output, head, offset), "{variant:?}");
        assert_eq!((Some(found.preset), found.weights), (preset, Weights::Seeded), "{variant:?}");
        assert_eq!(model.run(&noise(3 * model.image_len())).unwrap().images(), 3, "{variant:?}");
    }
}

/// The same weights behind five faces give the same classes, which also checks the layouts and offsets against each other.
#[test]
fn the_same_network_gives_the_same_class_through_every_face() {
    let Some(runtime) = runtime() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut plain = tiny(&runtime, folder.path(), Variant::Plain);
    let mut caffe2 = tiny(&runtime, folder.path(), Variant::Caffe2);
    let image = noise(2 * plain.image_len());
    let classes = |model: &mut Model, input: &[f32]| -> Vec<i64> {
        let output = model.run(input).unwrap();
        top_k(&output, 1, model.signature().label_offset).iter().map(|top| top[0].class).collect()
    };
    assert_eq!(classes(&mut plain, &image), classes(&mut caffe2, &image));

    let mut first = tiny(&runtime, folder.path(), Variant::Mlperf);
    let mut last = tiny(&runtime, folder.path(), Variant::MlperfNhwc);
    let plane = 224 * 224;
    let turned: Vec<f32> = image
        .chunks(3 * plane)
        .flat_map(|image| (0..plane).flat_map(move |pixel| (0..3).map(move |channel| image[channel * plane + pixel])))
        .collect();
    assert_eq!(classes(&mut first, &image), classes(&mut last, &turned));
    let path = folder.path().join("Mlperf.onnx");
    let overrides = Overrides { output: Some("softmax_tensor:0".into()), ..Overrides::default() };
    let mut scores = Model::load(&runtime, &Source::File(path), &overrides, 1).unwrap();
    assert_eq!((scores.signature().head, scores.signature().label_offset), (Head::Scores, -1));
    assert_eq!(classes(&mut first, &image), classes(&mut scores, &image));
}

#[test]
fn a_batch_gives_what_its_images_give_alone() {
    let Some(runtime) = runtime() else { return };
    let mut model = load(&runtime, &squeezenet());
    let images = noise(3 * model.image_len());
    let Output::Scores { values: together, .. } = model.run(&images).unwrap() else { panic!("scores") };
    for (index, image) in images.chunks(model.image_len()).enumerate() {
        let Output::Scores { values: alone, .. } = model.run(image).unwrap() else { panic!("scores") };
        let worst = alone.iter().zip(&together[index * 1000..]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-5, "image {index}: {worst}");
    }
}

/// The zoo's light model: caffe2 names, batch of one only, uniform output that is published beside it.
#[test]
fn light_resnet50_loads_and_gives_its_published_output() {
    let Some(runtime) = runtime() else { return };
    let mut model = load(&runtime, &Source::File(root().join("testdata/models/light_resnet50.onnx")));
    assert_eq!((model.signature().batch, model.signature().preset), (Batch::Fixed(1), Preset::CaffeBgr));
    assert_eq!(model.signature().crop, Geometry::new(224, 224));
    let Output::Scores { values, .. } = model.run(&noise(2 * model.image_len())).unwrap() else { panic!("scores") };
    let published = fs::read(root().join("testdata/models/light_resnet50_output_0.pb")).unwrap();
    let raw = &published[published.len() - 4000..];
    let expected: Vec<f32> = raw.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(values.len(), 2000);
    for (found, expected) in values.iter().zip(expected.iter().chain(&expected)) {
        assert!((found - expected).abs() < 1e-7 && (found - 0.001).abs() < 1e-7, "{found} {expected}");
    }
}

#[test]
fn what_is_no_classifier_is_refused_with_a_list_of_what_it_is() {
    let Some(runtime) = runtime() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.onnx");
    write_odd_model(&path);
    let error = Model::load(&runtime, &Source::File(path.clone()), &Overrides::default(), 1).err().unwrap();
    let text = error.to_string();
    assert!(matches!(error, InferenceError::Unrecognised { .. }), "{text}");
    for word in ["odd.onnx", "1000 or 1001", "`x` float32 [10, 3, 32, 32]", "`y` float32 [10, 3, 32, 32]", "caffe-bgr"]
    {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}

#[test]
fn a_damaged_file_is_one_error_that_names_it() {
    let Some(runtime) = runtime() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.onnx");
    generate_tiny_resnet50(&path, Variant::Plain, 1).unwrap();
    let bytes = fs::read(&path).unwrap();
    for len in [0, 10, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..len]).unwrap();
        let error = Model::load(&runtime, &Source::File(path.clone()), &Overrides::default(), 1).err();
        let error = error.unwrap_or_else(|| panic!("{len} of {} bytes load", bytes.len())).to_string();
        assert!(error.contains("broken.onnx"), "{error}");
    }
}

#[test]
fn inference_threads_are_counted_and_named() {
    let Some(runtime) = runtime() else { return };
    let names = || -> Vec<String> {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).collect()
    };
    let ours = || names().iter().filter(|name| name.starts_with("infer-ort-")).count();
    let before = ours();
    let mut model = Model::load(&runtime, &squeezenet(), &Overrides::default(), 3).unwrap();
    model.run(&noise(model.image_len())).unwrap();
    assert_eq!(ours() - before, 2, "three threads are the caller and two more: {:?}", names());
}

/// A detector-like model whose declared input is fixed at an odd size.
fn write_odd_model(path: &Path) {
    let mut graph = Graph::new("odd", Storage::Float32);
    let shape = [10, 3, 32, 32].map(Dim::Fixed);
    graph.input("x", Element::Float32, &shape);
    graph.node("Relu", &["x"], "y", &[]);
    graph.output("y", Element::Float32, &shape);
    write_model(&graph, path).unwrap();
}
