//! Decode one video stream frame by frame, count what cannot be decoded, start again for the next loop.

use contract::Rational;
use ffmpeg_next as ffmpeg;

use crate::error::VideoError;
use crate::source::{Demuxer, Location, OpenOptions, SourceInfo};

/// Largest coded picture accepted (8192 x 8192): a damaged header must not take all memory.
const MAX_CODED_PIXELS: i64 = 1 << 26;

/// Failures in a row after which a source counts as ended: keeps a damaged one from spinning.
const MAX_ERRORS_IN_A_ROW: u32 = 100;

/// Demuxers (FFmpeg's names) with an index of key frames.
const SEEKABLE_CONTAINERS: [&str; 3] = ["mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "avi"];

/// One decoded frame, still in the decoder's own buffer.
pub struct DecodedFrame {
    pub(crate) frame: ffmpeg::frame::Video,
    /// Presentation time in the source's time base, unless it has none.
    pub pts: Option<i64>,
    /// In the time base, 0 when unknown.
    pub duration: i64,
}

impl DecodedFrame {
    pub fn width_px(&self) -> u32 {
        self.frame.width()
    }

    pub fn height_px(&self) -> u32 {
        self.frame.height()
    }
}

/// What happened so far, over all loops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecodeCounts {
    pub packets: u64,
    pub frames: u64,
    /// Packets that could not be read or decoded.
    pub errors: u64,
}

/// A decoder with its source.
pub struct Decoder {
    location: Location,
    options: OpenOptions,
    place: String,
    demuxer: Demuxer,
    decoder: ffmpeg::decoder::Video,
    counts: DecodeCounts,
    frames_this_pass: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    /// The source has ended; the decoder still holds frames.
    Draining,
    Ended,
}

impl Decoder {
    /// Open a source and start its decoder; nothing is decoded yet.
    pub fn open(location: &Location, options: &OpenOptions) -> Result<Decoder, VideoError> {
        let demuxer = Demuxer::open(location, options)?;
        let place = location.place();
        let decoder = start_decoder(&demuxer, options.threads, &place)?;
        Ok(Decoder {
            location: location.clone(),
            options: options.clone(),
            place,
            demuxer,
            decoder,
            counts: DecodeCounts::default(),
            frames_this_pass: 0,
            state: State::Reading,
        })
    }

    pub fn info(&self) -> &SourceInfo {
        &self.demuxer.info
    }

    pub fn place(&self) -> &str {
        &self.place
    }

    pub fn time_base(&self) -> Rational {
        self.demuxer.info.time_base
    }

    pub fn counts(&self) -> DecodeCounts {
        self.counts
    }

    /// The next frame in presentation order; `None` at the end of the source.
    pub fn next_frame(&mut self) -> Result<Option<DecodedFrame>, VideoError> {
        let mut frame = ffmpeg::frame::Video::empty();
        let mut drain_errors = 0;
        loop {
            if self.state == State::Ended {
                return Ok(None);
            }
            match self.decoder.receive_frame(&mut frame) {
                Ok(()) => {
                    if frame.width() == 0 || frame.height() == 0 {
                        self.counts.errors += 1;
                        continue;
                    }
                    self.counts.frames += 1;
                    self.frames_this_pass += 1;
                    let (pts, duration) = (frame.timestamp(), frame.packet().duration.max(0));
                    return Ok(Some(DecodedFrame { frame, pts, duration }));
                }
                Err(ffmpeg::Error::Other { errno: ffmpeg::error::EAGAIN }) => self.feed()?,
                Err(ffmpeg::Error::Eof) => self.state = State::Ended,
                Err(_) if self.state == State::Draining => {
                    // The decoder goes on to its next frame and reports the end by itself, unless it is stuck.
                    self.counts.errors += 1;
                    drain_errors += 1;
                    if drain_errors >= MAX_ERRORS_IN_A_ROW {
                        self.state = State::Ended;
                    }
                }
                Err(_) => {
                    self.counts.errors += 1;
                    self.feed()?;
                }
            }
        }
    }

    /// Give the decoder one packet, or the end.
    fn feed(&mut self) -> Result<(), VideoError> {
        if self.state == State::Draining {
            self.state = State::Ended;
            return Ok(());
        }
        match self.read_packet()? {
            Some(packet) => {
                self.counts.packets += 1;
                if self.decoder.send_packet(&packet).is_err() {
                    self.counts.errors += 1;
                }
            }
            None => {
                self.state = State::Draining;
                if self.decoder.send_eof().is_err() {
                    self.state = State::Ended;
                }
            }
        }
        Ok(())
    }

    /// The next packet of the video stream; `None` at the end, also at the end of what a damaged file still holds.
    fn read_packet(&mut self) -> Result<Option<ffmpeg::Packet>, VideoError> {
        let mut errors_in_a_row = 0;
        loop {
            // A fresh packet each time: reading over a filled one would leak its data.
            let mut packet = ffmpeg::Packet::empty();
            self.demuxer.watchdog.arm();
            let failure = match packet.read(&mut self.demuxer.input) {
                Ok(()) if packet.stream() == self.demuxer.stream_index => return Ok(Some(packet)),
                Ok(()) => {
                    errors_in_a_row = 0;
                    continue;
                }
                Err(ffmpeg::Error::Eof) => return Ok(None),
                Err(failure) => failure,
            };
            if let Some(error) = self.demuxer.watchdog.explain(&self.place, failure) {
                return Err(error);
            }
            if failure != (ffmpeg::Error::Other { errno: ffmpeg::error::EAGAIN }) {
                self.counts.errors += 1;
            }
            errors_in_a_row += 1;
            let resyncs =
                matches!(failure, ffmpeg::Error::InvalidData | ffmpeg::Error::Other { errno: ffmpeg::error::EAGAIN });
            if resyncs && errors_in_a_row < MAX_ERRORS_IN_A_ROW {
                continue;
            }
            return match &self.location {
                Location::File(_) => Ok(None),
                Location::Url(_) => Err(VideoError::Read { place: self.place.clone(), source: failure }),
            };
        }
    }

    /// Start from the beginning for the next loop. A pass that gave no frame at all is an error: looping it would spin.
    pub fn rewind(&mut self) -> Result<(), VideoError> {
        if self.frames_this_pass == 0 {
            return Err(self.no_frames());
        }
        self.frames_this_pass = 0;
        // Only an index leads back to the very first frame; elsewhere a seek may land one key frame later.
        if SEEKABLE_CONTAINERS.contains(&self.demuxer.info.container.as_str()) && self.seek(0) {
            return Ok(());
        }
        self.reopen()
    }

    /// Go to the last key frame at or before `at_ns` of the media; false when the source cannot.
    pub fn seek(&mut self, at_ns: i64) -> bool {
        if self.demuxer.info.duration_ns.is_none() {
            return false;
        }
        self.demuxer.watchdog.arm();
        let at_us = self.start_us().saturating_add(at_ns / 1_000);
        if self.demuxer.input.seek(at_us, ..at_us).is_err() {
            return false;
        }
        self.decoder.flush();
        self.state = State::Reading;
        true
    }

    /// Where the media begins; containers need not start at 0.
    #[expect(unsafe_code, reason = "the start time of a container has no safe getter")]
    fn start_us(&self) -> i64 {
        // SAFETY: the context is alive as long as `self.demuxer.input`; only an integer is read.
        let start = unsafe { (*self.demuxer.input.as_ptr()).start_time };
        if start == ffmpeg::ffi::AV_NOPTS_VALUE { 0 } else { start }
    }

    /// Time stamp of the first frame by the container; 0 where it does not say.
    pub fn start_ticks(&self) -> i64 {
        let start = self.demuxer.input.stream(self.demuxer.stream_index).map_or(0, |stream| stream.start_time());
        if start == ffmpeg::ffi::AV_NOPTS_VALUE { 0 } else { start }
    }

    fn reopen(&mut self) -> Result<(), VideoError> {
        self.demuxer = Demuxer::open(&self.location, &self.options)?;
        self.decoder = start_decoder(&self.demuxer, self.options.threads, &self.place)?;
        self.state = State::Reading;
        Ok(())
    }

    /// What to say when a source gave nothing.
    pub fn no_frames(&self) -> VideoError {
        let DecodeCounts { packets, errors, .. } = self.counts;
        VideoError::NoFrames { place: self.place.clone(), packets, errors }
    }
}

fn start_decoder(demuxer: &Demuxer, threads: u32, place: &str) -> Result<ffmpeg::decoder::Video, VideoError> {
    let stream = demuxer.input.stream(demuxer.stream_index).expect("the index was taken from this input");
    let codec = demuxer.info.codec.clone();
    let failed = |source| VideoError::Decoder { place: place.to_owned(), codec: codec.clone(), source };
    let mut context = ffmpeg::codec::Context::from_parameters(stream.parameters()).map_err(failed)?;
    limit(&mut context, threads);
    let mut decoder = context.decoder();
    decoder.set_packet_time_base(stream.time_base());
    decoder.video().map_err(|source| match source {
        ffmpeg::Error::DecoderNotFound => VideoError::NoDecoder { place: place.to_owned(), codec: codec.clone() },
        source => failed(source),
    })
}

#[expect(unsafe_code, reason = "thread count and size limit have no safe setter that leaves the thread kind alone")]
fn limit(context: &mut ffmpeg::codec::Context, threads: u32) {
    // SAFETY: the context is exclusively borrowed and not yet opened, when these fields may be set.
    unsafe {
        let context = context.as_mut_ptr();
        (*context).thread_count = threads.clamp(1, 64) as i32;
        (*context).max_pixels = MAX_CODED_PIXELS;
    }
}
