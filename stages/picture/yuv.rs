//! Planar 4:2:0 pictures with room for what SIMD writers and the JPEG encoder touch beyond the visible edge.

use crate::colour::Colour;
use crate::error::{PictureError, check_size};

/// Row starts are multiples of this, so that vector code never meets an unaligned or overlapping row.
const ROW_ALIGN_BYTES: usize = 64;
/// Vector stores may run past the last row by less than this.
const TAIL_BYTES: usize = 64;

/// Which plane of a [`Yuv420Image`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plane {
    Y = 0,
    U = 1,
    V = 2,
}

/// Three planes, chroma halved both ways (rounded up). The luma plane always has an even number of rows and columns in
/// memory: the JPEG encoder reads them even when the picture is odd.
#[derive(Debug, Clone)]
pub struct Yuv420Image {
    width: u32,
    height: u32,
    colour: Colour,
    stride_bytes: [usize; 3],
    offset_bytes: [usize; 4],
    bytes: Vec<u8>,
}

impl Yuv420Image {
    pub fn new(width: u32, height: u32, colour: Colour) -> Result<Yuv420Image, PictureError> {
        let mut image =
            Yuv420Image { width: 0, height: 0, colour, stride_bytes: [0; 3], offset_bytes: [0; 4], bytes: Vec::new() };
        image.reshape(width, height)?;
        Ok(image)
    }

    /// Change the size, keeping the allocation; the samples are unspecified afterwards.
    pub fn reshape(&mut self, width: u32, height: u32) -> Result<(), PictureError> {
        if (width, height) == (self.width, self.height) {
            return Ok(());
        }
        check_size("yuv picture", width, height)?;
        let (chroma_width, chroma_height) = (width.div_ceil(2) as usize, height.div_ceil(2) as usize);
        let luma_stride = (chroma_width * 2).next_multiple_of(ROW_ALIGN_BYTES);
        let chroma_stride = chroma_width.next_multiple_of(ROW_ALIGN_BYTES);
        let luma_len = luma_stride * chroma_height * 2;
        let chroma_len = chroma_stride * chroma_height;
        self.offset_bytes = [0, luma_len, luma_len + chroma_len, luma_len + 2 * chroma_len];
        self.bytes.resize(self.offset_bytes[3] + TAIL_BYTES, 0);
        self.stride_bytes = [luma_stride, chroma_stride, chroma_stride];
        (self.width, self.height) = (width, height);
        Ok(())
    }

    pub fn width(&self) -> u32 {
        self.width
    }

    pub fn height(&self) -> u32 {
        self.height
    }

    /// Visible width and height of one plane.
    pub fn plane_size(&self, plane: Plane) -> (u32, u32) {
        match plane {
            Plane::Y => (self.width, self.height),
            Plane::U | Plane::V => (self.width.div_ceil(2), self.height.div_ceil(2)),
        }
    }

    /// What the samples mean.
    pub fn colour(&self) -> Colour {
        self.colour
    }

    pub fn set_colour(&mut self, colour: Colour) {
        self.colour = colour;
    }

    pub fn stride_bytes(&self, plane: Plane) -> usize {
        self.stride_bytes[plane as usize]
    }

    pub fn plane(&self, plane: Plane) -> &[u8] {
        let index = plane as usize;
        &self.bytes[self.offset_bytes[index]..self.offset_bytes[index + 1]]
    }

    /// The three planes for writing; each reaches to the start of the next.
    pub fn planes_mut(&mut self) -> [&mut [u8]; 3] {
        let (luma, rest) = self.bytes.split_at_mut(self.offset_bytes[1]);
        let (u, v) = rest.split_at_mut(self.offset_bytes[2] - self.offset_bytes[1]);
        [luma, u, v]
    }

    /// Repeat the last column and row of an odd picture into the padding: the encoder's last block then holds no
    /// foreign samples that would ring into the visible ones.
    pub fn pad_edges(&mut self) {
        let (width, height) = (self.width as usize, self.height as usize);
        let stride = self.stride_bytes[0];
        let luma = &mut self.bytes[..self.offset_bytes[1]];
        if width % 2 == 1 {
            for row in luma.chunks_exact_mut(stride).take(height) {
                row[width] = row[width - 1];
            }
        }
        if height % 2 == 1 {
            luma.copy_within((height - 1) * stride..height * stride, height * stride);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_have_even_rows_and_aligned_strides() {
        let image = Yuv420Image::new(35, 33, Colour::JPEG).unwrap();
        assert_eq!(image.plane(Plane::Y).len(), 64 * 34);
        assert_eq!(image.plane(Plane::U).len(), 64 * 17);
        assert_eq!(image.plane_size(Plane::V), (18, 17));
    }

    #[test]
    fn odd_edges_are_repeated_into_the_padding() {
        let mut image = Yuv420Image::new(3, 3, Colour::JPEG).unwrap();
        for (y, row) in image.planes_mut()[0].chunks_exact_mut(64).enumerate() {
            row[..3].copy_from_slice(&[1 + y as u8, 2 + y as u8, 9 + y as u8]);
        }
        image.pad_edges();
        assert_eq!(&image.plane(Plane::Y)[..4], &[1, 2, 9, 9]);
        assert_eq!(&image.plane(Plane::Y)[3 * 64..][..4], &[3, 4, 11, 11]);
    }

    #[test]
    fn reshaping_to_another_size_keeps_planes_apart() {
        let mut image = Yuv420Image::new(640, 360, Colour::JPEG).unwrap();
        image.reshape(16, 16).unwrap();
        let [y, u, v] = image.planes_mut();
        y.fill(1);
        u.fill(2);
        v.fill(3);
        assert!(image.plane(Plane::Y).iter().all(|&s| s == 1));
        assert!(image.plane(Plane::U).iter().all(|&s| s == 2));
    }
}
