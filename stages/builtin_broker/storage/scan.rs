//! Walk the batches of a segment file: headers only, or with their checksums.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::batch::{self, BatchHeader, HEADER_BYTES};

/// Read ahead while batches are small; a larger batch is skipped over instead.
const READ_AHEAD_BYTES: usize = 64 << 10;
const SMALL_BATCH_BYTES: usize = 8 << 10;
/// Pieces in which a batch is read for its checksum.
const CHECKSUM_PIECE_BYTES: usize = 1 << 20;

/// Walks a file from a batch boundary; stops before the first batch that is not whole and sound.
pub(crate) struct Scanner<'a> {
    file: &'a File,
    end: u64,
    position: u64,
    expected_offset: i64,
    verify: bool,
    buffer: Vec<u8>,
    buffer_start: u64,
    read_ahead: usize,
    read_bytes: u64,
}

impl<'a> Scanner<'a> {
    /// Scan `[position, end)`; the batch there must have `expected_offset`. `verify` also checks each checksum.
    pub fn new(file: &'a File, position: u64, end: u64, expected_offset: i64, verify: bool) -> Scanner<'a> {
        let (buffer, buffer_start) = (Vec::new(), position);
        let read_ahead = READ_AHEAD_BYTES;
        Scanner { file, end, position, expected_offset, verify, buffer, buffer_start, read_ahead, read_bytes: 0 }
    }

    /// End of the last sound batch.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Offset after the last sound batch.
    pub fn next_offset(&self) -> i64 {
        self.expected_offset
    }

    /// Bytes read from the file so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// The next batch with its position; `None` at the end or before the first unsound one.
    pub fn next(&mut self) -> io::Result<Option<(u64, BatchHeader)>> {
        let at = self.position;
        let left = self.end.saturating_sub(at);
        if left < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let Some(header) = batch::parse(self.bytes(at, HEADER_BYTES)?) else { return Ok(None) };
        let sound = batch::plausible(&header) && header.base_offset == self.expected_offset;
        if !sound || header.total_bytes as u64 > left || !self.verified(at, &header)? {
            return Ok(None);
        }
        self.read_ahead = if header.total_bytes > SMALL_BATCH_BYTES { HEADER_BYTES } else { READ_AHEAD_BYTES };
        self.position = at + header.total_bytes as u64;
        self.expected_offset = header.last_offset() + 1;
        Ok(Some((at, header)))
    }

    fn verified(&mut self, at: u64, header: &BatchHeader) -> io::Result<bool> {
        if !self.verify {
            return Ok(true);
        }
        let (mut from, end) = (at + batch::checksum_from() as u64, at + header.total_bytes as u64);
        let mut checksum = 0;
        while from < end {
            let length = usize::try_from(end - from).unwrap_or(usize::MAX).min(CHECKSUM_PIECE_BYTES);
            checksum = crc32c::crc32c_append(checksum, self.bytes(from, length)?);
            from += length as u64;
        }
        Ok(checksum == batch::stored_checksum(header))
    }

    /// Bytes of the file through the buffer; the caller stays within `end`.
    fn bytes(&mut self, at: u64, length: usize) -> io::Result<&[u8]> {
        let buffered_end = self.buffer_start + self.buffer.len() as u64;
        if at < self.buffer_start || at + length as u64 > buffered_end {
            let available = usize::try_from(self.end - at).unwrap_or(usize::MAX);
            self.buffer.resize(length.max(self.read_ahead).min(available), 0);
            self.file.read_exact_at(&mut self.buffer, at)?;
            self.buffer_start = at;
            self.read_bytes += self.buffer.len() as u64;
        }
        let start = usize::try_from(at - self.buffer_start).expect("the buffer was just placed around the position");
        Ok(&self.buffer[start..start + length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::tests::sample;
    use std::io::Write;

    fn file_of(batches: &[(usize, i32)]) -> (File, Vec<u8>) {
        let (mut bytes, mut offset) = (Vec::new(), 0_i64);
        for (payload, count) in batches {
            let mut batch = sample(*count, *payload, (-1, -1, -1), 0);
            let front = batch::patched(&batch, offset, 0);
            batch[..batch::PATCHED_BYTES].copy_from_slice(&front);
            offset += i64::from(*count);
            bytes.extend(batch);
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        (file, bytes)
    }

    #[test]
    fn a_torn_or_flipped_batch_ends_the_scan_before_it() {
        let (file, bytes) = file_of(&[(10, 3), (3_000_000, 1), (20, 2)]);
        let end = bytes.len() as u64;
        let mut scanner = Scanner::new(&file, 0, end, 0, true);
        while scanner.next().unwrap().is_some() {}
        assert_eq!((scanner.position(), scanner.next_offset()), (end, 6));

        let mut torn = Scanner::new(&file, 0, end - 1, 0, true);
        while torn.next().unwrap().is_some() {}
        assert_eq!(torn.next_offset(), 4);

        file.write_all_at(&[9], 1_000_000).unwrap();
        let mut flipped = Scanner::new(&file, 0, end, 0, true);
        while flipped.next().unwrap().is_some() {}
        assert_eq!(flipped.next_offset(), 3);
    }

    #[test]
    fn headers_of_large_batches_are_read_without_their_bodies() {
        let (file, bytes) = file_of(&[(1_000_000, 1); 20]);
        let mut scanner = Scanner::new(&file, 0, bytes.len() as u64, 0, false);
        while scanner.next().unwrap().is_some() {}
        assert_eq!(scanner.next_offset(), 20);
        assert!(scanner.read_bytes() < 70_000, "{} bytes read", scanner.read_bytes());
    }
}
