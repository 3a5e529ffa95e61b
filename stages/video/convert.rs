//! From a decoded frame to the bytes of a payload: size, orientation, colour, encoding.

use std::ptr;

use bytes::Bytes;
use contract::{Encoding, Geometry};
use ffmpeg_next::format::Pixel;
use ffmpeg_next::{ffi, frame};
use picture::{
    Colour, Filter, JpegEncoder, Matrix, Range, RgbImage, Yuv420Image, YuvSource, convert_yuv420, rgb_to_chw,
    yuv420_to_nv12,
};

use crate::decode::DecodedFrame;
use crate::error::VideoError;
use crate::orient::Orientation;
use crate::scale::{ScaleSource, Scaler, is_rgb};

/// What payloads are made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PayloadSpec {
    pub encoding: Encoding,
    /// JPEG quality 1 to 100; other encodings ignore it.
    pub quality: u8,
    pub size: SizeSpec,
    pub filter: Filter,
}

/// Size of a payload in pixels, as displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeSpec {
    Full,
    /// The other side in proportion, even.
    Width(u32),
    Height(u32),
    /// Aspect is not kept.
    Exact(u32, u32),
}

impl SizeSpec {
    /// Size for a picture of this displayed size.
    pub fn apply(self, width: u32, height: u32) -> (u32, u32) {
        let even = |long: u32, to: u32, from: u32| {
            let exact = u64::from(long) * u64::from(to) / u64::from(from.max(1));
            u32::try_from((exact / 2 * 2).max(2)).unwrap_or(u32::MAX)
        };
        match self {
            SizeSpec::Full => (width, height),
            SizeSpec::Width(to) => (to, even(height, to, width)),
            SizeSpec::Height(to) => (even(width, to, height), to),
            SizeSpec::Exact(width, height) => (width, height),
        }
    }
}

/// Something to convert.
pub enum Picture {
    Decoded(DecodedFrame),
    Drawn(Box<Yuv420Image>),
}

/// The bytes of one frame.
#[derive(Debug, Clone)]
pub struct Payload {
    pub bytes: Bytes,
    pub geometry: Geometry,
}

/// Converts frames to one kind of payload; keeps every buffer between frames.
pub struct Converter {
    spec: PayloadSpec,
    orientation: Orientation,
    scaler: Scaler,
    jpeg: Option<JpegEncoder>,
    scaled: Yuv420Image,
    turned: Yuv420Image,
    ready: Yuv420Image,
    rgb: RgbImage,
    turned_rgb: RgbImage,
}

impl Converter {
    pub fn new(spec: PayloadSpec, orientation: Orientation) -> Result<Converter, VideoError> {
        let jpeg = match spec.encoding {
            Encoding::Jpeg => Some(JpegEncoder::new(spec.quality)?),
            _ => None,
        };
        let target = if spec.encoding == Encoding::Nv12 { Colour::NV12_PAYLOAD } else { Colour::JPEG };
        let small = |colour| Yuv420Image::new(2, 2, colour);
        Ok(Converter {
            spec,
            orientation,
            scaler: Scaler::new(spec.filter),
            jpeg,
            scaled: small(Colour::JPEG)?,
            turned: small(Colour::JPEG)?,
            ready: small(target)?,
            rgb: RgbImage::new(2, 2)?,
            turned_rgb: RgbImage::new(2, 2)?,
        })
    }

    /// The payload of one picture.
    pub fn convert(&mut self, picture: &Picture) -> Result<Payload, VideoError> {
        match self.spec.encoding {
            Encoding::Jpeg => {
                self.make_planes(picture)?;
                let geometry = Geometry::new(self.ready.width(), self.ready.height());
                let jpeg = self.jpeg.as_mut().expect("made for this encoding");
                let bytes = Bytes::copy_from_slice(jpeg.encode_yuv(&mut self.ready)?);
                Ok(Payload { bytes, geometry })
            }
            Encoding::Nv12 => {
                self.make_planes(picture)?;
                let geometry = Geometry::new(self.ready.width(), self.ready.height());
                let mut bytes = Vec::new();
                yuv420_to_nv12(&self.ready, &mut bytes);
                Ok(Payload { bytes: bytes.into(), geometry })
            }
            Encoding::Rgb24 => self.make_packed_rgb(picture),
            Encoding::Tensor => {
                let image = self.make_rgb(picture)?;
                let geometry = Geometry::new(image.width(), image.height());
                let mut bytes = Vec::new();
                rgb_to_chw(image.view(), &mut bytes);
                Ok(Payload { bytes: bytes.into(), geometry })
            }
            Encoding::Json => Err(VideoError::Convert {
                width: 0,
                height: 0,
                format: "frame".into(),
                reason: "a picture has no json form; choose jpeg, nv12, rgb24 or tensor".into(),
            }),
        }
    }

    /// Size before turning, such that the turned picture has the wanted size.
    fn coded_target(&self, width: u32, height: u32) -> (u32, u32) {
        let (shown_width, shown_height) = self.orientation.turn_size(width, height);
        let (to_width, to_height) = self.spec.size.apply(shown_width, shown_height);
        self.orientation.turn_size(to_width, to_height)
    }

    /// Fill `self.ready` in its colour.
    fn make_planes(&mut self, picture: &Picture) -> Result<(), VideoError> {
        let upright = self.orientation.is_upright();
        match picture {
            Picture::Decoded(decoded) => {
                let frame = &decoded.frame;
                let (colour, target) = (colour_of(frame), self.coded_target(frame.width(), frame.height()));
                if let Some(planes) = direct_planes(frame, colour).filter(|_| target == (frame.width(), frame.height()))
                {
                    let to = if upright { &mut self.ready } else { self.turned_for_ready() };
                    convert_yuv420(&planes, to)?;
                } else {
                    self.scale_planes(&ScaleSource::frame(frame, colour), target)?;
                }
            }
            Picture::Drawn(image) => {
                let target = self.coded_target(image.width(), image.height());
                if target == (image.width(), image.height()) {
                    let to = if upright { &mut self.ready } else { self.turned_for_ready() };
                    convert_yuv420(&YuvSource::of(image), to)?;
                } else {
                    self.scale_planes(&ScaleSource::image(image), target)?;
                }
            }
        }
        if !upright {
            self.orientation.turn_yuv(&self.turned, &mut self.ready)?;
        }
        Ok(())
    }

    /// The picture before turning, in the colour of the finished one.
    fn turned_for_ready(&mut self) -> &mut Yuv420Image {
        self.turned.set_colour(self.ready.colour());
        &mut self.turned
    }

    /// Size and format first, then colour: fewer samples to convert.
    fn scale_planes(&mut self, source: &ScaleSource<'_>, target: (u32, u32)) -> Result<(), VideoError> {
        self.scaled.reshape(target.0, target.1)?;
        self.scaler.fill_yuv420(source, &mut self.scaled)?;
        let colour = self.ready.colour();
        let to = if self.orientation.is_upright() { &mut self.ready } else { &mut self.turned };
        to.set_colour(colour);
        convert_yuv420(&YuvSource::of(&self.scaled), to)?;
        Ok(())
    }

    fn make_packed_rgb(&mut self, picture: &Picture) -> Result<Payload, VideoError> {
        if !self.orientation.is_upright() {
            let image = self.make_rgb(picture)?;
            let geometry = Geometry::new(image.width(), image.height());
            return Ok(Payload { bytes: Bytes::copy_from_slice(image.pixels()), geometry });
        }
        let source = scale_source(picture);
        let (width, height) = self.coded_target(source.width, source.height);
        let bytes = self.scaler.packed_rgb(&source, (width, height))?.into();
        Ok(Payload { bytes, geometry: Geometry::new(width, height) })
    }

    fn make_rgb(&mut self, picture: &Picture) -> Result<&RgbImage, VideoError> {
        let source = scale_source(picture);
        let (width, height) = self.coded_target(source.width, source.height);
        self.rgb.reshape(width, height)?;
        self.scaler.fill_rgb(&source, &mut self.rgb)?;
        if self.orientation.is_upright() {
            return Ok(&self.rgb);
        }
        self.orientation.turn_rgb(&self.rgb, &mut self.turned_rgb)?;
        Ok(&self.turned_rgb)
    }
}

fn scale_source(picture: &Picture) -> ScaleSource<'_> {
    match picture {
        Picture::Decoded(decoded) => ScaleSource::frame(&decoded.frame, colour_of(&decoded.frame)),
        Picture::Drawn(image) => ScaleSource::image(image),
    }
}

/// What the samples of a frame mean. Untagged video is taken for BT.709 from 720 rows on and for BT.601 below, as players do.
pub(crate) fn colour_of(frame: &frame::Video) -> Colour {
    let full_by_name = matches!(
        frame.format(),
        Pixel::YUVJ420P | Pixel::YUVJ422P | Pixel::YUVJ440P | Pixel::YUVJ444P | Pixel::YUVJ411P
    );
    let (space, range) = colour_tags(frame);
    let full = full_by_name || is_rgb(frame.format()) || range == ffi::AVColorRange::AVCOL_RANGE_JPEG as u32;
    // Numbers of ISO/IEC 23091-4 (H.273), matrix coefficients.
    let matrix = match space {
        1 => Matrix::Bt709,
        4..=6 => Matrix::Bt601,
        7 => Matrix::Smpte240m,
        9 | 10 => Matrix::Bt2020,
        _ if frame.height() >= 720 => Matrix::Bt709,
        _ => Matrix::Bt601,
    };
    Colour { matrix, range: if full { Range::Full } else { Range::Limited } }
}

/// Matrix and range as numbers: some decoders pass reserved values on, which a Rust enum must never hold.
#[expect(unsafe_code, reason = "reads two fields as plain numbers")]
fn colour_tags(frame: &frame::Video) -> (u32, u32) {
    // SAFETY: both fields are 32-bit C enums in a live frame.
    unsafe {
        let frame = frame.as_ptr();
        let space = ptr::addr_of!((*frame).colorspace).cast::<u32>().read();
        let range = ptr::addr_of!((*frame).color_range).cast::<u32>().read();
        (space, range)
    }
}

/// The planes of an 8-bit 4:2:0 frame, without copying.
#[expect(unsafe_code, reason = "reads the strides of a frame, which have no safe getter that tells negative ones")]
fn direct_planes(frame: &frame::Video, colour: Colour) -> Option<YuvSource<'_>> {
    if !matches!(frame.format(), Pixel::YUV420P | Pixel::YUVJ420P) {
        return None;
    }
    // SAFETY: only three integers are read from a live frame.
    let linesize = unsafe { (*frame.as_ptr()).linesize };
    // A frame that is stored upside down has negative strides; the scaler knows what to do with it.
    let stride_bytes = [0, 1, 2].map(|index| usize::try_from(linesize[index]).unwrap_or(0));
    if stride_bytes.contains(&0) {
        return None;
    }
    Some(YuvSource {
        width: frame.width(),
        height: frame.height(),
        colour,
        planes: [frame.data(0), frame.data(1), frame.data(2)],
        stride_bytes,
    })
}
