//! `config:` of a decode stage: which video, how many streams, how fast, as what.

use std::path::PathBuf;
use std::time::Duration;

use contract::units::{ByteSize, Span};
use contract::{Encoding, Rational, StageError};
use picture::Filter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::convert::{PayloadSpec, SizeSpec};
use crate::pattern::{PatternConfig, rate_of};
use crate::source::Location;

/// Streams one stage may offer; more is a slip of the finger.
const MAX_STREAMS: u32 = 100_000;
/// Longest side of a payload.
const MAX_SIDE_PX: u32 = 16_384;

/// One of `file`, `files`, `dir`, `url` and `pattern` says where the video comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecodeConfig {
    /// A video file, any container and codec FFmpeg reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Several files; streams take them in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PathBuf>,
    /// A folder; all video files in it, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// An RTSP, HTTP, RTMP, SRT, TCP or UDP address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A drawn test pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<PatternConfig>,
    /// Streams over all instances; instance i of n takes those with number mod n = i. Default 1.
    #[serde(default = "default_streams")]
    pub streams: u32,
    /// How frames come to be. Default `shared`.
    #[serde(default)]
    pub mode: Mode,
    /// When frames are due. Default `native`.
    #[serde(default)]
    pub pace: Pace,
    /// What a frame is offered as. Default JPEG of quality 75 at full size.
    #[serde(default)]
    pub payload: PayloadConfig,
    /// Start again at the end of the video. Default true.
    #[serde(default = "default_loop", rename = "loop")]
    pub repeat: bool,
    /// Frames decoded and encoded ahead of time, a stream. Default 8.
    #[serde(default = "default_look_ahead")]
    pub look_ahead: u32,
    /// Threads of one decoder. Default 1.
    #[serde(default = "default_threads")]
    pub decode_threads: u32,
    /// Bound on payloads in memory: the whole loop in mode `cached`, the backlog of blocked streams otherwise. Default 1 GiB.
    #[serde(default = "default_cache")]
    pub cache: ByteSize,
    /// Longest wait for an answer of a source. Default 10 s.
    #[serde(default = "default_timeout")]
    pub timeout: Span,
}

fn default_streams() -> u32 {
    1
}
fn default_loop() -> bool {
    true
}
fn default_look_ahead() -> u32 {
    8
}
fn default_threads() -> u32 {
    1
}
fn default_cache() -> ByteSize {
    ByteSize(1 << 30)
}
fn default_timeout() -> Span {
    Span::from_secs(10)
}

/// How frames come to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One decoder a stream, each at a place of its own in the video.
    Each,
    /// One live decoder a video; its streams show the same frames, spread over one frame period.
    #[default]
    Shared,
    /// Decoded once before the start and kept; each stream at a place of its own.
    Cached,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Each => "each",
            Mode::Shared => "shared",
            Mode::Cached => "cached",
        }
    }
}

/// When frames are due: `native`, `unpaced`, `{ fps: 24 }` or `{ speed: 2.0 }`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// By the time stamps of the video.
    #[default]
    Native,
    /// As fast as possible; a closed loop, lateness has no meaning.
    Unpaced,
    /// At a constant rate, whatever the time stamps say.
    Fps(f64),
    /// By the time stamps, faster (2.0) or slower (0.5).
    Speed(f64),
}

impl Pace {
    /// The constant rate, if there is one.
    pub fn rate(self) -> Option<Rational> {
        match self {
            Pace::Fps(fps) => Some(rate_of(fps)),
            _ => None,
        }
    }

    /// Real time to media time.
    pub fn speed(self) -> f64 {
        match self {
            Pace::Speed(speed) => speed,
            _ => 1.0,
        }
    }
}

/// `payload:` of a decode stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PayloadConfig {
    /// Default `jpeg`.
    pub encoding: PayloadEncoding,
    /// JPEG quality, 1 to 100. Default 75.
    pub quality: u8,
    /// Width in pixels. Without `height` the aspect is kept. Default: as decoded.
    pub width: Option<u32>,
    /// Height in pixels. Without `width` the aspect is kept. Default: as decoded.
    pub height: Option<u32>,
    /// How pixels are weighed when the size changes. Default `area`.
    pub filter: ResizeFilter,
}

impl Default for PayloadConfig {
    fn default() -> Self {
        PayloadConfig {
            encoding: PayloadEncoding::Jpeg,
            quality: 75,
            width: None,
            height: None,
            filter: ResizeFilter::Area,
        }
    }
}

/// Encodings a picture can have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PayloadEncoding {
    /// JFIF, full-range BT.601, 4:2:0.
    #[default]
    Jpeg,
    /// Luma plane, then interleaved chroma; limited-range BT.709.
    Nv12,
    /// 8-bit R, G, B per pixel.
    Rgb24,
    /// 8-bit planes R, G, B.
    Tensor,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResizeFilter {
    /// Mean of what a pixel covers.
    #[default]
    Area,
    /// Triangle, widened by the scale.
    Bilinear,
}

impl PayloadConfig {
    pub fn spec(&self) -> PayloadSpec {
        let encoding = match self.encoding {
            PayloadEncoding::Jpeg => Encoding::Jpeg,
            PayloadEncoding::Nv12 => Encoding::Nv12,
            PayloadEncoding::Rgb24 => Encoding::Rgb24,
            PayloadEncoding::Tensor => Encoding::Tensor,
        };
        let size = match (self.width, self.height) {
            (None, None) => SizeSpec::Full,
            (Some(width), None) => SizeSpec::Width(width),
            (None, Some(height)) => SizeSpec::Height(height),
            (Some(width), Some(height)) => SizeSpec::Exact(width, height),
        };
        let filter = match self.filter {
            ResizeFilter::Area => Filter::Area,
            ResizeFilter::Bilinear => Filter::Bilinear,
        };
        PayloadSpec { encoding, quality: self.quality, size, filter }
    }
}

/// Where frames come from, after checking.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceSpec {
    Media(Location),
    Pattern(PatternConfig),
}

impl SourceSpec {
    pub fn place(&self) -> String {
        match self {
            SourceSpec::Media(location) => location.place(),
            SourceSpec::Pattern(pattern) => {
                format!("pattern {}x{} at {} fps", pattern.width, pattern.height, pattern.fps)
            }
        }
    }
}

impl DecodeConfig {
    /// Everything that can be said without opening a file, in one message.
    pub fn check(&self) -> Result<(), StageError> {
        let mut problems = Vec::new();
        let named = [
            self.file.is_some(),
            !self.files.is_empty(),
            self.dir.is_some(),
            self.url.is_some(),
            self.pattern.is_some(),
        ];
        let count = named.into_iter().filter(|named| *named).count();
        if count != 1 {
            problems
                .push(format!("names {count} sources; give exactly one of `file`, `files`, `dir`, `url`, `pattern`"));
        }
        let within = |name: &str, value: u32, low: u32, high: u32| {
            (!(low..=high).contains(&value)).then(|| format!("`{name}` is {value}; expected {low} to {high}"))
        };
        problems.extend(within("streams", self.streams, 1, MAX_STREAMS));
        problems.extend(within("look_ahead", self.look_ahead, 1, 1_000));
        problems.extend(within("decode_threads", self.decode_threads, 1, 64));
        problems.extend(within("payload.quality", u32::from(self.payload.quality), 1, 100));
        let sides = [("payload.width", self.payload.width), ("payload.height", self.payload.height)];
        problems.extend(sides.into_iter().filter_map(|(name, side)| within(name, side?, 2, MAX_SIDE_PX)));
        problems.extend(self.pace_problem());
        problems.extend(self.pattern.as_ref().and_then(PatternConfig::problem));
        if self.timeout.0 < Duration::from_millis(100) {
            problems.push(format!("`timeout` is {}; at least 100ms", self.timeout));
        }
        if problems.is_empty() { Ok(()) } else { Err(StageError::config("config of kind decode", problems.join("; "))) }
    }

    fn pace_problem(&self) -> Option<String> {
        match self.pace {
            Pace::Fps(fps) if !(0.01..=1000.0).contains(&fps) => {
                Some(format!("`pace.fps` is {fps}; expected 0.01 to 1000"))
            }
            Pace::Speed(speed) if !(0.01..=100.0).contains(&speed) => {
                Some(format!("`pace.speed` is {speed}; expected 0.01 to 100"))
            }
            _ => None,
        }
    }

    /// The sources, in the order streams take them.
    pub fn sources(&self) -> Result<Vec<SourceSpec>, StageError> {
        self.check()?;
        if let Some(pattern) = &self.pattern {
            return Ok(vec![SourceSpec::Pattern(pattern.clone())]);
        }
        let found = match (&self.dir, &self.url) {
            (Some(dir), _) => Location::folder(dir),
            (_, Some(url)) => Location::url(url).map(|location| vec![location]),
            _ => self.file.iter().chain(&self.files).map(|path| Location::file(path)).collect(),
        };
        let place = "config of kind decode";
        let locations = found.map_err(|error| error.into_stage(place))?;
        Ok(locations.into_iter().map(SourceSpec::Media).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(json: serde_json::Value) -> Result<DecodeConfig, String> {
        serde_json::from_value(json).map_err(|error| error.to_string())
    }

    fn problem(json: serde_json::Value) -> String {
        parse(json).unwrap().check().unwrap_err().to_string()
    }

    #[test]
    fn defaults_are_one_shared_stream_of_jpeg_at_native_pace() {
        let config = parse(json!({ "file": "a.mp4" })).unwrap();
        assert_eq!((config.streams, config.mode, config.pace), (1, Mode::Shared, Pace::Native));
        assert_eq!((config.payload.spec().encoding, config.payload.quality, config.repeat), (Encoding::Jpeg, 75, true));
        assert!(config.check().is_ok());
    }

    #[test]
    fn paces_read_as_documented() {
        let pace = |json| parse(json!({ "file": "a", "pace": json })).unwrap().pace;
        assert_eq!(pace(json!("unpaced")), Pace::Unpaced);
        assert_eq!(pace(json!({ "fps": 24 })).rate(), Some(Rational::new(24_000, 1000)));
        assert_eq!(pace(json!({ "speed": 2.0 })).speed(), 2.0);
        assert!(parse(json!({ "file": "a", "pace": "fast" })).is_err());
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let text = problem(json!({
            "file": "a", "dir": "b", "streams": 0, "look_ahead": 0, "decode_threads": 65, "pace": { "fps": 0 },
            "payload": { "quality": 0, "width": 1, "height": 100000 }, "timeout": "1ms",
            "pattern": { "width": 8, "height": 8, "fps": 24 },
        }));
        for part in [
            "3 sources",
            "`streams` is 0",
            "look_ahead",
            "decode_threads",
            "quality",
            "width",
            "height",
            "fps",
            "timeout",
            "too small",
        ] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert!(problem(json!({})).contains("names 0 sources"));
    }

    #[test]
    fn unknown_keys_and_encodings_are_refused() {
        assert!(parse(json!({ "file": "a", "fsp": 24 })).unwrap_err().contains("unknown field `fsp`"));
        assert!(parse(json!({ "file": "a", "payload": { "encoding": "json" } })).is_err());
    }

    #[test]
    fn sizes_keep_the_aspect_unless_both_sides_are_given() {
        assert_eq!(SizeSpec::Width(640).apply(1920, 1080), (640, 360));
        assert_eq!(SizeSpec::Height(224).apply(1920, 1080), (398, 224));
        assert_eq!(SizeSpec::Exact(224, 224).apply(1920, 1080), (224, 224));
        assert_eq!(SizeSpec::Full.apply(161, 121), (161, 121));
    }
}
