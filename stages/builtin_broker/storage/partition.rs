//! One partition: appends to all replicas or to none, reads from the leader's files, retention.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::api::code;
use crate::batch::{self, BatchHeader};
use crate::clock;
use crate::facts::{Counters, add};
use crate::storage::flusher::{self, ClosedSegment, Flusher};
use crate::storage::index::Index;
use crate::storage::producers::{Producers, Sequence};
use crate::storage::recover::Recovered;
use crate::storage::segment::{self, LazyIndex, Segment};
use crate::storage::shutdown_mark::{PartitionMark, SegmentMark};
use crate::storage::space::Space;
use crate::topic_config::TopicSettings;
use crate::waiters::Waiters;

/// Leaders never change, so there is one epoch.
pub(crate) const LEADER_EPOCH: i32 = 0;

/// A panic elsewhere must not take the partition with it: state is only changed after the work that can fail.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all partitions share.
#[derive(Clone)]
pub(crate) struct StorageContext {
    pub counters: Arc<Counters>,
    pub flusher: Flusher,
    pub space: Arc<Space>,
}

/// Where a partition lives.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    pub topic: String,
    pub index: i32,
    /// Node numbers, leader first.
    pub replicas: Vec<u16>,
    /// The replicas' directories in the same order.
    pub dirs: Vec<PathBuf>,
}

impl Placement {
    pub fn leader(&self) -> u16 {
        self.replicas[0]
    }

    /// `<topic>-<partition>`
    pub fn name(&self) -> String {
        format!("{}-{}", self.topic, self.index)
    }
}

/// The end of the log, owned by whoever appends.
struct Appender {
    files: Vec<Arc<File>>,
    base_offset: i64,
    bytes: u64,
    next_offset: i64,
    producers: Producers,
    unforced_messages: u64,
    oldest_unforced_ms: Option<u64>,
    /// Set when the replicas could not be brought back to one length: nothing is appended until a restart.
    broken: bool,
}

/// What readers see.
struct View {
    segments: Vec<Segment>,
    next_offset: i64,
}

/// Where a stored batch went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Appended {
    pub base_offset: i64,
    pub log_start_offset: i64,
}

pub(crate) struct Partition {
    pub placement: Placement,
    pub settings: TopicSettings,
    pub waiters: Waiters,
    context: StorageContext,
    appender: Mutex<Appender>,
    view: Mutex<View>,
    deleted: AtomicBool,
}

impl Partition {
    pub fn new(placement: Placement, settings: TopicSettings, context: StorageContext, found: Recovered) -> Partition {
        let last = found.segments.last().expect("recovery always leaves an active segment");
        let appender = Appender {
            files: found.active_files,
            base_offset: last.base_offset,
            bytes: last.bytes,
            next_offset: last.end_offset,
            producers: found.producers,
            unforced_messages: 0,
            oldest_unforced_ms: None,
            broken: false,
        };
        let view = View { next_offset: last.end_offset, segments: found.segments };
        let (appender, view) = (Mutex::new(appender), Mutex::new(view));
        Partition {
            placement,
            settings,
            waiters: Waiters::default(),
            context,
            appender,
            view,
            deleted: AtomicBool::new(false),
        }
    }

    /// Store one batch on all replicas, or on none. The error is the code to answer.
    pub fn append(&self, bytes: &[u8]) -> Result<Appended, i16> {
        let result = self.try_append(bytes);
        if let Err(error) = result {
            add(&self.context.counters.batches_refused, 1);
            if error == code::STORAGE_ERROR {
                add(&self.context.counters.storage_errors, 1);
            }
        }
        result
    }

    fn try_append(&self, bytes: &[u8]) -> Result<Appended, i16> {
        let header = batch::check(bytes, self.settings.max_message_bytes)?;
        let mut appender = lock(&self.appender);
        if self.deleted.load(Ordering::Acquire) {
            return Err(code::UNKNOWN_TOPIC_OR_PARTITION);
        }
        let log_start_offset = self.log_start_offset();
        if let Sequence::Repeat(base_offset) = appender.producers.judge(&header, log_start_offset > 0)? {
            add(&self.context.counters.batches_repeated, 1);
            return Ok(Appended { base_offset, log_start_offset });
        }
        let replicated_bytes = bytes.len() as u64 * self.placement.dirs.len() as u64;
        if appender.broken || !self.context.space.reserve(replicated_bytes) {
            return Err(code::STORAGE_ERROR);
        }
        self.roll_if_full(&mut appender, &header).map_err(|error| self.storage_error("start a segment", &error))?;
        let base_offset = appender.next_offset;
        let front = batch::patched(bytes, base_offset, LEADER_EPOCH);
        self.write_replicas(&mut appender, &front, &bytes[batch::PATCHED_BYTES..])?;
        self.force_if_due(&mut appender, &header)?;
        self.publish(&mut appender, &header);
        let counters = &self.context.counters;
        add(&counters.batches_appended, 1);
        add(&counters.records_appended, u64::from(header.record_count.unsigned_abs()));
        add(&counters.bytes_appended, bytes.len() as u64);
        add(&counters.bytes_replicated, replicated_bytes);
        drop(appender);
        self.waiters.wake();
        Ok(Appended { base_offset, log_start_offset })
    }

    fn storage_error(&self, action: &str, error: &io::Error) -> i16 {
        tracing::error!(partition = self.placement.name(), %error, "cannot {action}; answering storage error");
        code::STORAGE_ERROR
    }

    fn write_replicas(&self, appender: &mut Appender, front: &[u8], body: &[u8]) -> Result<(), i16> {
        for file in &appender.files {
            if let Err(error) = segment::write_all_vectored(file, front, body, appender.bytes) {
                let code = self.storage_error("write a batch", &error);
                self.cut_back(appender);
                return Err(code);
            }
        }
        Ok(())
    }

    /// Bring every replica back to the length readers know.
    fn cut_back(&self, appender: &mut Appender) {
        for file in &appender.files {
            if let Err(error) = file.set_len(appender.bytes) {
                self.storage_error("cut a replica back", &error);
                appender.broken = true;
            }
        }
    }

    fn force_if_due(&self, appender: &mut Appender, header: &BatchHeader) -> Result<(), i16> {
        appender.unforced_messages += u64::from(header.record_count.unsigned_abs());
        appender.oldest_unforced_ms.get_or_insert_with(clock::monotonic_ms);
        if appender.unforced_messages < self.settings.flush_messages {
            return Ok(());
        }
        if let Err(error) = flusher::force(&appender.files, &self.context.counters) {
            let code = self.storage_error("force a batch to the device", &error);
            // After a failed fsync the kernel may have dropped the pages: the replicas can no longer be believed.
            self.cut_back(appender);
            appender.broken = true;
            return Err(code);
        }
        (appender.unforced_messages, appender.oldest_unforced_ms) = (0, None);
        Ok(())
    }

    fn publish(&self, appender: &mut Appender, header: &BatchHeader) {
        let (base_offset, position) = (appender.next_offset, appender.bytes);
        appender.producers.record(header, base_offset);
        appender.bytes += header.total_bytes as u64;
        appender.next_offset += i64::from(header.record_count);
        let mut view = lock(&self.view);
        view.next_offset = appender.next_offset;
        let active = view.segments.last_mut().expect("there is always an active segment");
        let relative_offset = base_offset - active.base_offset;
        active.index().note(relative_offset, position);
        active.bytes = appender.bytes;
        active.end_offset = appender.next_offset;
        active.max_timestamp_ms = active.max_timestamp_ms.max(header.max_timestamp_ms);
    }

    fn roll_if_full(&self, appender: &mut Appender, header: &BatchHeader) -> io::Result<()> {
        let full = appender.bytes + header.total_bytes as u64 > self.settings.segment_bytes;
        let far = appender.next_offset - appender.base_offset > i64::from(i32::MAX);
        if appender.bytes == 0 || !(full || far) {
            return Ok(());
        }
        let base_offset = appender.next_offset;
        let files = create_files(&self.placement, base_offset)?;
        let closed = ClosedSegment {
            files: std::mem::replace(&mut appender.files, files),
            index: self.open_segment(appender, base_offset),
            index_paths: self.placement.dirs.iter().map(|dir| segment::index_path(dir, appender.base_offset)).collect(),
        };
        (appender.base_offset, appender.bytes) = (base_offset, 0);
        (appender.unforced_messages, appender.oldest_unforced_ms) = (0, None);
        add(&self.context.counters.segments_rolled, 1);
        self.context.flusher.close(closed);
        Ok(())
    }

    /// Show readers the new segment; returns the index of the one before.
    fn open_segment(&self, appender: &Appender, base_offset: i64) -> Index {
        let mut view = lock(&self.view);
        let closed = view.segments.last_mut().map(|segment| segment.index().clone()).unwrap_or_default();
        view.segments.push(Segment {
            base_offset,
            bytes: 0,
            end_offset: base_offset,
            max_timestamp_ms: -1,
            file: Arc::clone(&appender.files[0]),
            index: LazyIndex::Loaded(Index::default()),
        });
        closed
    }

    /// Force appended data that waited long enough; called by the maintenance thread.
    pub fn force_if_old(&self, now_ms: u64) {
        let files = {
            let mut appender = lock(&self.appender);
            let old =
                appender.oldest_unforced_ms.is_some_and(|since| since.saturating_add(self.settings.flush_ms) <= now_ms);
            if !old || appender.broken {
                return;
            }
            (appender.unforced_messages, appender.oldest_unforced_ms) = (0, None);
            appender.files.clone()
        };
        if let Err(error) = flusher::force(&files, &self.context.counters) {
            self.storage_error("force appended data to the device", &error);
            lock(&self.appender).broken = true;
        }
    }

    /// Apply retention; called by the maintenance thread. Appends go on: removing a large file takes a while.
    pub fn retain(&self) {
        let removed: Vec<Segment> = {
            let mut view = lock(&self.view);
            let count = expired(&view.segments, &self.settings, clock::wall_ms());
            view.segments.drain(..count).collect()
        };
        for old in removed {
            add(&self.context.counters.segments_deleted, 1);
            add(&self.context.counters.bytes_deleted, old.bytes);
            // The leader's file goes first: a crash in between leaves files that the next start removes.
            for dir in &self.placement.dirs {
                if let Err(error) = segment::remove(dir, old.base_offset) {
                    self.storage_error("delete an old segment", &error);
                }
            }
        }
    }

    pub fn log_start_offset(&self) -> i64 {
        lock(&self.view).segments.first().map_or(0, |segment| segment.base_offset)
    }

    /// First offset not yet written.
    pub fn next_offset(&self) -> i64 {
        lock(&self.view).next_offset
    }

    /// First and last-plus-one offset.
    pub fn bounds(&self) -> (i64, i64) {
        let view = lock(&self.view);
        (view.segments.first().map_or(0, |segment| segment.base_offset), view.next_offset)
    }

    /// Bytes of one replica.
    pub fn log_bytes(&self) -> u64 {
        lock(&self.view).segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Run `with` on the segment that holds `offset`; `None` outside the log or at its end.
    pub(super) fn with_segment<T>(&self, offset: i64, with: impl FnOnce(&mut Segment) -> T) -> Option<T> {
        let mut view = lock(&self.view);
        let after = view.segments.partition_point(|segment| segment.base_offset <= offset);
        let segment = view.segments.get_mut(after.checked_sub(1)?)?;
        (offset < segment.end_offset).then(|| with(segment))
    }

    /// File, base offset and bytes of each segment whose newest record is at or after a timestamp.
    pub(super) fn segments_since(&self, timestamp_ms: i64) -> Vec<(Arc<File>, i64, u64)> {
        let view = lock(&self.view);
        let recent = view.segments.iter().filter(|segment| segment.max_timestamp_ms >= timestamp_ms);
        recent.map(|segment| (Arc::clone(&segment.file), segment.base_offset, segment.bytes)).collect()
    }

    /// Refuse further work and remove the files.
    pub fn delete(&self) -> io::Result<()> {
        let _appender = lock(&self.appender);
        self.deleted.store(true, Ordering::Release);
        self.waiters.wake();
        self.placement.dirs.iter().try_for_each(std::fs::remove_dir_all)
    }

    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    /// Write the active segment's index files and describe the partition for the mark of a clean stop.
    ///
    /// `None` when the files are not what readers were told: the next start must look for itself.
    pub fn close(&self) -> Option<PartitionMark> {
        let appender = lock(&self.appender);
        let mut view = lock(&self.view);
        let flush_asked = self.settings.flush_messages < u64::MAX >> 1 || self.settings.flush_ms < u64::MAX >> 1;
        if flush_asked && appender.oldest_unforced_ms.is_some() {
            flusher::force(&appender.files, &self.context.counters).ok()?;
        }
        let active = view.segments.last_mut()?;
        let base_offset = active.base_offset;
        let index = active.index().clone();
        for dir in &self.placement.dirs {
            index.write(&segment::index_path(dir, base_offset)).ok()?;
        }
        let segments = view.segments.iter().map(|segment| SegmentMark {
            base_offset: segment.base_offset,
            bytes: segment.bytes,
            end_offset: segment.end_offset,
            max_timestamp_ms: segment.max_timestamp_ms,
        });
        (!appender.broken)
            .then(|| PartitionMark { segments: segments.collect(), producers: appender.producers.clone() })
    }
}

/// How many of the oldest segments retention gives up; the active one always stays.
fn expired(segments: &[Segment], settings: &TopicSettings, now_wall_ms: i64) -> usize {
    let mut total_bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let closed = &segments[..segments.len().saturating_sub(1)];
    let mut count = 0;
    for segment in closed {
        let too_much = u64::try_from(settings.retention_bytes).is_ok_and(|kept| total_bytes - segment.bytes >= kept);
        let age_ms = now_wall_ms.saturating_sub(segment.max_timestamp_ms);
        let too_old = settings.retention_ms >= 0 && age_ms > settings.retention_ms;
        if !too_much && !too_old {
            break;
        }
        total_bytes -= segment.bytes;
        count += 1;
    }
    count
}

/// New, empty files of a segment for every replica; none is left behind when one fails.
pub(crate) fn create_files(placement: &Placement, base_offset: i64) -> io::Result<Vec<Arc<File>>> {
    let mut files = Vec::with_capacity(placement.dirs.len());
    for dir in &placement.dirs {
        let opened = segment::open(&segment::log_path(dir, base_offset)).and_then(|file| {
            file.set_len(0)?;
            Ok(file)
        });
        match opened {
            Ok(file) => files.push(Arc::new(file)),
            Err(error) => {
                for dir in &placement.dirs {
                    // The first error is the one to report.
                    let _ = segment::remove(dir, base_offset);
                }
                return Err(error);
            }
        }
    }
    Ok(files)
}
