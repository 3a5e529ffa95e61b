//! Interleaved RGB24 pictures: owned and borrowed.

use crate::error::{PictureError, check_len, check_size};

/// Largest picture accepted anywhere: a header that claims more is refused before memory is taken.
pub const MAX_PIXELS: u64 = 1 << 28;

/// An owned, tightly packed RGB24 picture. Reuse it: [`RgbImage::reshape`] keeps the allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RgbImage {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl RgbImage {
    /// A black picture.
    pub fn new(width: u32, height: u32) -> Result<RgbImage, PictureError> {
        let mut image = RgbImage::default();
        image.reshape(width, height)?;
        Ok(image)
    }

    /// Take over packed pixels; their number must fit exactly.
    pub fn from_pixels(width: u32, height: u32, pixels: Vec<u8>) -> Result<RgbImage, PictureError> {
        check_size("rgb picture", width, height)?;
        let needed = width as usize * height as usize * 3;
        if pixels.len() != needed {
            return Err(PictureError::Length { what: "rgb picture", width, height, found: pixels.len(), needed });
        }
        Ok(RgbImage { width, height, pixels })
    }

    /// Change the size, keeping the allocation; the pixels are unspecified afterwards.
    pub fn reshape(&mut self, width: u32, height: u32) -> Result<(), PictureError> {
        check_size("rgb picture", width, height)?;
        self.pixels.resize(width as usize * height as usize * 3, 0);
        (self.width, self.height) = (width, height);
        Ok(())
    }

    pub fn width(&self) -> u32 {
        self.width
    }

    pub fn height(&self) -> u32 {
        self.height
    }

    /// Packed rows, three bytes a pixel.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    pub fn pixels_mut(&mut self) -> &mut [u8] {
        &mut self.pixels
    }

    pub fn into_pixels(self) -> Vec<u8> {
        self.pixels
    }

    pub fn view(&self) -> RgbView<'_> {
        RgbView { width: self.width, height: self.height, stride_bytes: self.width as usize * 3, pixels: &self.pixels }
    }
}

/// A borrowed RGB24 picture whose rows may be further apart than they are long, as a crop's are.
#[derive(Debug, Clone, Copy)]
pub struct RgbView<'a> {
    width: u32,
    height: u32,
    stride_bytes: usize,
    pixels: &'a [u8],
}

impl<'a> RgbView<'a> {
    pub fn new(width: u32, height: u32, stride_bytes: usize, pixels: &'a [u8]) -> Result<RgbView<'a>, PictureError> {
        check_size("rgb view", width, height)?;
        let row = width as usize * 3;
        if stride_bytes < row {
            return Err(PictureError::Geometry { what: "rgb view", width, height, reason: "rows overlap" });
        }
        check_len("rgb view", width, height, pixels.len(), stride_bytes * (height as usize - 1) + row)?;
        Ok(RgbView { width, height, stride_bytes, pixels })
    }

    /// Packed rows, as an RGB24 payload has them.
    pub fn packed(width: u32, height: u32, pixels: &'a [u8]) -> Result<RgbView<'a>, PictureError> {
        RgbView::new(width, height, width as usize * 3, pixels)
    }

    pub fn width(&self) -> u32 {
        self.width
    }

    pub fn height(&self) -> u32 {
        self.height
    }

    pub fn stride_bytes(&self) -> usize {
        self.stride_bytes
    }

    /// The bytes from the first pixel on, rows `stride_bytes` apart.
    pub fn bytes(&self) -> &'a [u8] {
        self.pixels
    }

    /// Row `y`, `3 * width` bytes.
    pub fn row(&self, y: u32) -> &'a [u8] {
        let start = y as usize * self.stride_bytes;
        &self.pixels[start..start + self.width as usize * 3]
    }

    /// A rectangle of this view, without copying.
    pub fn crop(&self, x: u32, y: u32, width: u32, height: u32) -> Result<RgbView<'a>, PictureError> {
        if width == 0 || height == 0 || x.saturating_add(width) > self.width || y.saturating_add(height) > self.height {
            return Err(PictureError::Geometry { what: "crop", width, height, reason: "reaches outside the picture" });
        }
        let start = y as usize * self.stride_bytes + x as usize * 3;
        RgbView::new(width, height, self.stride_bytes, &self.pixels[start..])
    }

    /// The centred rectangle; odd remainders leave the extra pixel right and below, as common loaders do.
    pub fn centre_crop(&self, width: u32, height: u32) -> Result<RgbView<'a>, PictureError> {
        let x = self.width.saturating_sub(width) / 2;
        let y = self.height.saturating_sub(height) / 2;
        self.crop(x, y, width, height)
    }

    /// A packed copy.
    pub fn to_image(&self) -> RgbImage {
        let mut pixels = Vec::with_capacity(self.width as usize * self.height as usize * 3);
        for y in 0..self.height {
            pixels.extend_from_slice(self.row(y));
        }
        RgbImage { width: self.width, height: self.height, pixels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(width: u32, height: u32) -> RgbImage {
        let pixels = (0..width * height * 3).map(|i| (i % 251) as u8).collect();
        RgbImage::from_pixels(width, height, pixels).unwrap()
    }

    #[test]
    fn a_crop_shows_the_pixels_of_its_rectangle() {
        let image = numbered(7, 5);
        let crop = image.view().crop(2, 1, 3, 4).unwrap();
        for y in 0..4 {
            assert_eq!(crop.row(y), &image.pixels()[((y as usize + 1) * 7 + 2) * 3..][..9]);
        }
        assert_eq!(crop.to_image().pixels().len(), 36);
    }

    #[test]
    fn crops_that_leave_the_picture_are_refused() {
        let image = numbered(7, 5);
        assert!(image.view().crop(5, 0, 3, 1).is_err());
        assert!(image.view().crop(0, 5, 1, 1).is_err());
        assert!(image.view().crop(u32::MAX, 0, 2, 1).is_err());
        assert!(image.view().centre_crop(8, 5).is_err());
    }

    #[test]
    fn wrong_lengths_and_absurd_sizes_are_refused() {
        assert!(RgbImage::from_pixels(2, 2, vec![0; 11]).is_err());
        assert!(RgbImage::new(0, 4).is_err());
        assert!(RgbImage::new(u32::MAX, u32::MAX).is_err());
        assert!(RgbView::packed(2, 2, &[0; 11]).is_err());
        assert!(RgbView::new(4, 1, 11, &[0; 12]).is_err());
    }
}
