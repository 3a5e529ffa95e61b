//! Timed syncfs of a directory's file system, and the write debt it pays off.
//!
//! A short run may end before the kernel has written anything: what the disk still owes is part of the result.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use rustix::fs::syncfs;
use serde::{Deserialize, Serialize};

use crate::error::DiskError;
use crate::memory::Memory;
use crate::root::ProcRoot;

/// Of the whole host: the kernel does not count dirty pages per file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteDebt {
    pub dirty_bytes: Option<u64>,
    pub writeback_bytes: Option<u64>,
}

impl WriteDebt {
    pub fn read(root: &ProcRoot) -> Self {
        let memory = Memory::read(root).unwrap_or_default();
        Self { dirty_bytes: memory.dirty_bytes, writeback_bytes: memory.writeback_bytes }
    }

    pub fn total_bytes(&self) -> Option<u64> {
        Some(self.dirty_bytes?.saturating_add(self.writeback_bytes?))
    }
}

/// What a sync took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyncOutcome {
    /// `None` = not finished by the deadline; then everything after it is unknown too.
    pub seconds: Option<f64>,
    pub deadline_seconds: f64,
    pub before: WriteDebt,
    /// At the end of the sync, or at the deadline.
    pub after: WriteDebt,
    /// The kernel could not write something back since the target was opened: data is lost on that disk.
    pub error: Option<String>,
}

impl SyncOutcome {
    /// Everything written before the sync is on the device.
    pub fn complete(&self) -> bool {
        self.seconds.is_some() && self.error.is_none()
    }
}

/// A directory whose file system will be synced. Open it before the run: syncfs reports write errors that happened
/// while the directory was open.
#[derive(Debug)]
pub struct SyncTarget {
    root: ProcRoot,
    path: PathBuf,
    directory: File,
}

impl SyncTarget {
    pub fn open(root: &ProcRoot, path: &Path) -> Result<Self, DiskError> {
        let io_error = |source| DiskError::Io { action: "open the directory to sync", path: path.to_owned(), source };
        let directory = File::open(path).map_err(io_error)?;
        Ok(Self { root: root.clone(), path: path.to_owned(), directory })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn directory(&self) -> &File {
        &self.directory
    }

    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { root: self.root.clone(), path: self.path.clone(), directory: self.directory.try_clone()? })
    }

    /// Sync on a thread of its own, so that a stuck disk costs the deadline and no more. The thread of a sync that
    /// never ends cannot be stopped; it holds one file descriptor until the process ends.
    pub fn sync(&self, deadline: Duration) -> Result<SyncOutcome, DiskError> {
        let action = "open the directory to sync";
        let io_error = |source| DiskError::Io { action, path: self.path.clone(), source };
        let directory = self.directory.try_clone().map_err(io_error)?;
        let (sender, receiver) = sync_channel(1);
        let before = WriteDebt::read(&self.root);
        let start = Instant::now();
        let work = move || {
            let result = syncfs(&directory).map_err(io::Error::from);
            // The receiver is gone only when the deadline has passed.
            let _ = sender.send((result, start.elapsed()));
        };
        let name = "disk-sync";
        Builder::new().name(name.into()).spawn(work).map_err(|source| DiskError::Thread { name, source })?;
        let answer = receiver.recv_timeout(deadline);
        let (seconds, error) = match answer {
            Ok((result, elapsed)) => (
                Some(elapsed.as_secs_f64()),
                result.err().map(|error| format!("syncfs {}: {error}", self.path.display())),
            ),
            Err(RecvTimeoutError::Timeout) => (None, None),
            Err(RecvTimeoutError::Disconnected) => (None, Some("the sync thread ended without an answer".to_owned())),
        };
        let after = WriteDebt::read(&self.root);
        Ok(SyncOutcome { seconds, deadline_seconds: deadline.as_secs_f64(), before, after, error })
    }
}

/// Open and sync in one go.
pub fn timed_sync(root: &ProcRoot, path: &Path, deadline: Duration) -> Result<SyncOutcome, DiskError> {
    SyncTarget::open(root, path)?.sync(deadline)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use super::{SyncOutcome, WriteDebt, timed_sync};
    use crate::root::ProcRoot;
    use crate::root::fixture::Fixture;

    #[test]
    fn a_sync_ends_with_its_time_and_both_debts() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("data"), vec![1_u8; 1 << 20]).unwrap();
        let outcome = timed_sync(&ProcRoot::default(), dir.path(), Duration::from_secs(60)).unwrap();
        assert!(outcome.complete(), "{outcome:?}");
        assert!(outcome.before.total_bytes().is_some() && outcome.after.total_bytes().is_some(), "{outcome:?}");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = timed_sync(&ProcRoot::default(), Path::new("/no/such/dir"), Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().contains("/no/such/dir"), "{error}");
    }

    #[test]
    fn an_unfinished_or_failed_sync_is_not_complete() {
        let outcome = |seconds, error: Option<&str>| SyncOutcome {
            seconds,
            deadline_seconds: 1.0,
            before: WriteDebt::default(),
            after: WriteDebt::default(),
            error: error.map(str::to_owned),
        };
        assert!(outcome(Some(0.5), None).complete());
        assert!(!outcome(None, None).complete());
        assert!(!outcome(Some(0.5), Some("input/output error")).complete());
    }

    #[test]
    fn debt_is_read_below_the_root_and_blank_where_the_kernel_is_silent() {
        let fixture = Fixture::new();
        assert_eq!(WriteDebt::read(&fixture.root).total_bytes(), None);
        fixture.file("proc/meminfo", "Dirty: 8 kB\nWriteback: 4 kB\n");
        assert_eq!(WriteDebt::read(&fixture.root).total_bytes(), Some(12 * 1024));
    }
}
