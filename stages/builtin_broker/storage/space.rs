//! Free space of the data directory's file system, asked for rarely and never overdrawn by much.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

/// Appended bytes after which the file system is asked again.
const ALLOWANCE_BYTES: u64 = 32 << 20;

/// Guards the free-space floor.
#[derive(Debug)]
pub(crate) struct Space {
    dir: PathBuf,
    floor_bytes: u64,
    /// What may be appended before the file system is asked again.
    allowance_bytes: AtomicI64,
}

impl Space {
    pub fn new(dir: &Path, floor_bytes: u64) -> Space {
        Space { dir: dir.to_owned(), floor_bytes, allowance_bytes: AtomicI64::new(0) }
    }

    /// Whether `bytes` more may be written.
    pub fn reserve(&self, bytes: u64) -> bool {
        let wanted = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.allowance_bytes.fetch_sub(wanted, Ordering::Relaxed) >= wanted {
            return true;
        }
        let Ok(free_bytes) = free_bytes(&self.dir) else {
            // An unanswered question is no reason to refuse: the write itself will tell.
            return true;
        };
        let above_floor = free_bytes.saturating_sub(self.floor_bytes);
        if above_floor < bytes {
            self.allowance_bytes.store(0, Ordering::Relaxed);
            return false;
        }
        let allowance = ((above_floor - bytes) / 4).min(ALLOWANCE_BYTES);
        self.allowance_bytes.store(i64::try_from(allowance).unwrap_or(0), Ordering::Relaxed);
        true
    }
}

/// Bytes an unprivileged process may still write.
fn free_bytes(dir: &Path) -> rustix::io::Result<u64> {
    let answer = rustix::fs::statvfs(dir)?;
    Ok(answer.f_bavail.saturating_mul(answer.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_that_would_pass_the_floor_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let free = free_bytes(dir.path()).unwrap();
        assert!(!Space::new(dir.path(), free + (1 << 40)).reserve(1));
        let space = Space::new(dir.path(), 0);
        assert!(space.reserve(4096));
        assert!(!space.reserve(free * 2));
    }
}
