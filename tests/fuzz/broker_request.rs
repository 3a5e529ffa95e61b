//! Requests to the built-in broker: any frame is refused or decoded, whatever its type and version.
//!
//! Input: one byte chooses. 0: the rest is a frame. 1: the rest is the body of a request whose type and version two bytes
//! choose. 2: the rest is a record batch, sent with the length and checksum it should have.

#![no_main]

use builtin_broker::{SERVED_APIS, ServedApi, fuzz_request};
use fuzz::{Input, write_seeds};
use libfuzzer_sys::fuzz_target;

/// Bytes of a batch before its records.
const BATCH_HEADER_BYTES: usize = 61;
/// The checksum of a batch covers everything from here.
const CHECKSUM_FROM: usize = 21;
const PRODUCE_VERSION: i16 = 7;

fuzz_target!(init: write_seeds(&seeds()), |bytes: &[u8]| {
    let mut input = Input(bytes);
    match input.byte() % 3 {
        0 => fuzz_request(input.0),
        1 => {
            let [api, version] = input.array();
            let api = &SERVED_APIS[usize::from(api) % SERVED_APIS.len()];
            let versions = api.max_version - api.min_version + 1;
            fuzz_request(&request(api, api.min_version + i16::from(version) % versions, input.0));
        }
        _ => fuzz_request(&produce(&sound_batch(input.0))),
    }
});

/// A frame with a sound header.
fn request(api: &ServedApi, version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = [(api.key as i16).to_be_bytes(), version.to_be_bytes()].concat();
    frame.extend([0, 0, 0, 7]);
    frame.extend(b"\0\x04fuzz");
    if version >= api.flexible_from {
        frame.push(0);
    }
    frame.extend(body);
    frame
}

/// One batch for partition 0 of one topic.
fn produce(batch: &[u8]) -> Vec<u8> {
    let mut body = b"\xff\xff\xff\xff\0\0\0\x05\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0".to_vec();
    body.extend((batch.len() as u32).to_be_bytes());
    body.extend(batch);
    let api = SERVED_APIS.iter().find(|api| api.key as i16 == 0).expect("produce is served");
    request(api, PRODUCE_VERSION, &body)
}

/// The bytes as a batch that passes the checks a fuzzer cannot guess: length, format, checksum.
fn sound_batch(bytes: &[u8]) -> Vec<u8> {
    let mut batch = bytes.to_vec();
    batch.resize(bytes.len().max(BATCH_HEADER_BYTES), 0);
    let length = batch.len() as u32 - 12;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[16] = 2;
    let checksum = crc32c::crc32c(&batch[CHECKSUM_FROM..]);
    batch[17..21].copy_from_slice(&checksum.to_be_bytes());
    batch
}

/// A batch of two records with a key, a value and a header each.
fn batch() -> Vec<u8> {
    let mut batch = vec![0; BATCH_HEADER_BYTES];
    batch[23..27].copy_from_slice(&1_u32.to_be_bytes());
    batch[27..35].copy_from_slice(&1_700_000_000_000_u64.to_be_bytes());
    batch[35..43].copy_from_slice(&1_700_000_000_005_u64.to_be_bytes());
    batch[43..57].fill(0xff);
    batch[57..61].copy_from_slice(&2_u32.to_be_bytes());
    for delta in [0, 1] {
        // Attributes, time and offset deltas, then key, value and headers with their lengths as zigzag numbers.
        let record = [&[0, delta * 10, delta * 2, 2][..], b"k", &[6], b"val", &[2, 2], b"h", &[2], b"v"].concat();
        batch.push(record.len() as u8 * 2);
        batch.extend(record);
    }
    batch
}

/// Every type in every version, with an empty body and with one that names a group or topic; batches of two records.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![[&[2], &batch()[..]].concat(), [&[0], &produce(&sound_batch(&batch()))[..]].concat()];
    for (number, api) in SERVED_APIS.iter().enumerate() {
        for version in 0..=api.max_version - api.min_version {
            let front = [1, number as u8, version as u8];
            seeds.push([&front[..], &[0; 48]].concat());
            seeds.push(
                [&front[..], b"\0\x01g\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"].concat(),
            );
        }
    }
    seeds
}
