//! EfficientNet-Lite0 as an ONNX graph, from the tensors of its published torch weights.
//!
//! Batch normalisation is folded into the convolutions (in 64 bits), ReLU6 becomes `Clip`, and the TensorFlow-style
//! SAME padding (the odd pixel at the bottom and right) becomes explicit pads for 224x224 input.

use std::collections::BTreeMap;

use crate::{
    error::{InferenceError, Result},
    onnx::{
        Attribute::{self, Int, Ints},
        Dim, Element, Graph, Storage,
    },
    unpickle::{Data, Tensor},
};

/// Side of the square input in pixels.
pub const INPUT_PX: u64 = 224;
const CLASSES: u64 = 1000;
/// Epsilon of the network's batch normalisation (TensorFlow's, not torch's default).
const EPSILON: f64 = 1e-3;

/// One stage: how often its block repeats, kernel, stride of the first repeat, expansion, channels in and out.
struct Stage {
    repeat: u64,
    kernel: u64,
    stride: u64,
    expand: u64,
    input: u64,
    output: u64,
}

const fn stage(repeat: u64, kernel: u64, stride: u64, expand: u64, input: u64, output: u64) -> Stage {
    Stage { repeat, kernel, stride, expand, input, output }
}

const STAGES: [Stage; 7] = [
    stage(1, 3, 1, 1, 32, 16),
    stage(2, 3, 2, 6, 16, 24),
    stage(2, 5, 2, 6, 24, 40),
    stage(3, 3, 2, 6, 40, 80),
    stage(3, 5, 1, 6, 80, 112),
    stage(4, 5, 2, 6, 112, 192),
    stage(1, 3, 1, 6, 192, 320),
];

/// The tensors of the state dictionary, by torch's names.
type Tensors = BTreeMap<String, Tensor>;

/// Build the graph.
pub(crate) fn graph(tensors: &Tensors, storage: Storage) -> Result<Graph> {
    let mut graph = Graph::new("efficientnet-lite0", storage);
    graph.input(
        "input",
        Element::Float32,
        &[Dim::Free("N"), Dim::Fixed(3), Dim::Fixed(INPUT_PX), Dim::Fixed(INPUT_PX)],
    );
    graph.output("output", Element::Float32, &[Dim::Free("N"), Dim::Fixed(CLASSES)]);
    graph.metadata("reelbench.preset", "tf127");
    graph.metadata("reelbench.weights", "real-standin");
    graph.constant("zero", &[], &[0.0]);
    graph.constant("six", &[], &[6.0]);

    let mut builder = Builder { graph, tensors, size_px: INPUT_PX };
    let mut x = builder.conv_relu6("input", "_conv_stem", "_bn0", [32, 3, 3], 2)?;
    let mut index = 0;
    for stage in &STAGES {
        for repeat in 0..stage.repeat {
            x = builder.block(&x, index, stage, repeat == 0)?;
            index += 1;
        }
    }
    x = builder.conv_relu6(&x, "_conv_head", "_bn1", [1280, 320, 1], 1)?;
    builder.classifier(&x)?;
    Ok(builder.graph)
}

struct Builder<'a> {
    graph: Graph,
    tensors: &'a Tensors,
    /// Side of the feature map at this point, from which SAME padding is computed.
    size_px: u64,
}

impl Builder<'_> {
    /// An inverted residual block: expand, depthwise, project, and the shortcut where the shape does not change.
    fn block(&mut self, input: &str, index: u64, stage: &Stage, first: bool) -> Result<String> {
        let (channels, stride) = if first { (stage.input, stage.stride) } else { (stage.output, 1) };
        let wide = channels * stage.expand;
        let part = |name: &str| format!("_blocks.{index}.{name}");
        let mut x = input.to_owned();
        if stage.expand != 1 {
            x = self.conv_relu6(&x, &part("_expand_conv"), &part("_bn0"), [wide, channels, 1], 1)?;
        }
        x = self.conv_relu6(&x, &part("_depthwise_conv"), &part("_bn1"), [wide, 1, stage.kernel], stride)?;
        x = self.conv(&x, &part("_project_conv"), &part("_bn2"), [stage.output, wide, 1], 1)?;
        if stride == 1 && channels == stage.output {
            x = self.graph.node("Add", &[&x, input], &part("add"), &[]);
        }
        Ok(x)
    }

    fn conv_relu6(&mut self, input: &str, conv: &str, norm: &str, shape: [u64; 3], stride: u64) -> Result<String> {
        let x = self.conv(input, conv, norm, shape, stride)?;
        Ok(self.graph.node("Clip", &[&x, "zero", "six"], &format!("{conv}.relu6"), &[]))
    }

    /// A convolution with its normalisation folded in. `shape` is output channels, input channels per group, kernel;
    /// one input channel per group means depthwise.
    fn conv(&mut self, input: &str, conv: &str, norm: &str, shape: [u64; 3], stride: u64) -> Result<String> {
        let [outputs, per_group, kernel] = shape;
        let (weight, bias) = self.folded(conv, norm, shape)?;
        let weight = self.graph.weight(&format!("{conv}.weight"), &[outputs, per_group, kernel, kernel], &weight);
        let bias = self.graph.weight(&format!("{conv}.bias"), &[outputs], &bias);
        let size_px = self.size_px.div_ceil(stride);
        let pad = ((size_px - 1) * stride + kernel).saturating_sub(self.size_px);
        self.size_px = size_px;
        let (before, after) = ((pad / 2) as i64, pad.div_ceil(2) as i64);
        let attributes: [(&str, Attribute); 4] = [
            ("kernel_shape", Ints(vec![kernel as i64; 2])),
            ("strides", Ints(vec![stride as i64; 2])),
            ("pads", Ints(vec![before, before, after, after])),
            ("group", Int(if per_group == 1 { outputs as i64 } else { 1 })),
        ];
        Ok(self.graph.node("Conv", &[input, &weight, &bias], &format!("{conv}.out"), &attributes))
    }

    fn folded(&self, conv: &str, norm: &str, shape: [u64; 3]) -> Result<(Vec<f32>, Vec<f32>)> {
        let [outputs, per_group, kernel] = shape;
        let weight = floats(self.tensors, &format!("{conv}.weight"), &[outputs, per_group, kernel, kernel])?;
        let part = |name: &str| floats(self.tensors, &format!("{norm}.{name}"), &[outputs]);
        let (gamma, beta, mean, variance) =
            (part("weight")?, part("bias")?, part("running_mean")?, part("running_var")?);
        let per_output = (per_group * kernel * kernel) as usize;
        let mut folded = Vec::with_capacity(weight.len());
        let mut bias = Vec::with_capacity(gamma.len());
        for (channel, kernel) in weight.chunks_exact(per_output).enumerate() {
            let scale = f64::from(gamma[channel]) / (f64::from(variance[channel]) + EPSILON).sqrt();
            folded.extend(kernel.iter().map(|w| (f64::from(*w) * scale) as f32));
            bias.push((f64::from(beta[channel]) - f64::from(mean[channel]) * scale) as f32);
        }
        Ok((folded, bias))
    }

    fn classifier(&mut self, input: &str) -> Result<()> {
        let weight = floats(self.tensors, "_fc.weight", &[CLASSES, 1280])?;
        let bias = floats(self.tensors, "_fc.bias", &[CLASSES])?;
        let weight = self.graph.weight("_fc.weight", &[CLASSES, 1280], weight);
        let bias = self.graph.weight("_fc.bias", &[CLASSES], bias);
        let pooled = self.graph.node("GlobalAveragePool", &[input], "pooled", &[]);
        let flat = self.graph.node("Flatten", &[&pooled], "flat", &[("axis", Int(1))]);
        self.graph.node("Gemm", &[&flat, &weight, &bias], "output", &[("transB", Int(1))]);
        Ok(())
    }
}

/// The float tensor `name`, checked against the shape the network needs.
fn floats<'a>(tensors: &'a Tensors, name: &str, shape: &[u64]) -> Result<&'a [f32]> {
    let problem = match tensors.get(name) {
        Some(Tensor { shape: found, data: Data::Float32(data) }) if found == shape => return Ok(data),
        Some(tensor) => format!("has shape {:?}, expected floats of shape {shape:?}", tensor.shape),
        None => "is missing".to_owned(),
    };
    Err(InferenceError::Tensor { name: name.to_owned(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_misshapen_tensor_is_named() {
        let mut tensors = Tensors::new();
        let missing = graph(&tensors, Storage::Float32).unwrap_err().to_string();
        assert_eq!(missing, "weights: tensor `_conv_stem.weight` is missing");
        let tensor = Tensor { shape: vec![1], data: Data::Float32(vec![0.0]) };
        tensors.insert("_conv_stem.weight".to_owned(), tensor);
        let wrong = graph(&tensors, Storage::Float32).unwrap_err().to_string();
        assert_eq!(wrong, "weights: tensor `_conv_stem.weight` has shape [1], expected floats of shape [32, 3, 3, 3]");
    }
}
