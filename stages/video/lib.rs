//! Video in, paced frames out: the only crate that calls FFmpeg.
//!
//! [`source`] opens, [`decode`] decodes, [`pattern`] draws where no file is at hand, [`convert`] makes payloads,
//! [`media_clock`] turns time stamps into media time. [`stage`] plays them: `produce` runs the threads of a source, `feed`
//! holds their frames, `prime` fills a cache, `pacer` offers frames when they are due.

pub mod config;
pub mod convert;
pub mod decode;
mod demand;
pub mod error;
mod feed;
pub mod media_clock;
pub mod orient;
mod pacer;
pub mod pattern;
mod prime;
mod produce;
mod scale;
pub mod source;
pub mod stage;

use contract::StageEntry;

/// The stages of this crate.
pub const STAGES: &[StageEntry] = &[StageEntry::of::<stage::Decode>()];
