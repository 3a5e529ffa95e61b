//! The threads behind one source: `decode-NNN` decodes or draws, `encode-NNN` makes payloads, a short queue between them.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use contract::clock::mono_ns;
use contract::latency::Step;
use contract::{Counter, Cx, Rational, StageError};
use crossbeam_channel::{Receiver, Sender, bounded};
use picture::Yuv420Image;

use crate::convert::{Converter, PayloadSpec, Picture};
use crate::decode::Decoder;
use crate::error::VideoError;
use crate::feed::{Item, ItemSink};
use crate::media_clock::{ClockRepairs, MediaClock, MediaTime};
use crate::orient::Orientation;
use crate::pattern::{Pattern, PatternConfig};
use crate::source::{OpenOptions, SourceInfo};

/// Decoded frames waiting for the encoder: one being filled, one being emptied. Each is a full picture.
const DECODED_QUEUE_FRAMES: usize = 2;
/// Frames in a row that may fail to convert before the source is given up.
const MAX_CONVERT_ERRORS: u32 = 100;
/// Frames decoded and thrown away at most to reach a start position between key frames.
const MAX_SKIPPED_FRAMES: u32 = 300;

/// An opened source.
pub(crate) enum Opened {
    Media(Box<Decoder>),
    Pattern { config: PatternConfig, pattern: Box<Pattern> },
}

impl Opened {
    pub(crate) fn media(location: &crate::source::Location, options: &OpenOptions) -> Result<Opened, VideoError> {
        Ok(Opened::Media(Box::new(Decoder::open(location, options)?)))
    }

    pub(crate) fn pattern(config: &PatternConfig, seed: u64, stream: u32) -> Result<Opened, VideoError> {
        let seed = config.seed.unwrap_or(seed);
        let pattern = Box::new(Pattern::new(config.width, config.height, seed, stream as u16)?);
        Ok(Opened::Pattern { config: config.clone(), pattern })
    }

    pub(crate) fn info(&self) -> Option<&SourceInfo> {
        match self {
            Opened::Media(decoder) => Some(decoder.info()),
            Opened::Pattern { .. } => None,
        }
    }

    pub(crate) fn place(&self) -> String {
        match self {
            Opened::Media(decoder) => decoder.place().to_owned(),
            Opened::Pattern { config, .. } => crate::config::SourceSpec::Pattern(config.clone()).place(),
        }
    }

    /// Time base of its media ticks.
    pub(crate) fn time_base(&self) -> Rational {
        match self {
            Opened::Media(decoder) => decoder.time_base(),
            Opened::Pattern { config, .. } => inverse(config.rate()),
        }
    }

    /// The usual distance between frames in media time.
    pub(crate) fn period_ns(&self) -> i64 {
        match self {
            Opened::Media(decoder) => decoder.info().frame_period_ns(),
            Opened::Pattern { config, .. } => period_ns(config.rate()),
        }
    }

    fn orientation(&self) -> Orientation {
        self.info().map_or(Orientation::UPRIGHT, |info| info.orientation)
    }
}

pub(crate) fn inverse(rate: Rational) -> Rational {
    Rational::new(rate.den, rate.num.max(1))
}

pub(crate) fn period_ns(rate: Rational) -> i64 {
    (i128::from(rate.den) * 1_000_000_000 / i128::from(rate.num.max(1))).max(1) as i64
}

/// How a source is to be played.
#[derive(Debug, Clone)]
pub(crate) struct Play {
    /// Names the threads.
    pub(crate) number: u32,
    pub(crate) payload: PayloadSpec,
    /// Loops over the video: `None` without end.
    pub(crate) loops: Option<u64>,
    /// Where to begin, in media time.
    pub(crate) start_ns: i64,
    /// A constant rate that replaces the time stamps.
    pub(crate) rate: Option<Rational>,
    /// Real time to media time; only files the work samples under the right phase.
    pub(crate) speed: f64,
}

/// What the decoder hands to the encoder.
enum Decoded {
    Frame(Picture, MediaTime),
    /// The last message; a queue that closes without it means that the decoder's thread died.
    End(Result<(), VideoError>),
}

/// Start the two threads of a source. They end when the source does or when `sink` wants no more.
pub(crate) fn spawn(
    opened: Opened,
    play: Play,
    sink: Arc<dyn ItemSink>,
    cx: &Cx,
) -> Result<Vec<JoinHandle<()>>, StageError> {
    let place = opened.place();
    let converter = Converter::new(play.payload, opened.orientation()).map_err(|error| error.into_stage(&place))?;
    let (sender, receiver) = bounded::<Decoded>(DECODED_QUEUE_FRAMES);
    // Room for every canvas that can be under way, so that giving one back never waits.
    let (give_back, canvases) = bounded(DECODED_QUEUE_FRAMES + 2);
    let named = place.clone();
    let thread_failed = |error: std::io::Error| StageError::limit(named.clone(), format!("no thread: {error}"));
    let number = play.number;
    let encoder = Encoder { converter, give_back, speed: play.speed, cx: cx.clone(), place };
    let encode = thread::Builder::new()
        .name(format!("encode-{number:03}"))
        .spawn(move || {
            let end = EndOnDrop(sink);
            let result = encoder.run(&receiver, end.0.as_ref());
            end.0.end(result);
        })
        .map_err(&thread_failed)?;
    let source = Source { play, sender, canvases, cx: cx.clone() };
    let decode = thread::Builder::new()
        .name(format!("decode-{number:03}"))
        .spawn(move || {
            let result = source.run(opened);
            // Nobody listens any more when the encoder ended first.
            let _ = source.sender.send(Decoded::End(result));
        })
        .map_err(&thread_failed)?;
    Ok(vec![decode, encode])
}

/// Tells the sink that its producer is gone, also when that is by a panic; a second end is ignored.
struct EndOnDrop(Arc<dyn ItemSink>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(Err(StageError::stage("encoder", "its thread ended unexpectedly")));
    }
}

/// The decoding side.
struct Source {
    play: Play,
    sender: Sender<Decoded>,
    canvases: Receiver<Box<Yuv420Image>>,
    cx: Cx,
}

impl Source {
    /// Until the end, or until the encoder is gone.
    fn run(&self, opened: Opened) -> Result<(), VideoError> {
        match opened {
            Opened::Media(decoder) => self.decode(*decoder),
            Opened::Pattern { config, pattern } => self.draw(&config, &pattern),
        }
    }

    fn decode(&self, mut decoder: Decoder) -> Result<(), VideoError> {
        let mut timing = Timing::new(decoder.time_base(), decoder.info().frame_period_ns(), self.play.rate);
        self.go_to_start(&mut decoder)?;
        let mut books = Books::default();
        let mut passes = 0;
        loop {
            let begun = mono_ns();
            let frame = decoder.next_frame()?;
            let work_ns = mono_ns() - begun;
            books.settle(&self.cx, &decoder, &timing);
            let Some(frame) = frame else {
                passes += 1;
                if self.play.loops.is_some_and(|loops| passes >= loops) || self.cx.shutdown.is_aborting() {
                    return if decoder.counts().frames == 0 { Err(decoder.no_frames()) } else { Ok(()) };
                }
                decoder.rewind()?;
                timing.next_loop();
                continue;
            };
            let time = timing.place(frame.pts, frame.duration);
            self.note_work(time, work_ns);
            if self.sender.send(Decoded::Frame(Picture::Decoded(frame), time)).is_err() {
                return Ok(());
            }
        }
    }

    /// Key frame first, then frame by frame.
    fn go_to_start(&self, decoder: &mut Decoder) -> Result<(), VideoError> {
        let start_ns = self.play.start_ns;
        if start_ns <= 0 || !decoder.seek(start_ns) {
            return Ok(());
        }
        let base = decoder.time_base();
        let wanted_ticks = i128::from(start_ns) * i128::from(base.den) / (i128::from(base.num.max(1)) * 1_000_000_000);
        let first_ticks = decoder.start_ticks();
        for _ in 0..MAX_SKIPPED_FRAMES {
            match decoder.next_frame()? {
                Some(frame) if frame.pts.is_some_and(|pts| i128::from(pts - first_ticks) < wanted_ticks) => {}
                // At the wish, or past the last frame: from here on, or from the beginning.
                Some(_) => return Ok(()),
                None => return decoder.rewind(),
            }
        }
        Ok(())
    }

    fn draw(&self, config: &PatternConfig, pattern: &Pattern) -> Result<(), VideoError> {
        let rate = self.play.rate.unwrap_or_else(|| config.rate());
        let mut timing = Timing::new(inverse(rate), period_ns(rate), Some(rate));
        let frames = self.play.loops.map(|loops| loops.saturating_mul(u64::from(config.frames)));
        let first = (self.play.start_ns / period_ns(config.rate())).max(0) as u64;
        for number in 0..frames.unwrap_or(u64::MAX) {
            let begun = mono_ns();
            let mut canvas = match self.canvases.try_recv() {
                Ok(canvas) => canvas,
                Err(_) => Box::new(pattern.canvas()?),
            };
            pattern.draw(first + number, &mut canvas)?;
            self.cx.recorder.add(Counter::Decoded, 1);
            let time = timing.place(None, 0);
            self.note_work(time, mono_ns() - begun);
            if self.sender.send(Decoded::Frame(Picture::Drawn(canvas), time)).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn note_work(&self, time: MediaTime, work_ns: i64) {
        self.cx.recorder.step(Step::Decode, due_ns(time.ns, self.play.speed), work_ns);
    }
}

fn due_ns(media_ns: i64, speed: f64) -> i64 {
    if speed == 1.0 { media_ns } else { (media_ns as f64 / speed) as i64 }
}

/// Media time by time stamps or by a constant rate.
struct Timing {
    clock: MediaClock,
    constant: Option<(Rational, i64)>,
}

impl Timing {
    fn new(time_base: Rational, period_ns: i64, rate: Option<Rational>) -> Timing {
        Timing { clock: MediaClock::new(time_base, period_ns), constant: rate.map(|rate| (rate, 0)) }
    }

    fn place(&mut self, pts: Option<i64>, duration: i64) -> MediaTime {
        let Some((rate, next)) = &mut self.constant else { return self.clock.place(pts, duration) };
        let ticks = *next;
        *next += 1;
        let ns_at = |ticks: i64| {
            let ns = i128::from(ticks) * i128::from(rate.den) * 1_000_000_000 / i128::from(rate.num.max(1));
            i64::try_from(ns).unwrap_or(i64::MAX)
        };
        let ns = ns_at(ticks);
        MediaTime { ns, ticks, duration_ns: ns_at(ticks + 1) - ns, duration_ticks: 1 }
    }

    fn next_loop(&mut self) {
        self.clock.next_loop();
    }
}

/// Carries a decoder's counts over to the recorder as they grow.
#[derive(Default)]
struct Books {
    frames: u64,
    errors: u64,
    repairs: ClockRepairs,
}

impl Books {
    fn settle(&mut self, cx: &Cx, decoder: &Decoder, timing: &Timing) {
        let counts = decoder.counts();
        cx.recorder.add(Counter::Decoded, counts.frames - self.frames);
        for _ in self.errors..counts.errors {
            cx.recorder.reason(Counter::DecodeErrors, "packet cannot be decoded");
        }
        (self.frames, self.errors) = (counts.frames, counts.errors);
        let repairs = timing.clock.repairs();
        if repairs != self.repairs {
            self.repairs = repairs;
            cx.recorder.fact("pts_missing", repairs.missing);
            cx.recorder.fact("pts_jumps", repairs.jumps);
        }
    }
}

/// The encoding side.
struct Encoder {
    converter: Converter,
    give_back: Sender<Box<Yuv420Image>>,
    speed: f64,
    cx: Cx,
    place: String,
}

impl Encoder {
    /// Until the decoder has ended, or until `sink` wants no more.
    fn run(mut self, receiver: &Receiver<Decoded>, sink: &dyn ItemSink) -> Result<(), StageError> {
        let mut errors_in_a_row = 0;
        let mut sizes = Sizes::default();
        loop {
            let (picture, time) = match receiver.recv() {
                Ok(Decoded::Frame(picture, time)) => (picture, time),
                Ok(Decoded::End(result)) => return result.map_err(|error| error.into_stage(&self.place)),
                Err(_) => return Err(StageError::stage(self.place, "the decoder's thread ended unexpectedly")),
            };
            sizes.note(&picture, &self.cx);
            let begun = mono_ns();
            let converted = self.converter.convert(&picture);
            self.cx.recorder.step(Step::Encode, due_ns(time.ns, self.speed), mono_ns() - begun);
            if let Picture::Drawn(canvas) = picture {
                // A lost canvas is only an allocation.
                let _ = self.give_back.try_send(canvas);
            }
            match converted {
                Ok(payload) => {
                    errors_in_a_row = 0;
                    if !sink.put(Item { payload: payload.bytes, geometry: payload.geometry, time }) {
                        return Ok(());
                    }
                }
                Err(error) => {
                    self.cx.recorder.reason(Counter::DecodeErrors, "frame cannot be converted");
                    errors_in_a_row += 1;
                    if errors_in_a_row >= MAX_CONVERT_ERRORS {
                        return Err(error.into_stage(&self.place));
                    }
                }
            }
        }
    }
}

/// Counts how often a source changes the size of its pictures.
#[derive(Default)]
struct Sizes {
    last: Option<(u32, u32)>,
    changes: u64,
}

impl Sizes {
    fn note(&mut self, picture: &Picture, cx: &Cx) {
        let Picture::Decoded(frame) = picture else { return };
        let size = (frame.width_px(), frame.height_px());
        if self.last.replace(size).is_some_and(|last| last != size) {
            self.changes += 1;
            cx.recorder.fact("geometry_changes", self.changes);
        }
    }
}
