//! What a decode stage will ask for: looks at its sources, decodes and encodes a few frames of each.

use contract::clock::thread_cpu_ns;
use contract::{Demand, Encoding, StageError};

use crate::config::{DecodeConfig, Mode, Pace, SourceSpec};
use crate::convert::{Converter, PayloadSpec, Picture};
use crate::decode::Decoder;
use crate::error::VideoError;
use crate::orient::Orientation;
use crate::pattern::{Pattern, PatternConfig};
use crate::source::{Location, OpenOptions};

/// Sources looked at; a folder of a thousand films is not opened for an estimate.
const MAX_PROBED: usize = 4;
/// Places in a video where a frame is taken.
const SAMPLES: i64 = 3;

/// What was found out about one source.
#[derive(Debug, Default, Clone, Copy)]
struct Probe {
    period_ns: i64,
    width_px: u32,
    height_px: u32,
    /// Of the payload.
    frame_bytes: u64,
    max_frame_bytes: u64,
    decode_cpu_ns: i64,
    encode_cpu_ns: i64,
}

/// See [`contract::Stage::demand`].
pub(crate) fn demand(config: &DecodeConfig) -> Result<Demand, StageError> {
    let sources = config.sources()?;
    let probes = sources
        .iter()
        .take(MAX_PROBED)
        .map(|source| probe(source, config).map_err(|error| error.into_stage(&source.place())))
        .collect::<Result<Vec<_>, _>>()?;
    let mean = |of: fn(&Probe) -> f64| probes.iter().map(of).sum::<f64>() / probes.len() as f64;
    let native = mean(|probe| 1e9 / probe.period_ns as f64);
    let fps = match config.pace {
        Pace::Native => Some(native),
        Pace::Speed(speed) => Some(native * speed),
        Pace::Fps(fps) => Some(fps),
        Pace::Unpaced => None,
    };
    let live = match config.mode {
        Mode::Each => f64::from(config.streams),
        Mode::Shared => sources.len().min(config.streams as usize) as f64,
        Mode::Cached => 0.0,
    };
    let cpu_seconds = mean(|probe| (probe.decode_cpu_ns + probe.encode_cpu_ns) as f64) / 1e9;
    let files = sources.iter().filter_map(|source| match source {
        SourceSpec::Media(Location::File(path)) => Some(path.clone()),
        _ => None,
    });
    Ok(Demand {
        streams: Some(config.streams),
        frames_per_second: fps.map(|fps| fps * f64::from(config.streams)),
        frame_bytes: Some(mean(|probe| probe.frame_bytes as f64) as u64),
        max_frame_bytes: probes.iter().map(|probe| probe.max_frame_bytes).max(),
        cpu_seconds_per_second: fps.map(|fps| fps * live * cpu_seconds),
        files: files.collect(),
        mode: Some(config.mode.name().to_owned()),
        notes: notes(config, &sources, &probes),
    })
}

fn notes(config: &DecodeConfig, sources: &[SourceSpec], probes: &[Probe]) -> Vec<String> {
    let mut notes: Vec<String> = sources
        .iter()
        .zip(probes)
        .map(|(source, probe)| {
            let fps = 1e9 / probe.period_ns as f64;
            let (place, bytes) = (source.place(), probe.frame_bytes);
            format!("{place}: {}x{} at {fps:.2} fps, about {bytes} bytes a frame", probe.width_px, probe.height_px)
        })
        .collect();
    if sources.len() > probes.len() {
        notes.push(format!("{} more sources were not looked at", sources.len() - probes.len()));
    }
    if config.pace == Pace::Unpaced {
        notes.push("unpaced: closed loop, send-anchored; lateness has no meaning".into());
    }
    notes
}

fn probe(source: &SourceSpec, config: &DecodeConfig) -> Result<Probe, VideoError> {
    match source {
        SourceSpec::Media(location) => probe_media(location, config),
        SourceSpec::Pattern(pattern) => probe_pattern(pattern, config),
    }
}

/// Takes frames at the beginning and after seeks: one place alone is often black.
fn probe_media(location: &Location, config: &DecodeConfig) -> Result<Probe, VideoError> {
    let options = OpenOptions { threads: config.decode_threads, timeout: config.timeout.0, ..OpenOptions::default() };
    let mut decoder = Decoder::open(location, &options)?;
    let info = decoder.info().clone();
    let mut sampler = Sampler::new(config.payload.spec(), info.orientation)?;
    for sample in 0..SAMPLES {
        let at_ns = info.duration_ns.map(|duration| duration / SAMPLES * sample);
        if sample > 0 && !at_ns.is_some_and(|at_ns| decoder.seek(at_ns)) {
            break;
        }
        let begun = thread_cpu_ns();
        let Some(frame) = decoder.next_frame()? else { break };
        sampler.decode_cpu_ns += thread_cpu_ns() - begun;
        sampler.add(&Picture::Decoded(frame))?;
    }
    if sampler.frames == 0 {
        return Err(decoder.no_frames());
    }
    Ok(sampler.finish(info.frame_period_ns(), info.display_size()))
}

fn probe_pattern(config: &PatternConfig, stage: &DecodeConfig) -> Result<Probe, VideoError> {
    let pattern = Pattern::new(config.width, config.height, config.seed.unwrap_or(0), 0)?;
    let mut sampler = Sampler::new(stage.payload.spec(), Orientation::UPRIGHT)?;
    for number in 0..SAMPLES as u64 {
        let begun = thread_cpu_ns();
        let mut canvas = Box::new(pattern.canvas()?);
        pattern.draw(number * 20, &mut canvas)?;
        sampler.decode_cpu_ns += thread_cpu_ns() - begun;
        sampler.add(&Picture::Drawn(canvas))?;
    }
    Ok(sampler.finish(crate::produce::period_ns(config.rate()), (config.width, config.height)))
}

struct Sampler {
    converter: Converter,
    spec: PayloadSpec,
    frames: i64,
    bytes: u64,
    max_bytes: u64,
    decode_cpu_ns: i64,
    encode_cpu_ns: i64,
}

impl Sampler {
    fn new(spec: PayloadSpec, orientation: Orientation) -> Result<Sampler, VideoError> {
        let converter = Converter::new(spec, orientation)?;
        Ok(Sampler { converter, spec, frames: 0, bytes: 0, max_bytes: 0, decode_cpu_ns: 0, encode_cpu_ns: 0 })
    }

    fn add(&mut self, picture: &Picture) -> Result<(), VideoError> {
        let begun = thread_cpu_ns();
        let payload = self.converter.convert(picture)?;
        self.encode_cpu_ns += thread_cpu_ns() - begun;
        self.frames += 1;
        self.bytes += payload.bytes.len() as u64;
        let pixels = payload.geometry.pixels();
        self.max_bytes = self.max_bytes.max(match self.spec.encoding {
            Encoding::Jpeg => largest_jpeg(pixels, self.spec.quality),
            _ => payload.bytes.len() as u64,
        });
        Ok(())
    }

    fn finish(self, period_ns: i64, (width_px, height_px): (u32, u32)) -> Probe {
        Probe {
            period_ns,
            width_px,
            height_px,
            frame_bytes: self.bytes / self.frames as u64,
            max_frame_bytes: self.max_bytes,
            decode_cpu_ns: self.decode_cpu_ns / self.frames,
            encode_cpu_ns: self.encode_cpu_ns / self.frames,
        }
    }
}

/// White noise, the worst picture, stays below this: measured 1.14 bytes a pixel at quality 90 and 2.33 at 100.
fn largest_jpeg(pixels: u64, quality: u8) -> u64 {
    let per_pixel = if quality <= 90 { 1.5 } else { 3.0 };
    (pixels as f64 * per_pixel) as u64 + 64 * 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::random::Random;
    use picture::{Colour, JpegEncoder, Yuv420Image};

    #[test]
    fn white_noise_stays_below_the_bound() {
        let mut noise = Yuv420Image::new(640, 368, Colour::JPEG).unwrap();
        let mut random = Random::new(3);
        noise.planes_mut().into_iter().for_each(|plane| random.fill(plane));
        for quality in [75, 90, 91, 100] {
            let found = JpegEncoder::new(quality).unwrap().encode_yuv(&mut noise).unwrap().len() as u64;
            let bound = largest_jpeg(640 * 368, quality);
            assert!(found < bound && found > bound / 4, "quality {quality}: {found} bytes, bound {bound}");
        }
    }
}
