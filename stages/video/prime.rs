//! Mode `cached`: decode and encode a whole loop before the start and keep it, if it fits the bound.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use contract::pace::Timeline;
use contract::units::ByteSize;
use contract::{Cx, StageError};

use crate::feed::{Cached, Item, ItemSink};
use crate::produce::{Opened, Play, spawn};

/// How often a waiting primer looks for shutdown.
const LOOK_FOR_SHUTDOWN: Duration = Duration::from_millis(100);

/// Play `opened` once into memory.
pub(crate) fn prime(opened: Opened, play: Play, bound: ByteSize, cx: &Cx) -> Result<Cached, StageError> {
    let place = opened.place();
    let expected = expected_frames(&opened);
    let sink = Arc::new(PrimeSink { bound_bytes: bound.0, ..PrimeSink::default() });
    let play = Play { loops: Some(1), start_ns: 0, ..play };
    let threads = spawn(opened, play, sink.clone(), cx)?;
    let result = sink.wait(cx);
    for thread in threads {
        // A panic there has ended the sink with an error already.
        let _ = thread.join();
    }
    result.map_err(|error| StageError::new(error.code, place.clone(), error.message))?;
    let state = std::mem::take(&mut *sink.state.lock().unwrap_or_else(PoisonError::into_inner));
    if state.over {
        return Err(too_large(&place, &state, expected, bound));
    }
    keep(&place, state.items)
}

fn expected_frames(opened: &Opened) -> Option<u64> {
    match opened {
        Opened::Pattern { config, .. } => Some(u64::from(config.frames)),
        Opened::Media(decoder) => {
            let info = decoder.info();
            info.frames.or_else(|| Some((info.duration_ns? / info.frame_period_ns()) as u64))
        }
    }
}

fn too_large(place: &str, state: &PrimeState, expected: Option<u64>, bound: ByteSize) -> StageError {
    let held = state.items.len() as u64;
    let size = match expected.filter(|frames| *frames > held) {
        Some(frames) => {
            let bytes = u128::from(state.bytes) * u128::from(frames) / u128::from(held.max(1));
            format!("about {} MiB for {frames} frames", bytes >> 20)
        }
        None => format!("more than {} MiB", state.bytes >> 20),
    };
    let message = format!(
        "one loop takes {size}, more than `cache` of {bound}; raise `cache`, make frames smaller, or use mode `shared`"
    );
    StageError::limit(place, message)
}

fn keep(place: &str, items: Vec<Item>) -> Result<Cached, StageError> {
    let loop_end = items.last().map_or((0, 0), |last| {
        (last.time.ns.saturating_add(last.time.duration_ns), last.time.ticks.saturating_add(last.time.duration_ticks))
    });
    let timeline = Timeline::new(items.iter().map(|item| item.time.ns).collect(), loop_end.0)
        .ok_or_else(|| StageError::missing(place, "its time stamps make no time line; give `pace: { fps: ... }`"))?;
    Ok(Cached { items, timeline, loop_ticks: loop_end.1 })
}

#[derive(Default)]
struct PrimeSink {
    bound_bytes: u64,
    state: Mutex<PrimeState>,
    ended: Condvar,
}

#[derive(Default)]
struct PrimeState {
    items: Vec<Item>,
    bytes: u64,
    over: bool,
    result: Option<Result<(), StageError>>,
}

impl PrimeSink {
    fn wait(&self, cx: &Cx) -> Result<(), StageError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = &state.result {
                return result.clone();
            }
            if cx.shutdown.is_stopping() {
                // The next frame is refused, and the threads end.
                state.over = true;
            }
            state = self.ended.wait_timeout(state, LOOK_FOR_SHUTDOWN).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl ItemSink for PrimeSink {
    fn put(&self, item: Item) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.over {
            state.bytes += item.payload.len() as u64;
            state.items.push(item);
            state.over = state.bytes > self.bound_bytes;
        }
        !state.over
    }

    fn end(&self, result: Result<(), StageError>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).result.get_or_insert(result);
        self.ended.notify_all();
    }
}
