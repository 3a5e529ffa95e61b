//! Colours, sizes and orientation of payloads, against known colour bars, against swscale and against the ffmpeg program.

#![allow(clippy::unwrap_used, reason = "a failure anywhere in a test is its result")]

use std::path::{Path, PathBuf};
use std::process::Command;

use contract::Encoding;
use picture::{Colour, Filter, JpegDecoder, Nv12View, RgbImage, chw_to_rgb, nv12_to_rgb};
use video::convert::{Converter, Payload, PayloadSpec, Picture, SizeSpec};
use video::decode::Decoder;
use video::source::{Location, OpenOptions};

fn clip(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/clips").join(name)
}

/// Every frame of a clip as payloads.
fn payloads(name: &str, encoding: Encoding, size: SizeSpec, filter: Filter) -> Vec<Payload> {
    let mut decoder = Decoder::open(&Location::file(&clip(name)).unwrap(), &OpenOptions::default()).unwrap();
    let spec = PayloadSpec { encoding, quality: 95, size, filter };
    let mut converter = Converter::new(spec, decoder.info().orientation).unwrap();
    let mut found = Vec::new();
    while let Some(frame) = decoder.next_frame().unwrap() {
        found.push(converter.convert(&Picture::Decoded(frame)).unwrap());
    }
    found
}

fn to_rgb(encoding: Encoding, payload: &Payload) -> RgbImage {
    let (width, height) = (payload.geometry.width_px, payload.geometry.height_px);
    let mut image = RgbImage::default();
    match encoding {
        Encoding::Jpeg => JpegDecoder::new().unwrap().decode(&payload.bytes, &mut image).unwrap(),
        Encoding::Nv12 => {
            let view = Nv12View::packed(width, height, &payload.bytes).unwrap();
            nv12_to_rgb(&view, Colour::NV12_PAYLOAD, &mut image).unwrap();
        }
        Encoding::Rgb24 => image = RgbImage::from_pixels(width, height, payload.bytes.to_vec()).unwrap(),
        Encoding::Tensor => chw_to_rgb(width, height, &payload.bytes, &mut image).unwrap(),
        Encoding::Json => unreachable!("no picture"),
    }
    assert_eq!((image.width(), image.height()), (width, height));
    image
}

fn mean_difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| f64::from(a.abs_diff(*b))).sum::<f64>() / a.len() as f64
}

/// Mean of `a - b` for each channel: a wrong range or matrix shows here, lost detail does not.
fn bias(a: &[u8], b: &[u8]) -> [f64; 3] {
    [0, 1, 2].map(|channel| {
        let pairs = a.iter().zip(b).skip(channel).step_by(3);
        pairs.map(|(a, b)| f64::from(*a) - f64::from(*b)).sum::<f64>() * 3.0 / a.len() as f64
    })
}

fn luma(rgb: &[u8]) -> Vec<u8> {
    let weigh = |p: &[u8]| (f64::from(p[0]) * 0.299 + f64::from(p[1]) * 0.587 + f64::from(p[2]) * 0.114).round() as u8;
    rgb.chunks_exact(3).map(weigh).collect()
}

const PICTURES: [Encoding; 4] = [Encoding::Jpeg, Encoding::Nv12, Encoding::Rgb24, Encoding::Tensor];

/// 75 % bars of SMPTE RP 219 as RGB, and where they are in a picture 320 wide.
const BARS: [(u32, [u8; 3]); 7] = [
    (57, [191, 191, 191]),
    (91, [191, 191, 0]),
    (125, [0, 191, 191]),
    (160, [0, 191, 0]),
    (194, [191, 0, 191]),
    (228, [191, 0, 0]),
    (262, [0, 0, 191]),
];

#[test]
fn bt709_bars_keep_their_colours_in_every_encoding_and_size() {
    for (size, scale) in [(SizeSpec::Full, 1), (SizeSpec::Width(160), 2)] {
        for encoding in PICTURES {
            for payload in payloads("bars_bt709.mp4", encoding, size, Filter::Area) {
                let image = to_rgb(encoding, &payload);
                for (x, wanted) in BARS {
                    let pixel = &image.view().row(50 / scale)[(x / scale) as usize * 3..][..3];
                    let far = pixel.iter().zip(wanted).any(|(found, wanted)| found.abs_diff(wanted) > 5);
                    assert!(!far, "{encoding:?} {size:?} at {x}: {pixel:?} for {wanted:?}");
                }
            }
        }
    }
}

#[test]
fn film_as_jpeg_is_within_three_grey_levels_of_swscale() {
    for name in ["bbb_h264.mp4", "bbb_hevc.mp4", "bbb_vp9.webm", "bbb_av1.mp4", "bars_bt709.mp4"] {
        let wanted = payloads(name, Encoding::Rgb24, SizeSpec::Full, Filter::Area);
        for encoding in [Encoding::Jpeg, Encoding::Nv12] {
            for (payload, wanted) in payloads(name, encoding, SizeSpec::Full, Filter::Area).iter().zip(&wanted) {
                let difference = mean_difference(to_rgb(encoding, payload).pixels(), &wanted.bytes);
                assert!(difference < 3.0, "{name} {encoding:?}: {difference}");
            }
        }
    }
}

/// Hard synthetic edges lose chroma to 4:2:0 at small sizes: there, brightness and the mean of each channel must agree.
#[test]
fn every_format_and_size_has_the_colours_of_swscale() {
    for name in ["bbb_h264.mp4", "full_range.mkv", "ten_bit.mp4", "odd_161x121.webm", "rotated_90.mp4"] {
        for size in [SizeSpec::Full, SizeSpec::Exact(100, 100), SizeSpec::Height(76)] {
            let wanted = payloads(name, Encoding::Rgb24, size, Filter::Area);
            for encoding in [Encoding::Jpeg, Encoding::Nv12, Encoding::Tensor] {
                for (payload, wanted) in payloads(name, encoding, size, Filter::Area).iter().zip(&wanted) {
                    assert_eq!(payload.geometry, wanted.geometry, "{name}");
                    let image = to_rgb(encoding, payload);
                    let bias = bias(image.pixels(), &wanted.bytes);
                    assert!(bias.iter().all(|b| b.abs() < 2.5), "{name} {encoding:?} {size:?}: {bias:?}");
                    let brightness = mean_difference(&luma(image.pixels()), &luma(&wanted.bytes));
                    assert!(brightness < 3.0, "{name} {encoding:?} {size:?}: {brightness}");
                }
            }
        }
    }
}

#[test]
fn pictures_equal_the_ffmpeg_program_also_in_orientation() {
    if Command::new("ffmpeg").arg("-version").output().is_err() {
        println!("SKIPPED: the ffmpeg program is not installed");
        return;
    }
    for name in ["bars_bt709.mp4", "bbb_h264.mp4", "bbb_vp9.webm", "full_range.mkv", "ten_bit.mp4", "rotated_90.mp4"] {
        let said = Command::new("ffmpeg")
            .args(["-v", "error", "-i"])
            .arg(clip(name))
            .args(["-sws_flags", "bilinear", "-vsync", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"])
            .output()
            .unwrap();
        let ours = payloads(name, Encoding::Rgb24, SizeSpec::Full, Filter::Bilinear);
        let frame_len = ours[0].bytes.len();
        assert_eq!(said.stdout.len(), frame_len * ours.len(), "{name}");
        for (ours, theirs) in ours.iter().zip(said.stdout.chunks_exact(frame_len)) {
            let difference = mean_difference(&ours.bytes, theirs);
            assert!(difference < 1.0, "{name}: {difference}");
        }
    }
}

#[test]
fn a_turned_clip_is_upright_and_its_sizes_are_those_shown() {
    let full = payloads("rotated_90.mp4", Encoding::Jpeg, SizeSpec::Full, Filter::Area);
    assert_eq!((full[0].geometry.width_px, full[0].geometry.height_px), (90, 160));
    let scaled = payloads("rotated_90.mp4", Encoding::Rgb24, SizeSpec::Width(45), Filter::Area);
    assert_eq!((scaled[0].geometry.width_px, scaled[0].geometry.height_px), (45, 80));
    let exact = payloads("rotated_90.mp4", Encoding::Nv12, SizeSpec::Exact(40, 30), Filter::Bilinear);
    assert_eq!((exact[0].geometry.width_px, exact[0].geometry.height_px), (40, 30));
}

#[test]
fn odd_sizes_have_the_lengths_their_encoding_says() {
    let length = |encoding| payloads("odd_161x121.webm", encoding, SizeSpec::Full, Filter::Area)[0].bytes.len();
    assert_eq!(length(Encoding::Rgb24), 161 * 121 * 3);
    assert_eq!(length(Encoding::Tensor), 161 * 121 * 3);
    assert_eq!(length(Encoding::Nv12), 161 * 121 + 81 * 61 * 2);
}
