//! CPU milliseconds a frame for each kind of payload, and for turning payloads back into RGB.
//!
//! `bench_payload clip [frames]`: decodes the first frames once, then converts them over and over.

#![allow(clippy::print_stdout, reason = "a bench prints its table")]

use std::error::Error;
use std::hint::black_box;
use std::path::Path;

use contract::Encoding;
use contract::clock::thread_cpu_ns;
use picture::{Colour, Filter, JpegDecoder, Nv12View, RgbImage, nv12_to_rgb};
use video::convert::{Converter, PayloadSpec, Picture, SizeSpec};
use video::decode::Decoder;
use video::source::{Location, OpenOptions};

/// Conversions a figure is the mean of.
const ROUNDS: u32 = 60;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let clip = arguments.get(1).ok_or("usage: bench_payload clip [frames]")?;
    let frames: usize = arguments.get(2).map_or(Ok(8), |text| text.parse())?;
    let mut decoder = Decoder::open(&Location::file(Path::new(clip))?, &OpenOptions::default())?;
    let mut pictures = Vec::new();
    while let Some(frame) = decoder.next_frame()? {
        pictures.push(Picture::Decoded(frame));
        if pictures.len() == frames {
            break;
        }
    }
    if pictures.is_empty() {
        return Err(decoder.no_frames().into());
    }
    println!("{clip}: {} frames", pictures.len());
    let sizes =
        [("full", SizeSpec::Full), ("640x360", SizeSpec::Exact(640, 360)), ("224x224", SizeSpec::Exact(224, 224))];
    for (size_name, size) in sizes {
        for encoding in [Encoding::Jpeg, Encoding::Nv12, Encoding::Rgb24, Encoding::Tensor] {
            for filter in [Filter::Area, Filter::Bilinear] {
                if size == SizeSpec::Full && filter == Filter::Bilinear {
                    continue;
                }
                let spec = PayloadSpec { encoding, quality: 75, size, filter };
                measure(&pictures, spec, size_name)?;
            }
        }
    }
    Ok(())
}

fn measure(pictures: &[Picture], spec: PayloadSpec, size_name: &str) -> Result<(), Box<dyn Error>> {
    let mut converter = Converter::new(spec, Default::default())?;
    let mut payload = converter.convert(&pictures[0])?;
    let begun = thread_cpu_ns();
    for round in 0..ROUNDS {
        payload = converter.convert(&pictures[round as usize % pictures.len()])?;
    }
    let there = (thread_cpu_ns() - begun) as f64 / f64::from(ROUNDS) / 1e6;
    let mut image = RgbImage::default();
    let mut decoder = JpegDecoder::new()?;
    let (width, height) = (payload.geometry.width_px, payload.geometry.height_px);
    let begun = thread_cpu_ns();
    for _ in 0..ROUNDS {
        match spec.encoding {
            Encoding::Jpeg => decoder.decode(&payload.bytes, &mut image)?,
            Encoding::Nv12 => {
                nv12_to_rgb(&Nv12View::packed(width, height, &payload.bytes)?, Colour::NV12_PAYLOAD, &mut image)?;
            }
            _ => {}
        }
        black_box(&image);
    }
    let back = (thread_cpu_ns() - begun) as f64 / f64::from(ROUNDS) / 1e6;
    let (encoding, filter, bytes) = (spec.encoding, spec.filter, payload.bytes.len());
    println!("  {size_name:8} {encoding:?} {filter:?}: {there:.2} ms there, {back:.2} ms back, {bytes} bytes");
    Ok(())
}
