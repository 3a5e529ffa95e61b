//! SqueezeNet 1.1 as an ONNX graph, from the layers of its published weight file (kernels in HWIO order).

use std::collections::BTreeMap;

use crate::{
    error::{InferenceError, Result},
    onnx::{
        Attribute::{Int, Ints},
        Dim, Element, Graph, Storage,
    },
    unpickle::{Data, Tensor},
};

/// Side of the square input in pixels.
pub const INPUT_PX: u64 = 227;
const CLASSES: u64 = 1000;

/// Squeeze and expand channels of `fire2` to `fire9`; each of the two expand convolutions has the second number.
const FIRES: [(u64, u64); 8] = [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)];

/// Kernel and bias of every layer, by name.
type Layers = BTreeMap<String, Vec<Tensor>>;

/// Build the graph.
pub(crate) fn graph(layers: &Layers, storage: Storage) -> Result<Graph> {
    let mut graph = Graph::new("squeezenet-1.1", storage);
    graph.input("data", Element::Float32, &[Dim::Free("N"), Dim::Fixed(3), Dim::Fixed(INPUT_PX), Dim::Fixed(INPUT_PX)]);
    graph.output("prob", Element::Float32, &[Dim::Free("N"), Dim::Fixed(CLASSES)]);
    graph.metadata("reelbench.preset", "caffe-bgr");
    graph.metadata("reelbench.weights", "real-standin");

    let mut builder = Builder { graph, layers };
    let x = builder.conv_relu("data", "conv1", [64, 3, 3], 2, 1)?;
    let mut x = builder.pool(&x, "pool1");
    let mut channels = 64;
    for (index, (squeeze, expand)) in (2..).zip(FIRES) {
        x = builder.fire(&x, &format!("fire{index}"), channels, squeeze, expand)?;
        channels = 2 * expand;
        if index == 3 || index == 5 {
            x = builder.pool(&x, &format!("pool{index}"));
        }
    }
    let x = builder.conv(&x, "conv10", [CLASSES, channels, 1], 1, 0)?;
    let pooled = builder.graph.node("GlobalAveragePool", &[&x], "pool10", &[]);
    let flat = builder.graph.node("Flatten", &[&pooled], "flat", &[("axis", Int(1))]);
    builder.graph.node("Softmax", &[&flat], "prob", &[("axis", Int(1))]);
    Ok(builder.graph)
}

struct Builder<'a> {
    graph: Graph,
    layers: &'a Layers,
}

impl Builder<'_> {
    fn fire(&mut self, input: &str, name: &str, channels: u64, squeeze: u64, expand: u64) -> Result<String> {
        let narrow = self.conv_relu(input, &format!("{name}/squeeze1x1"), [squeeze, channels, 1], 1, 0)?;
        let one = self.conv_relu(&narrow, &format!("{name}/expand1x1"), [expand, squeeze, 1], 1, 0)?;
        let three = self.conv_relu(&narrow, &format!("{name}/expand3x3"), [expand, squeeze, 3], 1, 1)?;
        Ok(self.graph.node("Concat", &[&one, &three], &format!("{name}/concat"), &[("axis", Int(1))]))
    }

    fn conv_relu(&mut self, input: &str, name: &str, shape: [u64; 3], stride: i64, pad: i64) -> Result<String> {
        let x = self.conv(input, name, shape, stride, pad)?;
        Ok(self.graph.node("Relu", &[&x], &format!("{name}/relu"), &[]))
    }

    /// A convolution; `shape` is output channels, input channels, kernel.
    fn conv(&mut self, input: &str, name: &str, shape: [u64; 3], stride: i64, pad: i64) -> Result<String> {
        let [outputs, inputs, kernel] = shape;
        let layers = self.layers;
        let weight = floats(layers, name, 0, &[kernel, kernel, inputs, outputs])?;
        let weight = hwio_to_oihw(weight, shape);
        let bias = floats(layers, name, 1, &[outputs])?;
        let weight = self.graph.weight(&format!("{name}/weight"), &[outputs, inputs, kernel, kernel], &weight);
        let bias = self.graph.weight(&format!("{name}/bias"), &[outputs], bias);
        let attributes = [
            ("kernel_shape", Ints(vec![kernel as i64; 2])),
            ("strides", Ints(vec![stride; 2])),
            ("pads", Ints(vec![pad; 4])),
        ];
        Ok(self.graph.node("Conv", &[input, &weight, &bias], &format!("{name}/out"), &attributes))
    }

    fn pool(&mut self, input: &str, name: &str) -> String {
        let attributes = [("kernel_shape", Ints(vec![3, 3])), ("strides", Ints(vec![2, 2]))];
        self.graph.node("MaxPool", &[input], name, &attributes)
    }
}

/// A part of a layer (0 the kernel, 1 the bias), checked against the shape the network needs.
fn floats<'a>(layers: &'a Layers, layer: &str, part: usize, shape: &[u64]) -> Result<&'a [f32]> {
    let problem = match layers.get(layer).and_then(|parts| parts.get(part)) {
        Some(Tensor { shape: found, data: Data::Float32(data) }) if found == shape => return Ok(data),
        Some(tensor) => format!("part {part} has shape {:?}, expected floats of shape {shape:?}", tensor.shape),
        None => format!("part {part} is missing"),
    };
    Err(InferenceError::Tensor { name: layer.to_owned(), problem })
}

/// Reorder a kernel from (height, width, in, out) to ONNX's (out, in, height, width).
fn hwio_to_oihw(values: &[f32], shape: [u64; 3]) -> Vec<f32> {
    let [outputs, inputs, kernel] = shape.map(|dim| dim as usize);
    let area = kernel * kernel;
    let mut reordered = Vec::with_capacity(values.len());
    for output in 0..outputs {
        for input in 0..inputs {
            reordered.extend((0..area).map(|at| values[(at * inputs + input) * outputs + output]));
        }
    }
    reordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_reordered_by_axis() {
        // Value = 1000 h + 100 w + 10 in + out for a 2x2 kernel with 3 inputs and 2 outputs.
        let mut hwio = Vec::new();
        for at in 0..4 {
            for input in 0..3 {
                for output in 0..2 {
                    hwio.push((1000 * (at / 2) + 100 * (at % 2) + 10 * input + output) as f32);
                }
            }
        }
        let oihw = hwio_to_oihw(&hwio, [2, 3, 2]);
        assert_eq!(oihw[..4], [0.0, 100.0, 1000.0, 1100.0], "first output, first input: the 2x2 area");
        assert_eq!(oihw[(3 + 2) * 4 + 3], 1121.0, "second output, third input, last pixel");
    }

    #[test]
    fn a_missing_layer_is_named() {
        let error = graph(&Layers::new(), Storage::Float16).unwrap_err().to_string();
        assert_eq!(error, "weights: tensor `conv1` part 0 is missing");
    }
}
