//! Make the assets that are not downloaded: clips by the ffmpeg command line, models by our own converters.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::command;
use super::manifest::{Asset, Clip, Origin};
use super::store::Store;

const INSTALL_FFMPEG: &str = "run scripts/setup, or install the package ffmpeg";

/// The 2160p clip takes some 10 CPU-seconds; a starved machine may need many times that.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// How an asset is made, as text: a file made by another recipe is out of date.
pub fn recipe(asset: &Asset) -> String {
    match asset.origin {
        Origin::Member { package, member } => format!("{package} {member}"),
        Origin::Clip(clip) => {
            format!("ffmpeg -i {} {} ({} frames)", clip.from, clip_arguments(&clip).join(" "), clip.frames)
        }
        Origin::Lite0 { weights } => format!("lite0 from {weights}"),
        Origin::SeededResnet50 { seed } => format!("resnet50 v1.5, seed {seed}"),
    }
}

/// Encode a clip from its parent and check what came out.
pub fn clip(store: &Store, clip: &Clip, target: &Path) -> Result<()> {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y", "-i"]).arg(store.path(clip.from));
    ffmpeg.args(clip_arguments(clip)).arg(target);
    let finished = command::run(&mut ffmpeg, LIMIT, INSTALL_FFMPEG)?;
    if !finished.success {
        bail!("ffmpeg failed: {}", finished.last_words());
    }
    let made = probe(target)?;
    let wanted = Probed::of(clip);
    if made != wanted {
        bail!("ffmpeg made {made}, wanted {wanted}: this ffmpeg cannot be used; install Debian's");
    }
    Ok(())
}

/// The same frames at another pace: frame n is shown at n / fps. `passthrough` keeps ffmpeg from adding or dropping
/// frames to reach a rate, and the time scale is a multiple of the rate so that every PTS is exact.
fn clip_arguments(clip: &Clip) -> Vec<String> {
    let Clip { width_px, height_px, fps, .. } = clip;
    let filter = format!("settb=1/{fps},setpts=N,scale={width_px}:{height_px}:flags=bicubic");
    let arguments = [
        ("-map", "0:v:0".to_owned()),
        ("-vf", filter),
        ("-fps_mode", "passthrough".to_owned()),
        ("-r", fps.to_string()),
        ("-c:v", "libx264".to_owned()),
        ("-preset", "ultrafast".to_owned()),
        ("-crf", "23".to_owned()),
        ("-g", fps.to_string()),
        ("-pix_fmt", "yuv420p".to_owned()),
        ("-threads", "2".to_owned()),
        ("-video_track_timescale", (fps * 512).to_string()),
        ("-movflags", "+faststart".to_owned()),
        // Nothing of the host or the day in the file: the same ffmpeg makes the same bytes.
        ("-map_metadata", "-1".to_owned()),
        ("-fflags", "+bitexact".to_owned()),
        ("-flags:v", "+bitexact".to_owned()),
        ("-f", "mp4".to_owned()),
    ];
    arguments.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
}

/// What ffprobe says about a clip, after decoding all of it.
#[derive(Debug, PartialEq, Eq)]
struct Probed {
    width_px: u32,
    height_px: u32,
    frame_rate: String,
    frames: u64,
}

impl Probed {
    fn of(clip: &Clip) -> Self {
        Probed {
            width_px: clip.width_px,
            height_px: clip.height_px,
            frame_rate: format!("{}/1", clip.fps),
            frames: clip.frames,
        }
    }
}

impl std::fmt::Display for Probed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Probed { width_px, height_px, frame_rate, frames } = self;
        write!(formatter, "{frames} frames of {width_px}x{height_px} at {frame_rate} fps")
    }
}

#[derive(Deserialize)]
struct ProbeOutput {
    streams: Vec<ProbeStream>,
}

#[derive(Deserialize)]
struct ProbeStream {
    width: u32,
    height: u32,
    avg_frame_rate: String,
    nb_read_frames: String,
}

fn probe(path: &Path) -> Result<Probed> {
    let mut ffprobe = Command::new("ffprobe");
    ffprobe.args(["-v", "error", "-count_frames", "-select_streams", "v", "-of", "json", "-show_entries"]);
    ffprobe.arg("stream=width,height,avg_frame_rate,nb_read_frames").arg(path);
    let finished = command::run(&mut ffprobe, LIMIT, INSTALL_FFMPEG)?;
    if !finished.success {
        bail!("ffprobe failed: {}", finished.last_words());
    }
    let output: ProbeOutput = serde_json::from_str(&finished.stdout).context("read what ffprobe says")?;
    let [stream] = output.streams.as_slice() else {
        bail!("ffprobe found {} video streams, wanted 1", output.streams.len());
    };
    Ok(Probed {
        width_px: stream.width,
        height_px: stream.height,
        frame_rate: stream.avg_frame_rate.clone(),
        frames: stream.nb_read_frames.parse().context("read the frame count of ffprobe")?,
    })
}

/// Convert the real EfficientNet-Lite0 weights.
pub fn lite0(weights: &Path, target: &Path) -> Result<()> {
    inference::convert_lite0(weights, target).with_context(|| format!("convert {}", weights.display()))?;
    Ok(())
}

/// Generate ResNet50 v1.5 with seeded weights.
pub fn seeded_resnet50(target: &Path, seed: u64) -> Result<()> {
    inference::generate_resnet50(target, seed).with_context(|| format!("generate ResNet50 with seed {seed}"))?;
    Ok(())
}
