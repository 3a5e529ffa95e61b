//! Video in, paced frames out: the only crate that calls FFmpeg.
//!
//! [`source`] opens, [`decode`] decodes, [`pattern`] draws where no file is at hand, [`convert`] makes payloads,
//! [`media_clock`] turns time stamps into media time.

pub mod convert;
pub mod decode;
pub mod error;
pub mod media_clock;
pub mod orient;
pub mod pattern;
mod scale;
pub mod source;
