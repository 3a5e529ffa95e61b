//! The ledger of one process: which frames it offered, had acknowledged, gave up, saw and finished. A memory-mapped file of
//! bitmaps, so that it survives `kill -9` (the page cache keeps what was stored) and costs one lock and one bit a frame.
//!
//! File: a first page with the magic and the topic names (JSON), then chunks of 1 KiB: mark u8, reason u8, topic u16, lane u32,
//! first u64, magic u32 (stored last, so that a torn chunk is not read), 12 bytes spare, then one bit for each seq from `first`.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use memmap2::{MmapMut, MmapOptions};
use serde::{Deserialize, Serialize};

use crate::intervals::IntervalSet;

const FILE_MAGIC: &[u8; 8] = b"RBLEDG01";
const FIRST_PAGE: usize = 4096;
const CHUNK: usize = 1024;
const CHUNK_HEADER: usize = 32;
const CHUNK_MAGIC: u32 = 0x5242_4c43;
const BITS: u64 = ((CHUNK - CHUNK_HEADER) * 8) as u64;
/// The file grows by this much at a time; allocated, not sparse, because a store into a hole on a full disk is a SIGBUS.
const SEGMENT: usize = 256 * CHUNK;
/// Numbers from here on are refused: the end of the range they stand in is not a `u64`.
const NUMBERS_END: u64 = u64::MAX / BITS * BITS;

/// What is noted of a frame (lane = stream) or an offset (lane = partition).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Mark {
    /// Offered to the output; noted before it is sent.
    Offered = 1,
    /// Positive delivery report.
    Acked = 2,
    /// Negative delivery report.
    Failed = 3,
    /// Given up by policy; the reason is in the key.
    Dropped = 4,
    /// Handed to a consuming stage; noted before the offset is committed.
    Seen = 5,
    /// The last step of the consuming stage is done.
    Done = 6,
    /// An offset was read; the lane is the partition.
    Read = 7,
}

impl Mark {
    fn from_code(code: u8) -> Option<Self> {
        [Mark::Offered, Mark::Acked, Mark::Failed, Mark::Dropped, Mark::Seen, Mark::Done, Mark::Read]
            .into_iter()
            .find(|mark| *mark as u8 == code)
    }
}

/// Which set a number belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    pub mark: Mark,
    /// Code of the drop reason; 0 for other marks.
    pub reason: u8,
    pub topic: u16,
    /// Stream, or partition for `Mark::Read`.
    pub lane: u32,
}

/// What a ledger file cannot do.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("ledger {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("ledger {}: not a ledger file", path.display())]
    Format { path: PathBuf },
}

/// An open ledger; one a process.
pub struct Ledger {
    path: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    segments: Vec<MmapMut>,
    chunks: usize,
    index: HashMap<(Lane, u64), usize>,
}

impl Ledger {
    /// Creates the file; `topics` are the names that the topic numbers stand for.
    pub fn create(path: &Path, topics: &[String]) -> Result<Self, LedgerError> {
        let fail = |source| LedgerError::Io { path: path.to_owned(), source };
        let names = serde_json::to_vec(topics).map_err(|error| fail(error.into()))?;
        if names.len() + 16 > FIRST_PAGE {
            return Err(fail(io::Error::other("topic names do not fit into one page")));
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).map_err(fail)?;
        let mut page = vec![0; FIRST_PAGE];
        page[..8].copy_from_slice(FILE_MAGIC);
        page[8..16].copy_from_slice(&(names.len() as u64).to_le_bytes());
        page[16..16 + names.len()].copy_from_slice(&names);
        std::os::unix::fs::FileExt::write_all_at(&file, &page, 0).map_err(fail)?;
        let inner = Inner { file, segments: Vec::new(), chunks: 0, index: HashMap::new() };
        Ok(Ledger { path: path.to_owned(), inner: Mutex::new(inner) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes `seq`; true when it was not there yet.
    pub fn mark(&self, lane: Lane, seq: u64) -> Result<bool, LedgerError> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.mark(lane, seq).map_err(|source| LedgerError::Io { path: self.path.clone(), source })
    }

    /// Everything noted so far.
    pub fn sets(&self) -> Result<LedgerSets, LedgerError> {
        let _quiet = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        LedgerSets::read(&self.path)
    }
}

impl Inner {
    fn mark(&mut self, lane: Lane, seq: u64) -> io::Result<bool> {
        if seq >= NUMBERS_END {
            return Err(io::Error::other(format!("number {seq} is too large to be noted")));
        }
        let (block, bit) = (seq / BITS, seq % BITS);
        let chunk = match self.index.get(&(lane, block)) {
            Some(chunk) => *chunk,
            None => self.add_chunk(lane, block)?,
        };
        let byte = &mut self.chunk(chunk)[CHUNK_HEADER + (bit / 8) as usize];
        let mask = 1u8 << (bit % 8);
        let new = *byte & mask == 0;
        *byte |= mask;
        Ok(new)
    }

    fn chunk(&mut self, chunk: usize) -> &mut [u8] {
        let per_segment = SEGMENT / CHUNK;
        let start = chunk % per_segment * CHUNK;
        &mut self.segments[chunk / per_segment][start..start + CHUNK]
    }

    fn add_chunk(&mut self, lane: Lane, block: u64) -> io::Result<usize> {
        let chunk = self.chunks;
        if chunk == self.segments.len() * (SEGMENT / CHUNK) {
            self.grow()?;
        }
        let bytes = self.chunk(chunk);
        bytes[0] = lane.mark as u8;
        bytes[1] = lane.reason;
        bytes[2..4].copy_from_slice(&lane.topic.to_le_bytes());
        bytes[4..8].copy_from_slice(&lane.lane.to_le_bytes());
        bytes[8..16].copy_from_slice(&(block * BITS).to_le_bytes());
        bytes[16..20].copy_from_slice(&CHUNK_MAGIC.to_le_bytes());
        self.chunks += 1;
        self.index.insert((lane, block), chunk);
        Ok(chunk)
    }

    fn grow(&mut self) -> io::Result<()> {
        let offset = (FIRST_PAGE + self.segments.len() * SEGMENT) as u64;
        rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), offset, SEGMENT as u64)?;
        #[expect(
            unsafe_code,
            reason = "the file is this process's own, just created, and never truncated while mapped"
        )]
        let segment = unsafe { MmapOptions::new().offset(offset).len(SEGMENT).map_mut(&self.file)? };
        self.segments.push(segment);
        Ok(())
    }
}

/// The sets of one or more ledgers, by mark, reason, topic name and lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerSets(pub BTreeMap<SetKey, IntervalSet>);

/// Key of a set, with the topic by name, so that ledgers of different processes can be merged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SetKey {
    pub mark: Mark,
    pub reason: u8,
    pub topic: String,
    pub lane: u32,
}

impl LedgerSets {
    /// Reads a ledger file, also one whose process was killed.
    pub fn read(path: &Path) -> Result<Self, LedgerError> {
        let bytes = std::fs::read(path).map_err(|source| LedgerError::Io { path: path.to_owned(), source })?;
        Self::parse(&bytes).ok_or_else(|| LedgerError::Format { path: path.to_owned() })
    }

    /// `None` when the bytes are not a ledger.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let page = bytes.get(..FIRST_PAGE)?;
        if &page[..8] != FILE_MAGIC {
            return None;
        }
        let names_bytes = usize::try_from(u64::from_le_bytes(page[8..16].try_into().ok()?)).ok()?;
        let topics: Vec<String> = serde_json::from_slice(page.get(16..16usize.checked_add(names_bytes)?)?).ok()?;
        let mut ranges: BTreeMap<SetKey, Vec<(u64, u64)>> = BTreeMap::new();
        for chunk in bytes[FIRST_PAGE..].chunks_exact(CHUNK) {
            if chunk[16..20] != CHUNK_MAGIC.to_le_bytes() {
                continue;
            }
            let topic = topics.get(usize::from(u16::from_le_bytes([chunk[2], chunk[3]])))?.clone();
            let lane = u32::from_le_bytes(chunk[4..8].try_into().ok()?);
            let first = u64::from_le_bytes(chunk[8..16].try_into().ok()?);
            first.checked_add(BITS)?;
            let key = SetKey { mark: Mark::from_code(chunk[0])?, reason: chunk[1], topic, lane };
            append_bits(first, &chunk[CHUNK_HEADER..], ranges.entry(key).or_default());
        }
        Some(LedgerSets(ranges.into_iter().map(|(key, ranges)| (key, IntervalSet::from_ranges(ranges))).collect()))
    }

    pub fn merge(&mut self, other: &LedgerSets) {
        for (key, set) in &other.0 {
            let merged = self.0.entry(key.clone()).or_default();
            *merged = merged.union(set);
        }
    }

    /// The set of one mark, topic and lane, over all reasons.
    pub fn get(&self, mark: Mark, topic: &str, lane: u32) -> IntervalSet {
        let matching = self.0.iter().filter(|(key, _)| key.mark == mark && key.topic == topic && key.lane == lane);
        matching.fold(IntervalSet::default(), |all, (_, set)| all.union(set))
    }

    /// Lanes that appear for a topic under a mark.
    pub fn lanes(&self, mark: Mark, topic: &str) -> Vec<u32> {
        let mut lanes: Vec<u32> =
            self.0.keys().filter(|key| key.mark == mark && key.topic == topic).map(|key| key.lane).collect();
        lanes.dedup();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }

    /// Numbers under a mark with one reason in a topic, all lanes.
    pub fn count_reason(&self, mark: Mark, reason: u8, topic: &str) -> u64 {
        let matching = |key: &SetKey| key.mark == mark && key.reason == reason && key.topic == topic;
        self.0.iter().filter(|(key, _)| matching(key)).map(|(_, set)| set.len()).sum()
    }

    /// Numbers under a mark in a topic, all lanes.
    pub fn count(&self, mark: Mark, topic: &str) -> u64 {
        self.0.iter().filter(|(key, _)| key.mark == mark && key.topic == topic).map(|(_, set)| set.len()).sum()
    }
}

fn append_bits(first: u64, bits: &[u8], ranges: &mut Vec<(u64, u64)>) {
    let mut start = None;
    for bit in 0..(bits.len() * 8) as u64 {
        let set = bits[(bit / 8) as usize] & (1 << (bit % 8)) != 0;
        match (set, start) {
            (true, None) => start = Some(bit),
            (false, Some(from)) => {
                ranges.push((first + from, first + bit));
                start = None;
            }
            _ => {}
        }
    }
    if let Some(from) = start {
        ranges.push((first + from, first + (bits.len() * 8) as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn lane(mark: Mark, topic: u16, lane: u32) -> Lane {
        Lane { mark, reason: 0, topic, lane }
    }

    #[test]
    fn marks_are_read_back_by_another_reader_while_the_ledger_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let ledger = Ledger::create(&path, &["frames".into(), "results".into()]).unwrap();
        for seq in 0..20_000 {
            assert!(ledger.mark(lane(Mark::Offered, 0, 7), seq).unwrap());
        }
        assert!(!ledger.mark(lane(Mark::Offered, 0, 7), 5).unwrap());
        assert!(ledger.mark(lane(Mark::Offered, 1, 7), 5).unwrap());
        let sets = LedgerSets::read(&path).unwrap();
        assert_eq!(sets.get(Mark::Offered, "frames", 7), IntervalSet::from_range(0, 20_000));
        assert_eq!(sets.get(Mark::Offered, "results", 7).ranges(), &[(5, 6)]);
        assert_eq!(sets.lanes(Mark::Offered, "frames"), [7]);
    }

    #[test]
    fn a_ledger_survives_the_kill_of_its_process() {
        // The child is this test binary; it marks and is killed without a chance to close anything.
        let path = std::env::var_os("LEDGER_CHILD").map(PathBuf::from);
        if let Some(path) = path {
            let ledger = Ledger::create(&path, &["t".into()]).unwrap();
            for seq in 0.. {
                ledger.mark(lane(Mark::Seen, 0, 1), seq).unwrap();
                if seq == 1000 {
                    std::fs::write(path.with_extension("ready"), "").unwrap();
                }
                if seq > 1000 {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ledger::tests::a_ledger_survives_the_kill_of_its_process"])
            .env("LEDGER_CHILD", &path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        for _ in 0..1000 {
            if path.with_extension("ready").exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let set = LedgerSets::read(&path).unwrap().get(Mark::Seen, "t", 1);
        assert_eq!(set.ranges().len(), 1, "{set:?}");
        assert!(set.len() > 1000);
    }

    #[test]
    fn numbers_at_the_end_of_their_range_are_refused_by_writer_and_reader() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let ledger = Ledger::create(&path, &["t".into()]).unwrap();
        let seen = lane(Mark::Seen, 0, 0);
        assert!(ledger.mark(seen, NUMBERS_END - 1).unwrap());
        for number in [NUMBERS_END, u64::MAX] {
            let error = ledger.mark(seen, number).unwrap_err().to_string();
            assert!(error.ends_with(&format!("number {number} is too large to be noted")), "{error}");
        }
        let ranges = [(NUMBERS_END - 1, NUMBERS_END)];
        assert_eq!(ledger.sets().unwrap().get(Mark::Seen, "t", 0).ranges(), &ranges);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[FIRST_PAGE + 8..FIRST_PAGE + 16].copy_from_slice(&NUMBERS_END.to_le_bytes());
        assert_eq!(LedgerSets::parse(&bytes), None);
    }

    proptest! {
        #[test]
        fn marks_in_any_order_equal_plain_sets(
            marks in proptest::collection::vec((0u16..2, 0u32..3, 0u64..20_000), 1..300)
        ) {
            let folder = tempfile::tempdir().unwrap();
            let ledger = Ledger::create(&folder.path().join("l"), &["a".into(), "b".into()]).unwrap();
            let mut plain: BTreeMap<(u16, u32), BTreeSet<u64>> = BTreeMap::new();
            for (topic, stream, seq) in marks {
                let new = ledger.mark(lane(Mark::Acked, topic, stream), seq).unwrap();
                prop_assert_eq!(new, plain.entry((topic, stream)).or_default().insert(seq));
            }
            let sets = ledger.sets().unwrap();
            for ((topic, stream), values) in plain {
                let name = ["a", "b"][usize::from(topic)];
                let expected = IntervalSet::from_ranges(values.iter().map(|v| (*v, v + 1)).collect());
                prop_assert_eq!(sets.get(Mark::Acked, name, stream), expected);
            }
        }

        #[test]
        fn any_bytes_are_refused_or_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..8192), magic: bool) {
            if magic && bytes.len() > 16 { bytes[..8].copy_from_slice(FILE_MAGIC); bytes[8..16].copy_from_slice(&2u64.to_le_bytes()); bytes[16] = b'['; }
            let _ = LedgerSets::parse(&bytes);
        }
    }
}
