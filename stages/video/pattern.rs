//! A test pattern of any size and rate, the same for the same seed, with a frame counter that a program can read back.
//!
//! The background is a seeded texture that drifts, so that every frame differs and compresses like a picture rather than
//! like a flat field. The counter sits at the top left: 16 x 4 square cells, dark or bright, for 64 bits: 40 of the frame
//! number, 16 of the stream, 8 of CRC. Cells are even and large enough to survive JPEG.

use contract::Rational;
use contract::random::Random;
use picture::{Colour, PictureError, Plane, Yuv420Image};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cells of the counter across and down.
const COLUMNS: u32 = 16;
const ROWS: u32 = 4;
const DARK: u8 = 24;
const BRIGHT: u8 = 232;
/// Texture larger than the picture by this much on each side; the drift stays within it.
const DRIFT_PX: u32 = 64;

/// `pattern:` of a decode stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PatternConfig {
    /// Pixels, at least 32.
    pub width: u32,
    /// Pixels, at least 16.
    pub height: u32,
    /// Frames a second.
    pub fps: f64,
    /// Frames until it starts again. Default 240.
    #[serde(default = "default_frames")]
    pub frames: u32,
    /// Texture. Default: the seed of the run.
    #[serde(default)]
    pub seed: Option<u64>,
}

fn default_frames() -> u32 {
    240
}

impl PatternConfig {
    /// What is wrong with it, if anything.
    pub fn problem(&self) -> Option<String> {
        if self.width < 32 || self.height < 16 {
            return Some(format!(
                "pattern of {}x{} is too small for its counter; at least 32x16",
                self.width, self.height
            ));
        }
        if self.width > 16_384 || self.height > 16_384 {
            return Some(format!("pattern of {}x{} is larger than 16384 a side", self.width, self.height));
        }
        if !(0.01..=1000.0).contains(&self.fps) {
            return Some(format!("pattern.fps {} is outside 0.01 to 1000", self.fps));
        }
        (self.frames == 0).then(|| "pattern.frames is 0; at least 1".to_owned())
    }

    /// The rate as a ratio; 23.976, 29.97 and 59.94 mean the broadcast rates over 1001.
    pub fn rate(&self) -> Rational {
        rate_of(self.fps)
    }
}

/// Frames a second as a ratio; broadcast rates are recognised.
pub fn rate_of(fps: f64) -> Rational {
    let broadcast = (fps * 1.001).round();
    if fps.fract() != 0.0 && (broadcast * 1000.0 / 1001.0 - fps).abs() < 0.005 {
        return Rational::new((broadcast * 1000.0) as u32, 1001);
    }
    Rational::new((fps * 1000.0).round().max(1.0) as u32, 1000)
}

/// Draws frames.
pub struct Pattern {
    width: u32,
    height: u32,
    stream: u16,
    texture: Yuv420Image,
}

impl Pattern {
    /// Prepare the texture; the costly part.
    pub fn new(width: u32, height: u32, seed: u64, stream: u16) -> Result<Pattern, PictureError> {
        let mut texture = Yuv420Image::new(width + 2 * DRIFT_PX, height + 2 * DRIFT_PX, Colour::JPEG)?;
        let sizes =
            [Plane::Y, Plane::U, Plane::V].map(|plane| (texture.plane_size(plane), texture.stride_bytes(plane)));
        for (index, (bytes, ((plane_width, plane_height), stride))) in
            texture.planes_mut().into_iter().zip(sizes).enumerate()
        {
            let mut random = Random::named(seed, &format!("pattern/{index}"));
            let octaves: &[(u32, i32)] =
                if index == 0 { &[(96, 90), (24, 50), (6, 24), (2, 8)] } else { &[(64, 70), (16, 20)] };
            draw_noise(bytes, stride, (plane_width, plane_height), octaves, &mut random);
        }
        Ok(Pattern { width, height, stream, texture })
    }

    /// A buffer that `draw` fills.
    pub fn canvas(&self) -> Result<Yuv420Image, PictureError> {
        Yuv420Image::new(self.width, self.height, Colour::JPEG)
    }

    /// Draw frame `number` into `target`.
    pub fn draw(&self, number: u64, target: &mut Yuv420Image) -> Result<(), PictureError> {
        target.reshape(self.width, self.height)?;
        target.set_colour(Colour::JPEG);
        let (drift_x, drift_y) = drift(number);
        let strides = [Plane::Y, Plane::U, Plane::V].map(|plane| target.stride_bytes(plane));
        let sizes = [Plane::Y, Plane::U, Plane::V].map(|plane| target.plane_size(plane));
        for ((plane, to), (stride, (width, height))) in
            [Plane::Y, Plane::U, Plane::V].into_iter().zip(target.planes_mut()).zip(strides.into_iter().zip(sizes))
        {
            let shift = if plane == Plane::Y { 1 } else { 2 };
            let (x, y) = ((drift_x / shift) as usize, (drift_y / shift) as usize);
            let (from, from_stride) = (self.texture.plane(plane), self.texture.stride_bytes(plane));
            for row in 0..height as usize {
                let source = &from[(y + row) * from_stride + x..][..width as usize];
                to[row * stride..][..width as usize].copy_from_slice(source);
            }
        }
        stamp(target, number, self.stream);
        Ok(())
    }
}

/// An even offset that wanders within the texture's margin: a triangle wave each way, with periods that do not divide.
fn drift(number: u64) -> (u32, u32) {
    let wave = |speed: u64| {
        let full = u64::from(DRIFT_PX) * 2;
        let at = number.wrapping_mul(speed) % (2 * full);
        (at.min(2 * full - at) as u32) & !1
    };
    (wave(6), wave(2))
}

/// Value noise: random lattice points, smoothly joined, several lattices on top of each other.
fn draw_noise(bytes: &mut [u8], stride: usize, size: (u32, u32), octaves: &[(u32, i32)], random: &mut Random) {
    let (width, height) = (size.0 as usize, size.1 as usize);
    let mut sums = vec![0i32; width * height];
    for &(cell, amplitude) in octaves {
        let cell = cell as usize;
        let (columns, rows) = (width / cell + 2, height / cell + 2);
        let lattice: Vec<i32> =
            (0..columns * rows).map(|_| random.below(2 * amplitude as u64 + 1) as i32 - amplitude).collect();
        for y in 0..height {
            let (row, part_y) = (y / cell, (y % cell * 256 / cell) as i32);
            for x in 0..width {
                let (column, part_x) = (x / cell, (x % cell * 256 / cell) as i32);
                let corner = row * columns + column;
                let top = lattice[corner] * (256 - part_x) + lattice[corner + 1] * part_x;
                let bottom = lattice[corner + columns] * (256 - part_x) + lattice[corner + columns + 1] * part_x;
                sums[y * width + x] += (top * (256 - part_y) + bottom * part_y) >> 16;
            }
        }
    }
    for (row, sums) in bytes.chunks_mut(stride).zip(sums.chunks_exact(width)) {
        for (sample, sum) in row.iter_mut().zip(sums) {
            *sample = (128 + sum).clamp(0, 255) as u8;
        }
    }
}

/// Side of a counter cell in pixels.
fn cell_px(width: u32, height: u32) -> u32 {
    (width / COLUMNS).min(height / ROWS).min(16) & !1
}

fn word(number: u64, stream: u16) -> u64 {
    let body = (number & 0xff_ffff_ffff) << 16 | u64::from(stream);
    body << 8 | u64::from(crc8(body))
}

/// CRC-8 with polynomial 0x07 and start value 0x5a, so that neither all dark nor all bright is valid.
fn crc8(body: u64) -> u8 {
    body.to_be_bytes().iter().fold(0x5a, |crc, byte| {
        (0..8).fold(crc ^ byte, |crc, _| if crc & 0x80 == 0 { crc << 1 } else { crc << 1 ^ 0x07 })
    })
}

fn stamp(image: &mut Yuv420Image, number: u64, stream: u16) {
    let cell = cell_px(image.width(), image.height()) as usize;
    let bits = word(number, stream);
    let strides = [Plane::Y, Plane::U].map(|plane| image.stride_bytes(plane));
    let [luma, u, v] = image.planes_mut();
    for y in 0..cell * ROWS as usize {
        for column in 0..COLUMNS as usize {
            let bit = (y / cell) * COLUMNS as usize + column;
            let level = if bits >> (63 - bit) & 1 == 1 { BRIGHT } else { DARK };
            luma[y * strides[0] + column * cell..][..cell].fill(level);
        }
    }
    for y in 0..cell * ROWS as usize / 2 {
        let row = y * strides[1]..y * strides[1] + cell * COLUMNS as usize / 2;
        u[row.clone()].fill(128);
        v[row].fill(128);
    }
}

/// Read the counter of a picture made from a pattern of `drawn` size, now `width` x `height`; `luma(x, y)` gives brightness.
/// Returns frame number and stream, or `None` when the CRC does not fit.
pub fn read_counter(drawn: (u32, u32), width: u32, height: u32, luma: impl Fn(u32, u32) -> u8) -> Option<(u64, u16)> {
    let cell = f64::from(cell_px(drawn.0, drawn.1));
    let (scale_x, scale_y) = (f64::from(width) / f64::from(drawn.0), f64::from(height) / f64::from(drawn.1));
    let mut bits = 0u64;
    for row in 0..ROWS {
        for column in 0..COLUMNS {
            let x = ((f64::from(column) + 0.5) * cell * scale_x) as u32;
            let y = ((f64::from(row) + 0.5) * cell * scale_y) as u32;
            bits = bits << 1 | u64::from(luma(x.min(width - 1), y.min(height - 1)) >= 128);
        }
    }
    let body = bits >> 8;
    (crc8(body) == bits as u8).then_some((body >> 16, body as u16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use picture::{JpegDecoder, JpegEncoder, RgbImage};
    use proptest::prelude::*;

    fn read(image: &Yuv420Image) -> Option<(u64, u16)> {
        let stride = image.stride_bytes(Plane::Y);
        let size = (image.width(), image.height());
        read_counter(size, size.0, size.1, |x, y| image.plane(Plane::Y)[y as usize * stride + x as usize])
    }

    #[test]
    fn the_same_seed_draws_the_same_picture_and_another_seed_another() {
        let draw = |seed, number| {
            let pattern = Pattern::new(160, 90, seed, 0).unwrap();
            let mut image = pattern.canvas().unwrap();
            pattern.draw(number, &mut image).unwrap();
            image.plane(Plane::Y).to_vec()
        };
        assert_eq!(draw(7, 3), draw(7, 3));
        assert_ne!(draw(7, 3), draw(8, 3));
        assert_ne!(draw(7, 3), draw(7, 4));
    }

    #[test]
    fn the_counter_survives_jpeg_at_low_quality() {
        for (width, height) in [(32, 16), (224, 224), (1920, 1080)] {
            let pattern = Pattern::new(width, height, 1, 300).unwrap();
            let mut image = pattern.canvas().unwrap();
            pattern.draw(123_456_789, &mut image).unwrap();
            let jpeg = JpegEncoder::new(40).unwrap().encode_yuv(&mut image).unwrap().to_vec();
            let mut back = RgbImage::default();
            JpegDecoder::new().unwrap().decode(&jpeg, &mut back).unwrap();
            let found = read_counter((width, height), width, height, |x, y| back.view().row(y)[x as usize * 3 + 1]);
            assert_eq!(found, Some((123_456_789, 300)), "{width}x{height}");
        }
    }

    #[test]
    fn a_picture_without_a_counter_gives_none() {
        for level in [0, 255] {
            assert_eq!(read_counter((320, 180), 320, 180, |_, _| level), None);
        }
    }

    #[test]
    fn broadcast_rates_are_exact() {
        assert_eq!(rate_of(23.976), Rational::new(24_000, 1001));
        assert_eq!(rate_of(29.97), Rational::new(30_000, 1001));
        assert_eq!(rate_of(59.94), Rational::new(60_000, 1001));
        assert_eq!(rate_of(24.0), Rational::new(24_000, 1000));
        assert_eq!(rate_of(12.5), Rational::new(12_500, 1000));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_number_is_read_back(width in 32u32..300, height in 16u32..200, number in 0u64..1 << 40, stream: u16) {
            let pattern = Pattern::new(width, height, 5, stream).unwrap();
            let mut image = pattern.canvas().unwrap();
            pattern.draw(number, &mut image).unwrap();
            prop_assert_eq!(read(&image), Some((number, stream)));
        }
    }
}
