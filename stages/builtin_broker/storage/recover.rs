//! Bring a partition's files back to a sound, equal state when the broker starts.
//!
//! After a clean stop only the last segment is looked into, from its last index entry on. After a dead process all
//! headers are read and the last segment's checksums are checked. After another boot everything is checked on every
//! replica, and the replica with the longest sound log is the source for the others.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::error::BrokerError;
use crate::facts::{Counters, add};
use crate::storage::index::Index;
use crate::storage::partition::{Placement, create_files};
use crate::storage::producers::Producers;
use crate::storage::scan::Scanner;
use crate::storage::segment::{self, LazyIndex, Segment};
use crate::storage::shutdown_mark::{PartitionMark, SegmentMark, Trust};

/// A partition ready to be served.
pub(crate) struct Recovered {
    pub segments: Vec<Segment>,
    /// The active segment's files, leader first.
    pub active_files: Vec<Arc<File>>,
    pub producers: Producers,
}

/// Files of a new partition.
pub(crate) fn create(placement: &Placement) -> io::Result<Recovered> {
    for dir in &placement.dirs {
        fs::create_dir_all(dir)?;
    }
    let active_files = create_files(placement, 0)?;
    Ok(Recovered { segments: vec![empty_segment(0, &active_files)], active_files, producers: Producers::default() })
}

fn empty_segment(base_offset: i64, files: &[Arc<File>]) -> Segment {
    Segment {
        base_offset,
        bytes: 0,
        end_offset: base_offset,
        max_timestamp_ms: -1,
        file: Arc::clone(&files[0]),
        index: LazyIndex::Loaded(Index::default()),
    }
}

/// Recover a partition that existed before.
pub(crate) fn recover(
    placement: &Placement,
    trust: Trust,
    mark: Option<&PartitionMark>,
    counters: &Counters,
) -> Result<Recovered, BrokerError> {
    let recovery = Recovery { placement, trust, counters };
    let failed = BrokerError::directory(&placement.dirs[0], "recover the partition in");
    if let (Trust::Clean, Some(mark)) = (trust, mark) {
        match recovery.by_mark(mark) {
            Ok(Some(recovered)) => return Ok(recovered),
            Ok(None) => {
                tracing::warn!(partition = placement.name(), "files differ from the shutdown mark, scanning all")
            }
            Err(error) => {
                tracing::warn!(partition = placement.name(), %error, "clean start not possible, scanning all")
            }
        }
    }
    recovery.by_scan().map_err(failed)
}

struct Recovery<'a> {
    placement: &'a Placement,
    trust: Trust,
    counters: &'a Counters,
}

impl Recovery<'_> {
    /// Believe the mark if the lengths of all files agree with it and the last segment ends as it says.
    fn by_mark(&self, mark: &PartitionMark) -> io::Result<Option<Recovered>> {
        let Some((last, closed)) = mark.segments.split_last() else { return Ok(None) };
        for dir in &self.placement.dirs {
            let listed: Vec<i64> = mark.segments.iter().map(|segment| segment.base_offset).collect();
            if segment::bases(dir)? != listed {
                return Ok(None);
            }
            for segment in &mark.segments {
                if fs::metadata(segment::log_path(dir, segment.base_offset))?.len() != segment.bytes {
                    return Ok(None);
                }
            }
        }
        let active_files = self.open_all(last.base_offset)?;
        let Some(index) = self.check_tail(last, &active_files[0])? else { return Ok(None) };
        let mut segments = closed.iter().map(|segment| self.closed_segment(segment)).collect::<io::Result<Vec<_>>>()?;
        let mut active = empty_segment(last.base_offset, &active_files);
        active.bytes = last.bytes;
        active.end_offset = last.end_offset;
        active.max_timestamp_ms = last.max_timestamp_ms;
        active.index = LazyIndex::Loaded(index);
        segments.push(active);
        Ok(Some(Recovered { segments, active_files, producers: mark.producers.clone() }))
    }

    fn closed_segment(&self, mark: &SegmentMark) -> io::Result<Segment> {
        let dir = &self.placement.dirs[0];
        Ok(Segment {
            base_offset: mark.base_offset,
            bytes: mark.bytes,
            end_offset: mark.end_offset,
            max_timestamp_ms: mark.max_timestamp_ms,
            file: Arc::new(segment::open(&segment::log_path(dir, mark.base_offset))?),
            index: LazyIndex::OnDisk(segment::index_path(dir, mark.base_offset)),
        })
    }

    /// Walk the last segment from its last index entry; the index when it ends where the mark says.
    fn check_tail(&self, mark: &SegmentMark, file: &File) -> io::Result<Option<Index>> {
        let path = segment::index_path(&self.placement.dirs[0], mark.base_offset);
        let Some(index) = Index::read(&path, mark.bytes) else { return Ok(None) };
        let entry = index.last().unwrap_or_default();
        let offset = mark.base_offset + i64::from(entry.relative_offset);
        let mut scanner = Scanner::new(file, u64::from(entry.position), mark.bytes, offset, false);
        while scanner.next()?.is_some() {}
        self.count_scan(&scanner);
        let agrees = scanner.position() == mark.bytes && scanner.next_offset() == mark.end_offset;
        Ok(agrees.then_some(index))
    }

    fn count_scan(&self, scanner: &Scanner<'_>) {
        add(&self.counters.recovery_scanned_segments, 1);
        add(&self.counters.recovery_scanned_bytes, scanner.read_bytes());
    }

    fn open_all(&self, base_offset: i64) -> io::Result<Vec<Arc<File>>> {
        let open = |dir: &std::path::PathBuf| segment::open(&segment::log_path(dir, base_offset)).map(Arc::new);
        self.placement.dirs.iter().map(open).collect()
    }

    fn by_scan(&self) -> io::Result<Recovered> {
        for dir in &self.placement.dirs {
            fs::create_dir_all(dir)?;
        }
        let bases = self.source_bases()?;
        let mut producers = Producers::default();
        let mut segments: Vec<Segment> = Vec::new();
        let mut active_files = Vec::new();
        for (position, &base_offset) in bases.iter().enumerate() {
            // After a cut, what follows no longer joins.
            if segments.last().is_some_and(|before| before.end_offset != base_offset) {
                break;
            }
            let next_base = bases.get(position + 1).copied();
            let files = self.open_all(base_offset)?;
            segments.push(self.scan_segment(base_offset, next_base, &files, &mut producers)?);
            active_files = files;
        }
        self.remove_all_but(&segments)?;
        if segments.is_empty() {
            active_files = create_files(self.placement, 0)?;
            segments.push(empty_segment(0, &active_files));
        }
        Ok(Recovered { segments, active_files, producers })
    }

    /// The leader's segments; if its directory was lost, those of the first replica that has any.
    fn source_bases(&self) -> io::Result<Vec<i64>> {
        for dir in &self.placement.dirs {
            let bases = segment::bases(dir)?;
            if !bases.is_empty() {
                return Ok(bases);
            }
        }
        Ok(Vec::new())
    }

    /// Find the sound part of a segment, make all replicas equal to it, and rebuild its index.
    fn scan_segment(
        &self,
        base_offset: i64,
        next_base: Option<i64>,
        files: &[Arc<File>],
        producers: &mut Producers,
    ) -> io::Result<Segment> {
        let verify = self.trust == Trust::Rebooted || next_base.is_none();
        let mut sound = self.sound_bytes(&files[0], base_offset, verify)?;
        let mut source = 0;
        let whole = |sound: (u64, i64)| next_base.is_none_or(|next| next == sound.1);
        // The leader is written first: a longer copy elsewhere means that the leader's file was lost or damaged.
        let lengths = files.iter().map(|file| Ok(file.metadata()?.len())).collect::<io::Result<Vec<u64>>>()?;
        let elsewhere = lengths[1..].iter().any(|length| *length > sound.0);
        if self.trust == Trust::Rebooted || !whole(sound) || elsewhere {
            for (replica, file) in files.iter().enumerate().skip(1) {
                let other = self.sound_bytes(file, base_offset, verify)?;
                if other.0 > sound.0 {
                    (sound, source) = (other, replica);
                }
            }
        }
        self.equalise(files, source, base_offset, sound.0)?;
        let mut segment = empty_segment(base_offset, files);
        let mut index = Index::default();
        let mut scanner = Scanner::new(&files[0], 0, sound.0, base_offset, false);
        while let Some((position, header)) = scanner.next()? {
            index.note(header.base_offset - base_offset, position);
            producers.record(&header, header.base_offset);
            segment.max_timestamp_ms = segment.max_timestamp_ms.max(header.max_timestamp_ms);
        }
        self.count_scan(&scanner);
        (segment.bytes, segment.end_offset) = (scanner.position(), scanner.next_offset());
        for dir in &self.placement.dirs {
            index.write(&segment::index_path(dir, base_offset))?;
        }
        segment.index = LazyIndex::Loaded(index);
        Ok(segment)
    }

    /// Length of the sound beginning of a replica's file, and the offset after it.
    fn sound_bytes(&self, file: &File, base_offset: i64, verify: bool) -> io::Result<(u64, i64)> {
        let mut scanner = Scanner::new(file, 0, file.metadata()?.len(), base_offset, verify);
        while scanner.next()?.is_some() {}
        self.count_scan(&scanner);
        Ok((scanner.position(), scanner.next_offset()))
    }

    /// Cut every replica to the sound length; complete those that are shorter from the source.
    fn equalise(&self, files: &[Arc<File>], source: usize, base_offset: i64, sound_bytes: u64) -> io::Result<()> {
        for (replica, file) in files.iter().enumerate() {
            let length = file.metadata()?.len();
            if length > sound_bytes {
                add(&self.counters.recovery_cut_bytes, length - sound_bytes);
                tracing::warn!(
                    partition = self.placement.name(),
                    base_offset,
                    length,
                    sound_bytes,
                    "cut an unsound tail"
                );
                file.set_len(sound_bytes)?;
            }
            if replica == source {
                continue;
            }
            // Within one boot a replica's bytes are right as far as they go; after another boot only sound ones are.
            let kept = match self.trust {
                Trust::Rebooted => self.sound_bytes(file, base_offset, true)?.0,
                Trust::Clean | Trust::ProcessDied if source == 0 => length.min(sound_bytes),
                Trust::Clean | Trust::ProcessDied => self.sound_bytes(file, base_offset, true)?.0,
            };
            self.copy(&files[source], file, kept, sound_bytes)?;
        }
        Ok(())
    }

    fn copy(&self, from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let mut buffer = vec![0; 1 << 20];
        let mut position = start;
        while position < end {
            let length = usize::try_from(end - position).unwrap_or(usize::MAX).min(buffer.len());
            from.read_exact_at(&mut buffer[..length], position)?;
            to.write_all_at(&buffer[..length], position)?;
            position += length as u64;
        }
        add(&self.counters.recovery_copied_bytes, end.saturating_sub(start));
        Ok(())
    }

    /// Remove segment files that are not part of the log: leftovers of a cut, of retention, of a failed roll.
    fn remove_all_but(&self, segments: &[Segment]) -> io::Result<()> {
        for dir in &self.placement.dirs {
            for base_offset in segment::bases(dir)? {
                if segments.iter().all(|segment| segment.base_offset != base_offset) {
                    let bytes = fs::metadata(segment::log_path(dir, base_offset))?.len();
                    add(&self.counters.recovery_cut_bytes, bytes);
                    segment::remove(dir, base_offset)?;
                }
            }
            remove_orphan_indexes(dir)?;
        }
        Ok(())
    }
}

fn remove_orphan_indexes(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let orphan = path.extension().is_some_and(|end| end == "index") && !path.with_extension("log").exists();
        if orphan {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
