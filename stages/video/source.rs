//! Where video comes from: files, folders and addresses, opened with a deadline on everything that may wait.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use contract::clock::mono_ns;
use contract::{Rational, Shutdown, Span};
use ffmpeg_next as ffmpeg;
use ffmpeg_next::codec::packet::side_data;

use crate::error::VideoError;
use crate::orient::Orientation;

/// Endings that a folder is searched for; a file named outright may have any.
const VIDEO_ENDINGS: [&str; 24] = [
    "264", "265", "3gp", "av1", "avi", "flv", "h264", "h265", "hevc", "ivf", "m2ts", "m4v", "mjpeg", "mjpg", "mkv",
    "mov", "mp4", "mpeg", "mpg", "mts", "ogv", "ts", "webm", "wmv",
];

/// One file or address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    File(PathBuf),
    Url(String),
}

impl Location {
    /// An address has a scheme and `://`.
    pub fn url(text: &str) -> Result<Location, VideoError> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        match scheme {
            Some("rtsp" | "rtsps" | "http" | "https" | "rtmp" | "tcp" | "udp" | "srt") if !text.contains('\0') => {
                Ok(Location::Url(text.to_owned()))
            }
            _ => Err(VideoError::Location {
                place: text.to_owned(),
                reason: "not an address ffmpeg can be pointed at; expected rtsp://, http://, rtmp://, srt://, tcp:// or udp://".into(),
            }),
        }
    }

    /// An existing, readable file.
    pub fn file(path: &Path) -> Result<Location, VideoError> {
        let wrong = |reason: String| VideoError::Location { place: path.display().to_string(), reason };
        let found = path.metadata().map_err(|error| wrong(format!("{error}; check the path")))?;
        if found.is_dir() {
            return Err(wrong("is a folder; use `dir` for all files in it".into()));
        }
        if path.to_str().is_none_or(|text| text.contains('\0')) {
            return Err(wrong("the name is not UTF-8; rename the file".into()));
        }
        Ok(Location::File(path.to_owned()))
    }

    /// Every video file directly in a folder, by name.
    pub fn folder(path: &Path) -> Result<Vec<Location>, VideoError> {
        let wrong = |reason: String| VideoError::Location { place: path.display().to_string(), reason };
        let entries = path.read_dir().map_err(|error| wrong(error.to_string()))?;
        let mut found = Vec::new();
        for entry in entries {
            let file = entry.map_err(|error| wrong(error.to_string()))?.path();
            let ending = file.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
            if file.is_file() && ending.is_some_and(|ending| VIDEO_ENDINGS.contains(&ending.as_str())) {
                found.push(Location::file(&file)?);
            }
        }
        if found.is_empty() {
            return Err(wrong(format!("holds no video file ({})", VIDEO_ENDINGS.join(", "))));
        }
        found.sort_by_key(Location::place);
        Ok(found)
    }

    /// How messages name it; credentials in an address are left out.
    pub fn place(&self) -> String {
        match self {
            Location::File(path) => path.display().to_string(),
            Location::Url(url) => without_credentials(url),
        }
    }

    /// What FFmpeg opens. The prefix keeps a colon in a file name from being taken for a protocol.
    fn address(&self) -> String {
        match self {
            Location::File(path) => format!("file:{}", path.display()),
            Location::Url(url) => url.clone(),
        }
    }
}

fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let authority_len = rest.find('/').unwrap_or(rest.len());
    match rest[..authority_len].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

/// How to open and what to wait for.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Decoder threads; 1 decodes on the caller's thread.
    pub threads: u32,
    /// Longest wait for any one answer of the source.
    pub timeout: Duration,
    /// Ends waiting at once: a stop while opening, an abort at any time.
    pub shutdown: Shutdown,
    /// Ends waiting at once when set: nobody wants this source any more.
    pub cancel: Arc<AtomicBool>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            threads: 1,
            timeout: Duration::from_secs(10),
            shutdown: Shutdown::default(),
            cancel: Arc::default(),
        }
    }
}

/// Lets a blocking call of FFmpeg be ended: it asks this every few milliseconds while it waits.
#[derive(Debug, Clone)]
pub(crate) struct Watchdog(Arc<WatchdogState>);

#[derive(Debug)]
struct WatchdogState {
    deadline_mono_ns: AtomicI64,
    expired: AtomicBool,
    opening: AtomicBool,
    options: OpenOptions,
}

impl Watchdog {
    fn new(options: &OpenOptions) -> Watchdog {
        let state = WatchdogState {
            deadline_mono_ns: AtomicI64::new(i64::MAX),
            expired: AtomicBool::new(false),
            opening: AtomicBool::new(true),
            options: options.clone(),
        };
        Watchdog(Arc::new(state))
    }

    /// Give the next call its time.
    pub(crate) fn arm(&self) {
        let timeout_ns = i64::try_from(self.0.options.timeout.as_nanos()).unwrap_or(i64::MAX);
        self.0.deadline_mono_ns.store(mono_ns().saturating_add(timeout_ns), Ordering::Relaxed);
    }

    /// The source is open: from now on a stop lets it be read to the end of the schedule.
    fn opened(&self) {
        self.0.opening.store(false, Ordering::Relaxed);
    }

    fn is_unwanted(&self) -> bool {
        let OpenOptions { shutdown, cancel, .. } = &self.0.options;
        let stopping = self.0.opening.load(Ordering::Relaxed) && shutdown.is_stopping();
        stopping || shutdown.is_aborting() || cancel.load(Ordering::Relaxed)
    }

    fn must_end(&self) -> bool {
        if self.is_unwanted() {
            return true;
        }
        let over = mono_ns() > self.0.deadline_mono_ns.load(Ordering::Relaxed);
        if over {
            self.0.expired.store(true, Ordering::Relaxed);
        }
        over
    }

    /// Why FFmpeg came back with `error`, if it was told to.
    pub(crate) fn explain(&self, place: &str, error: ffmpeg::Error) -> Option<VideoError> {
        let place = place.to_owned();
        if self.0.expired.load(Ordering::Relaxed) {
            return Some(VideoError::Silent { place, waited: Span(self.0.options.timeout) });
        }
        (error == ffmpeg::Error::Exit || self.is_unwanted()).then_some(VideoError::Interrupted { place })
    }
}

/// What a source says about itself before anything is decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceInfo {
    pub container: String,
    pub codec: String,
    /// As coded, before turning.
    pub width_px: u32,
    pub height_px: u32,
    pub orientation: Orientation,
    pub time_base: Rational,
    /// Mean frame rate if the container knows one.
    pub frame_rate: Option<Rational>,
    pub duration_ns: Option<i64>,
    /// Frames by the container's index.
    pub frames: Option<u64>,
}

impl SourceInfo {
    /// Size as displayed.
    pub fn display_size(&self) -> (u32, u32) {
        self.orientation.turn_size(self.width_px, self.height_px)
    }

    /// The usual distance between frames; 25 fps where nothing is known.
    pub fn frame_period_ns(&self) -> i64 {
        let rate = self.frame_rate.unwrap_or(Rational::new(25, 1));
        (i128::from(rate.den) * 1_000_000_000 / i128::from(rate.num.max(1))).max(1) as i64
    }
}

/// An opened container, its chosen video stream and the watchdog over its reads.
pub(crate) struct Demuxer {
    pub(crate) input: ffmpeg::format::context::Input,
    pub(crate) stream_index: usize,
    pub(crate) watchdog: Watchdog,
    pub(crate) info: SourceInfo,
}

impl Demuxer {
    pub(crate) fn open(location: &Location, options: &OpenOptions) -> Result<Demuxer, VideoError> {
        prepare_library();
        let place = location.place();
        let watchdog = Watchdog::new(options);
        watchdog.arm();
        let asked = watchdog.clone();
        let mut input = ffmpeg::format::input_with_interrupt_and_dictionary(
            location.address().as_str(),
            move || asked.must_end(),
            demuxer_options(location, options.timeout),
        )
        .map_err(|source| {
            watchdog.explain(&place, source).unwrap_or(VideoError::Open { place: place.clone(), source })
        })?;
        watchdog.opened();
        let stream_index = choose_stream(&input, &place)?;
        discard_others(&mut input, stream_index);
        let info = describe(&input, stream_index);
        Ok(Demuxer { input, stream_index, watchdog, info })
    }
}

fn prepare_library() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that a protocol could not be set up; opening such an address says so.
        let _ = ffmpeg::init();
        // Every damaged packet would be a line on stderr; they are counted instead.
        ffmpeg::log::set_level(ffmpeg::log::Level::Quiet);
    });
}

fn demuxer_options(location: &Location, timeout: Duration) -> ffmpeg::Dictionary<'static> {
    let mut options = ffmpeg::Dictionary::new();
    match location {
        // A play list that calls itself a film must not reach out to other files' protocols or the network.
        Location::File(_) => options.set("protocol_whitelist", "file,crypto,data"),
        Location::Url(url) => {
            let microseconds = timeout.as_micros().to_string();
            // RTSP over TCP: a lost datagram would be a damaged frame that nobody sent.
            if url.starts_with("rtsp") {
                options.set("rtsp_transport", "tcp");
                options.set("timeout", &microseconds);
            } else {
                options.set("rw_timeout", &microseconds);
            }
        }
    }
    options
}

fn choose_stream(input: &ffmpeg::format::context::Input, place: &str) -> Result<usize, VideoError> {
    let is_picture = |stream: &ffmpeg::Stream<'_>| {
        // Cover art is a "video" stream of one still picture.
        stream.disposition().contains(ffmpeg::format::stream::Disposition::ATTACHED_PIC)
    };
    let best = input.streams().best(ffmpeg::media::Type::Video).filter(|stream| !is_picture(stream));
    best.map(|stream| stream.index()).ok_or_else(|| {
        let kinds: Vec<String> = input
            .streams()
            .map(|stream| format!("{:?} {}", stream.parameters().medium(), stream.parameters().id().name()))
            .collect();
        let streams = if kinds.is_empty() { "no streams at all".to_owned() } else { kinds.join(", ").to_lowercase() };
        VideoError::NoVideo { place: place.to_owned(), streams }
    })
}

#[expect(unsafe_code, reason = "the discard field of a stream has no safe setter")]
fn discard_others(input: &mut ffmpeg::format::context::Input, stream_index: usize) {
    for mut stream in input.streams_mut() {
        if stream.index() != stream_index {
            // SAFETY: the pointer is the live stream of a context that is exclusively borrowed here.
            unsafe { (*stream.as_mut_ptr()).discard = ffmpeg::ffi::AVDiscard::AVDISCARD_ALL };
        }
    }
}

fn describe(input: &ffmpeg::format::context::Input, stream_index: usize) -> SourceInfo {
    let stream = input.stream(stream_index).expect("the index was taken from this input");
    let (width_px, height_px) = coded_size(&stream);
    let time_base = positive(stream.time_base()).unwrap_or(Rational::new(1, 90_000));
    let in_stream = (stream.duration() > 0)
        .then(|| i128::from(stream.duration()) * i128::from(time_base.num) * 1_000_000_000 / i128::from(time_base.den));
    let in_container = (input.duration() > 0).then(|| i128::from(input.duration()) * 1_000);
    let matrix = stream.side_data().find(|data| data.kind() == side_data::Type::DisplayMatrix);
    SourceInfo {
        container: input.format().name().to_owned(),
        codec: stream.parameters().id().name().to_owned(),
        width_px,
        height_px,
        orientation: matrix.map_or(Orientation::UPRIGHT, |data| Orientation::from_display_matrix(data.data())),
        time_base,
        frame_rate: positive(stream.avg_frame_rate()).or_else(|| positive(stream.rate())).filter(plausible_rate),
        duration_ns: in_stream.or(in_container).and_then(|ns| i64::try_from(ns).ok()),
        frames: u64::try_from(stream.frames()).ok().filter(|frames| *frames > 0),
    }
}

#[expect(unsafe_code, reason = "codec parameters have no safe getter for the size")]
fn coded_size(stream: &ffmpeg::Stream<'_>) -> (u32, u32) {
    // SAFETY: the stream and its codec parameters live as long as the input borrowed by `stream`.
    let (width, height) = unsafe {
        let parameters = (*stream.as_ptr()).codecpar;
        ((*parameters).width, (*parameters).height)
    };
    (width.max(0) as u32, height.max(0) as u32)
}

fn positive(value: ffmpeg::Rational) -> Option<Rational> {
    let (num, den) = (value.numerator(), value.denominator());
    (num > 0 && den > 0).then(|| Rational::new(num as u32, den as u32))
}

/// Containers without a rate sometimes state their time base.
fn plausible_rate(rate: &Rational) -> bool {
    (0.01..=1000.0).contains(&rate.as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_a_known_scheme() {
        assert!(Location::url("rtsp://camera/1").is_ok());
        for text in ["", "camera", "file:///etc/passwd", "concat:a|b", "http:/x"] {
            assert!(Location::url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let place = |url: &str| Location::Url(url.to_owned()).place();
        assert_eq!(place("rtsp://me:secret@cam:554/a@b"), "rtsp://cam:554/a@b");
        assert_eq!(place("http://host/x"), "http://host/x");
    }

    #[test]
    fn missing_files_and_folders_are_named() {
        let error = Location::file(Path::new("/nowhere/clip.mp4")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/clip.mp4"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        assert!(Location::file(folder.path()).unwrap_err().to_string().contains("`dir`"));
        assert!(Location::folder(folder.path()).unwrap_err().to_string().contains("no video file"));
    }

    #[test]
    fn a_folder_is_listed_by_name_without_other_files() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.MP4", "a.webm", "notes.txt", "c"] {
            std::fs::write(folder.path().join(name), b"x").unwrap();
        }
        let found: Vec<_> = Location::folder(folder.path()).unwrap().iter().map(Location::place).collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].ends_with("a.webm") && found[1].ends_with("b.MP4"));
    }
}
