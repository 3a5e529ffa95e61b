//! The one place that calls swscale: any pixel format to 4:2:0 planes or RGB24, at any size, straight from the decoder's
//! frame. Only pixel format and size change here; range and matrix of YUV are changed afterwards, in picture.

use std::ptr;

use ffmpeg_next as ffmpeg;
use ffmpeg_next::ffi;
use ffmpeg_next::format::Pixel;
use picture::{Colour, Filter, Matrix, Plane, Range, RgbImage, Yuv420Image};

use crate::error::VideoError;

/// Rows of an RGB target are written with this distance granularity: vector stores may run past the last pixel.
const ROW_ALIGN_BYTES: usize = 32;
/// Vector stores may run past the last row by less than this.
const TAIL_BYTES: usize = 64;

/// A picture to read from: a decoder's frame or planes of our own.
pub(crate) struct ScaleSource<'a> {
    pub(crate) format: Pixel,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) colour: Colour,
    planes: Planes<'a>,
}

enum Planes<'a> {
    Frame(&'a ffmpeg::frame::Video),
    Image(&'a Yuv420Image),
}

impl<'a> ScaleSource<'a> {
    pub(crate) fn frame(frame: &'a ffmpeg::frame::Video, colour: Colour) -> ScaleSource<'a> {
        let (format, width, height) = (frame.format(), frame.width(), frame.height());
        ScaleSource { format, width, height, colour, planes: Planes::Frame(frame) }
    }

    pub(crate) fn image(image: &'a Yuv420Image) -> ScaleSource<'a> {
        ScaleSource {
            format: Pixel::YUV420P,
            width: image.width(),
            height: image.height(),
            colour: image.colour(),
            planes: Planes::Image(image),
        }
    }

    #[expect(unsafe_code, reason = "plane pointers of a frame have no safe getter that allows every format")]
    fn pointers(&self) -> ([*const u8; 4], [i32; 4]) {
        match self.planes {
            Planes::Frame(frame) => {
                // SAFETY: the frame is borrowed for 'a, so its first four plane pointers and strides stay valid; they
                // are only copied here.
                unsafe {
                    let frame = frame.as_ptr();
                    let data = (*frame).data;
                    let linesize = (*frame).linesize;
                    (
                        [data[0].cast_const(), data[1].cast_const(), data[2].cast_const(), data[3].cast_const()],
                        [linesize[0], linesize[1], linesize[2], linesize[3]],
                    )
                }
            }
            Planes::Image(image) => {
                let pointer = |plane| image.plane(plane).as_ptr();
                let stride = |plane| image.stride_bytes(plane) as i32;
                (
                    [pointer(Plane::Y), pointer(Plane::U), pointer(Plane::V), ptr::null()],
                    [stride(Plane::Y), stride(Plane::U), stride(Plane::V), 0],
                )
            }
        }
    }
}

/// What a context was made for; another combination needs another context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Job {
    from: Pixel,
    from_size: (u32, u32),
    from_colour: Colour,
    to: Pixel,
    to_size: (u32, u32),
    to_colour: Colour,
    filter: Filter,
}

/// A swscale context that is made anew only when the job changes.
pub(crate) struct Scaler {
    filter: Filter,
    held: Option<(Job, Context)>,
    rgb_rows: Vec<u8>,
}

struct Context(*mut ffi::SwsContext);

#[expect(unsafe_code, reason = "the context is owned by one Scaler and has no tie to a thread")]
// SAFETY: swscale contexts may be used from any one thread at a time; the raw pointer is never shared.
unsafe impl Send for Context {}

impl Drop for Context {
    #[expect(unsafe_code, reason = "frees what `make_context` made")]
    fn drop(&mut self) {
        // SAFETY: the pointer came from sws_getContext and is freed once.
        unsafe { ffi::sws_freeContext(self.0) }
    }
}

impl Scaler {
    pub(crate) fn new(filter: Filter) -> Scaler {
        Scaler { filter, held: None, rgb_rows: Vec::new() }
    }

    /// Fill `target` (at its present size). YUV keeps the colour of the source; RGB becomes [`Colour::JPEG`].
    pub(crate) fn fill_yuv420(&mut self, source: &ScaleSource<'_>, target: &mut Yuv420Image) -> Result<(), VideoError> {
        let to_colour = if is_rgb(source.format) { Colour::JPEG } else { source.colour };
        target.set_colour(to_colour);
        let strides = [Plane::Y, Plane::U, Plane::V].map(|plane| target.stride_bytes(plane) as i32);
        let size = (target.width(), target.height());
        let [y, u, v] = target.planes_mut();
        let planes = [y.as_mut_ptr(), u.as_mut_ptr(), v.as_mut_ptr(), ptr::null_mut()];
        self.run(source, Pixel::YUV420P, size, to_colour, planes, [strides[0], strides[1], strides[2], 0])
    }

    /// Fill `target` (at its present size).
    pub(crate) fn fill_rgb(&mut self, source: &ScaleSource<'_>, target: &mut RgbImage) -> Result<(), VideoError> {
        let size = (target.width(), target.height());
        let row_bytes = size.0 as usize * 3;
        let stride = row_bytes.next_multiple_of(ROW_ALIGN_BYTES);
        let mut rows = std::mem::take(&mut self.rgb_rows);
        rows.resize(stride * size.1 as usize + TAIL_BYTES, 0);
        let scaled = self.run_rgb(source, size, &mut rows, stride);
        for (to, from) in target.pixels_mut().chunks_exact_mut(row_bytes).zip(rows.chunks_exact(stride)) {
            to.copy_from_slice(&from[..row_bytes]);
        }
        self.rgb_rows = rows;
        scaled
    }

    /// Packed RGB24 of `size` in a buffer of its own, written in place where the row length allows.
    pub(crate) fn packed_rgb(&mut self, source: &ScaleSource<'_>, size: (u32, u32)) -> Result<Vec<u8>, VideoError> {
        let row_bytes = size.0 as usize * 3;
        let packed_bytes = row_bytes * size.1 as usize;
        if row_bytes.is_multiple_of(ROW_ALIGN_BYTES) {
            let mut pixels = vec![0; packed_bytes + TAIL_BYTES];
            self.run_rgb(source, size, &mut pixels, row_bytes)?;
            pixels.truncate(packed_bytes);
            return Ok(pixels);
        }
        let mut image = RgbImage::new(size.0, size.1)?;
        self.fill_rgb(source, &mut image)?;
        Ok(image.into_pixels())
    }

    fn run_rgb(
        &mut self,
        source: &ScaleSource<'_>,
        size: (u32, u32),
        rows: &mut [u8],
        stride: usize,
    ) -> Result<(), VideoError> {
        assert!(rows.len() >= stride * size.1 as usize + TAIL_BYTES, "rows and tail for vector stores");
        let planes = [rows.as_mut_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut()];
        self.run(source, Pixel::RGB24, size, Colour::JPEG, planes, [stride as i32, 0, 0, 0])
    }

    /// `planes` must hold `to_size` pixels of `to` at `strides`, with slack after each row and plane for vector stores.
    #[expect(unsafe_code, reason = "swscale takes raw planes")]
    fn run(
        &mut self,
        source: &ScaleSource<'_>,
        to: Pixel,
        to_size: (u32, u32),
        to_colour: Colour,
        planes: [*mut u8; 4],
        strides: [i32; 4],
    ) -> Result<(), VideoError> {
        let job = Job {
            from: source.format,
            from_size: (source.width, source.height),
            from_colour: source.colour,
            to,
            to_size,
            to_colour,
            filter: self.filter,
        };
        if self.held.as_ref().is_none_or(|(held, _)| *held != job) {
            self.held = Some((job, make_context(&job)?));
        }
        let (_, context) = self.held.as_ref().expect("it was just filled");
        let (from, from_strides) = source.pointers();
        // SAFETY: the context was made for exactly these sizes and formats; source planes are borrowed for the call and
        // the caller vouches for the target.
        let rows = unsafe {
            ffi::sws_scale(
                context.0,
                from.as_ptr(),
                from_strides.as_ptr(),
                0,
                source.height as i32,
                planes.as_ptr(),
                strides.as_ptr(),
            )
        };
        if rows < to_size.1 as i32 {
            self.held = None;
            return Err(refused(&job, "swscale stopped in the middle of the picture"));
        }
        Ok(())
    }
}

#[expect(unsafe_code, reason = "ffmpeg-next has no call that also sets range and matrix")]
fn make_context(job: &Job) -> Result<Context, VideoError> {
    let flags = match job.filter {
        Filter::Bilinear => ffi::SWS_BILINEAR,
        Filter::Area => ffi::SWS_AREA,
    };
    // SAFETY: only numbers are passed; null filters and parameters mean defaults; the result is checked and owned.
    let context = unsafe {
        ffi::sws_getContext(
            job.from_size.0 as i32,
            job.from_size.1 as i32,
            plain_format(job.from).into(),
            job.to_size.0 as i32,
            job.to_size.1 as i32,
            job.to.into(),
            flags,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null(),
        )
    };
    if context.is_null() {
        return Err(refused(job, "swscale does not know this conversion"));
    }
    let context = Context(context);
    let full = |colour: Colour| i32::from(colour.range == Range::Full);
    // The matrix of the RGB side is that of the YUV side; between YUV formats nothing but the format may change.
    let (from_matrix, to_matrix) = match (is_rgb(job.from), is_rgb(job.to)) {
        (true, _) => (job.to_colour.matrix, job.to_colour.matrix),
        (_, true) => (job.from_colour.matrix, job.from_colour.matrix),
        _ => (job.from_colour.matrix, job.to_colour.matrix),
    };
    // SAFETY: the context is live; sws_getCoefficients returns static tables. A negative result means that the format
    // has no range or matrix (RGB to RGB), which is fine.
    unsafe {
        ffi::sws_setColorspaceDetails(
            context.0,
            ffi::sws_getCoefficients(sws_matrix(from_matrix)),
            if is_rgb(job.from) { 1 } else { full(job.from_colour) },
            ffi::sws_getCoefficients(sws_matrix(to_matrix)),
            if is_rgb(job.to) { 1 } else { full(job.to_colour) },
            0,
            1 << 16,
            1 << 16,
        );
    }
    Ok(context)
}

fn refused(job: &Job, reason: &str) -> VideoError {
    VideoError::Convert {
        width: job.from_size.0,
        height: job.from_size.1,
        format: format!("{:?}", job.from).to_lowercase(),
        reason: reason.to_owned(),
    }
}

fn sws_matrix(matrix: Matrix) -> i32 {
    match matrix {
        Matrix::Bt601 => ffi::SWS_CS_ITU601,
        Matrix::Bt709 => ffi::SWS_CS_ITU709,
        Matrix::Bt2020 => ffi::SWS_CS_BT2020,
        Matrix::Smpte240m => ffi::SWS_CS_SMPTE240M,
    }
}

/// The formats with range in their name are deprecated; range is passed apart.
fn plain_format(format: Pixel) -> Pixel {
    match format {
        Pixel::YUVJ420P => Pixel::YUV420P,
        Pixel::YUVJ422P => Pixel::YUV422P,
        Pixel::YUVJ440P => Pixel::YUV440P,
        Pixel::YUVJ444P => Pixel::YUV444P,
        Pixel::YUVJ411P => Pixel::YUV411P,
        other => other,
    }
}

/// Whether samples are RGB (or a palette of it) rather than luma and chroma.
#[expect(unsafe_code, reason = "format descriptors have no safe getter for their flags")]
pub(crate) fn is_rgb(format: Pixel) -> bool {
    // SAFETY: descriptors are static; a null pointer (unknown format) is checked.
    unsafe {
        let descriptor = ffi::av_pix_fmt_desc_get(format.into());
        !descriptor.is_null()
            && (*descriptor).flags & (ffi::AV_PIX_FMT_FLAG_RGB as u64 | ffi::AV_PIX_FMT_FLAG_PAL as u64) != 0
    }
}
