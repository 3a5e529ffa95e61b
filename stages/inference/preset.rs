//! How a picture becomes the numbers a network was trained on. A wrong preset gives plausible nonsense, so the choice is
//! named, never guessed.

use std::{fmt, str::FromStr};

use picture::{ChannelOrder, Normalise};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Normalisation of the 0..255 samples and order of the channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// RGB, /255, minus (.485, .456, .406), divided by (.229, .224, .225): torchvision and the ONNX zoo.
    Torch,
    /// RGB, (x - 127) / 128: EfficientNet-Lite.
    Tf127,
    /// RGB, minus (123.68, 116.78, 103.94), not scaled: MLPerf's ResNet50.
    VggRgb,
    /// BGR, minus (103.939, 116.779, 123.68), not scaled: caffe models.
    CaffeBgr,
    /// RGB, x / 127.5 - 1.
    Unit,
    /// RGB, 0..255 as it is.
    Raw,
}

impl Preset {
    pub const ALL: [Preset; 6] =
        [Preset::Torch, Preset::Tf127, Preset::VggRgb, Preset::CaffeBgr, Preset::Unit, Preset::Raw];

    pub fn name(self) -> &'static str {
        match self {
            Preset::Torch => "torch",
            Preset::Tf127 => "tf127",
            Preset::VggRgb => "vgg-rgb",
            Preset::CaffeBgr => "caffe-bgr",
            Preset::Unit => "unit",
            Preset::Raw => "raw",
        }
    }

    /// Channel order, mean and scale, in the tensor's own channel order and in grey levels.
    pub fn normalise(self) -> Normalise {
        let (order, mean, scale) = match self {
            Preset::Torch => (
                ChannelOrder::Rgb,
                [0.485, 0.456, 0.406].map(|mean: f32| mean * 255.0),
                [0.229, 0.224, 0.225].map(|deviation: f32| 1.0 / (deviation * 255.0)),
            ),
            Preset::Tf127 => (ChannelOrder::Rgb, [127.0; 3], [1.0 / 128.0; 3]),
            Preset::VggRgb => (ChannelOrder::Rgb, [123.68, 116.78, 103.94], [1.0; 3]),
            Preset::CaffeBgr => (ChannelOrder::Bgr, [103.939, 116.779, 123.68], [1.0; 3]),
            Preset::Unit => (ChannelOrder::Rgb, [127.5; 3], [1.0 / 127.5; 3]),
            Preset::Raw => (ChannelOrder::Rgb, [0.0; 3], [1.0; 3]),
        };
        Normalise { order, mean, scale }
    }

    /// Every name, for messages.
    pub fn names() -> String {
        Self::ALL.map(Preset::name).join(", ")
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|preset| preset.name() == text);
        found.ok_or_else(|| format!("unknown preset `{text}`, expected one of {}", Self::names()))
    }
}

#[cfg(test)]
mod tests {
    use picture::RgbImage;

    use super::*;

    fn tensor(preset: Preset) -> [f32; 3] {
        let pixel = RgbImage::from_pixels(1, 1, vec![255, 128, 0]).unwrap();
        let mut out = [0.0; 3];
        preset.normalise().chw(pixel.view(), &mut out).unwrap();
        out
    }

    #[test]
    fn each_preset_gives_its_published_numbers() {
        let near = |preset, expected: [f32; 3]| {
            let found = tensor(preset);
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-4, "{preset}: {found} is not {expected}");
            }
        };
        near(Preset::Torch, [2.248_908, 0.205_182, -1.804_444]);
        near(Preset::Tf127, [1.0, 0.007_812, -0.992_187]);
        near(Preset::VggRgb, [131.32, 11.22, -103.94]);
        near(Preset::CaffeBgr, [-103.939, 11.221, 131.32]);
        near(Preset::Unit, [1.0, 0.003_922, -1.0]);
        near(Preset::Raw, [255.0, 128.0, 0.0]);
    }

    #[test]
    fn names_parse_back_and_match_the_scenario_spelling() {
        for preset in Preset::ALL {
            assert_eq!(preset.name().parse(), Ok(preset));
            assert_eq!(serde_json::to_value(preset).unwrap(), preset.name());
        }
        assert!("vgg".parse::<Preset>().unwrap_err().contains("vgg-rgb"));
    }
}
