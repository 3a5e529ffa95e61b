//! Resize RGB pictures with an area-aware filter, as image loaders for training do.

use crate::error::PictureError;
use crate::image::{RgbImage, RgbView};
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions};

/// How source pixels are weighed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// Triangle filter widened by the scale, the same as Pillow's BILINEAR (not OpenCV's, which reads 4 pixels only).
    Bilinear,
    /// Mean over the covered area.
    Area,
}

/// Resizes with one filter; keeps its buffers between pictures.
#[derive(Debug)]
pub struct Resizer {
    resizer: fast_image_resize::Resizer,
    options: ResizeOptions,
    packed: Vec<u8>,
}

impl Resizer {
    pub fn new(filter: Filter) -> Resizer {
        let kernel = match filter {
            Filter::Bilinear => FilterType::Bilinear,
            Filter::Area => FilterType::Box,
        };
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(kernel)).use_alpha(false);
        Resizer { resizer: fast_image_resize::Resizer::new(), options, packed: Vec::new() }
    }

    /// Fill `target` (at its present size) from the whole of `source`; aspect is not kept, crop first for that.
    pub fn resize(&mut self, source: RgbView<'_>, target: &mut RgbImage) -> Result<(), PictureError> {
        let (from_width, from_height) = (source.width(), source.height());
        let (to_width, to_height) = (target.width(), target.height());
        let failed = |reason: String| PictureError::Resize { from_width, from_height, to_width, to_height, reason };
        let row_bytes = from_width as usize * 3;
        let bytes = if source.stride_bytes() == row_bytes {
            &source.bytes()[..row_bytes * from_height as usize]
        } else {
            self.packed.clear();
            (0..from_height).for_each(|y| self.packed.extend_from_slice(source.row(y)));
            &self.packed
        };
        let from = TypedImageRef::<U8x3>::from_buffer(from_width, from_height, bytes)
            .map_err(|error| failed(error.to_string()))?;
        let mut to = TypedImage::<U8x3>::from_buffer(to_width, to_height, target.pixels_mut())
            .map_err(|error| failed(error.to_string()))?;
        self.resizer.resize_typed(&from, &mut to, &self.options).map_err(|error| failed(error.to_string()))
    }
}

/// Size with the short side at `short_side` and the long side in proportion (cut off, as torchvision does).
pub fn short_side_size(width: u32, height: u32, short_side: u32) -> (u32, u32) {
    let scale = |long: u32, short: u32| {
        let scaled = u64::from(long) * u64::from(short_side) / u64::from(short.max(1));
        u32::try_from(scaled).unwrap_or(u32::MAX).max(1)
    };
    if width <= height { (short_side, scale(height, width)) } else { (scale(width, height), short_side) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resize(filter: Filter, source: &RgbImage, width: u32, height: u32) -> RgbImage {
        let mut target = RgbImage::new(width, height).unwrap();
        Resizer::new(filter).resize(source.view(), &mut target).unwrap();
        target
    }

    fn grey(width: u32, height: u32, values: &[u8]) -> RgbImage {
        RgbImage::from_pixels(width, height, values.iter().flat_map(|&v| [v; 3]).collect()).unwrap()
    }

    /// Values from Pillow 10.4.0: `Image.fromarray(array).resize(size, Image.BILINEAR)`.
    #[test]
    fn bilinear_equals_pillow() {
        let ramp = grey(8, 1, &[0, 36, 73, 109, 146, 182, 219, 255]);
        let half: Vec<u8> = resize(Filter::Bilinear, &ramp, 4, 1).pixels().iter().copied().step_by(3).collect();
        assert_eq!(half, [26, 91, 164, 229]);
        let edge = grey(9, 1, &[0, 0, 0, 0, 255, 0, 0, 0, 0]);
        let third: Vec<u8> = resize(Filter::Bilinear, &edge, 3, 1).pixels().iter().copied().step_by(3).collect();
        assert_eq!(third, [0, 85, 0]);
        let up: Vec<u8> =
            resize(Filter::Bilinear, &grey(2, 1, &[0, 200]), 4, 1).pixels().iter().copied().step_by(3).collect();
        assert_eq!(up, [0, 50, 150, 200]);
        let pattern = (0..40 * 30 * 3u32).map(|i| (i * 7 % 256) as u8).collect();
        let small = resize(Filter::Bilinear, &RgbImage::from_pixels(40, 30, pattern).unwrap(), 9, 8);
        let pillow = [
            115, 117, 124, 133, 129, 135, 127, 124, 126, 128, 124, 123, 128, 135, 135, 123, 124, 121, 127, 129, 136,
            138, 127, 130, 122, 125, 113, 124, 130, 132, 131, 123, 129, 128, 128, 120, 125, 127, 129, 128, 132, 125,
            124, 126, 133, 131, 125, 126, 128, 129, 124, 127, 128, 128u8,
        ];
        for (index, (ours, pillow)) in small.pixels().iter().zip(pillow).enumerate() {
            assert!(ours.abs_diff(pillow) <= 1, "value {index}: {ours} for {pillow}");
        }
    }

    #[test]
    fn area_is_the_mean_of_what_a_pixel_covers() {
        let source = grey(4, 2, &[10, 20, 100, 200, 30, 40, 100, 200]);
        let small: Vec<u8> = resize(Filter::Area, &source, 2, 1).pixels().iter().copied().step_by(3).collect();
        assert_eq!(small, [25, 150]);
    }

    #[test]
    fn crops_resize_like_their_copies() {
        let pixels = (0..40 * 30 * 3).map(|i| (i * 7 % 256) as u8).collect();
        let image = RgbImage::from_pixels(40, 30, pixels).unwrap();
        let crop = image.view().centre_crop(21, 17).unwrap();
        let (mut a, mut b) = (RgbImage::new(9, 8).unwrap(), RgbImage::new(9, 8).unwrap());
        let mut resizer = Resizer::new(Filter::Bilinear);
        resizer.resize(crop, &mut a).unwrap();
        resizer.resize(crop.to_image().view(), &mut b).unwrap();
        assert_eq!(a, b);
    }

    #[test]
    fn the_short_side_decides_and_the_long_side_is_cut_off() {
        assert_eq!(short_side_size(640, 360, 256), (455, 256));
        assert_eq!(short_side_size(360, 640, 256), (256, 455));
        assert_eq!(short_side_size(500, 500, 256), (256, 256));
        assert_eq!(short_side_size(1, 4_000_000_000, 256), (256, u32::MAX));
    }
}
