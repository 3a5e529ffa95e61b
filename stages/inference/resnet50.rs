//! ResNet50 v1.5 with seeded weights: the real network and the real amount of work, predictions meaningless.
//!
//! The same seed gives the same file to the byte on every machine: random numbers use integer arithmetic and the exactly
//! rounded float operations only, never a library's logarithm or cosine. Tiny variants (a sixteenth of the width) carry
//! the input and output names and shapes of published files, so that every path of the loader is exercised without them.

use contract::random::Random;

use crate::onnx::{
    Attribute::{Int, Ints},
    Dim, Element, Graph, Storage,
};

/// Side of the square input in pixels.
const INPUT_PX: u64 = 224;
/// Width, blocks and stride of the four stages.
const STAGES: [(u64, u64, u64); 4] = [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)];
/// A block's last convolution is this many times wider than its first.
const EXPANSION: u64 = 4;

/// Whose names, shapes and outputs the graph carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Ours: `input`, `output`, free batch, logits.
    Plain,
    /// The model zoo's v1: `data`, `resnetv17_dense0_fwd`.
    ZooV1,
    /// MLPerf's: 1001 classes, `ArgMax:0` as int64 and `softmax_tensor:0`.
    Mlperf,
    /// MLPerf's before its inputs were turned: channels last.
    MlperfNhwc,
    /// The zoo's caffe2 export: batch fixed at one, probabilities.
    Caffe2,
}

/// What to generate.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    variant: Variant,
    /// The published widths are divided by this.
    divisor: u64,
}

impl Shape {
    /// The published network: 25,530,472 parameters.
    pub const fn full() -> Self {
        Self { variant: Variant::Plain, divisor: 1 }
    }

    /// A sixteenth of the width, less than 1 MB.
    pub const fn tiny(variant: Variant) -> Self {
        Self { variant, divisor: 16 }
    }

    fn classes(self) -> u64 {
        match self.variant {
            Variant::Mlperf | Variant::MlperfNhwc => 1001,
            Variant::Plain | Variant::ZooV1 | Variant::Caffe2 => 1000,
        }
    }
}

/// Build the graph; the same shape and seed give the same bytes.
pub fn graph(shape: &Shape, seed: u64) -> Graph {
    let mut builder = Builder {
        graph: Graph::new("resnet50-v1.5-seeded", Storage::Float32),
        random: Random::named(seed, "resnet50"),
    };
    builder.graph.metadata("reelbench.weights", "seeded");
    builder.graph.metadata("reelbench.seed", &seed.to_string());
    let input = builder.declare_input(shape.variant);

    let stem = 64 / shape.divisor;
    let x = builder.conv_relu(&input, "stem", Conv { inputs: 3, outputs: stem, kernel: 7, stride: 2, gain: 1.0 });
    let pool = [("kernel_shape", Ints(vec![3; 2])), ("strides", Ints(vec![2; 2])), ("pads", Ints(vec![1; 4]))];
    let mut x = builder.graph.node("MaxPool", &[&x], "stem.pool", &pool);
    let mut channels = stem;
    for (stage, (width, blocks, stride)) in (1..).zip(STAGES) {
        let width = width / shape.divisor;
        for block in 0..blocks {
            let stride = if block == 0 { stride } else { 1 };
            x = builder.block(&x, &format!("stage{stage}.block{block}"), channels, width, stride);
            channels = width * EXPANSION;
        }
    }
    builder.head(&x, channels, shape);
    builder.graph
}

/// One convolution; padding keeps the size before the stride.
#[derive(Clone, Copy)]
struct Conv {
    inputs: u64,
    outputs: u64,
    kernel: u64,
    stride: u64,
    gain: f64,
}

struct Builder {
    graph: Graph,
    random: Random,
}

impl Builder {
    /// Declare the variant's input and bring it to channels first.
    fn declare_input(&mut self, variant: Variant) -> String {
        let (free, three, side) = (Dim::Free("N"), Dim::Fixed(3), Dim::Fixed(INPUT_PX));
        let (name, shape) = match variant {
            Variant::Plain => ("input", [free, three, side.clone(), side]),
            Variant::ZooV1 => ("data", [free, three, side.clone(), side]),
            Variant::Mlperf => ("input_tensor:0", [free, three, side.clone(), side]),
            Variant::MlperfNhwc => ("input_tensor:0", [free, side.clone(), side, three]),
            Variant::Caffe2 => ("gpu_0/data_0", [Dim::Fixed(1), three, side.clone(), side]),
        };
        self.graph.input(name, Element::Float32, &shape);
        if variant == Variant::Plain {
            self.graph.metadata("reelbench.preset", "torch");
        }
        if variant == Variant::MlperfNhwc {
            return self.graph.node("Transpose", &[name], "nchw", &[("perm", Ints(vec![0, 3, 1, 2]))]);
        }
        name.to_owned()
    }

    /// A bottleneck: 1x1, 3x3 (which has the stride: that is what "v1.5" means), 1x1, and the shortcut.
    fn block(&mut self, input: &str, name: &str, channels: u64, width: u64, stride: u64) -> String {
        let wide = width * EXPANSION;
        let narrow = Conv { inputs: channels, outputs: width, kernel: 1, stride: 1, gain: 1.0 };
        let middle = Conv { inputs: width, outputs: width, kernel: 3, stride, gain: 1.0 };
        // The small gain keeps the sum over sixteen blocks from growing, as trained normalisation would.
        let widen = Conv { inputs: width, outputs: wide, kernel: 1, stride: 1, gain: 0.3 };
        let x = self.conv_relu(input, &format!("{name}.narrow"), narrow);
        let x = self.conv_relu(&x, &format!("{name}.middle"), middle);
        let x = self.conv(&x, &format!("{name}.widen"), widen);
        let shortcut = if channels == wide {
            input.to_owned()
        } else {
            self.conv(
                input,
                &format!("{name}.shortcut"),
                Conv { inputs: channels, outputs: wide, kernel: 1, stride, gain: 0.7 },
            )
        };
        let sum = self.graph.node("Add", &[&x, &shortcut], &format!("{name}.add"), &[]);
        self.graph.node("Relu", &[&sum], &format!("{name}.relu"), &[])
    }

    fn conv_relu(&mut self, input: &str, name: &str, conv: Conv) -> String {
        let x = self.conv(input, name, conv);
        self.graph.node("Relu", &[&x], &format!("{name}.relu"), &[])
    }

    fn conv(&mut self, input: &str, name: &str, conv: Conv) -> String {
        let Conv { inputs, outputs, kernel, stride, gain } = conv;
        let per_output = kernel * kernel * inputs;
        let deviation = (2.0 / per_output as f64).sqrt() * gain;
        let weight = self.normal((outputs * per_output) as usize, deviation);
        let weight = self.graph.weight(&format!("{name}.weight"), &[outputs, inputs, kernel, kernel], &weight);
        let bias = self.graph.weight(&format!("{name}.bias"), &[outputs], &vec![0.0; outputs as usize]);
        let attributes = [
            ("kernel_shape", Ints(vec![kernel as i64; 2])),
            ("strides", Ints(vec![stride as i64; 2])),
            ("pads", Ints(vec![kernel as i64 / 2; 4])),
        ];
        self.graph.node("Conv", &[input, &weight, &bias], &format!("{name}.out"), &attributes)
    }

    /// Pool, classify, and whatever outputs the variant has.
    fn head(&mut self, input: &str, channels: u64, shape: &Shape) {
        let classes = shape.classes();
        let weight = self.normal((classes * channels) as usize, 0.01);
        let weight = self.graph.weight("fc.weight", &[classes, channels], &weight);
        let bias = self.graph.weight("fc.bias", &[classes], &vec![0.0; classes as usize]);
        let pooled = self.graph.node("GlobalAveragePool", &[input], "pooled", &[]);
        let flat = self.graph.node("Flatten", &[&pooled], "flat", &[("axis", Int(1))]);
        let logits = match shape.variant {
            Variant::Plain => "output",
            Variant::ZooV1 => "resnetv17_dense0_fwd",
            Variant::Mlperf | Variant::MlperfNhwc | Variant::Caffe2 => "logits",
        };
        self.graph.node("Gemm", &[&flat, &weight, &bias], logits, &[("transB", Int(1))]);
        let scores = [Dim::Free("N"), Dim::Fixed(classes)];
        match shape.variant {
            Variant::Plain | Variant::ZooV1 => self.graph.output(logits, Element::Float32, &scores),
            Variant::Caffe2 => {
                self.graph.node("Softmax", &[logits], "gpu_0/softmax_1", &[("axis", Int(1))]);
                self.graph.output("gpu_0/softmax_1", Element::Float32, &[Dim::Fixed(1), Dim::Fixed(classes)]);
            }
            Variant::Mlperf | Variant::MlperfNhwc => {
                let best = [("axis", Int(1)), ("keepdims", Int(0))];
                self.graph.node("ArgMax", &[logits], "ArgMax:0", &best);
                self.graph.node("Softmax", &[logits], "softmax_tensor:0", &[("axis", Int(1))]);
                self.graph.output("ArgMax:0", Element::Int64, &[Dim::Free("N")]);
                self.graph.output("softmax_tensor:0", Element::Float32, &scores);
            }
        }
    }

    /// Numbers close to N(0, deviation): the sum of twelve uniform 16-bit numbers has variance one when each is scaled
    /// to [0, 1), and every step of it is exact in a double.
    fn normal(&mut self, count: usize, deviation: f64) -> Vec<f32> {
        const UNIFORMS: f64 = 12.0;
        const STEPS: f64 = 65_536.0;
        let draw = |random: &mut Random| {
            let sum: u64 = (0..3).map(|_| sum_of_words(random.next_u64())).sum();
            // Each uniform is at the middle of its step, so that the mean is exactly zero.
            (sum as f64 + UNIFORMS / 2.0) / STEPS - UNIFORMS / 2.0
        };
        (0..count).map(|_| (draw(&mut self.random) * deviation) as f32).collect()
    }
}

/// Sum of the four 16-bit parts of a number.
fn sum_of_words(bits: u64) -> u64 {
    (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48)
}

#[cfg(test)]
mod tests {
    use std::io;

    use sha2::{Digest, Sha256};

    use super::*;
    use crate::convert::{Hashing, hex};

    fn fingerprint(shape: Shape, seed: u64) -> (u64, String) {
        let mut out = Hashing { inner: io::sink(), hash: Sha256::new(), bytes: 0 };
        graph(&shape, seed).write_to(&mut out).unwrap();
        (out.bytes, hex(&out.hash.finalize()))
    }

    #[test]
    fn same_seed_gives_the_pinned_bytes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/fingerprints/resnet50-seeded.txt");
        let pinned = std::fs::read_to_string(path).unwrap();
        let line = |name: &str, shape, seed| {
            let (bytes, sha256) = fingerprint(shape, seed);
            format!("{name} seed={seed} bytes={bytes} sha256={sha256}\n")
        };
        let found = line("full", Shape::full(), 42)
            + &line("tiny-plain", Shape::tiny(Variant::Plain), 42)
            + &line("tiny-mlperf", Shape::tiny(Variant::Mlperf), 42);
        assert_eq!(found, pinned, "the generator no longer writes the pinned bytes");
    }

    #[test]
    fn another_seed_gives_other_bytes_of_the_same_length() {
        let one = fingerprint(Shape::tiny(Variant::Plain), 42);
        let two = fingerprint(Shape::tiny(Variant::Plain), 43);
        assert_eq!(one.0, two.0);
        assert_ne!(one.1, two.1);
    }

    #[test]
    fn draws_have_the_deviation_asked_for() {
        let mut builder = Builder { graph: Graph::new("none", Storage::Float32), random: Random::new(1) };
        let draws = builder.normal(200_000, 2.0);
        let mean = draws.iter().map(|d| f64::from(*d)).sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|d| (f64::from(*d) - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        // Five standard errors of mean and variance for 200,000 draws.
        assert!(mean.abs() < 5.0 * 2.0 / 447.0, "{mean}");
        assert!((variance - 4.0).abs() < 5.0 * 4.0 * (2.0f64 / 200_000.0).sqrt(), "{variance}");
        let beyond = draws.iter().filter(|d| d.abs() > 4.0).count() as f64 / draws.len() as f64;
        assert!((0.040..0.051).contains(&beyond), "about 4.5 % lie beyond two deviations: {beyond}");
    }
}
