//! What YUV samples mean, and the exact way from one meaning to another without going through RGB.
//!
//! Video is limited range and mostly BT.709; JFIF is full range BT.601. Going between two YUV meanings is linear, and
//! grey stays grey: luma gains a term from each chroma, chroma mixes only with chroma. That is done here in 16-bit
//! fixed point on the 4:2:0 planes, since a scaler would go through RGB for it at several times the cost.

use crate::error::{PictureError, check_len};
use crate::yuv::{Plane, Yuv420Image};

/// Coefficients that tie luma and chroma to RGB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matrix {
    Bt601,
    Bt709,
    Bt2020,
    Smpte240m,
}

/// Which part of 0..=255 is used: luma 16..=235 and chroma 16..=240, or everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    Limited,
    Full,
}

/// The meaning of YUV samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour {
    pub matrix: Matrix,
    pub range: Range,
}

impl Colour {
    /// What JFIF prescribes.
    pub const JPEG: Colour = Colour { matrix: Matrix::Bt601, range: Range::Full };
    /// What an NV12 payload always carries: what cameras and hardware decoders deliver for HD.
    pub const NV12_PAYLOAD: Colour = Colour { matrix: Matrix::Bt709, range: Range::Limited };
}

impl Matrix {
    /// Weights of red and blue in luma.
    pub fn kr_kb(self) -> (f64, f64) {
        match self {
            Matrix::Bt601 => (0.299, 0.114),
            Matrix::Bt709 => (0.2126, 0.0722),
            Matrix::Bt2020 => (0.2627, 0.0593),
            Matrix::Smpte240m => (0.212, 0.087),
        }
    }
}

impl Range {
    /// Offset of black, span of luma and span of chroma.
    pub(crate) fn spans(self) -> (f64, f64, f64) {
        match self {
            Range::Limited => (16.0, 219.0, 224.0),
            Range::Full => (0.0, 255.0, 255.0),
        }
    }
}

/// Borrowed 4:2:0 planes as a decoder hands them out.
#[derive(Debug, Clone, Copy)]
pub struct YuvSource<'a> {
    pub width: u32,
    pub height: u32,
    pub colour: Colour,
    pub planes: [&'a [u8]; 3],
    pub stride_bytes: [usize; 3],
}

impl<'a> YuvSource<'a> {
    /// All three planes of an owned picture.
    pub fn of(image: &'a Yuv420Image) -> YuvSource<'a> {
        YuvSource {
            width: image.width(),
            height: image.height(),
            colour: image.colour(),
            planes: [image.plane(Plane::Y), image.plane(Plane::U), image.plane(Plane::V)],
            stride_bytes: [Plane::Y, Plane::U, Plane::V].map(|plane| image.stride_bytes(plane)),
        }
    }

    fn check(&self) -> Result<(), PictureError> {
        let (chroma_width, chroma_height) = (self.width.div_ceil(2), self.height.div_ceil(2));
        let sizes = [(self.width, self.height), (chroma_width, chroma_height), (chroma_width, chroma_height)];
        for ((plane, stride), (width, height)) in self.planes.iter().zip(self.stride_bytes).zip(sizes) {
            let (width_bytes, rows) = (width as usize, height as usize);
            if width == 0 || height == 0 || stride < width_bytes {
                return Err(PictureError::Geometry { what: "yuv plane", width, height, reason: "rows overlap" });
            }
            check_len("yuv plane", width, height, plane.len(), stride * (rows - 1) + width_bytes)?;
        }
        Ok(())
    }
}

/// Convert range and matrix from `source` to what `target.colour()` says; `target` takes the size of `source`.
pub fn convert_yuv420(source: &YuvSource<'_>, target: &mut Yuv420Image) -> Result<(), PictureError> {
    source.check()?;
    target.reshape(source.width, source.height)?;
    let coefficients = Coefficients::between(source.colour, target.colour());
    let strides = [Plane::Y, Plane::U, Plane::V].map(|plane| target.stride_bytes(plane));
    let planes = target.planes_mut();
    match coefficients {
        None => copy_planes(source, planes, strides),
        Some(coefficients) => convert_planes(source, planes, strides, &coefficients),
    }
    Ok(())
}

fn copy_planes(source: &YuvSource<'_>, planes: [&mut [u8]; 3], strides: [usize; 3]) {
    let (width, chroma_width) = (source.width as usize, source.width.div_ceil(2) as usize);
    let (rows, chroma_rows) = (source.height as usize, source.height.div_ceil(2) as usize);
    let sizes = [(width, rows), (chroma_width, chroma_rows), (chroma_width, chroma_rows)];
    for (index, (plane, (width, rows))) in planes.into_iter().zip(sizes).enumerate() {
        for y in 0..rows {
            let from = &source.planes[index][y * source.stride_bytes[index]..][..width];
            plane[y * strides[index]..][..width].copy_from_slice(from);
        }
    }
}

/// Fraction bits of the coefficients; the largest (1.2 for luma and chroma range) then fits an i16.
const COEFFICIENT_BITS: u32 = 14;
/// Samples are shifted up by this before the multiplication that keeps the upper 16 bits.
const SAMPLE_BITS: u32 = 6;
/// Fraction bits that remain: 14 + 6 - 16.
const RESULT_BITS: u32 = COEFFICIENT_BITS + SAMPLE_BITS - 16;

#[derive(Debug, Clone, Copy)]
struct Coefficients {
    black_in: i16,
    black_out: i16,
    luma: i16,
    luma_from_u: i16,
    luma_from_v: i16,
    u_from_u: i16,
    u_from_v: i16,
    v_from_u: i16,
    v_from_v: i16,
}

impl Coefficients {
    /// `None` when nothing needs doing.
    fn between(from: Colour, to: Colour) -> Option<Coefficients> {
        if from == to {
            return None;
        }
        let exact = exact_coefficients(from, to);
        let fixed = |value: f64| (value * f64::from(1 << COEFFICIENT_BITS)).round() as i16;
        let [luma, luma_from_u, luma_from_v, u_from_u, u_from_v, v_from_u, v_from_v] = exact.map(fixed);
        Some(Coefficients {
            black_in: from.range.spans().0 as i16,
            black_out: to.range.spans().0 as i16,
            luma,
            luma_from_u,
            luma_from_v,
            u_from_u,
            u_from_v,
            v_from_u,
            v_from_v,
        })
    }
}

/// y from y, y from u, y from v, u from u, u from v, v from u, v from v; offsets left out.
fn exact_coefficients(from: Colour, to: Colour) -> [f64; 7] {
    let (kr, kb) = from.matrix.kr_kb();
    let kg = 1.0 - kr - kb;
    // RGB of a pure chroma vector in the source meaning, chroma in -0.5..=0.5.
    let rgb_of_u = [0.0, -2.0 * (1.0 - kb) * kb / kg, 2.0 * (1.0 - kb)];
    let rgb_of_v = [2.0 * (1.0 - kr), -2.0 * (1.0 - kr) * kr / kg, 0.0];
    let (to_kr, to_kb) = to.matrix.kr_kb();
    let luma = |rgb: [f64; 3]| to_kr * rgb[0] + (1.0 - to_kr - to_kb) * rgb[1] + to_kb * rgb[2];
    let chroma = |rgb: [f64; 3]| {
        let y = luma(rgb);
        ((rgb[2] - y) / (2.0 * (1.0 - to_kb)), (rgb[0] - y) / (2.0 * (1.0 - to_kr)))
    };
    let (_, luma_in, chroma_in) = from.range.spans();
    let (_, luma_out, chroma_out) = to.range.spans();
    let (u_of_u, v_of_u) = chroma(rgb_of_u);
    let (u_of_v, v_of_v) = chroma(rgb_of_v);
    let chroma_scale = chroma_out / chroma_in;
    [
        luma_out / luma_in,
        luma(rgb_of_u) * luma_out / chroma_in,
        luma(rgb_of_v) * luma_out / chroma_in,
        u_of_u * chroma_scale,
        u_of_v * chroma_scale,
        v_of_u * chroma_scale,
        v_of_v * chroma_scale,
    ]
}

#[expect(unsafe_code, reason = "calls the AVX2 build of the same safe code after checking that the CPU has AVX2")]
fn convert_planes(source: &YuvSource<'_>, planes: [&mut [u8]; 3], strides: [usize; 3], coefficients: &Coefficients) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2, the only thing the function asks for.
        return unsafe { convert_planes_avx2(source, planes, strides, coefficients) };
    }
    convert_planes_portable(source, planes, strides, coefficients);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn convert_planes_avx2(source: &YuvSource<'_>, planes: [&mut [u8]; 3], strides: [usize; 3], k: &Coefficients) {
    convert_planes_portable(source, planes, strides, k);
}

/// One row of chroma and its two rows of luma at a time, so that the chroma terms are computed once and stay in cache.
#[inline(always)]
fn convert_planes_portable(source: &YuvSource<'_>, planes: [&mut [u8]; 3], strides: [usize; 3], k: &Coefficients) {
    let (width, height) = (source.width as usize, source.height as usize);
    let chroma_width = width.div_ceil(2);
    let [luma, u_plane, v_plane] = planes;
    let mut luma_terms = vec![0i16; chroma_width * 2];
    for chroma_y in 0..height.div_ceil(2) {
        let u_in = &source.planes[1][chroma_y * source.stride_bytes[1]..][..chroma_width];
        let v_in = &source.planes[2][chroma_y * source.stride_bytes[2]..][..chroma_width];
        let u_out = &mut u_plane[chroma_y * strides[1]..][..chroma_width];
        let v_out = &mut v_plane[chroma_y * strides[2]..][..chroma_width];
        chroma_row(u_in, v_in, u_out, v_out, &mut luma_terms, k);
        for y in (chroma_y * 2)..(chroma_y * 2 + 2).min(height) {
            let from = &source.planes[0][y * source.stride_bytes[0]..][..width];
            luma_row(from, &mut luma[y * strides[0]..][..width], &luma_terms, k);
        }
    }
}

#[inline(always)]
fn chroma_row(u_in: &[u8], v_in: &[u8], u_out: &mut [u8], v_out: &mut [u8], terms: &mut [i16], k: &Coefficients) {
    let chroma = u_in.iter().zip(v_in).zip(u_out.iter_mut().zip(v_out.iter_mut())).zip(terms.chunks_exact_mut(2));
    for (((&u, &v), (u_to, v_to)), pair) in chroma {
        let (u, v) = (i16::from(u).wrapping_sub(128), i16::from(v).wrapping_sub(128));
        *u_to = finish(times(u, k.u_from_u).wrapping_add(times(v, k.u_from_v)), 128);
        *v_to = finish(times(u, k.v_from_u).wrapping_add(times(v, k.v_from_v)), 128);
        let term = times(u, k.luma_from_u).wrapping_add(times(v, k.luma_from_v));
        pair[0] = term;
        pair[1] = term;
    }
}

#[inline(always)]
fn luma_row(from: &[u8], to: &mut [u8], terms: &[i16], k: &Coefficients) {
    for ((&y, to), &term) in from.iter().zip(to.iter_mut()).zip(terms) {
        let scaled = times(i16::from(y).wrapping_sub(k.black_in), k.luma);
        *to = finish(scaled.wrapping_add(term), k.black_out);
    }
}

/// The upper half of a 16 x 16 bit product: one vector instruction everywhere. |sample| <= 255, so nothing overflows.
#[inline(always)]
pub(crate) fn times(sample: i16, coefficient: i16) -> i16 {
    ((i32::from(sample << SAMPLE_BITS).wrapping_mul(i32::from(coefficient))) >> 16) as i16
}

/// Round, add the offset, clamp. Each product was cut off downwards by half a unit on average: one unit of the two to
/// three is given back with the rounding half.
#[inline(always)]
pub(crate) fn finish(value: i16, offset: i16) -> u8 {
    let rounded = value.wrapping_add((1 << (RESULT_BITS - 1)) + 1) >> RESULT_BITS;
    rounded.wrapping_add(offset).clamp(0, 255) as u8
}

/// A coefficient in the fixed point of [`times`].
pub(crate) fn fixed_point(value: f64) -> i16 {
    (value * f64::from(1 << COEFFICIENT_BITS)).round() as i16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Matrix; 4] = [Matrix::Bt601, Matrix::Bt709, Matrix::Bt2020, Matrix::Smpte240m];

    fn to_rgb(colour: Colour, yuv: [f64; 3]) -> [f64; 3] {
        let (kr, kb) = colour.matrix.kr_kb();
        let (black, luma, chroma) = colour.range.spans();
        let (y, u, v) = ((yuv[0] - black) / luma, (yuv[1] - 128.0) / chroma, (yuv[2] - 128.0) / chroma);
        let (r, b) = (y + 2.0 * (1.0 - kr) * v, y + 2.0 * (1.0 - kb) * u);
        [r, (y - kr * r - kb * b) / (1.0 - kr - kb), b]
    }

    fn to_yuv(colour: Colour, rgb: [f64; 3]) -> [f64; 3] {
        let (kr, kb) = colour.matrix.kr_kb();
        let (black, luma, chroma) = colour.range.spans();
        let y = kr * rgb[0] + (1.0 - kr - kb) * rgb[1] + kb * rgb[2];
        let (u, v) = ((rgb[2] - y) / (2.0 * (1.0 - kb)), (rgb[0] - y) / (2.0 * (1.0 - kr)));
        [black + y * luma, 128.0 + u * chroma, 128.0 + v * chroma]
    }

    fn convert_one(from: Colour, to: Colour, yuv: [u8; 3]) -> [u8; 3] {
        let planes = yuv.map(|sample| vec![sample; 4]);
        let source = YuvSource {
            width: 2,
            height: 2,
            colour: from,
            planes: [&planes[0], &planes[1], &planes[2]],
            stride_bytes: [2, 1, 1],
        };
        let mut target = Yuv420Image::new(2, 2, to).unwrap();
        convert_yuv420(&source, &mut target).unwrap();
        [Plane::Y, Plane::U, Plane::V].map(|plane| target.plane(plane)[0])
    }

    #[test]
    fn hd_video_white_black_and_red_become_jpeg_white_black_and_red() {
        let hd = Colour::NV12_PAYLOAD;
        assert_eq!(convert_one(hd, Colour::JPEG, [235, 128, 128]), [255, 128, 128]);
        assert_eq!(convert_one(hd, Colour::JPEG, [16, 128, 128]), [0, 128, 128]);
        // Pure red is (63, 102, 240) in limited BT.709 and (76, 85, 255) in JFIF.
        let red = convert_one(hd, Colour::JPEG, [63, 102, 240]);
        for (found, wanted) in red.into_iter().zip([76u8, 85, 255]) {
            assert!(found.abs_diff(wanted) <= 1, "{red:?}");
        }
    }

    proptest! {
        #[test]
        fn fixed_point_agrees_with_the_way_through_rgb(y: u8, u: u8, v: u8, from in 0usize..8, to in 0usize..8) {
            let colour = |i: usize| Colour {
                matrix: ALL[i % 4],
                range: if i < 4 { Range::Limited } else { Range::Full },
            };
            let (from, to) = (colour(from), colour(to));
            let wanted = to_yuv(to, to_rgb(from, [f64::from(y), f64::from(u), f64::from(v)]));
            let found = convert_one(from, to, [y, u, v]);
            for (found, wanted) in found.into_iter().zip(wanted) {
                let wanted = wanted.clamp(0.0, 255.0);
                prop_assert!((f64::from(found) - wanted).abs() <= 0.8, "{found} for {wanted}");
            }
        }

        #[test]
        fn every_pixel_of_odd_pictures_is_converted(width in 1u32..70, height in 1u32..9) {
            let chroma = (width.div_ceil(2) * height.div_ceil(2)) as usize;
            let (y, u, v) = (vec![235u8; (width * height) as usize], vec![128u8; chroma], vec![128u8; chroma]);
            let half = width.div_ceil(2) as usize;
            let source = YuvSource { width, height, colour: Colour::NV12_PAYLOAD, planes: [&y, &u, &v],
                stride_bytes: [width as usize, half, half] };
            let mut target = Yuv420Image::new(1, 1, Colour::JPEG).unwrap();
            convert_yuv420(&source, &mut target).unwrap();
            for row in target.plane(Plane::Y).chunks_exact(target.stride_bytes(Plane::Y)).take(height as usize) {
                prop_assert!(row[..width as usize].iter().all(|&sample| sample == 255));
            }
        }
    }

    #[test]
    fn short_planes_are_refused() {
        let source = YuvSource {
            width: 4,
            height: 4,
            colour: Colour::JPEG,
            planes: [&[0; 16], &[0; 4], &[0; 3]],
            stride_bytes: [4, 2, 2],
        };
        let mut target = Yuv420Image::new(4, 4, Colour::JPEG).unwrap();
        assert!(convert_yuv420(&source, &mut target).is_err());
    }
}
