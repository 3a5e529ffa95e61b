//! What can go wrong with a source of video, each with the place and a remedy.

use contract::error::ErrorCode;
use contract::{Span, StageError};
use picture::PictureError;

/// An error about one source; `place` is the file or address.
#[derive(Debug, thiserror::Error)]
pub enum VideoError {
    #[error("{place}: {reason}")]
    Location { place: String, reason: String },
    #[error("{place}: cannot be opened as video: {source}")]
    Open {
        place: String,
        #[source]
        source: ffmpeg_next::Error,
    },
    #[error("{place}: has no video stream ({streams}); name a file with video")]
    NoVideo { place: String, streams: String },
    #[error("{place}: no decoder for codec {codec} in the installed ffmpeg libraries")]
    NoDecoder { place: String, codec: String },
    #[error("{place}: decoder {codec} does not start: {source}")]
    Decoder {
        place: String,
        codec: String,
        #[source]
        source: ffmpeg_next::Error,
    },
    #[error("{place}: no frame could be decoded ({packets} packets, {errors} errors); the file is empty or damaged")]
    NoFrames { place: String, packets: u64, errors: u64 },
    #[error("{place}: nothing came for {waited}; the source is gone, or `timeout` is too short for it")]
    Silent { place: String, waited: Span },
    #[error("{place}: reading failed: {source}")]
    Read {
        place: String,
        #[source]
        source: ffmpeg_next::Error,
    },
    #[error("{place}: cannot be started again for the next loop: {source}")]
    Rewind {
        place: String,
        #[source]
        source: ffmpeg_next::Error,
    },
    #[error("{place}: interrupted")]
    Interrupted { place: String },
    #[error("convert {width}x{height} {format}: {reason}")]
    Convert { width: u32, height: u32, format: String, reason: String },
    #[error(transparent)]
    Picture(#[from] PictureError),
}

impl VideoError {
    /// As the stage reports it: a missing or unreadable source is the scenario's fault, the rest the stage's.
    pub fn into_stage(self, place: &str) -> StageError {
        let code = match &self {
            VideoError::Location { .. }
            | VideoError::Open { .. }
            | VideoError::NoVideo { .. }
            | VideoError::NoDecoder { .. }
            | VideoError::NoFrames { .. } => ErrorCode::Missing,
            _ => ErrorCode::Stage,
        };
        StageError::new(code, place, self.to_string())
    }
}
