//! NV12: luma, then chroma interleaved. As a payload it is always limited-range BT.709 ([`Colour::NV12_PAYLOAD`]).

use crate::colour::{Colour, Range, finish, fixed_point, times};
use crate::error::{PictureError, check_len, check_size};
use crate::image::RgbImage;
use crate::yuv::{Plane, Yuv420Image};

/// Packed NV12 as it travels in a payload: `width * height` luma bytes, then rows of `2 * ceil(width / 2)` chroma bytes.
#[derive(Debug, Clone, Copy)]
pub struct Nv12View<'a> {
    width: u32,
    height: u32,
    luma: &'a [u8],
    chroma: &'a [u8],
}

/// Bytes of a packed NV12 picture.
pub fn nv12_len(width: u32, height: u32) -> usize {
    let chroma = 2 * width.div_ceil(2) as usize * height.div_ceil(2) as usize;
    width as usize * height as usize + chroma
}

impl<'a> Nv12View<'a> {
    pub fn packed(width: u32, height: u32, bytes: &'a [u8]) -> Result<Nv12View<'a>, PictureError> {
        check_size("nv12 picture", width, height)?;
        check_len("nv12 picture", width, height, bytes.len(), nv12_len(width, height))?;
        let (luma, chroma) = bytes.split_at(width as usize * height as usize);
        Ok(Nv12View { width, height, luma, chroma })
    }
}

/// Append the packed NV12 form of `image` to `out`. The colour is not changed: convert first.
pub fn yuv420_to_nv12(image: &Yuv420Image, out: &mut Vec<u8>) {
    let (width, height) = (image.width() as usize, image.height() as usize);
    let start = out.len();
    out.resize(start + nv12_len(image.width(), image.height()), 0);
    let (luma, chroma) = out[start..].split_at_mut(width * height);
    let rows = image.plane(Plane::Y).chunks_exact(image.stride_bytes(Plane::Y));
    for (to, from) in luma.chunks_exact_mut(width).zip(rows) {
        to.copy_from_slice(&from[..width]);
    }
    let half = width.div_ceil(2);
    let u_rows = image.plane(Plane::U).chunks_exact(image.stride_bytes(Plane::U));
    let v_rows = image.plane(Plane::V).chunks_exact(image.stride_bytes(Plane::V));
    for (to, (u, v)) in chroma.chunks_exact_mut(half * 2).zip(u_rows.zip(v_rows)) {
        for (pair, (&u, &v)) in to.chunks_exact_mut(2).zip(u[..half].iter().zip(&v[..half])) {
            (pair[0], pair[1]) = (u, v);
        }
    }
}

/// Convert to RGB, chroma repeated for each of its four pixels; `target` takes the picture's size.
pub fn nv12_to_rgb(source: &Nv12View<'_>, colour: Colour, target: &mut RgbImage) -> Result<(), PictureError> {
    target.reshape(source.width, source.height)?;
    convert_rows(source, &RgbWeights::of(colour), target.pixels_mut());
    Ok(())
}

#[expect(unsafe_code, reason = "calls the AVX2 build of the same safe code after checking that the CPU has AVX2")]
fn convert_rows(source: &Nv12View<'_>, weights: &RgbWeights, pixels: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2, the only thing the function asks for.
        return unsafe { convert_rows_avx2(source, weights, pixels) };
    }
    convert_rows_portable(source, weights, pixels);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn convert_rows_avx2(source: &Nv12View<'_>, weights: &RgbWeights, pixels: &mut [u8]) {
    convert_rows_portable(source, weights, pixels);
}

/// Chroma terms once for two rows; then each row plane by plane, which vectorises, and interleaved at the end.
#[inline(always)]
fn convert_rows_portable(source: &Nv12View<'_>, weights: &RgbWeights, pixels: &mut [u8]) {
    let width = source.width as usize;
    let padded = width.next_multiple_of(2);
    let mut terms = [(); 3].map(|()| vec![0i16; padded]);
    let mut planes = [(); 3].map(|()| vec![0u8; width]);
    let rows = source.luma.chunks_exact(width).zip(pixels.chunks_exact_mut(width * 3));
    for (y, (luma, row)) in rows.enumerate() {
        if y % 2 == 0 {
            chroma_terms(&source.chroma[y / 2 * padded..][..padded], &mut terms, weights);
        }
        for (plane, terms) in planes.iter_mut().zip(&terms) {
            for ((out, &y), &term) in plane.iter_mut().zip(luma).zip(terms) {
                let scaled = times(i16::from(y).wrapping_sub(weights.black), weights.luma);
                *out = finish(scaled.wrapping_add(term), 0);
            }
        }
        interleave(&planes, row);
    }
}

#[inline(always)]
fn chroma_terms(chroma: &[u8], terms: &mut [Vec<i16>; 3], weights: &RgbWeights) {
    let [red, green, blue] = terms;
    let to = red.chunks_exact_mut(2).zip(green.chunks_exact_mut(2)).zip(blue.chunks_exact_mut(2));
    for (pair, ((red, green), blue)) in chroma.chunks_exact(2).zip(to) {
        // Weights are halved to fit, samples doubled in return.
        let (u, v) = ((i16::from(pair[0]) - 128) * 2, (i16::from(pair[1]) - 128) * 2);
        red.fill(times(v, weights.red_from_v));
        green.fill(times(u, weights.green_from_u).wrapping_add(times(v, weights.green_from_v)));
        blue.fill(times(u, weights.blue_from_u));
    }
}

#[inline(always)]
fn interleave(planes: &[Vec<u8>; 3], row: &mut [u8]) {
    let [red, green, blue] = planes;
    let from = red.iter().zip(green).zip(blue);
    for (pixel, ((&red, &green), &blue)) in row.chunks_exact_mut(3).zip(from) {
        (pixel[0], pixel[1], pixel[2]) = (red, green, blue);
    }
}

struct RgbWeights {
    black: i16,
    luma: i16,
    red_from_v: i16,
    green_from_u: i16,
    green_from_v: i16,
    blue_from_u: i16,
}

impl RgbWeights {
    /// Chroma weights reach 2.1, more than 14 fraction bits hold, so they are halved here and doubled on use.
    fn of(colour: Colour) -> RgbWeights {
        let (kr, kb) = colour.matrix.kr_kb();
        let kg = 1.0 - kr - kb;
        let (black, luma_span, chroma_span) = colour.range.spans();
        let chroma = |weight: f64| fixed_point(weight * 255.0 / chroma_span / 2.0);
        debug_assert!(colour.range == Range::Full || black > 0.0);
        RgbWeights {
            black: black as i16,
            luma: fixed_point(255.0 / luma_span),
            red_from_v: chroma(2.0 * (1.0 - kr)),
            green_from_u: chroma(-2.0 * (1.0 - kb) * kb / kg),
            green_from_v: chroma(-2.0 * (1.0 - kr) * kr / kg),
            blue_from_u: chroma(2.0 * (1.0 - kb)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_length_rounds_chroma_up() {
        assert_eq!(nv12_len(4, 4), 24);
        assert_eq!(nv12_len(3, 3), 9 + 8);
        assert!(Nv12View::packed(3, 3, &[0; 16]).is_err());
    }

    #[test]
    fn planes_are_interleaved_row_by_row() {
        let mut image = Yuv420Image::new(3, 3, Colour::NV12_PAYLOAD).unwrap();
        let [y, u, v] = image.planes_mut();
        for row in 0..3 {
            y[row * 64..][..3].copy_from_slice(&[1, 2, 3].map(|x| x + 10 * row as u8));
        }
        for row in 0..2 {
            u[row * 64..][..2].copy_from_slice(&[100, 101].map(|x| x + 10 * row as u8));
            v[row * 64..][..2].copy_from_slice(&[200, 201].map(|x| x + 10 * row as u8));
        }
        let mut packed = Vec::new();
        yuv420_to_nv12(&image, &mut packed);
        assert_eq!(packed, [1, 2, 3, 11, 12, 13, 21, 22, 23, 100, 200, 101, 201, 110, 210, 111, 211]);
    }

    #[test]
    fn colour_bars_come_out_as_their_rgb() {
        let bars: [([u8; 3], [u8; 3]); 7] = [
            ([235, 128, 128], [255, 255, 255]),
            ([16, 128, 128], [0, 0, 0]),
            ([168, 44, 136], [191, 191, 0]),
            ([145, 147, 44], [0, 191, 191]),
            ([133, 63, 52], [0, 191, 0]),
            ([51, 109, 212], [191, 0, 0]),
            ([28, 212, 120], [0, 0, 191]),
        ];
        for (yuv, rgb) in bars {
            let mut packed = vec![yuv[0]; 15];
            (0..6).for_each(|_| packed.extend([yuv[1], yuv[2]]));
            let mut image = RgbImage::default();
            nv12_to_rgb(&Nv12View::packed(5, 3, &packed).unwrap(), Colour::NV12_PAYLOAD, &mut image).unwrap();
            for pixel in image.pixels().chunks_exact(3) {
                assert!(pixel.iter().zip(rgb).all(|(a, b)| a.abs_diff(b) <= 2), "{pixel:?} for {rgb:?}");
            }
        }
    }
}
