//! The 61-byte header of a record batch: parse, check, patch. Records stay as received and are never decompressed.

use crate::api::code;

/// Bytes before the first record.
pub(crate) const HEADER_BYTES: usize = 61;
/// Bytes before the length field counts: base offset and the length itself.
const LENGTH_OVERHEAD: usize = 12;
/// Bytes 0-15 are patched on append; the checksum covers bytes 21 to the end only.
pub(crate) const PATCHED_BYTES: usize = 16;
const CHECKSUM_FROM: usize = 21;

const COMPRESSION_BITS: i16 = 0b111;
const LOG_APPEND_TIME_BIT: i16 = 0b1000;
const TRANSACTION_BITS: i16 = 0b11_0000;

/// What the broker needs to know about a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub base_offset: i64,
    /// Header and records.
    pub total_bytes: usize,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp_ms: i64,
    pub max_timestamp_ms: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
    checksum: u32,
    magic: i8,
}

impl BatchHeader {
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    pub fn compressed(&self) -> bool {
        self.attributes & COMPRESSION_BITS != 0
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    value
}

/// Read a header; `None` when the bytes are too few or the length cannot be one.
pub(crate) fn parse(bytes: &[u8]) -> Option<BatchHeader> {
    if bytes.len() < HEADER_BYTES {
        return None;
    }
    let length = usize::try_from(i32::from_be_bytes(number(bytes, 8))).ok()?;
    let total_bytes = length.checked_add(LENGTH_OVERHEAD)?;
    if total_bytes < HEADER_BYTES {
        return None;
    }
    Some(BatchHeader {
        base_offset: i64::from_be_bytes(number(bytes, 0)),
        total_bytes,
        magic: i8::from_be_bytes(number(bytes, 16)),
        checksum: u32::from_be_bytes(number(bytes, 17)),
        attributes: i16::from_be_bytes(number(bytes, 21)),
        last_offset_delta: i32::from_be_bytes(number(bytes, 23)),
        base_timestamp_ms: i64::from_be_bytes(number(bytes, 27)),
        max_timestamp_ms: i64::from_be_bytes(number(bytes, 35)),
        producer_id: i64::from_be_bytes(number(bytes, 43)),
        producer_epoch: i16::from_be_bytes(number(bytes, 51)),
        base_sequence: i32::from_be_bytes(number(bytes, 53)),
        record_count: i32::from_be_bytes(number(bytes, 57)),
    })
}

/// A header found on disk that can be part of the log: used while scanning.
pub(crate) fn plausible(header: &BatchHeader) -> bool {
    header.magic == 2 && header.base_offset >= 0 && counts_agree(header)
}

/// Whether the bytes of a complete batch match its checksum.
pub(crate) fn checksum_matches(batch: &[u8], header: &BatchHeader) -> bool {
    crc32c::crc32c(&batch[CHECKSUM_FROM..header.total_bytes]) == header.checksum
}

/// The checksum stored in a header, for scans that read the batch piecewise.
pub(crate) fn stored_checksum(header: &BatchHeader) -> u32 {
    header.checksum
}

/// Where the bytes covered by the checksum begin.
pub(crate) const fn checksum_from() -> usize {
    CHECKSUM_FROM
}

fn counts_agree(header: &BatchHeader) -> bool {
    header.record_count > 0 && header.last_offset_delta.checked_add(1) == Some(header.record_count)
}

/// Check what a producer sent for one partition: exactly one sound batch. The error is the code to answer.
pub(crate) fn check(bytes: &[u8], max_message_bytes: u32) -> Result<BatchHeader, i16> {
    // The magic byte stands at the same place in all formats, so old formats can be told from damage.
    if bytes.len() > 16 && bytes[16] < 2 {
        return Err(code::UNSUPPORTED_FOR_MESSAGE_FORMAT);
    }
    let header = parse(bytes).ok_or(code::CORRUPT_MESSAGE)?;
    if header.magic != 2 {
        return Err(code::UNSUPPORTED_FOR_MESSAGE_FORMAT);
    }
    if header.total_bytes > bytes.len() {
        return Err(code::CORRUPT_MESSAGE);
    }
    if header.total_bytes > max_message_bytes as usize {
        return Err(code::MESSAGE_TOO_LARGE);
    }
    if header.total_bytes < bytes.len() {
        return Err(code::INVALID_RECORD);
    }
    if !checksum_matches(bytes, &header) {
        return Err(code::CORRUPT_MESSAGE);
    }
    let idempotent = header.producer_id >= 0;
    let unnumbered = header.producer_epoch < 0 || header.base_sequence < 0;
    let transactional = header.attributes & TRANSACTION_BITS != 0;
    if !counts_agree(&header) || (idempotent && unnumbered) || transactional {
        return Err(code::INVALID_RECORD);
    }
    Ok(header)
}

/// The bytes 0-15 as they are stored: new base offset and leader epoch, old length.
pub(crate) fn patched(batch: &[u8], base_offset: i64, leader_epoch: i32) -> [u8; PATCHED_BYTES] {
    let mut front = [0; PATCHED_BYTES];
    front[..8].copy_from_slice(&base_offset.to_be_bytes());
    front[8..12].copy_from_slice(&batch[8..12]);
    front[12..].copy_from_slice(&leader_epoch.to_be_bytes());
    front
}

/// Offset and timestamp of the first record at or after `timestamp_ms`, for a batch known to hold one.
///
/// A compressed batch is answered with its first record: a consumer then starts up to one batch early, never late.
pub(crate) fn first_record_at(batch: &[u8], header: &BatchHeader, timestamp_ms: i64) -> Option<(i64, i64)> {
    if header.attributes & LOG_APPEND_TIME_BIT != 0 {
        return Some((header.base_offset, header.max_timestamp_ms));
    }
    if header.compressed() {
        return Some((header.base_offset, header.base_timestamp_ms));
    }
    let mut rest = batch.get(HEADER_BYTES..header.total_bytes)?;
    for _ in 0..header.record_count {
        let length = usize::try_from(varint(&mut rest)?).ok()?;
        let (mut record, after) = rest.split_at_checked(length)?;
        rest = after;
        record = record.get(1..)?;
        let timestamp = header.base_timestamp_ms.checked_add(varint(&mut record)?)?;
        let offset = header.base_offset.checked_add(varint(&mut record)?)?;
        if timestamp >= timestamp_ms {
            return Some((offset, timestamp));
        }
    }
    None
}

/// A zigzag number of at most 64 bits.
fn varint(bytes: &mut &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    for position in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (position * 7);
        if byte < 0x80 {
            return Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
        }
    }
    None
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A sound batch of `count` records of `payload` bytes, one millisecond apart.
    pub(crate) fn sample(count: i32, payload: usize, producer: (i64, i16, i32), timestamp_ms: i64) -> Vec<u8> {
        let mut batch = vec![0_u8; HEADER_BYTES];
        for record in 0..count {
            let mut body = vec![0];
            push_varint(&mut body, i64::from(record));
            push_varint(&mut body, i64::from(record));
            push_varint(&mut body, -1);
            push_varint(&mut body, payload as i64);
            body.extend(std::iter::repeat_n(record as u8, payload));
            push_varint(&mut body, 0);
            push_varint(&mut batch, body.len() as i64);
            batch.extend(body);
        }
        let length = (batch.len() - 12) as i32;
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        batch[16] = 2;
        batch[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        batch[27..35].copy_from_slice(&timestamp_ms.to_be_bytes());
        batch[35..43].copy_from_slice(&(timestamp_ms + i64::from(count) - 1).to_be_bytes());
        batch[43..51].copy_from_slice(&producer.0.to_be_bytes());
        batch[51..53].copy_from_slice(&producer.1.to_be_bytes());
        batch[53..57].copy_from_slice(&producer.2.to_be_bytes());
        batch[57..61].copy_from_slice(&count.to_be_bytes());
        seal(&mut batch);
        batch
    }

    /// Write the checksum a changed batch needs.
    pub(crate) fn seal(batch: &mut [u8]) {
        let checksum = crc32c::crc32c(&batch[CHECKSUM_FROM..]);
        batch[17..21].copy_from_slice(&checksum.to_be_bytes());
    }

    fn push_varint(to: &mut Vec<u8>, value: i64) {
        let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
        while rest >= 0x80 {
            to.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        to.push(rest as u8);
    }

    const NONE: (i64, i16, i32) = (-1, -1, -1);

    #[test]
    fn a_sound_batch_passes_and_each_fault_has_its_code() {
        let sound = sample(3, 10, NONE, 1_000);
        assert_eq!(check(&sound, 1 << 20).unwrap().record_count, 3);
        assert_eq!(check(&sound[..sound.len() - 1], 1 << 20), Err(code::CORRUPT_MESSAGE));
        assert_eq!(check(&sound, 60), Err(code::MESSAGE_TOO_LARGE));
        assert_eq!(check(&[sound.clone(), sound.clone()].concat(), 1 << 20), Err(code::INVALID_RECORD));
        let mut flipped = sound.clone();
        *flipped.last_mut().unwrap() ^= 1;
        assert_eq!(check(&flipped, 1 << 20), Err(code::CORRUPT_MESSAGE));
        let mut old = sound.clone();
        old[16] = 1;
        assert_eq!(check(&old, 1 << 20), Err(code::UNSUPPORTED_FOR_MESSAGE_FORMAT));
        let mut miscounted = sound.clone();
        miscounted[57..61].copy_from_slice(&9_i32.to_be_bytes());
        seal(&mut miscounted);
        assert_eq!(check(&miscounted, 1 << 20), Err(code::INVALID_RECORD));
    }

    #[test]
    fn patching_keeps_the_checksum_valid() {
        let mut batch = sample(2, 100, NONE, 5);
        let front = patched(&batch, 77, 3);
        batch[..PATCHED_BYTES].copy_from_slice(&front);
        let header = check(&batch, 1 << 20).unwrap();
        assert_eq!((header.base_offset, header.last_offset()), (77, 78));
    }

    #[test]
    fn a_timestamp_finds_its_record_inside_a_batch() {
        let mut batch = sample(10, 5, NONE, 1_000);
        let front = patched(&batch, 500, 0);
        batch[..PATCHED_BYTES].copy_from_slice(&front);
        let header = parse(&batch).unwrap();
        assert_eq!(first_record_at(&batch, &header, 1_004), Some((504, 1_004)));
        assert_eq!(first_record_at(&batch, &header, 0), Some((500, 1_000)));
        assert_eq!(first_record_at(&batch, &header, 1_010), None);
    }
}
