//! Errors of this crate: the thing, the place, the remedy.

use std::io;
use std::path::PathBuf;

/// What can go wrong while disks and hosts are read. A missing optional figure is not among them.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("read {path}: {source}; mount the host's /proc and /sys readable")]
    Read { path: PathBuf, source: io::Error },

    #[error("{file} line {line}: {problem}: `{text}`")]
    Malformed { file: &'static str, line: usize, problem: &'static str, text: String },

    #[error("path {path} cannot be resolved: {source}; create the directory or name another one")]
    Resolve { path: PathBuf, source: io::Error },

    #[error("no mount holds {path}; is /proc/self/mountinfo complete in this container?")]
    NoMount { path: PathBuf },

    #[error(
        "measure the disk in {path}: {free_bytes} bytes free, {needed_bytes} needed; free some space or measure fewer bytes"
    )]
    NoSpace { path: PathBuf, free_bytes: u64, needed_bytes: u64 },

    #[error("{action} in {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },

    #[error("{action} in {path} did not end within {seconds:.1} s; the disk is stuck or far too slow")]
    Deadline { action: &'static str, path: PathBuf, seconds: f64 },

    #[error("block {block} of {path} read back differs from what was written; the disk or its driver corrupts data")]
    ReadBack { path: PathBuf, block: u64 },

    #[error("start thread {name}: {source}; raise the limit on processes")]
    Thread { name: &'static str, source: io::Error },
}
