//! Stages that only exist in tests: one of each port, with configs of every shape that real stages use.

#![expect(dead_code, reason = "these configs are parsed and described, not acted on")]

use contract::flow::Io;
use contract::{ByteSize, Cx, Demand, Ports, Registry, Span, Stage, StageEntry, StageError};
use schemars::JsonSchema;
use serde::Deserialize;
use std::num::NonZeroU32;
use std::path::PathBuf;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecodeConfig {
    /// A file that FFmpeg reads.
    pub file: PathBuf,
    /// Number of streams. Default 1.
    #[serde(default = "one")]
    pub streams: NonZeroU32,
    /// Frames each second. Default: the file's own.
    pub fps: Option<f64>,
    #[serde(default)]
    pub mode: Mode,
    #[serde(default)]
    pub payload: Payload,
    pub size: Option<Size>,
    #[serde(default)]
    pub look_ahead: Option<ByteSize>,
    #[serde(default)]
    pub start: Option<Start>,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    Each,
    /// One decoder for all.
    Shared,
    Cached,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Payload {
    Jpeg { quality: Option<u8> },
    Nv12 {},
}

impl Default for Payload {
    fn default() -> Self {
        Payload::Jpeg { quality: None }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Size {
    #[schemars(range(min = 16))]
    pub width: u32,
    pub height: u16,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    Now,
    After(Span),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InferConfig {
    pub model: String,
    #[serde(default)]
    pub top: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

macro_rules! fake {
    ($name:ident, $config:ty, $kind:literal, $ports:expr, $demand:expr) => {
        pub struct $name;
        impl Stage for $name {
            type Config = $config;
            const KIND: &'static str = $kind;
            const ABOUT: &'static str = concat!("a ", $kind, " for tests");
            const PORTS: Ports = $ports;
            fn demand(config: &$config) -> Result<Demand, StageError> {
                let demand: fn(&$config) -> Result<Demand, StageError> = $demand;
                demand(config)
            }
            fn open(_: $config, _: &Cx) -> Result<Self, StageError> {
                Ok($name)
            }
            fn run(self, _: Io, _: &Cx) -> Result<(), StageError> {
                Ok(())
            }
        }
    };
}

fake!(Decode, DecodeConfig, "decode", Ports::Source, |config| {
    let fps = config.fps.unwrap_or(24.0);
    if fps <= 0.0 {
        return Err(StageError::config("fps", format!("{fps} is not a frame rate")));
    }
    Ok(Demand {
        streams: Some(config.streams.get()),
        frames_per_second: Some(fps * f64::from(config.streams.get())),
        frame_bytes: Some(200_000),
        max_frame_bytes: Some(400_000),
        cpu_seconds_per_second: Some(0.125),
        files: vec![config.file.clone()],
        mode: Some("each".into()),
        notes: Vec::new(),
    })
});
fake!(Infer, InferConfig, "infer", Ports::Transform, |_| Ok(Demand {
    cpu_seconds_per_second: Some(0.5),
    ..Demand::default()
}));
fake!(Audit, NoConfig, "audit", Ports::Sink, |_| Ok(Demand::default()));
fake!(Exporter, NoConfig, "exporter", Ports::Alone, |_| Ok(Demand::default()));

const VIDEO: &[StageEntry] = &[StageEntry::of::<Decode>()];
const OTHERS: &[StageEntry] = &[StageEntry::of::<Infer>(), StageEntry::of::<Audit>(), StageEntry::of::<Exporter>()];

pub const REGISTRY: Registry = Registry(&[VIDEO, OTHERS]);

/// A scenario without problems.
pub const GOOD: &str = "# Question: does it load?
run: { name: good, main: 20s }
broker:
  nodes: 3
  disk_budget: 10GB
topics:
  - { name: frames, partitions: 6, replication: 3 }
  - { name: results, partitions: 3 }
stages:
  - id: cameras
    kind: decode
    to: frames
    publish: { policy: deadline, deadline: 500ms, compression: none }
    config: { file: clip.mp4, streams: 3, fps: 24, payload: { kind: jpeg, quality: 75 }, start: { after: 2s } }
  - id: classify
    kind: infer
    from: frames
    to: results
    instances: 2
    config:
      model: lite0
verdict: { budget: 0.001, p99: 800ms }
observe:
  - { id: data, path: /var }
";
