//! The mark that tells how the last broker on this directory ended, and what its partitions looked like.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::durable;
use crate::error::BrokerError;
use crate::storage::producers::Producers;

/// A segment at a clean stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SegmentMark {
    pub base_offset: i64,
    pub bytes: u64,
    pub end_offset: i64,
    pub max_timestamp_ms: i64,
}

/// A partition at a clean stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartitionMark {
    pub segments: Vec<SegmentMark>,
    pub producers: Producers,
}

/// The file. While a broker runs it holds no partitions, so a crash leaves `clean: false` behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShutdownMark {
    pub clean: bool,
    /// The kernel's boot. Data not forced to the device survives a dead process, but not another boot.
    pub boot_id: String,
    /// By directory name, `<topic>-<partition>`.
    pub partitions: BTreeMap<String, PartitionMark>,
}

/// How much of what is on disk may be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Stopped cleanly in this boot: the mark tells everything.
    Clean,
    /// The process died in this boot: what was written is there, the last batch may be torn.
    ProcessDied,
    /// Another boot: any unforced byte of any replica may be missing.
    Rebooted,
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("shutdown-mark.json")
}

/// The kernel's boot identifier; empty when it cannot be read, which is then the same for every start.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Read the mark of the last broker and replace it by "running". A first start is clean.
pub(crate) fn take(data_dir: &Path) -> Result<(Trust, BTreeMap<String, PartitionMark>), BrokerError> {
    // A mark that cannot be parsed was not finished: the scan finds out what is there.
    let found: Option<ShutdownMark> = durable::read_json(&path(data_dir)).unwrap_or_else(|error| {
        tracing::warn!(%error, "shutdown mark unusable, scanning instead");
        Some(ShutdownMark { clean: false, boot_id: String::new(), partitions: BTreeMap::new() })
    });
    let running = ShutdownMark { clean: false, boot_id: boot_id(), partitions: BTreeMap::new() };
    durable::replace_json(&path(data_dir), &running).map_err(BrokerError::directory(path(data_dir), "write"))?;
    Ok(match found {
        None => (Trust::Clean, BTreeMap::new()),
        Some(mark) if mark.boot_id != running.boot_id => (Trust::Rebooted, BTreeMap::new()),
        Some(mark) if mark.clean => (Trust::Clean, mark.partitions),
        Some(_) => (Trust::ProcessDied, BTreeMap::new()),
    })
}

/// Write the mark of a clean stop.
pub(crate) fn leave(data_dir: &Path, partitions: BTreeMap<String, PartitionMark>) -> Result<(), BrokerError> {
    let mark = ShutdownMark { clean: true, boot_id: boot_id(), partitions };
    durable::replace_json(&path(data_dir), &mark).map_err(BrokerError::directory(path(data_dir), "write"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_believed_once_and_only_in_its_boot() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(take(dir.path()).unwrap().0, Trust::Clean);
        assert_eq!(take(dir.path()).unwrap().0, Trust::ProcessDied);
        leave(dir.path(), BTreeMap::new()).unwrap();
        assert_eq!(take(dir.path()).unwrap().0, Trust::Clean);
        assert_eq!(take(dir.path()).unwrap().0, Trust::ProcessDied);
        let other = ShutdownMark { clean: true, boot_id: "another".into(), partitions: BTreeMap::new() };
        durable::replace_json(&path(dir.path()), &other).unwrap();
        assert_eq!(take(dir.path()).unwrap().0, Trust::Rebooted);
    }
}
