//! Read batches of a partition by offset or by timestamp, without holding up appends.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::batch::{self, HEADER_BYTES};
use crate::storage::partition::Partition;
use crate::storage::scan::Scanner;

/// Bytes looked at to find a batch behind an index entry: entries stand 4,096 bytes apart.
const SEARCH_BYTES: usize = 4_096 + HEADER_BYTES;

/// Where a batch was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    position: u64,
    total_bytes: u64,
}

/// A stretch of a segment file that readers may see, beginning at an index entry.
struct Stretch {
    file: Arc<File>,
    position: u64,
    end: u64,
}

impl Partition {
    fn stretch(&self, offset: i64) -> Option<Stretch> {
        self.with_segment(offset, |segment| {
            let relative_offset = offset - segment.base_offset;
            let entry = segment.index().floor(relative_offset);
            Stretch { file: Arc::clone(&segment.file), position: u64::from(entry.position), end: segment.bytes }
        })
    }

    /// About how many bytes a fetch from `offset` could return; 0 at the end of the log.
    pub fn available_bytes(&self, offset: i64) -> u64 {
        self.stretch(offset).map_or(0, |stretch| stretch.end - stretch.position)
    }

    /// Append whole batches from `offset` on to `out`, at most `max_bytes`, but with `at_least_one` the first in any case.
    ///
    /// Returns the number of bytes; 0 when there is nothing, or nothing that fits.
    pub fn read(&self, offset: i64, max_bytes: usize, at_least_one: bool, out: &mut Vec<u8>) -> io::Result<usize> {
        if max_bytes == 0 && !at_least_one {
            return Ok(0);
        }
        let Some(stretch) = self.stretch(offset) else { return Ok(0) };
        let Some(first) = find_batch(&stretch, offset)? else { return Ok(0) };
        let first_bytes = usize::try_from(first.total_bytes).unwrap_or(usize::MAX);
        if first_bytes > max_bytes && !at_least_one {
            return Ok(0);
        }
        let left = usize::try_from(stretch.end - first.position).unwrap_or(usize::MAX);
        let wanted = max_bytes.max(first_bytes).min(left);
        let start = out.len();
        out.resize(start + wanted, 0);
        if let Err(error) = stretch.file.read_exact_at(&mut out[start..], first.position) {
            out.truncate(start);
            return Err(error);
        }
        let whole = whole_batches(&out[start..]);
        out.truncate(start + whole);
        Ok(whole)
    }

    /// Offset and timestamp of the first record at or after `timestamp_ms`; `None` when all are older.
    pub fn offset_at(&self, timestamp_ms: i64) -> io::Result<Option<(i64, i64)>> {
        for (file, base_offset, bytes) in self.segments_since(timestamp_ms) {
            let mut scanner = Scanner::new(&file, 0, bytes, base_offset, false);
            while let Some((position, header)) = scanner.next()? {
                if header.max_timestamp_ms < timestamp_ms {
                    continue;
                }
                let mut batch = vec![0; header.total_bytes];
                file.read_exact_at(&mut batch, position)?;
                // A batch whose header promises more than its records hold is passed over.
                if let Some(found) = batch::first_record_at(&batch, &header, timestamp_ms) {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }
}

/// The batch that holds `offset`, at or behind the beginning of the stretch.
fn find_batch(stretch: &Stretch, offset: i64) -> io::Result<Option<Found>> {
    let mut buffer = [0_u8; SEARCH_BYTES];
    let (mut buffer_start, mut buffered) = (stretch.position, 0_usize);
    let mut position = stretch.position;
    while position + HEADER_BYTES as u64 <= stretch.end {
        if position + HEADER_BYTES as u64 > buffer_start + buffered as u64 {
            let left = usize::try_from(stretch.end - position).unwrap_or(usize::MAX);
            buffered = left.min(if position == stretch.position { HEADER_BYTES } else { SEARCH_BYTES });
            stretch.file.read_exact_at(&mut buffer[..buffered], position)?;
            buffer_start = position;
        }
        let at = usize::try_from(position - buffer_start).expect("the buffer was just placed around the position");
        let header = batch::parse(&buffer[at..buffered])
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no batch header at a batch boundary"))?;
        if header.last_offset() >= offset {
            return Ok(Some(Found { position, total_bytes: header.total_bytes as u64 }));
        }
        position += header.total_bytes as u64;
    }
    Ok(None)
}

/// Length of the whole batches at the beginning of `bytes`.
fn whole_batches(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Some(header) = batch::parse(&bytes[whole..]) {
        if header.total_bytes > bytes.len() - whole {
            break;
        }
        whole += header.total_bytes;
    }
    whole
}
