//! Recognise a classifier from what its file declares: names, shapes, layout, classes and preprocessing.
//!
//! Published ResNet50 files differ in all of these. Whatever is not recognised is an error that lists what the model
//! declares and what can be set, because a guess would give plausible nonsense.

use std::{collections::BTreeMap, fmt};

use contract::Geometry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::preset::Preset;

/// Element type of a port, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Element {
    Float32,
    Int64,
    Other(String),
}

/// A declared input or output; a free dimension is -1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    pub element: Element,
    pub shape: Vec<i64>,
}

/// Everything a model file declares about itself.
#[derive(Debug, Clone, Default)]
pub struct Declared {
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    pub producer: String,
    pub metadata: BTreeMap<String, String>,
}

/// What the scenario sets instead of leaving it to recognition.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pub preset: Option<Preset>,
    pub input: Option<String>,
    pub output: Option<String>,
    pub layout: Option<Layout>,
    pub label_offset: Option<i32>,
}

/// Which axis the three colours are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// N, 3, height, width.
    ChannelsFirst,
    /// N, height, width, 3.
    ChannelsLast,
}

/// Whether the number of images of one run is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    Free,
    /// The model takes exactly this many: 1 means one run an image, more means padding the last run.
    Fixed(usize),
}

/// What the chosen output holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// The best class itself, as a number.
    BestClass,
    /// One score a class, logits or probabilities.
    Scores,
}

/// Where the weights come from; goes with every result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Weights {
    /// A file the user supplied.
    Official,
    /// Real trained weights of a smaller network.
    RealStandin,
    /// Random numbers: the load is real, predictions are meaningless.
    Seeded,
}

impl Weights {
    pub fn name(self) -> &'static str {
        match self {
            Weights::Official => "official",
            Weights::RealStandin => "real-standin",
            Weights::Seeded => "seeded",
        }
    }
}

/// How to feed and read a classifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub input: String,
    pub layout: Layout,
    pub crop: Geometry,
    pub short_side_px: u32,
    pub batch: Batch,
    pub output: String,
    pub head: Head,
    /// Added to a class number of the model to get the ImageNet-1000 number.
    pub label_offset: i32,
    pub preset: Preset,
    pub weights: Weights,
}

/// Recognise `declared`, with `overrides` first; the error is the problem alone, the caller adds the listing.
pub fn recognise(declared: &Declared, overrides: &Overrides) -> Result<Signature, String> {
    let input = choose_input(declared, overrides)?;
    let (layout, crop) = input_geometry(input, overrides.layout)?;
    let batch = match input.shape.first() {
        Some(fixed) if *fixed > 0 => Batch::Fixed(*fixed as usize),
        _ => Batch::Free,
    };
    let (output, head) = choose_output(declared, overrides)?;
    let classes = output.shape.get(1).copied();
    let offset = if output.name == "ArgMax:0" || classes == Some(1001) { -1 } else { 0 };
    let weights = match declared.metadata.get("reelbench.weights").map(String::as_str) {
        Some("seeded") => Weights::Seeded,
        Some("real-standin") => Weights::RealStandin,
        _ => Weights::Official,
    };
    Ok(Signature {
        input: input.name.clone(),
        layout,
        crop,
        short_side_px: short_side_px(crop),
        batch,
        output: output.name.clone(),
        head,
        label_offset: overrides.label_offset.unwrap_or(offset),
        preset: choose_preset(declared, overrides, input, output)?,
        weights,
    })
}

fn choose_input<'a>(declared: &'a Declared, overrides: &Overrides) -> Result<&'a Port, String> {
    let input = match &overrides.input {
        Some(name) => declared.inputs.iter().find(|port| port.name == *name),
        None => declared.inputs.first(),
    };
    let input = input.ok_or_else(|| match &overrides.input {
        Some(name) => format!("it has no input `{name}`"),
        None => "it has no input".to_owned(),
    })?;
    if input.element != Element::Float32 || input.shape.len() != 4 {
        return Err(format!("input `{}` does not take a float32 tensor of rank 4", input.name));
    }
    Ok(input)
}

/// The layout is the axis that is 3. A free height or width means the usual 224.
fn input_geometry(input: &Port, layout: Option<Layout>) -> Result<(Layout, Geometry), String> {
    let &[_, second, third, fourth] = input.shape.as_slice() else {
        return Err(format!("input `{}` is not of rank 4", input.name));
    };
    let layout = match (layout, second, fourth) {
        (Some(layout), _, _) => layout,
        (None, 3, fourth) if fourth != 3 => Layout::ChannelsFirst,
        (None, second, 3) if second != 3 => Layout::ChannelsLast,
        _ => return Err(format!("input `{}` has no single axis of 3 colours; set `layout`", input.name)),
    };
    let (height, width) = match layout {
        Layout::ChannelsFirst => (third, fourth),
        Layout::ChannelsLast => (second, third),
    };
    const USUAL_PX: u32 = 224;
    const LARGEST_PX: i64 = 4096;
    let side = |size: i64| match size {
        -1 => Ok(USUAL_PX),
        1..=LARGEST_PX => Ok(size as u32),
        _ => Err(format!("input `{}` has a side of {size} pixels", input.name)),
    };
    Ok((layout, Geometry::new(side(width)?, side(height)?)))
}

/// 256 for the usual crops, and the same proportion (87.5 %) for any other.
fn short_side_px(crop: Geometry) -> u32 {
    let side = crop.width_px.max(crop.height_px);
    if matches!(side, 224 | 227) { 256 } else { (side * 8).div_ceil(7) }
}

fn choose_output<'a>(declared: &'a Declared, overrides: &Overrides) -> Result<(&'a Port, Head), String> {
    if let Some(name) = &overrides.output {
        let output = declared.outputs.iter().find(|port| port.name == *name);
        let output = output.ok_or_else(|| format!("it has no output `{name}`"))?;
        return match output.element {
            Element::Int64 => Ok((output, Head::BestClass)),
            Element::Float32 => Ok((output, Head::Scores)),
            Element::Other(_) => Err(format!("output `{name}` holds neither float32 scores nor int64 classes")),
        };
    }
    let best = declared.outputs.iter().find(|port| port.element == Element::Int64 && port.shape.len() == 1);
    let scores = || declared.outputs.iter().find(|port| holds_scores(port));
    best.map(|port| (port, Head::BestClass))
        .or_else(|| scores().map(|port| (port, Head::Scores)))
        .ok_or_else(|| "no output holds one score for each of 1000 or 1001 classes, or the best class".to_owned())
}

/// [N, 1000] or [N, 1001], possibly with trailing ones.
fn holds_scores(port: &Port) -> bool {
    let classes = port.shape.get(1).is_some_and(|classes| matches!(classes, 1000 | 1001));
    port.element == Element::Float32 && classes && port.shape[2..].iter().all(|dim| *dim == 1)
}

/// From the scenario, from our own metadata, from the names published files are known by, or from torch's exporter.
fn choose_preset(declared: &Declared, overrides: &Overrides, input: &Port, output: &Port) -> Result<Preset, String> {
    if let Some(preset) = overrides.preset {
        return Ok(preset);
    }
    if let Some(name) = declared.metadata.get("reelbench.preset") {
        return name.parse();
    }
    let by_name = match (input.name.as_str(), output.name.as_str()) {
        ("data", "resnetv17_dense0_fwd" | "resnetv24_dense0_fwd") | ("pixel_values", "logits") => Some(Preset::Torch),
        ("gpu_0/data_0", _) => Some(Preset::CaffeBgr),
        ("input_tensor:0", _) => Some(Preset::VggRgb),
        _ if declared.producer == "pytorch" => Some(Preset::Torch),
        _ => None,
    };
    by_name.ok_or_else(|| "its preprocessing is not known; set `preset`".to_owned())
}

impl Declared {
    /// Inputs, outputs and presets, for the error message.
    pub fn listing(&self) -> String {
        let ports = |ports: &[Port]| ports.iter().map(Port::to_string).collect::<Vec<_>>().join("; ");
        format!(
            "  inputs: {}\n  outputs: {}\n  presets: {}",
            ports(&self.inputs),
            ports(&self.outputs),
            Preset::names()
        )
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims = self.shape.iter().map(|dim| if *dim < 0 { "?".to_owned() } else { dim.to_string() });
        let element = match &self.element {
            Element::Float32 => "float32",
            Element::Int64 => "int64",
            Element::Other(name) => name,
        };
        write!(f, "`{}` {element} [{}]", self.name, dims.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, element: Element, shape: &[i64]) -> Port {
        Port { name: name.to_owned(), element, shape: shape.to_vec() }
    }

    fn declared(input: Port, outputs: &[Port]) -> Declared {
        Declared { inputs: vec![input], outputs: outputs.to_vec(), ..Declared::default() }
    }

    fn mlperf(shape: &[i64]) -> Declared {
        let outputs =
            [port("ArgMax:0", Element::Int64, &[-1]), port("softmax_tensor:0", Element::Float32, &[-1, 1001])];
        declared(port("input_tensor:0", Element::Float32, shape), &outputs)
    }

    fn plain(input: &str, output: &str) -> Declared {
        declared(port(input, Element::Float32, &[-1, 3, 224, 224]), &[port(output, Element::Float32, &[-1, 1000])])
    }

    #[test]
    fn published_names_are_known() {
        for (model, preset, offset, head) in [
            (plain("data", "resnetv17_dense0_fwd"), Preset::Torch, 0, Head::Scores),
            (plain("data", "resnetv24_dense0_fwd"), Preset::Torch, 0, Head::Scores),
            (plain("pixel_values", "logits"), Preset::Torch, 0, Head::Scores),
            (plain("gpu_0/data_0", "gpu_0/softmax_1"), Preset::CaffeBgr, 0, Head::Scores),
            (mlperf(&[-1, 3, 224, 224]), Preset::VggRgb, -1, Head::BestClass),
        ] {
            let found = recognise(&model, &Overrides::default()).unwrap();
            assert_eq!((found.preset, found.label_offset, found.head), (preset, offset, head));
            assert_eq!((found.short_side_px, found.weights), (256, Weights::Official));
        }
    }

    #[test]
    fn layout_is_the_axis_of_three() {
        let last = recognise(&mlperf(&[-1, 224, 224, 3]), &Overrides::default()).unwrap();
        assert_eq!((last.layout, last.crop), (Layout::ChannelsLast, Geometry::new(224, 224)));
        let free = recognise(&mlperf(&[-1, -1, -1, 3]), &Overrides::default()).unwrap();
        assert_eq!((free.layout, free.crop), (Layout::ChannelsLast, Geometry::new(224, 224)));
        let tall = recognise(&mlperf(&[1, 3, 320, 160]), &Overrides::default()).unwrap();
        assert_eq!((tall.crop, tall.short_side_px), (Geometry::new(160, 320), 366));
        assert_eq!(tall.batch, Batch::Fixed(1));
        for unclear in [[-1, -1, -1, -1], [-1, 3, 224, 3], [-1, 1, 28, 28]] {
            let problem = recognise(&mlperf(&unclear), &Overrides::default()).unwrap_err();
            assert!(problem.contains("`layout`"), "{problem}");
        }
        let set = Overrides { layout: Some(Layout::ChannelsFirst), ..Overrides::default() };
        assert_eq!(recognise(&mlperf(&[-1, -1, -1, -1]), &set).unwrap().layout, Layout::ChannelsFirst);
    }

    #[test]
    fn unknown_models_are_refused_with_what_can_be_set() {
        let model = plain("x", "y");
        assert!(recognise(&model, &Overrides::default()).unwrap_err().contains("`preset`"));
        assert!(recognise(&Declared { producer: "pytorch".into(), ..model.clone() }, &Overrides::default()).is_ok());
        let listing = model.listing();
        assert!(listing.contains("`x` float32 [?, 3, 224, 224]") && listing.contains("vgg-rgb"), "{listing}");
        let detector = declared(
            port("input", Element::Float32, &[10, 3, 32, 32]),
            &[port("537", Element::Float32, &[10, 1, 8, 8])],
        );
        assert!(recognise(&detector, &Overrides::default()).unwrap_err().contains("1000 or 1001"));
        let half = declared(port("x", Element::Other("float16".into()), &[-1, 3, 224, 224]), &[]);
        assert!(recognise(&half, &Overrides::default()).unwrap_err().contains("float32"));
        assert!(recognise(&Declared::default(), &Overrides::default()).is_err());
    }

    #[test]
    fn trailing_ones_are_accepted_and_other_shapes_are_not() {
        for (shape, expected) in [
            (&[-1, 1000, 1, 1][..], true),
            (&[1, 1001], true),
            (&[-1, 1000, 7, 7], false),
            (&[-1, 999], false),
            (&[1000], false),
            (&[], false),
        ] {
            assert_eq!(holds_scores(&port("y", Element::Float32, shape)), expected, "{shape:?}");
        }
    }

    #[test]
    fn the_scenario_overrides_everything() {
        let overrides = Overrides {
            preset: Some(Preset::Raw),
            input: Some("input_tensor:0".into()),
            output: Some("softmax_tensor:0".into()),
            layout: None,
            label_offset: Some(0),
        };
        let found = recognise(&mlperf(&[-1, 3, 224, 224]), &overrides).unwrap();
        assert_eq!((found.preset, found.label_offset, found.head), (Preset::Raw, 0, Head::Scores));
        let kept = Overrides { label_offset: None, ..overrides.clone() };
        assert_eq!(recognise(&mlperf(&[-1, 3, 224, 224]), &kept).unwrap().label_offset, -1, "1001 classes");
        for wrong in [
            Overrides { input: Some("nope".into()), ..overrides.clone() },
            Overrides { output: Some("nope".into()), ..overrides },
        ] {
            assert!(recognise(&mlperf(&[-1, 3, 224, 224]), &wrong).unwrap_err().contains("`nope`"));
        }
    }
}
