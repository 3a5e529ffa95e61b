//! Stages for scenarios to name: one of each port, with every shape of config that the check knows. They are never run.

use std::num::NonZeroU32;

use contract::flow::Io;
use contract::{ByteSize, Cx, Demand, Ports, Registry, Span, Stage, StageEntry, StageError};
use schemars::JsonSchema;
use serde::Deserialize;

pub const REGISTRY: Registry = Registry(&[&[
    StageEntry::of::<Decode>(),
    StageEntry::of::<Infer>(),
    StageEntry::of::<Audit>(),
    StageEntry::of::<Exporter>(),
]]);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DecodeConfig {
    #[serde(rename = "file")]
    _file: String,
    streams: Option<NonZeroU32>,
    fps: Option<f64>,
    #[serde(default, rename = "mode")]
    _mode: Mode,
    #[serde(rename = "payload")]
    _payload: Option<Payload>,
    size: Option<Size>,
    #[serde(rename = "look_ahead")]
    _look_ahead: Option<ByteSize>,
    #[serde(rename = "start")]
    _start: Option<Start>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Each,
    Shared,
    Cached,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Payload {
    Jpeg {
        #[serde(rename = "quality")]
        _quality: Option<u8>,
    },
    Nv12 {},
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Size {
    #[schemars(range(min = 16))]
    width: u32,
    height: u16,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Start {
    Now,
    After(#[expect(dead_code, reason = "parsed only")] Span),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InferConfig {
    #[serde(rename = "model")]
    _model: String,
    #[serde(default, rename = "top")]
    _top: Vec<u32>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoConfig {}

fn decode_demand(config: &DecodeConfig) -> Result<Demand, StageError> {
    let fps = config.fps.unwrap_or(24.0);
    if fps <= 0.0 {
        return Err(StageError::config("fps", format!("{fps} is not a frame rate")));
    }
    let streams = config.streams.map_or(1, NonZeroU32::get);
    let pixels = config.size.map_or(100_000, |size| u64::from(size.width) * u64::from(size.height));
    Ok(Demand {
        streams: Some(streams),
        frames_per_second: Some(fps * f64::from(streams)),
        frame_bytes: Some(pixels),
        max_frame_bytes: Some(pixels * 3),
        cpu_seconds_per_second: Some(0.1),
        ..Demand::default()
    })
}

macro_rules! stage {
    ($name:ident, $config:ty, $kind:literal, $ports:expr, $demand:expr) => {
        struct $name;
        impl Stage for $name {
            type Config = $config;
            const KIND: &'static str = $kind;
            const ABOUT: &'static str = concat!("a ", $kind, " that is never run");
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

stage!(Decode, DecodeConfig, "decode", Ports::Source, decode_demand);
stage!(Infer, InferConfig, "infer", Ports::Transform, |_| Ok(Demand::default()));
stage!(Audit, NoConfig, "audit", Ports::Sink, |_| Ok(Demand::default()));
stage!(Exporter, NoConfig, "exporter", Ports::Alone, |_| Ok(Demand::default()));
