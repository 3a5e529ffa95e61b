//! Pictures as tensors: planar bytes for payloads, normalised floats for models.

use crate::error::{PictureError, check_len, check_size};
use crate::image::{RgbImage, RgbView};

/// Order of the channels in a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelOrder {
    Rgb,
    Bgr,
}

/// `out = (sample - mean) * scale`, channel by channel, with mean and scale listed in the tensor's own channel order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalise {
    pub order: ChannelOrder,
    /// In grey levels (0 to 255).
    pub mean: [f32; 3],
    /// One over the divisor.
    pub scale: [f32; 3],
}

impl Normalise {
    /// Fill a channels-first tensor of exactly `3 * width * height` values.
    pub fn chw(&self, image: RgbView<'_>, out: &mut [f32]) -> Result<(), PictureError> {
        let plane_len = exact_plane_len(image, out.len())?;
        let tables = self.tables();
        let (first, rest) = out.split_at_mut(plane_len);
        let (second, third) = rest.split_at_mut(plane_len);
        let width = image.width() as usize;
        let [a, b, c] = self.source_channels();
        for y in 0..image.height() {
            let row = y as usize * width..(y as usize + 1) * width;
            let to = first[row.clone()].iter_mut().zip(&mut second[row.clone()]).zip(&mut third[row]);
            for (pixel, ((first, second), third)) in image.row(y).chunks_exact(3).zip(to) {
                *first = tables[0][usize::from(pixel[a])];
                *second = tables[1][usize::from(pixel[b])];
                *third = tables[2][usize::from(pixel[c])];
            }
        }
        Ok(())
    }

    /// Fill a channels-last tensor of exactly `3 * width * height` values.
    pub fn hwc(&self, image: RgbView<'_>, out: &mut [f32]) -> Result<(), PictureError> {
        exact_plane_len(image, out.len())?;
        let tables = self.tables();
        let [a, b, c] = self.source_channels();
        for (y, to) in out.chunks_exact_mut(image.width() as usize * 3).enumerate() {
            for (pixel, to) in image.row(y as u32).chunks_exact(3).zip(to.chunks_exact_mut(3)) {
                to[0] = tables[0][usize::from(pixel[a])];
                to[1] = tables[1][usize::from(pixel[b])];
                to[2] = tables[2][usize::from(pixel[c])];
            }
        }
        Ok(())
    }

    /// Where each tensor channel sits in an RGB pixel.
    fn source_channels(&self) -> [usize; 3] {
        match self.order {
            ChannelOrder::Rgb => [0, 1, 2],
            ChannelOrder::Bgr => [2, 1, 0],
        }
    }

    /// There are only 256 inputs a channel: the same float operations once each, then look-ups.
    fn tables(&self) -> [[f32; 256]; 3] {
        std::array::from_fn(|channel| {
            std::array::from_fn(|sample| (sample as f32 - self.mean[channel]) * self.scale[channel])
        })
    }
}

fn exact_plane_len(image: RgbView<'_>, found: usize) -> Result<usize, PictureError> {
    let (width, height) = (image.width(), image.height());
    let plane_len = width as usize * height as usize;
    if found != plane_len * 3 {
        return Err(PictureError::Length { what: "float tensor", width, height, found, needed: plane_len * 3 });
    }
    Ok(plane_len)
}

/// Split interleaved RGB into three byte planes R, G, B appended to `out`: the u8 tensor payload.
pub fn rgb_to_chw(image: RgbView<'_>, out: &mut Vec<u8>) {
    let plane_len = image.width() as usize * image.height() as usize;
    let start = out.len();
    out.resize(start + plane_len * 3, 0);
    let (red, rest) = out[start..].split_at_mut(plane_len);
    let (green, blue) = rest.split_at_mut(plane_len);
    let width = image.width() as usize;
    for y in 0..image.height() {
        let row = y as usize * width..(y as usize + 1) * width;
        let to = red[row.clone()].iter_mut().zip(&mut green[row.clone()]).zip(&mut blue[row]);
        for (pixel, ((red, green), blue)) in image.row(y).chunks_exact(3).zip(to) {
            (*red, *green, *blue) = (pixel[0], pixel[1], pixel[2]);
        }
    }
}

/// Join three byte planes R, G, B into `image`, which takes their size.
pub fn chw_to_rgb(width: u32, height: u32, tensor: &[u8], image: &mut RgbImage) -> Result<(), PictureError> {
    check_size("u8 tensor", width, height)?;
    let plane_len = width as usize * height as usize;
    check_len("u8 tensor", width, height, tensor.len(), plane_len * 3)?;
    image.reshape(width, height)?;
    let (red, rest) = tensor.split_at(plane_len);
    let (green, blue) = rest.split_at(plane_len);
    let from = red.iter().zip(green).zip(blue);
    for (pixel, ((&red, &green), &blue)) in image.pixels_mut().chunks_exact_mut(3).zip(from) {
        pixel.copy_from_slice(&[red, green, blue]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_pixels() -> RgbImage {
        RgbImage::from_pixels(2, 1, vec![10, 20, 30, 40, 50, 60]).unwrap()
    }

    #[test]
    fn chw_puts_channels_first_and_mean_follows_the_tensor_order() {
        let rgb = Normalise { order: ChannelOrder::Rgb, mean: [1.0, 2.0, 3.0], scale: [1.0, 0.5, 2.0] };
        let mut out = [0.0; 6];
        rgb.chw(two_pixels().view(), &mut out).unwrap();
        assert_eq!(out, [9.0, 39.0, 9.0, 24.0, 54.0, 114.0]);
        let bgr = Normalise { order: ChannelOrder::Bgr, ..rgb };
        bgr.chw(two_pixels().view(), &mut out).unwrap();
        assert_eq!(out, [29.0, 59.0, 9.0, 24.0, 14.0, 74.0]);
    }

    #[test]
    fn hwc_keeps_pixels_together() {
        let bgr = Normalise { order: ChannelOrder::Bgr, mean: [0.0; 3], scale: [1.0; 3] };
        let mut out = [0.0; 6];
        bgr.hwc(two_pixels().view(), &mut out).unwrap();
        assert_eq!(out, [30.0, 20.0, 10.0, 60.0, 50.0, 40.0]);
    }

    #[test]
    fn a_tensor_of_another_size_is_refused() {
        let raw = Normalise { order: ChannelOrder::Rgb, mean: [0.0; 3], scale: [1.0; 3] };
        assert!(raw.chw(two_pixels().view(), &mut [0.0; 5]).is_err());
        assert!(raw.hwc(two_pixels().view(), &mut [0.0; 9]).is_err());
    }

    #[test]
    fn byte_planes_split_and_join() {
        let pixels = (0..5 * 3 * 3).map(|i| i as u8).collect();
        let image = RgbImage::from_pixels(5, 3, pixels).unwrap();
        let mut planes = Vec::new();
        rgb_to_chw(image.view(), &mut planes);
        assert_eq!(&planes[..3], &[0, 3, 6]);
        assert_eq!(planes[15], 1);
        let mut back = RgbImage::default();
        chw_to_rgb(5, 3, &planes, &mut back).unwrap();
        assert_eq!(back, image);
        assert!(chw_to_rgb(5, 4, &planes, &mut back).is_err());
    }
}
