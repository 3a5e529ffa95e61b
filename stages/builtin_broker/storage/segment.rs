//! One segment: the same bytes in a file for each replica, and its index.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::storage::index::Index;

/// `<20-digit base offset>.log` in a replica's directory.
pub(crate) fn log_path(dir: &Path, base_offset: i64) -> PathBuf {
    dir.join(format!("{base_offset:020}.log"))
}

/// `<20-digit base offset>.index` in a replica's directory.
pub(crate) fn index_path(dir: &Path, base_offset: i64) -> PathBuf {
    dir.join(format!("{base_offset:020}.index"))
}

/// Base offsets of the segments in a directory, rising. Missing directory: none.
pub(crate) fn bases(dir: &Path) -> io::Result<Vec<i64>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut bases = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".log")).filter(|stem| stem.len() == 20);
        bases.extend(stem.and_then(|stem| stem.parse::<i64>().ok()));
    }
    bases.sort_unstable();
    Ok(bases)
}

/// Index entries in memory, or still in their file.
#[derive(Debug)]
pub(crate) enum LazyIndex {
    Loaded(Index),
    /// A closed segment after a clean start: read when first needed.
    OnDisk(PathBuf),
}

/// A segment as readers see it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub base_offset: i64,
    /// Bytes readers may see: those all replicas have.
    pub bytes: u64,
    pub end_offset: i64,
    pub max_timestamp_ms: i64,
    pub file: Arc<File>,
    pub index: LazyIndex,
}

impl Segment {
    /// The index; loaded on first use, and empty (search from the start) when its file is unusable.
    pub fn index(&mut self) -> &mut Index {
        if let LazyIndex::OnDisk(path) = &self.index {
            let loaded = Index::read(path, self.bytes).unwrap_or_default();
            self.index = LazyIndex::Loaded(loaded);
        }
        match &mut self.index {
            LazyIndex::Loaded(index) => index,
            LazyIndex::OnDisk(_) => unreachable!("the index was loaded above"),
        }
    }
}

/// Open or create a replica's file for reading and writing.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Write two pieces at a position, however often the kernel takes only a part.
pub(crate) fn write_all_vectored(file: &File, front: &[u8], body: &[u8], position: u64) -> io::Result<()> {
    let total = front.len() + body.len();
    let mut written = 0;
    while written < total {
        let front_left = &front[written.min(front.len())..];
        let body_left = &body[written.saturating_sub(front.len())..];
        let pieces = [IoSlice::new(front_left), IoSlice::new(body_left)];
        match rustix::io::pwritev(file, &pieces, position + written as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Remove the files of a segment in one replica's directory; absent files are fine.
pub(crate) fn remove(dir: &Path, base_offset: i64) -> io::Result<()> {
    for path in [log_path(dir, base_offset), index_path(dir, base_offset)] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
