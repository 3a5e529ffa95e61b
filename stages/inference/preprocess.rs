//! Payload to model input: decode, short side to 256, centre crop, normalise.

use contract::{Encoding, Geometry};
use picture::{
    Colour, Filter, JpegDecoder, Normalise, Nv12View, PictureError, Resizer, RgbImage, RgbView, chw_to_rgb,
    nv12_to_rgb, short_side_size,
};

use crate::{
    error::{InferenceError, Result},
    signature::{Layout, Signature},
};

/// What the model wants, reduced to what preprocessing needs.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub normalise: Normalise,
    pub layout: Layout,
    /// Size of the crop the model takes.
    pub crop: Geometry,
    /// Short side of the resized picture the crop is taken from.
    pub short_side_px: u32,
    /// Let the JPEG decoder do part of the reduction; most of the decode time is saved on large frames.
    pub jpeg_scaling: bool,
}

impl Target {
    pub fn of(signature: &Signature, jpeg_scaling: bool) -> Self {
        Self {
            normalise: signature.preset.normalise(),
            layout: signature.layout,
            crop: signature.crop,
            short_side_px: signature.short_side_px,
            jpeg_scaling,
        }
    }

    /// Floats of one image.
    pub fn floats(&self) -> usize {
        self.crop.pixels() as usize * 3
    }
}

/// Decodes and resizes; keeps its buffers between pictures, one for each thread.
#[derive(Debug)]
pub struct Preprocessor {
    target: Target,
    decoder: JpegDecoder,
    resizer: Resizer,
    decoded: RgbImage,
    resized: RgbImage,
}

impl Preprocessor {
    pub fn new(target: Target) -> Result<Self> {
        let decoder = JpegDecoder::new().map_err(|error| payload_error(Encoding::Jpeg, target.crop, 0, error))?;
        Ok(Self {
            target,
            decoder,
            resizer: Resizer::new(Filter::Bilinear),
            decoded: RgbImage::default(),
            resized: RgbImage::default(),
        })
    }

    /// Fill `out` (of [`Target::floats`] values) from a payload.
    pub fn fill(&mut self, encoding: Encoding, geometry: Geometry, payload: &[u8], out: &mut [f32]) -> Result<()> {
        self.try_fill(encoding, geometry, payload, out)
            .map_err(|error| payload_error(encoding, geometry, payload.len(), error))
    }

    fn try_fill(
        &mut self,
        encoding: Encoding,
        geometry: Geometry,
        payload: &[u8],
        out: &mut [f32],
    ) -> Result<(), PictureError> {
        let Geometry { width_px, height_px } = geometry;
        // Moved out for the time of the call, so that the picture can be read while the resizer works.
        let mut decoded = std::mem::take(&mut self.decoded);
        let filled = match encoding {
            Encoding::Jpeg => self.decode_jpeg(payload, &mut decoded).and_then(|size| {
                let whole = without_padding(decoded.view(), size)?;
                self.crop(whole, size, out)
            }),
            Encoding::Nv12 => Nv12View::packed(width_px, height_px, payload)
                .and_then(|view| nv12_to_rgb(&view, Colour::NV12_PAYLOAD, &mut decoded))
                .and_then(|()| self.crop(decoded.view(), geometry, out)),
            Encoding::Tensor => chw_to_rgb(width_px, height_px, payload, &mut decoded)
                .and_then(|()| self.crop(decoded.view(), geometry, out)),
            Encoding::Rgb24 => {
                RgbView::packed(width_px, height_px, payload).and_then(|view| self.crop(view, geometry, out))
            }
            Encoding::Json => Err(PictureError::Geometry {
                what: "payload",
                width: width_px,
                height: height_px,
                reason: "a json document is no picture",
            }),
        };
        self.decoded = decoded;
        filled
    }

    /// Decode, and return the size in the header: scaling in the decoder must not change where the crop lies.
    fn decode_jpeg(&mut self, payload: &[u8], decoded: &mut RgbImage) -> Result<Geometry, PictureError> {
        let size = self.decoder.size(payload)?;
        let size = Geometry::new(size.width, size.height);
        if self.target.jpeg_scaling && size != self.target.crop {
            let (width, height) = short_side_size(size.width_px, size.height_px, self.target.short_side_px);
            self.decoder.decode_at_least(payload, width, height, decoded)?;
        } else {
            self.decoder.decode(payload, decoded)?;
        }
        Ok(size)
    }

    /// Resize, crop and normalise. A picture that already has the model's size was cropped by whoever made it: scaling
    /// it up to cut its border off would only lose what it shows.
    fn crop(&mut self, picture: RgbView<'_>, size: Geometry, out: &mut [f32]) -> Result<(), PictureError> {
        let Geometry { width_px, height_px } = self.target.crop;
        if size == self.target.crop {
            return self.normalise(picture, out);
        }
        let (width, height) = short_side_size(size.width_px, size.height_px, self.target.short_side_px);
        let mut resized = std::mem::take(&mut self.resized);
        let filled = resized
            .reshape(width, height)
            .and_then(|()| self.resizer.resize(picture, &mut resized))
            .and_then(|()| resized.view().centre_crop(width_px, height_px))
            .and_then(|crop| self.normalise(crop, out));
        self.resized = resized;
        filled
    }

    fn normalise(&self, crop: RgbView<'_>, out: &mut [f32]) -> Result<(), PictureError> {
        match self.target.layout {
            Layout::ChannelsFirst => self.target.normalise.chw(crop, out),
            Layout::ChannelsLast => self.target.normalise.hwc(crop, out),
        }
    }
}

/// Sizes that the decoder's reduction does not divide are rounded up, which would stretch the picture by a part of a
/// pixel: cut it back to the nearest size.
fn without_padding(decoded: RgbView<'_>, size: Geometry) -> Result<RgbView<'_>, PictureError> {
    let divisor = size.width_px.div_ceil(decoded.width()).next_power_of_two();
    let nearest = |full: u32, scaled: u32| ((full + divisor / 2) / divisor).clamp(1, scaled);
    decoded.crop(0, 0, nearest(size.width_px, decoded.width()), nearest(size.height_px, decoded.height()))
}

fn payload_error(encoding: Encoding, geometry: Geometry, bytes: usize, error: PictureError) -> InferenceError {
    InferenceError::Payload {
        encoding: format!("{encoding:?}").to_lowercase(),
        width_px: geometry.width_px,
        height_px: geometry.height_px,
        bytes,
        problem: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use picture::{JpegEncoder, rgb_to_chw};

    use super::*;
    use crate::preset::Preset;

    fn target(layout: Layout, jpeg_scaling: bool) -> Target {
        Target {
            normalise: Preset::Raw.normalise(),
            layout,
            crop: Geometry::new(224, 224),
            short_side_px: 256,
            jpeg_scaling,
        }
    }

    /// Red grows to the right, green downwards, blue is constant.
    fn gradient(width: u32, height: u32) -> RgbImage {
        let pixel = |x: u32, y: u32| [(x * 255 / width) as u8, (y * 255 / height) as u8, 99];
        let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(x, y))).collect();
        RgbImage::from_pixels(width, height, pixels).unwrap()
    }

    fn fill(target: Target, encoding: Encoding, geometry: Geometry, payload: &[u8]) -> Vec<f32> {
        let mut out = vec![0.0; target.floats()];
        Preprocessor::new(target).unwrap().fill(encoding, geometry, payload, &mut out).unwrap();
        out
    }

    #[test]
    fn the_crop_is_central_and_keeps_the_aspect() {
        let image = gradient(1024, 512);
        let out = fill(target(Layout::ChannelsFirst, true), Encoding::Rgb24, Geometry::new(1024, 512), image.pixels());
        let at = |channel: usize, x: usize, y: usize| out[channel * 224 * 224 + y * 224 + x];
        // 1024x512 becomes 512x256; the crop starts at (144, 16), so its left edge shows red 144/512 of the way.
        assert!((at(0, 0, 0) - 255.0 * 144.0 / 512.0).abs() < 2.0, "{}", at(0, 0, 0));
        assert!((at(0, 223, 0) - 255.0 * 367.0 / 512.0).abs() < 2.0, "{}", at(0, 223, 0));
        assert!((at(1, 0, 0) - 255.0 * 16.0 / 256.0).abs() < 2.0, "{}", at(1, 0, 0));
        assert!((at(1, 0, 223) - 255.0 * 239.0 / 256.0).abs() < 2.0, "{}", at(1, 0, 223));
        assert_eq!(at(2, 100, 100), 99.0);
    }

    #[test]
    fn channels_last_holds_the_same_numbers_in_another_order() {
        let image = gradient(300, 400);
        let geometry = Geometry::new(300, 400);
        let first = fill(target(Layout::ChannelsFirst, true), Encoding::Rgb24, geometry, image.pixels());
        let last = fill(target(Layout::ChannelsLast, true), Encoding::Rgb24, geometry, image.pixels());
        for pixel in 0..224 * 224 {
            for channel in 0..3 {
                assert_eq!(first[channel * 224 * 224 + pixel], last[pixel * 3 + channel]);
            }
        }
    }

    #[test]
    fn every_encoding_of_one_picture_gives_nearly_the_same_input() {
        let image = gradient(640, 360);
        let geometry = Geometry::new(640, 360);
        let expected = fill(target(Layout::ChannelsFirst, true), Encoding::Rgb24, geometry, image.pixels());
        let mut tensor = Vec::new();
        rgb_to_chw(image.view(), &mut tensor);
        let jpeg = JpegEncoder::new(95).unwrap().encode_rgb(image.view()).unwrap().to_vec();
        assert_eq!(fill(target(Layout::ChannelsFirst, true), Encoding::Tensor, geometry, &tensor), expected);
        let found = fill(target(Layout::ChannelsFirst, true), Encoding::Jpeg, geometry, &jpeg);
        let difference = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).sum::<f32>() / found.len() as f32;
        assert!(difference < 1.5, "{difference}");
    }

    #[test]
    fn scaling_in_the_decoder_moves_nothing() {
        // Red changes by 0.56 levels a pixel of the resized picture, green by 1.0.
        for (width, height, mean_limit) in [(1920, 1080, 0.05), (1921, 1081, 0.15), (1919, 1087, 0.15)] {
            let image = gradient(width, height);
            let jpeg = JpegEncoder::new(95).unwrap().encode_rgb(image.view()).unwrap().to_vec();
            let geometry = Geometry::new(width, height);
            let full = fill(target(Layout::ChannelsFirst, false), Encoding::Jpeg, geometry, &jpeg);
            let scaled = fill(target(Layout::ChannelsFirst, true), Encoding::Jpeg, geometry, &jpeg);
            for (channel, (full, scaled)) in full.chunks(224 * 224).zip(scaled.chunks(224 * 224)).enumerate() {
                let differences = || full.iter().zip(scaled).map(|(full, scaled)| f64::from(scaled - full));
                let mean = differences().sum::<f64>() / full.len() as f64;
                assert!(mean.abs() < mean_limit, "{width}x{height}: channel {channel} moved by {mean}");
                let worst = differences().map(f64::abs).fold(0.0, f64::max);
                assert!(worst < 5.0, "{width}x{height}: channel {channel}: {worst}");
            }
        }
    }

    #[test]
    fn a_picture_of_the_models_size_is_taken_as_it_is() {
        let image = gradient(224, 224);
        let out = fill(target(Layout::ChannelsLast, true), Encoding::Rgb24, Geometry::new(224, 224), image.pixels());
        assert!(out.iter().zip(image.pixels()).all(|(float, byte)| *float == f32::from(*byte)));
    }

    #[test]
    fn a_payload_that_is_no_picture_is_described() {
        let mut preprocessor = Preprocessor::new(target(Layout::ChannelsFirst, true)).unwrap();
        let mut out = vec![0.0; 224 * 224 * 3];
        for (encoding, payload) in [
            (Encoding::Jpeg, &b"rubbish"[..]),
            (Encoding::Nv12, &[0; 7]),
            (Encoding::Rgb24, &[]),
            (Encoding::Json, b"{}"),
        ] {
            let error = preprocessor.fill(encoding, Geometry::new(64, 48), payload, &mut out).unwrap_err().to_string();
            assert!(error.contains("64x48") && error.contains(&format!("{} bytes", payload.len())), "{error}");
        }
    }
}
