//! JPEG in and out by libjpeg-turbo: from planes without a detour through RGB, and back, scaled in the DCT if wanted.

use crate::colour::Colour;
use crate::error::{PictureError, check_size};
use crate::image::{RgbImage, RgbView};
use crate::yuv::{Plane, Yuv420Image};
use turbojpeg::{
    Compressor, Decompressor, Image, PixelFormat, ScalingFactor, Subsamp, YuvPlanesImage, compressed_buf_len,
};

/// Encodes 4:2:0 baseline JPEG at one quality; keeps its worst-case output buffer between pictures.
#[derive(Debug)]
pub struct JpegEncoder {
    compressor: Compressor,
    scratch: Vec<u8>,
}

impl JpegEncoder {
    /// Quality 1 (worst) to 100.
    pub fn new(quality: u8) -> Result<JpegEncoder, PictureError> {
        if !(1..=100).contains(&quality) {
            return Err(PictureError::Quality { quality });
        }
        let prepare = || {
            let mut compressor = Compressor::new()?;
            compressor.set_quality(i32::from(quality))?;
            compressor.set_subsamp(Subsamp::Sub2x2)?;
            Ok(compressor)
        };
        let compressor = prepare().map_err(|source| PictureError::Jpeg { action: "prepare encoder for", source })?;
        Ok(JpegEncoder { compressor, scratch: Vec::new() })
    }

    /// Encode planes that are in [`Colour::JPEG`] already; the bytes are valid until the next call.
    pub fn encode_yuv(&mut self, image: &mut Yuv420Image) -> Result<&[u8], PictureError> {
        let (width, height) = (image.width(), image.height());
        if image.colour() != Colour::JPEG {
            return Err(PictureError::Geometry {
                what: "yuv picture",
                width,
                height,
                reason: "not in full-range BT.601, which JPEG prescribes",
            });
        }
        image.pad_edges();
        self.reserve(width, height)?;
        let planes = YuvPlanesImage {
            y_plane: image.plane(Plane::Y),
            u_plane: image.plane(Plane::U),
            v_plane: image.plane(Plane::V),
            width: width as usize,
            height: height as usize,
            y_stride: image.stride_bytes(Plane::Y),
            u_stride: image.stride_bytes(Plane::U),
            v_stride: image.stride_bytes(Plane::V),
            subsamp: Subsamp::Sub2x2,
        };
        let written = self
            .compressor
            .compress_yuv_planes_to_slice(&planes, &mut self.scratch)
            .map_err(|source| PictureError::Jpeg { action: "encode", source })?;
        Ok(&self.scratch[..written])
    }

    /// Encode RGB; the bytes are valid until the next call.
    pub fn encode_rgb(&mut self, image: RgbView<'_>) -> Result<&[u8], PictureError> {
        self.reserve(image.width(), image.height())?;
        let source = Image {
            pixels: image.bytes(),
            width: image.width() as usize,
            pitch: image.stride_bytes(),
            height: image.height() as usize,
            format: PixelFormat::RGB,
        };
        let written = self
            .compressor
            .compress_to_slice(source, &mut self.scratch)
            .map_err(|source| PictureError::Jpeg { action: "encode", source })?;
        Ok(&self.scratch[..written])
    }

    /// Room for the worst case. Zeroed pages that the encoder never reaches cost address space only.
    fn reserve(&mut self, width: u32, height: u32) -> Result<(), PictureError> {
        if width > 65_500 || height > 65_500 {
            let reason = "a side is longer than the 65500 pixels JPEG allows";
            return Err(PictureError::Geometry { what: "jpeg", width, height, reason });
        }
        check_size("jpeg", width, height)?;
        let needed = compressed_buf_len(width as usize, height as usize, Subsamp::Sub2x2)
            .map_err(|source| PictureError::Jpeg { action: "size", source })?;
        if self.scratch.len() < needed {
            self.scratch = vec![0; needed];
        }
        Ok(())
    }
}

/// Width and height in a JPEG header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JpegSize {
    pub width: u32,
    pub height: u32,
}

/// Decodes JPEG to RGB24.
#[derive(Debug)]
pub struct JpegDecoder {
    decompressor: Decompressor,
}

impl JpegDecoder {
    pub fn new() -> Result<JpegDecoder, PictureError> {
        let decompressor =
            new_decompressor().map_err(|source| PictureError::Jpeg { action: "prepare decoder for", source })?;
        Ok(JpegDecoder { decompressor })
    }

    /// Size without decoding.
    pub fn size(&mut self, jpeg: &[u8]) -> Result<JpegSize, PictureError> {
        let header = self.decompressor.read_header(jpeg).or_else(|source| self.start_over("read header of", source))?;
        let size = JpegSize { width: header.width as u32, height: header.height as u32 };
        check_size("jpeg", size.width, size.height)?;
        Ok(size)
    }

    /// Decode at full size into `image`, which takes the picture's size.
    pub fn decode(&mut self, jpeg: &[u8], image: &mut RgbImage) -> Result<(), PictureError> {
        let size = self.size(jpeg)?;
        self.decode_at(jpeg, size, ScalingFactor::ONE, image)
    }

    /// Decode at the smallest of 1/1, 1/2, 1/4, 1/8 that still leaves both sides at least this long: most of a resize
    /// for less than the price of a full decode. Resize the result to the exact size afterwards.
    pub fn decode_at_least(
        &mut self,
        jpeg: &[u8],
        min_width: u32,
        min_height: u32,
        image: &mut RgbImage,
    ) -> Result<(), PictureError> {
        let size = self.size(jpeg)?;
        let factors = [ScalingFactor::ONE_EIGHTH, ScalingFactor::ONE_QUARTER, ScalingFactor::ONE_HALF];
        let enough = |factor: &ScalingFactor| {
            factor.scale(size.width as usize) >= min_width as usize
                && factor.scale(size.height as usize) >= min_height as usize
        };
        let factor = factors.into_iter().find(enough).unwrap_or(ScalingFactor::ONE);
        self.decode_at(jpeg, size, factor, image)
    }

    fn decode_at(
        &mut self,
        jpeg: &[u8],
        size: JpegSize,
        factor: ScalingFactor,
        image: &mut RgbImage,
    ) -> Result<(), PictureError> {
        let (width, height) = (factor.scale(size.width as usize), factor.scale(size.height as usize));
        image.reshape(width as u32, height as u32)?;
        let target = Image { pixels: image.pixels_mut(), width, pitch: width * 3, height, format: PixelFormat::RGB };
        self.decompressor
            .set_scaling_factor(factor)
            .and_then(|()| self.decompressor.decompress(jpeg, target))
            .or_else(|source| self.start_over("decode", source))
    }

    /// A failed call leaves the library in the middle of that picture, and the next, sound one would fail as well.
    fn start_over<T>(&mut self, action: &'static str, source: turbojpeg::Error) -> Result<T, PictureError> {
        if let Ok(fresh) = new_decompressor() {
            self.decompressor = fresh;
        }
        Err(PictureError::Jpeg { action, source })
    }
}

fn new_decompressor() -> turbojpeg::Result<Decompressor> {
    let mut decompressor = Decompressor::new()?;
    // A progressive file can carry thousands of near-empty scans that each cost a full pass.
    decompressor.set_scan_limit(500)?;
    Ok(decompressor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::{YuvSource, convert_yuv420};

    fn gradient(width: u32, height: u32) -> RgbImage {
        let mut pixels = Vec::new();
        for y in 0..height {
            for x in 0..width {
                let (x, y) = (x * 255 / width, y * 255 / height);
                pixels.extend([x as u8, y as u8, ((x + y) / 2) as u8]);
            }
        }
        RgbImage::from_pixels(width, height, pixels).unwrap()
    }

    fn mean_difference(a: &RgbImage, b: &RgbImage) -> f64 {
        assert_eq!((a.width(), a.height()), (b.width(), b.height()));
        let total: u64 = a.pixels().iter().zip(b.pixels()).map(|(&a, &b)| u64::from(a.abs_diff(b))).sum();
        total as f64 / a.pixels().len() as f64
    }

    #[test]
    fn rgb_survives_a_round_trip_also_at_odd_sizes_and_from_crops() {
        let original = gradient(131, 77);
        let crop = original.view().crop(3, 5, 101, 63).unwrap();
        let jpeg = JpegEncoder::new(95).unwrap().encode_rgb(crop).unwrap().to_vec();
        let mut back = RgbImage::default();
        JpegDecoder::new().unwrap().decode(&jpeg, &mut back).unwrap();
        assert!(mean_difference(&crop.to_image(), &back) < 2.0);
    }

    #[test]
    fn limited_bt709_planes_come_back_as_the_colours_they_meant() {
        // 75 % colour bars: yellow, cyan, green, magenta, red, blue as limited BT.709 samples.
        let bars: [([u8; 3], [u8; 3]); 6] = [
            ([168, 44, 136], [191, 191, 0]),
            ([145, 147, 44], [0, 191, 191]),
            ([133, 63, 52], [0, 191, 0]),
            ([63, 193, 204], [191, 0, 191]),
            ([51, 109, 212], [191, 0, 0]),
            ([28, 212, 120], [0, 0, 191]),
        ];
        for (yuv, rgb) in bars {
            let planes = [vec![yuv[0]; 33 * 33], vec![yuv[1]; 17 * 17], vec![yuv[2]; 17 * 17]];
            let source = YuvSource {
                width: 33,
                height: 33,
                colour: Colour::NV12_PAYLOAD,
                planes: [&planes[0], &planes[1], &planes[2]],
                stride_bytes: [33, 17, 17],
            };
            let mut image = Yuv420Image::new(33, 33, Colour::JPEG).unwrap();
            convert_yuv420(&source, &mut image).unwrap();
            let jpeg = JpegEncoder::new(95).unwrap().encode_yuv(&mut image).unwrap().to_vec();
            let mut back = RgbImage::default();
            JpegDecoder::new().unwrap().decode(&jpeg, &mut back).unwrap();
            for pixel in back.pixels().chunks_exact(3) {
                for (found, wanted) in pixel.iter().zip(rgb) {
                    assert!(found.abs_diff(wanted) <= 4, "{pixel:?} for {rgb:?}");
                }
            }
        }
    }

    #[test]
    fn planes_in_another_colour_are_refused() {
        let mut image = Yuv420Image::new(16, 16, Colour::NV12_PAYLOAD).unwrap();
        assert!(JpegEncoder::new(75).unwrap().encode_yuv(&mut image).is_err());
    }

    #[test]
    fn another_decoder_reads_the_same_picture() {
        let original = gradient(96, 64);
        let jpeg = JpegEncoder::new(90).unwrap().encode_rgb(original.view()).unwrap().to_vec();
        let mut ours = RgbImage::default();
        JpegDecoder::new().unwrap().decode(&jpeg, &mut ours).unwrap();
        let theirs = image::load_from_memory_with_format(&jpeg, image::ImageFormat::Jpeg).unwrap().into_rgb8();
        let theirs = RgbImage::from_pixels(96, 64, theirs.into_raw()).unwrap();
        assert!(mean_difference(&ours, &theirs) < 1.0);
    }

    #[test]
    fn scaled_decoding_takes_the_smallest_sufficient_size() {
        let jpeg = JpegEncoder::new(90).unwrap().encode_rgb(gradient(800, 600).view()).unwrap().to_vec();
        let mut decoder = JpegDecoder::new().unwrap();
        let mut image = RgbImage::default();
        decoder.decode_at_least(&jpeg, 224, 150, &mut image).unwrap();
        assert_eq!((image.width(), image.height()), (400, 300));
        decoder.decode_at_least(&jpeg, 100, 75, &mut image).unwrap();
        assert_eq!((image.width(), image.height()), (100, 75));
        decoder.decode_at_least(&jpeg, 900, 75, &mut image).unwrap();
        assert_eq!((image.width(), image.height()), (800, 600));
        decoder.decode(&jpeg, &mut image).unwrap();
        assert_eq!((image.width(), image.height()), (800, 600));
    }

    #[test]
    fn broken_files_are_errors_and_do_not_spoil_the_next_picture() {
        let jpeg = JpegEncoder::new(90).unwrap().encode_rgb(gradient(64, 64).view()).unwrap().to_vec();
        let mut decoder = JpegDecoder::new().unwrap();
        let mut image = RgbImage::default();
        for broken in [&jpeg[..0], b"not a jpeg at all", &jpeg[..20], &jpeg[..jpeg.len() / 2]] {
            assert!(decoder.decode(broken, &mut image).is_err(), "{} bytes", broken.len());
            decoder.decode(&jpeg, &mut image).unwrap();
        }
    }

    #[test]
    fn quality_is_checked_and_changes_the_size() {
        assert!(JpegEncoder::new(0).is_err());
        assert!(JpegEncoder::new(101).is_err());
        let image = gradient(256, 256);
        let small = JpegEncoder::new(20).unwrap().encode_rgb(image.view()).unwrap().len();
        let large = JpegEncoder::new(95).unwrap().encode_rgb(image.view()).unwrap().len();
        assert!(small < large);
    }
}
