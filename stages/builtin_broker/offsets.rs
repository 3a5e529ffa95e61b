//! Committed offsets: in memory, and in an append-only log that is read back at the start and rewritten when it grew.
//!
//! One entry: length (u32), CRC-32C of the rest (u32), then JSON. A torn last entry is dropped: its commit was not
//! acknowledged.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::durable;
use crate::error::BrokerError;
use crate::storage::partition::lock;

/// Bytes before an entry's JSON.
const FRONT_BYTES: usize = 8;
/// The log is rewritten when it is this large and mostly outdated.
const REWRITE_BYTES: u64 = 4 << 20;

/// One committed position. No offset: the commit was deleted with its topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    group: String,
    topic: String,
    partition: i32,
    offset: Option<i64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    metadata: String,
}

/// What a group committed for a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Committed {
    pub offset: i64,
    pub metadata: String,
}

/// A commit to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub metadata: String,
}

/// Topic and partition.
pub(crate) type PartitionKey = (String, i32);

struct State {
    by_group: BTreeMap<String, BTreeMap<PartitionKey, Committed>>,
    file: File,
    bytes: u64,
    /// Bytes after the last rewrite: the next one waits until the log doubled.
    rewritten_bytes: u64,
}

/// The store of committed offsets.
pub(crate) struct Offsets {
    path: PathBuf,
    state: Mutex<State>,
}

impl Offsets {
    pub fn open(data_dir: &Path) -> Result<Offsets, BrokerError> {
        let path = data_dir.join("committed-offsets.log");
        let mut by_group = BTreeMap::new();
        let content = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            content => content.map_err(BrokerError::directory(&path, "read"))?,
        };
        replay(&content, &mut by_group);
        let (file, bytes) = rewrite(&path, &by_group).map_err(BrokerError::directory(&path, "write"))?;
        let state = Mutex::new(State { by_group, file, bytes, rewritten_bytes: bytes });
        Ok(Offsets { path, state })
    }

    /// Store commits; they are in the page cache when this returns.
    pub fn store(&self, group: &str, commits: Vec<Commit>) -> io::Result<()> {
        let entries = commits.into_iter().map(|commit| Entry {
            group: group.to_owned(),
            topic: commit.topic,
            partition: commit.partition,
            offset: Some(commit.offset),
            metadata: commit.metadata,
        });
        self.write(entries.collect())
    }

    /// Drop all commits of a topic, so that a new topic of the same name starts without them.
    pub fn forget_topic(&self, topic: &str) -> io::Result<()> {
        let keys: Vec<(String, i32)> = {
            let state = lock(&self.state);
            let of_topic = |group: &String, keys: &BTreeMap<PartitionKey, Committed>| {
                let keys = keys.keys().filter(|(name, _)| name == topic);
                keys.map(|(_, partition)| (group.clone(), *partition)).collect::<Vec<_>>()
            };
            state.by_group.iter().flat_map(|(group, keys)| of_topic(group, keys)).collect()
        };
        let entry = |(group, partition)| Entry {
            group,
            topic: topic.to_owned(),
            partition,
            offset: None,
            metadata: String::new(),
        };
        self.write(keys.into_iter().map(entry).collect())
    }

    fn write(&self, entries: Vec<Entry>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for entry in &entries {
            bytes.extend(encode(entry)?);
        }
        let mut state = lock(&self.state);
        if let Err(error) = state.file.write_all(&bytes) {
            // A half-written entry would hide all later ones from the next start.
            let sound_bytes = state.bytes;
            state.file.set_len(sound_bytes)?;
            return Err(error);
        }
        state.bytes += bytes.len() as u64;
        entries.into_iter().for_each(|entry| apply(entry, &mut state.by_group));
        if state.bytes > REWRITE_BYTES && state.bytes / 2 > state.rewritten_bytes {
            let (file, bytes) = rewrite(&self.path, &state.by_group)?;
            (state.file, state.bytes, state.rewritten_bytes) = (file, bytes, bytes);
        }
        Ok(())
    }

    pub fn get(&self, group: &str, topic: &str, partition: i32) -> Option<Committed> {
        lock(&self.state).by_group.get(group)?.get(&(topic.to_owned(), partition)).cloned()
    }

    /// Everything a group committed.
    pub fn all(&self, group: &str) -> Vec<(PartitionKey, Committed)> {
        let state = lock(&self.state);
        let entries = state.by_group.get(group).into_iter().flatten();
        entries.map(|(key, committed)| (key.clone(), committed.clone())).collect()
    }

    pub fn force(&self) -> io::Result<()> {
        lock(&self.state).file.sync_all()
    }
}

fn encode(entry: &Entry) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(entry).map_err(io::Error::other)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    Ok([&length.to_be_bytes()[..], &crc32c::crc32c(&json).to_be_bytes()[..], &json].concat())
}

fn apply(entry: Entry, by_group: &mut BTreeMap<String, BTreeMap<PartitionKey, Committed>>) {
    let group = by_group.entry(entry.group).or_default();
    let key = (entry.topic, entry.partition);
    match entry.offset {
        Some(offset) => drop(group.insert(key, Committed { offset, metadata: entry.metadata })),
        None => drop(group.remove(&key)),
    }
}

fn replay(mut content: &[u8], by_group: &mut BTreeMap<String, BTreeMap<PartitionKey, Committed>>) {
    while let Some((front, rest)) = content.split_at_checked(FRONT_BYTES) {
        let length = u32::from_be_bytes([front[0], front[1], front[2], front[3]]) as usize;
        let checksum = u32::from_be_bytes([front[4], front[5], front[6], front[7]]);
        let Some((json, after)) = rest.split_at_checked(length) else { break };
        let Ok(entry) = serde_json::from_slice::<Entry>(json) else { break };
        if crc32c::crc32c(json) != checksum {
            break;
        }
        apply(entry, by_group);
        content = after;
    }
    if !content.is_empty() {
        tracing::warn!(bytes = content.len(), "dropped an unfinished end of the committed offsets");
    }
}

/// Write what is current to a new file, and open it for appending.
fn rewrite(path: &Path, by_group: &BTreeMap<String, BTreeMap<PartitionKey, Committed>>) -> io::Result<(File, u64)> {
    let mut bytes = Vec::new();
    for (group, keys) in by_group {
        for ((topic, partition), committed) in keys {
            bytes.extend(encode(&Entry {
                group: group.clone(),
                topic: topic.clone(),
                partition: *partition,
                offset: Some(committed.offset),
                metadata: committed.metadata.clone(),
            })?);
        }
    }
    durable::replace(path, &bytes)?;
    Ok((OpenOptions::new().append(true).open(path)?, bytes.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(topic: &str, partition: i32, offset: i64) -> Commit {
        Commit { topic: topic.to_owned(), partition, offset, metadata: format!("m{offset}") }
    }

    #[test]
    fn commits_survive_a_restart_and_a_torn_end() {
        let dir = tempfile::tempdir().unwrap();
        let offsets = Offsets::open(dir.path()).unwrap();
        offsets.store("g", vec![commit("t", 0, 5), commit("t", 1, 7)]).unwrap();
        offsets.store("g", vec![commit("t", 0, 6)]).unwrap();
        drop(offsets);
        let path = dir.path().join("committed-offsets.log");
        let length = std::fs::metadata(&path).unwrap().len();
        let extra = encode(&Entry {
            group: "g".into(),
            topic: "t".into(),
            partition: 0,
            offset: Some(99),
            metadata: String::new(),
        });
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&extra.unwrap()[..20]).unwrap();
        let offsets = Offsets::open(dir.path()).unwrap();
        assert_eq!(offsets.get("g", "t", 0), Some(Committed { offset: 6, metadata: "m6".into() }));
        assert_eq!(offsets.all("g").len(), 2);
        assert!(std::fs::metadata(&path).unwrap().len() < length, "outdated entries are dropped at the start");
    }

    #[test]
    fn a_deleted_topic_leaves_no_commits() {
        let dir = tempfile::tempdir().unwrap();
        let offsets = Offsets::open(dir.path()).unwrap();
        offsets.store("g", vec![commit("gone", 0, 5), commit("kept", 0, 7)]).unwrap();
        offsets.forget_topic("gone").unwrap();
        assert_eq!(offsets.get("g", "gone", 0), None);
        drop(offsets);
        let offsets = Offsets::open(dir.path()).unwrap();
        assert_eq!(offsets.get("g", "gone", 0), None);
        assert_eq!(offsets.get("g", "kept", 0).map(|committed| committed.offset), Some(7));
    }
}
