//! Decode video and offer its frames when they are due. Metrics: frames scheduled, offered, decoded, decode errors; steps
//! decode, encode, blocked, self_lag, enqueue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use contract::pace::Schedule;
use contract::{Cx, Demand, Encoding, Io, Ports, Rational, Stage, StageError};

use crate::config::{DecodeConfig, Mode, Pace, SourceSpec};
use crate::demand::demand;
use crate::feed::{Feed, FeedBounds, Wake};
use crate::pacer::{Pacer, StreamPlan, Supply};
use crate::prime::prime;
use crate::produce::{Opened, Play, inverse, period_ns, spawn};
use crate::source::OpenOptions;

/// How often `open` looks for shutdown while it waits for a first frame.
const LOOK_FOR_SHUTDOWN: Duration = Duration::from_millis(100);

/// A source of frames.
pub struct Decode {
    unpaced: bool,
    wake: Arc<Wake>,
    producers: Producers,
    plans: Vec<StreamPlan>,
}

impl Stage for Decode {
    type Config = DecodeConfig;
    const KIND: &'static str = "decode";
    const ABOUT: &'static str =
        "decode video, or draw a test pattern, and offer its frames to a topic when they are due";
    const PORTS: Ports = Ports::Source;

    fn demand(config: &DecodeConfig) -> Result<Demand, StageError> {
        demand(config)
    }

    fn open(config: DecodeConfig, cx: &Cx) -> Result<Decode, StageError> {
        Builder::new(config, cx)?.build()
    }

    fn run(self, io: Io, cx: &Cx) -> Result<(), StageError> {
        let Decode { unpaced, wake, producers, plans } = self;
        let output = io.output.ok_or_else(|| {
            StageError::config(cx.stage_id.clone(), "a decode stage needs a topic to write to; give `to`")
        })?;
        let result = Pacer::new(cx, output.as_ref(), wake, unpaced, plans).run();
        drop(producers);
        result
    }
}

/// The threads behind live sources; ended and joined when dropped.
#[derive(Default)]
struct Producers {
    cancel: Arc<AtomicBool>,
    feeds: Vec<Arc<Feed>>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Producers {
    fn drop(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
        self.feeds.iter().for_each(|feed| feed.close());
        for thread in self.threads.drain(..) {
            // A panic there has ended the feed with an error already.
            let _ = thread.join();
        }
    }
}

struct Builder<'a> {
    config: DecodeConfig,
    cx: &'a Cx,
    sources: Vec<SourceSpec>,
    options: OpenOptions,
    wake: Arc<Wake>,
    producers: Producers,
    plans: Vec<StreamPlan>,
}

impl<'a> Builder<'a> {
    fn new(config: DecodeConfig, cx: &'a Cx) -> Result<Builder<'a>, StageError> {
        let sources = config.sources()?;
        let options = OpenOptions {
            threads: config.decode_threads,
            timeout: config.timeout.0,
            shutdown: cx.shutdown.clone(),
            cancel: Arc::default(),
        };
        let producers = Producers { cancel: options.cancel.clone(), feeds: Vec::new(), threads: Vec::new() };
        let wake = Arc::default();
        Ok(Builder { config, cx, sources, options, wake, producers, plans: Vec::new() })
    }

    fn build(mut self) -> Result<Decode, StageError> {
        let streams: Vec<u32> =
            (0..self.config.streams).filter(|stream| stream % self.cx.of.max(1) == self.cx.index).collect();
        self.note_facts(streams.len());
        match self.config.mode {
            Mode::Each => self.each(&streams)?,
            Mode::Shared => self.shared(&streams)?,
            Mode::Cached => self.cached(&streams)?,
        }
        self.wait_for_first_frames()?;
        let Builder { config, wake, producers, plans, .. } = self;
        Ok(Decode { unpaced: config.pace == Pace::Unpaced, wake, producers, plans })
    }

    fn note_facts(&self, streams: usize) {
        let recorder = &self.cx.recorder;
        recorder.fact("mode", self.config.mode.name());
        recorder.fact("streams", streams as u64);
        recorder.fact("sources", self.sources.iter().map(SourceSpec::place).collect::<Vec<_>>());
        if let Ok(pace) = serde_json::to_value(self.config.pace) {
            recorder.fact("pace", pace);
        }
        if let Ok(payload) = serde_json::to_value(&self.config.payload) {
            recorder.fact("payload", payload);
        }
        if self.config.pace == Pace::Unpaced {
            recorder.fact("loop_kind", "closed loop, send-anchored");
        }
    }

    /// Which source a stream plays.
    fn source_index(&self, stream: u32) -> usize {
        stream as usize % self.sources.len()
    }

    fn open_source(&self, index: usize, stream: u32) -> Result<Opened, StageError> {
        let source = &self.sources[index];
        let opened = match source {
            SourceSpec::Media(location) => Opened::media(location, &self.options),
            SourceSpec::Pattern(config) => Opened::pattern(config, self.cx.seed, stream),
        };
        let opened = opened.map_err(|error| error.into_stage(&source.place()))?;
        if let Some(info) = opened.info() {
            let (width, height) = info.display_size();
            self.cx.recorder.fact("video", format!("{} {width}x{height} in {}", info.codec, info.container));
        }
        Ok(opened)
    }

    /// A place in the video of a stream's own, the same in every run with the same seed.
    fn start_ns(&self, opened: &Opened, stream: u32) -> i64 {
        let length_ns = match opened {
            Opened::Media(decoder) => decoder.info().duration_ns.unwrap_or(0),
            Opened::Pattern { config, .. } => i64::from(config.frames) * opened.period_ns(),
        };
        if !self.config.repeat || length_ns <= 0 {
            return 0;
        }
        self.cx.random(&format!("start/{stream}")).below(length_ns as u64) as i64
    }

    fn play(&self, number: u32, start_ns: i64) -> Play {
        Play {
            number,
            payload: self.config.payload.spec(),
            loops: self.loops(),
            start_ns,
            rate: self.config.pace.rate(),
            speed: self.config.pace.speed(),
        }
    }

    fn loops(&self) -> Option<u64> {
        (!self.config.repeat).then_some(1)
    }

    fn each(&mut self, streams: &[u32]) -> Result<(), StageError> {
        for &stream in streams {
            let opened = self.open_source(self.source_index(stream), stream)?;
            let start_ns = self.start_ns(&opened, stream);
            let timing = Timing::of(&opened, self.config.pace);
            let feed = self.start(opened, self.play(stream, start_ns), 1, streams.len())?;
            self.plan(stream, Supply::Live(feed), timing, 0);
        }
        Ok(())
    }

    fn shared(&mut self, streams: &[u32]) -> Result<(), StageError> {
        let used = self.sources.len().min(streams.len());
        for index in 0..self.sources.len() {
            let mine: Vec<u32> = streams.iter().copied().filter(|stream| self.source_index(*stream) == index).collect();
            let Some(first) = mine.first() else { continue };
            let opened = self.open_source(index, *first)?;
            let timing = Timing::of(&opened, self.config.pace);
            let feed = self.start(opened, self.play(index as u32, 0), mine.len() as u32, used)?;
            for stream in mine {
                self.plan(stream, Supply::Live(feed.clone()), timing, 0);
            }
        }
        Ok(())
    }

    fn cached(&mut self, streams: &[u32]) -> Result<(), StageError> {
        let mut left = self.config.cache;
        for index in 0..self.sources.len() {
            let mine: Vec<u32> = streams.iter().copied().filter(|stream| self.source_index(*stream) == index).collect();
            let Some(first) = mine.first() else { continue };
            let opened = self.open_source(index, *first)?;
            let timing = Timing::of(&opened, self.config.pace);
            let cached = Arc::new(prime(opened, self.play(index as u32, 0), left, self.cx)?);
            let bytes: u64 = cached.items.iter().map(|item| item.payload.len() as u64).sum();
            left.0 = left.0.saturating_sub(bytes);
            self.cx.recorder.fact("cached_bytes", self.config.cache.0 - left.0);
            for stream in mine {
                let frames = cached.items.len() as u64;
                let first =
                    if self.config.repeat { self.cx.random(&format!("start/{stream}")).below(frames) } else { 0 };
                self.plan(stream, Supply::Cached(cached.clone()), timing, first);
            }
        }
        Ok(())
    }

    /// Start the threads of a live source that `readers` streams read, one of `sources` that share the memory bound.
    fn start(&mut self, opened: Opened, play: Play, readers: u32, sources: usize) -> Result<Arc<Feed>, StageError> {
        let bounds = FeedBounds {
            look_ahead: self.config.look_ahead as usize,
            bytes: self.config.cache.0 / sources.max(1) as u64,
        };
        let feed = Arc::new(Feed::new(readers, bounds, self.wake.clone()));
        self.producers.feeds.push(feed.clone());
        self.producers.threads.extend(spawn(opened, play, feed.clone(), self.cx)?);
        Ok(feed)
    }

    fn plan(&mut self, stream: u32, supply: Supply, timing: Timing, first: u64) {
        // Streams are spread evenly over one frame period, so that their frames do not come in bursts.
        let phase_ns = i128::from(timing.period_ns) * i128::from(stream) / i128::from(self.config.streams);
        let phase_ns = if self.config.pace == Pace::Unpaced { 0 } else { phase_ns as i64 };
        let encoding: Encoding = self.config.payload.spec().encoding;
        self.plans.push(StreamPlan {
            stream,
            supply,
            schedule: Schedule { phase_ns, first, speed: self.config.pace.speed() },
            loops: self.loops(),
            time_base: timing.time_base,
            period_ns: timing.period_ns,
            encoding,
        });
    }

    fn wait_for_first_frames(&self) -> Result<(), StageError> {
        for feed in &self.producers.feeds {
            while !feed.wait_for_first(LOOK_FOR_SHUTDOWN)? {
                if self.cx.shutdown.is_stopping() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// How time passes for the streams of one source.
#[derive(Clone, Copy)]
struct Timing {
    time_base: Rational,
    /// Between due times.
    period_ns: i64,
}

impl Timing {
    fn of(opened: &Opened, pace: Pace) -> Timing {
        match pace.rate() {
            Some(rate) => Timing { time_base: inverse(rate), period_ns: period_ns(rate) },
            None => {
                let period_ns = (opened.period_ns() as f64 / pace.speed()).max(1.0) as i64;
                Timing { time_base: opened.time_base(), period_ns }
            }
        }
    }
}
