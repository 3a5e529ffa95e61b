//! One frame on its way through the pipeline, with everything the audit needs to know about it.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Identity of one run; every record carries it, so that another run's record is told apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RunId(pub [u8; 16]);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RunId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a run id of 32 hexadecimal digits");
        if text.len() != 32 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut id = [0; 16];
        for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(RunId(id))
    }
}

impl Serialize for RunId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Size of a picture in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    pub width_px: u32,
    pub height_px: u32,
}

impl Geometry {
    pub const fn new(width_px: u32, height_px: u32) -> Self {
        Geometry { width_px, height_px }
    }
    pub const fn pixels(self) -> u64 {
        self.width_px as u64 * self.height_px as u64
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width_px, self.height_px)
    }
}

/// A ratio of integers, for time bases and frame rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Rational {
    pub num: u32,
    pub den: u32,
}

impl Rational {
    pub const fn new(num: u32, den: u32) -> Self {
        Rational { num, den }
    }
    pub fn as_f64(self) -> f64 {
        f64::from(self.num) / f64::from(self.den.max(1))
    }
}

/// How the value of a record is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Encoding {
    /// JFIF, full-range BT.601, 4:2:0.
    Jpeg = 1,
    /// 8-bit luma plane, then interleaved chroma at half size.
    Nv12 = 2,
    /// 8-bit R, G, B per pixel, rows top down, no padding.
    Rgb24 = 3,
    /// 8-bit planes R, G, B (CHW), the input of a u8 model.
    Tensor = 4,
    /// A JSON document (results).
    Json = 5,
}

impl Encoding {
    pub fn from_code(code: u8) -> Option<Self> {
        [Encoding::Jpeg, Encoding::Nv12, Encoding::Rgb24, Encoding::Tensor, Encoding::Json]
            .into_iter()
            .find(|encoding| *encoding as u8 == code)
    }
}

/// What happened before the frame was accepted: the generator's part of the latency chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Origin {
    /// From due until the previous blocked enqueue of that stream returned; 0 without one.
    pub blocked_ns: i64,
    /// From max(due, that return) until offered: the generator's own fault.
    pub self_lag_ns: i64,
    /// From offered until accepted by the output.
    pub enqueue_ns: i64,
}

/// One frame. Times are run-relative nanoseconds (since t0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub run_id: RunId,
    pub stream: u32,
    pub seq: u64,
    pub pts: i64,
    pub time_base: Rational,
    /// When the frame should have existed: phase + PTS after t0.
    pub due_ns: i64,
    /// When the output accepted it; set by the output. `due + blocked + self_lag + enqueue = produced`.
    pub produced_ns: i64,
    pub due_wall_ns: i64,
    pub geometry: Geometry,
    pub encoding: Encoding,
    pub origin: Origin,
    /// Set on a derived record: the frame it was made from.
    pub parent: Option<(u32, u64)>,
    /// How many stages made this record from a source frame; 0 for the frame itself.
    pub hop: u8,
    pub payload: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_print_and_parse() {
        let id = RunId([0xab; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("ab".parse::<RunId>().is_err());
        assert!("ä".repeat(16).parse::<RunId>().is_err());
    }
}
