//! What can go wrong with a picture, each with the thing and the remedy.

/// An error about one picture; the caller adds which stream or file it came from.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    #[error("{what} of {width}x{height}: {reason}")]
    Geometry { what: &'static str, width: u32, height: u32, reason: &'static str },
    #[error("{what} of {width}x{height} holds {found} bytes, needs {needed}")]
    Length { what: &'static str, width: u32, height: u32, found: usize, needed: usize },
    #[error("jpeg quality {quality} is outside 1 to 100")]
    Quality { quality: u8 },
    #[error("{action} jpeg: {source}")]
    Jpeg {
        action: &'static str,
        #[source]
        source: turbojpeg::Error,
    },
    #[error("resize {from_width}x{from_height} to {to_width}x{to_height}: {reason}")]
    Resize { from_width: u32, from_height: u32, to_width: u32, to_height: u32, reason: String },
}

/// Refuse sizes that are empty or would need an absurd buffer, before anything is allocated.
pub(crate) fn check_size(what: &'static str, width: u32, height: u32) -> Result<(), PictureError> {
    if width == 0 || height == 0 {
        return Err(PictureError::Geometry { what, width, height, reason: "a side is zero" });
    }
    if u64::from(width) * u64::from(height) > crate::MAX_PIXELS {
        return Err(PictureError::Geometry { what, width, height, reason: "more than 2^28 pixels" });
    }
    Ok(())
}

/// Refuse a buffer shorter than its geometry says.
pub(crate) fn check_len(
    what: &'static str,
    width: u32,
    height: u32,
    found: usize,
    needed: usize,
) -> Result<(), PictureError> {
    if found < needed { Err(PictureError::Length { what, width, height, found, needed }) } else { Ok(()) }
}
