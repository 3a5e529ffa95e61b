//! Still pictures: what decoding and inference both need. JPEG in and out, colour range and matrix, resize, tensors.
//!
//! Everything works on tightly packed or explicitly strided 8-bit buffers that the caller keeps and passes again, so
//! that a stage allocates per picture only what it hands on. Three layouts exist:
//!
//! - [`RgbImage`] / [`RgbView`]: interleaved RGB24.
//! - [`Yuv420Image`]: three planes, 4:2:0, with the [`Colour`] they are meant in. JPEG wants [`Colour::JPEG`].
//! - [`Nv12View`]: one luma plane and one interleaved chroma plane; as a payload always [`Colour::NV12_PAYLOAD`].

mod colour;
mod error;
mod image;
mod jpeg;
mod nv12;
mod resize;
mod tensor;
mod yuv;

pub use crate::colour::{Colour, Matrix, Range, YuvSource, convert_yuv420};
pub use crate::error::PictureError;
pub use crate::image::{MAX_PIXELS, RgbImage, RgbView};
pub use crate::jpeg::{JpegDecoder, JpegEncoder, JpegSize};
pub use crate::nv12::{Nv12View, nv12_len, nv12_to_rgb, yuv420_to_nv12};
pub use crate::resize::{Filter, Resizer, short_side_size};
pub use crate::tensor::{ChannelOrder, Normalise, chw_to_rgb, rgb_to_chw};
pub use crate::yuv::{Plane, Yuv420Image};
