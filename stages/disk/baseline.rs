//! A short device baseline: sequential write, then read, in a directory.
//!
//! Disks differ tenfold, so a record without this says little. It is bounded by bytes and by time, and is one stream
//! with one request at a time: a floor for the device, not its best figure. The file has no name while it is measured,
//! so nothing is left behind even by a kill.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread::Builder;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, Mode, OFlags, fadvise, fcntl_getfl, fcntl_setfl, fdatasync, open, statvfs, unlink};
use serde::{Deserialize, Serialize};

use crate::error::DiskError;

/// Large enough for one request to fill most devices' pipes, small enough to stop on time.
const BLOCK_BYTES: usize = 1 << 20;
/// O_DIRECT wants buffers, offsets and lengths aligned to the device's block; no device in use needs more.
const ALIGNMENT: usize = 4096;
/// Left free beside the file: measuring must not be what fills the disk.
const RESERVE_BYTES: u64 = 64 << 20;
/// On top of both time limits: the final flush, and a disk that is merely slow.
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaselineLimits {
    /// Rounded up to whole blocks of 1 MiB. Default 64 MiB.
    pub bytes: u64,
    /// For each direction; whichever limit comes first ends it. Default 2 s.
    pub time: Duration,
}

impl Default for BaselineLimits {
    fn default() -> Self {
        Self { bytes: 64 << 20, time: Duration::from_secs(2) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BaselineMethod {
    /// O_DIRECT: past the page cache in both directions.
    Direct,
    /// Through the page cache: written with fdatasync inside the time, read after POSIX_FADV_DONTNEED. The kernel may
    /// keep pages nevertheless, so the read figure is an upper bound.
    Buffered,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskBaseline {
    pub method: BaselineMethod,
    pub block_bytes: u64,
    pub written_bytes: u64,
    pub write_seconds: f64,
    pub write_mib_per_second: f64,
    pub read_bytes: u64,
    pub read_seconds: f64,
    pub read_mib_per_second: f64,
}

/// Measure in `dir`, on a thread of its own: a stuck disk costs the time limits plus 30 s, not the run.
pub fn measure_baseline(dir: &Path, limits: BaselineLimits) -> Result<DiskBaseline, DiskError> {
    check_space(dir, limits.bytes)?;
    let deadline = limits.time.saturating_mul(2).saturating_add(GRACE);
    let (sender, receiver) = sync_channel(1);
    let owned = dir.to_owned();
    let name = "disk-baseline";
    let work = move || {
        // The receiver is gone only when the deadline has passed.
        let _ = sender.send(measure(&owned, limits, true));
    };
    Builder::new().name(name.into()).spawn(work).map_err(|source| DiskError::Thread { name, source })?;
    receiver.recv_timeout(deadline).unwrap_or_else(|_| {
        let action = "measure the disk";
        Err(DiskError::Deadline { action, path: dir.to_owned(), seconds: deadline.as_secs_f64() })
    })
}

fn failed(action: &'static str, dir: &Path) -> impl Fn(rustix::io::Errno) -> DiskError {
    let path = dir.to_owned();
    move |error| DiskError::Io { action, path: path.clone(), source: error.into() }
}

fn check_space(dir: &Path, bytes: u64) -> Result<(), DiskError> {
    let space = statvfs(dir).map_err(failed("read the free space", dir))?;
    let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
    let needed_bytes = bytes.saturating_add(RESERVE_BYTES);
    if free_bytes < needed_bytes {
        return Err(DiskError::NoSpace { path: dir.to_owned(), free_bytes, needed_bytes });
    }
    Ok(())
}

fn measure(dir: &Path, limits: BaselineLimits, try_direct: bool) -> Result<DiskBaseline, DiskError> {
    let file = nameless_file(dir)?;
    let method = if try_direct && set_direct(&file).and_then(|()| probe(&file)).is_ok() {
        BaselineMethod::Direct
    } else {
        clear_direct(&file).map_err(failed("leave direct mode", dir))?;
        BaselineMethod::Buffered
    };
    let mut block = AlignedBlock::filled();
    let (blocks, write_time) = write(&file, dir, &mut block, limits)?;
    if method == BaselineMethod::Buffered {
        // Only clean pages can be dropped; the write ended with fdatasync.
        fadvise(&file, 0, None, Advice::DontNeed).map_err(failed("evict the cache", dir))?;
    }
    let (read_blocks, read_time) = read(&file, dir, &mut block, blocks, limits.time)?;
    let (write_seconds, read_seconds) = (write_time.as_secs_f64(), read_time.as_secs_f64());
    Ok(DiskBaseline {
        method,
        block_bytes: BLOCK_BYTES as u64,
        written_bytes: blocks * BLOCK_BYTES as u64,
        write_seconds,
        write_mib_per_second: blocks as f64 / write_seconds,
        read_bytes: read_blocks * BLOCK_BYTES as u64,
        read_seconds,
        read_mib_per_second: read_blocks as f64 / read_seconds,
    })
}

/// O_TMPFILE where the file system has it; else a file that is unlinked as soon as it is open.
fn nameless_file(dir: &Path) -> Result<File, DiskError> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = open(dir, flags | OFlags::TMPFILE, mode) {
        return Ok(File::from(file));
    }
    let path: PathBuf = dir.join(format!(".reelbench-baseline-{}", std::process::id()));
    let file = open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode).map_err(failed("create a file", dir))?;
    unlink(&path).map_err(failed("unlink the file", dir))?;
    Ok(File::from(file))
}

fn set_direct(file: impl AsFd) -> rustix::io::Result<()> {
    let flags = fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags | OFlags::DIRECT)
}

fn clear_direct(file: impl AsFd) -> rustix::io::Result<()> {
    let flags = fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags - OFlags::DIRECT)
}

/// Some file systems accept the flag and refuse the write.
fn probe(file: &File) -> rustix::io::Result<()> {
    let block = AlignedBlock::filled();
    rustix::io::pwrite(file, &block.bytes()[..ALIGNMENT], 0).map(|_| ())
}

fn write(
    file: &File,
    dir: &Path,
    block: &mut AlignedBlock,
    limits: BaselineLimits,
) -> Result<(u64, Duration), DiskError> {
    let error = |source| DiskError::Io { action: "write the baseline", path: dir.to_owned(), source };
    let wanted = limits.bytes.div_ceil(BLOCK_BYTES as u64).max(1);
    let start = Instant::now();
    let mut blocks = 0;
    while blocks < wanted && (blocks == 0 || start.elapsed() < limits.time) {
        block.stamp(blocks);
        file.write_all_at(block.bytes(), blocks * BLOCK_BYTES as u64).map_err(error)?;
        blocks += 1;
    }
    // Inside the time: without it a buffered write measures memory, and a direct one the drive's volatile cache.
    fdatasync(file).map_err(failed("flush the baseline", dir))?;
    Ok((blocks, start.elapsed()))
}

fn read(
    file: &File,
    dir: &Path,
    block: &mut AlignedBlock,
    written: u64,
    time: Duration,
) -> Result<(u64, Duration), DiskError> {
    let error = |source| DiskError::Io { action: "read the baseline", path: dir.to_owned(), source };
    let start = Instant::now();
    let mut blocks = 0;
    while blocks < written && (blocks == 0 || start.elapsed() < time) {
        file.read_exact_at(block.bytes_mut(), blocks * BLOCK_BYTES as u64).map_err(error)?;
        if block.stamped() != blocks {
            return Err(DiskError::ReadBack { path: dir.to_owned(), block: blocks });
        }
        blocks += 1;
    }
    Ok((blocks, start.elapsed()))
}

/// A block at an aligned address. Its contents are noise, because file systems and drives that compress or
/// deduplicate make nothing of zeros.
struct AlignedBlock {
    memory: Vec<u8>,
    start: usize,
}

impl AlignedBlock {
    fn filled() -> Self {
        let memory = vec![0_u8; BLOCK_BYTES + ALIGNMENT];
        let address = memory.as_ptr().addr();
        let mut block = Self { memory, start: address.next_multiple_of(ALIGNMENT) - address };
        block.scramble(0x9E37_79B9_7F4A_7C15);
        block
    }

    /// xorshift64: fast, and no compressor finds anything in it.
    fn scramble(&mut self, mut state: u64) {
        for word in self.bytes_mut().chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
    }

    /// The block's number at the start of every page, so that no two pages of the file are equal.
    fn stamp(&mut self, number: u64) {
        for page in self.bytes_mut().chunks_exact_mut(ALIGNMENT) {
            page[..8].copy_from_slice(&number.to_le_bytes());
        }
    }

    /// The number on all its pages; `u64::MAX` when they disagree.
    fn stamped(&self) -> u64 {
        let number = |page: &[u8]| u64::from_le_bytes(page[..8].try_into().expect("eight bytes of a page"));
        let first = number(self.bytes());
        let same = self.bytes().chunks_exact(ALIGNMENT).all(|page| number(page) == first);
        if same { first } else { u64::MAX }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + BLOCK_BYTES]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + BLOCK_BYTES]
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use super::{ALIGNMENT, AlignedBlock, BaselineLimits, BaselineMethod, measure, measure_baseline};
    use crate::error::DiskError;

    #[test]
    fn a_baseline_reads_what_it_wrote_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let limits = BaselineLimits { bytes: (4 << 20) + 1, time: Duration::from_secs(20) };
        let baseline = measure_baseline(dir.path(), limits).unwrap();
        assert_eq!((baseline.written_bytes, baseline.read_bytes), (5 << 20, 5 << 20));
        assert!(baseline.write_mib_per_second > 0.0 && baseline.read_mib_per_second > 0.0, "{baseline:?}");
        assert!((baseline.write_mib_per_second * baseline.write_seconds - 5.0).abs() < 1e-6, "{baseline:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn no_time_still_measures_one_block() {
        let dir = tempfile::tempdir().unwrap();
        let limits = BaselineLimits { bytes: 64 << 20, time: Duration::ZERO };
        let baseline = measure_baseline(dir.path(), limits).unwrap();
        assert_eq!((baseline.written_bytes, baseline.read_bytes), (1 << 20, 1 << 20));
    }

    #[test]
    fn a_disk_without_room_is_refused_before_a_byte_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let limits = BaselineLimits { bytes: u64::MAX, ..BaselineLimits::default() };
        let error = measure_baseline(dir.path(), limits).unwrap_err();
        assert!(matches!(error, DiskError::NoSpace { .. }), "{error}");
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_named() {
        let error = measure_baseline(Path::new("/no/such/dir"), BaselineLimits::default()).unwrap_err();
        assert!(error.to_string().contains("/no/such/dir"), "{error}");
    }

    #[test]
    fn without_direct_access_the_page_cache_is_flushed_and_evicted() {
        let dir = tempfile::tempdir().unwrap();
        let limits = BaselineLimits { bytes: 3 << 20, time: Duration::from_secs(20) };
        let baseline = measure(dir.path(), limits, false).unwrap();
        assert_eq!(
            (baseline.method, baseline.written_bytes, baseline.read_bytes),
            (BaselineMethod::Buffered, 3 << 20, 3 << 20)
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn blocks_are_aligned_distinct_and_not_compressible_by_repetition() {
        let mut block = AlignedBlock::filled();
        assert_eq!(block.bytes().as_ptr().addr() % ALIGNMENT, 0);
        block.stamp(7);
        assert_eq!(block.stamped(), 7);
        let mut pages: Vec<&[u8]> = block.bytes().chunks_exact(ALIGNMENT).collect();
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), 256);
        block.bytes_mut()[ALIGNMENT] ^= 1;
        assert_eq!(block.stamped(), u64::MAX);
    }
}
