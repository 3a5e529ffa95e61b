//! The sparse offset index of a segment: one entry for each 4,096 bytes of log, 8 bytes each, as on disk.

use std::fs;
use std::io;
use std::path::Path;

/// Log bytes between two entries.
const INTERVAL_BYTES: u64 = 4_096;

/// Where a batch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct IndexEntry {
    /// Offset minus the segment's base offset.
    pub relative_offset: u32,
    /// Byte position in the segment file.
    pub position: u32,
}

/// Entries in rising order; the first batch always has one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Index {
    entries: Vec<IndexEntry>,
}

impl Index {
    /// Note a batch; it becomes an entry when it is far enough from the last one.
    pub fn note(&mut self, relative_offset: i64, position: u64) {
        let far = self.entries.last().is_none_or(|last| position >= u64::from(last.position) + INTERVAL_BYTES);
        // Segments roll long before 32 bits are used up; an entry less would only make a search longer.
        if let (true, Ok(relative_offset), Ok(position)) =
            (far, u32::try_from(relative_offset), u32::try_from(position))
        {
            self.entries.push(IndexEntry { relative_offset, position });
        }
    }

    /// The last entry at or before an offset.
    pub fn floor(&self, relative_offset: i64) -> IndexEntry {
        let wanted = u32::try_from(relative_offset).unwrap_or(u32::MAX);
        let after = self.entries.partition_point(|entry| entry.relative_offset <= wanted);
        after.checked_sub(1).map_or(IndexEntry::default(), |at| self.entries[at])
    }

    pub fn last(&self) -> Option<IndexEntry> {
        self.entries.last().copied()
    }

    fn to_bytes(&self) -> Vec<u8> {
        let parts = |entry: &IndexEntry| [entry.relative_offset.to_be_bytes(), entry.position.to_be_bytes()].concat();
        self.entries.iter().flat_map(parts).collect()
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.to_bytes())
    }

    /// Read a file back; `None` when it cannot be the index of a segment of `log_bytes`.
    pub fn read(path: &Path, log_bytes: u64) -> Option<Index> {
        let bytes = fs::read(path).ok()?;
        let entry = |bytes: &[u8]| IndexEntry {
            relative_offset: u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            position: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        };
        if bytes.len() % 8 != 0 {
            return None;
        }
        let entries: Vec<IndexEntry> = bytes.chunks_exact(8).map(entry).collect();
        let rising = entries
            .windows(2)
            .all(|pair| pair[0].relative_offset < pair[1].relative_offset && pair[0].position < pair[1].position);
        let first_ok = entries.first().map_or(log_bytes == 0, |first| first.position == 0);
        let last_ok = entries.last().is_none_or(|last| u64::from(last.position) < log_bytes);
        (rising && first_ok && last_ok).then_some(Index { entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stand_four_kibibytes_apart() {
        let mut index = Index::default();
        for batch in 0..100_i64 {
            index.note(batch * 2, batch as u64 * 1000);
        }
        assert_eq!(index.entries.len(), 20);
        assert_eq!(index.floor(0), IndexEntry { relative_offset: 0, position: 0 });
        assert_eq!(index.floor(11), IndexEntry { relative_offset: 10, position: 5000 });
        assert_eq!(index.floor(9), IndexEntry { relative_offset: 0, position: 0 });
    }

    #[test]
    fn an_index_survives_the_disk_and_a_wrong_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("i.index");
        let mut index = Index::default();
        (0..50).for_each(|batch| index.note(batch, batch as u64 * 5000));
        index.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 400);
        assert_eq!(Index::read(&path, 250_000), Some(index));
        assert_eq!(Index::read(&path, 10_000), None);
        fs::write(&path, [1; 16]).unwrap();
        assert_eq!(Index::read(&path, 250_000), None);
    }
}
