//! The way a picture must be turned for display, from a container's display matrix: eight orientations, applied to planes.

use picture::{Plane, RgbImage, Yuv420Image};

use crate::error::VideoError;

/// First exchange rows and columns if asked, then mirror.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Orientation {
    pub transpose: bool,
    /// Mirror left and right, after the exchange.
    pub flip_x: bool,
    /// Mirror top and bottom, after the exchange.
    pub flip_y: bool,
}

impl Orientation {
    pub const UPRIGHT: Orientation = Orientation { transpose: false, flip_x: false, flip_y: false };

    /// From nine native-endian 32-bit integers as FFmpeg passes the matrix on: `x' = m0 x + m3 y`, `y' = m1 x + m4 y`.
    /// Angles between the right ones are taken to the nearest.
    pub fn from_display_matrix(bytes: &[u8]) -> Orientation {
        if bytes.len() < 36 {
            return Orientation::UPRIGHT;
        }
        let at = |index: usize| {
            let word = [0, 1, 2, 3].map(|byte| bytes[index * 4 + byte]);
            i64::from(i32::from_ne_bytes(word))
        };
        let (x_from_x, y_from_x, x_from_y, y_from_y) = (at(0), at(1), at(3), at(4));
        let transpose = y_from_x.abs() + x_from_y.abs() > x_from_x.abs() + y_from_y.abs();
        let (x, y) = if transpose { (x_from_y, y_from_x) } else { (x_from_x, y_from_y) };
        Orientation { transpose, flip_x: x < 0, flip_y: y < 0 }
    }

    pub fn is_upright(self) -> bool {
        self == Orientation::UPRIGHT
    }

    /// Size after turning; its own inverse.
    pub fn turn_size(self, width: u32, height: u32) -> (u32, u32) {
        if self.transpose { (height, width) } else { (width, height) }
    }

    /// Turn a planar picture into `target`, which takes the turned size and the colour.
    pub fn turn_yuv(self, source: &Yuv420Image, target: &mut Yuv420Image) -> Result<(), VideoError> {
        let (width, height) = self.turn_size(source.width(), source.height());
        target.reshape(width, height)?;
        target.set_colour(source.colour());
        let strides = [Plane::Y, Plane::U, Plane::V].map(|plane| target.stride_bytes(plane));
        for (plane, (to, to_stride)) in
            [Plane::Y, Plane::U, Plane::V].into_iter().zip(target.planes_mut().into_iter().zip(strides))
        {
            let from = Samples::<1> {
                bytes: source.plane(plane),
                stride_bytes: source.stride_bytes(plane),
                size: source.plane_size(plane),
            };
            self.turn(&from, to, to_stride);
        }
        Ok(())
    }

    /// Turn an RGB picture into `target`, which takes the turned size.
    pub fn turn_rgb(self, source: &RgbImage, target: &mut RgbImage) -> Result<(), VideoError> {
        let (width, height) = self.turn_size(source.width(), source.height());
        target.reshape(width, height)?;
        let from = Samples::<3> {
            bytes: source.pixels(),
            stride_bytes: source.width() as usize * 3,
            size: (source.width(), source.height()),
        };
        self.turn(&from, target.pixels_mut(), width as usize * 3);
        Ok(())
    }

    fn turn<const N: usize>(self, from: &Samples<'_, N>, to: &mut [u8], to_stride: usize) {
        let (width, height) = self.turn_size(from.size.0, from.size.1);
        for y in 0..height as usize {
            let source_y = if self.flip_y { height as usize - 1 - y } else { y };
            let row = &mut to[y * to_stride..][..width as usize * N];
            for (x, pixel) in row.chunks_exact_mut(N).enumerate() {
                let source_x = if self.flip_x { width as usize - 1 - x } else { x };
                let (column, line) = if self.transpose { (source_y, source_x) } else { (source_x, source_y) };
                pixel.copy_from_slice(&from.bytes[line * from.stride_bytes + column * N..][..N]);
            }
        }
    }
}

/// Pixels of `N` bytes.
struct Samples<'a, const N: usize> {
    bytes: &'a [u8],
    stride_bytes: usize,
    size: (u32, u32),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matrix(a: i32, b: i32, c: i32, d: i32) -> Vec<u8> {
        [a, b, 0, c, d, 0, 0, 0, 1 << 30].iter().flat_map(|value: &i32| value.to_ne_bytes()).collect()
    }

    const ONE: i32 = 65536;

    #[test]
    fn matrices_of_the_right_angles_are_recognised() {
        assert!(Orientation::from_display_matrix(&matrix(ONE, 0, 0, ONE)).is_upright());
        assert!(Orientation::from_display_matrix(&[]).is_upright());
        let half = Orientation::from_display_matrix(&matrix(-ONE, 0, 0, -ONE));
        assert_eq!(half, Orientation { transpose: false, flip_x: true, flip_y: true });
        // x' = y, y' = -x: the right edge goes to the top, a quarter turn anticlockwise.
        let quarter = Orientation::from_display_matrix(&matrix(0, -ONE, ONE, 0));
        assert_eq!(quarter, Orientation { transpose: true, flip_x: false, flip_y: true });
        let mut turned = RgbImage::default();
        let row = RgbImage::from_pixels(2, 1, vec![1, 1, 1, 2, 2, 2]).unwrap();
        quarter.turn_rgb(&row, &mut turned).unwrap();
        assert_eq!((turned.width(), turned.height()), (1, 2));
        assert_eq!(turned.pixels(), [2, 2, 2, 1, 1, 1]);
    }

    proptest! {
        #[test]
        fn turning_moves_every_pixel_once(width in 1u32..20, height in 1u32..20, t: bool, x: bool, y: bool) {
            let turn = Orientation { transpose: t, flip_x: x, flip_y: y };
            let pixels = (0..width * height).flat_map(|i| [(i >> 8) as u8, i as u8, 7]).collect();
            let image = RgbImage::from_pixels(width, height, pixels).unwrap();
            let mut turned = RgbImage::default();
            turn.turn_rgb(&image, &mut turned).unwrap();
            let sorted = |image: &RgbImage| {
                let mut pixels: Vec<_> = image.pixels().chunks_exact(3).map(<[u8]>::to_vec).collect();
                pixels.sort();
                pixels
            };
            prop_assert_eq!(sorted(&image), sorted(&turned));
            prop_assert_eq!((turned.width(), turned.height()), turn.turn_size(width, height));
        }
    }
}
