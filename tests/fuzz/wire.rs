//! Frame records: any header is refused or read, and what was read is written again bit for bit.
//!
//! Input: length of the payload (one byte), payload, header.

#![no_main]

use bytes::Bytes;
use contract::wire::{FIXED_BYTES, OVERHEAD_BYTES, decode, encode_header, key};
use contract::{Encoding, Frame, Geometry, Origin, Rational, RunId};
use fuzz::{Input, write_seeds};
use libfuzzer_sys::fuzz_target;

/// Where the CRC stands in the header: its last fixed field.
const CRC_AT: usize = FIXED_BYTES - 4;

fuzz_target!(init: write_seeds(&seeds()), |bytes: &[u8]| {
    let mut input = Input(bytes);
    let payload_bytes = usize::from(input.byte());
    let payload = Bytes::copy_from_slice(input.slice(payload_bytes));
    check(input.0, payload);
});

fn check(header: &[u8], payload: Bytes) {
    let Ok(decoded) = decode(Some(header), payload.clone()) else { return };
    let crc = crc32c::crc32c(&payload);
    assert_eq!(decoded.intact, header[CRC_AT..FIXED_BYTES] == crc.to_be_bytes());
    assert_eq!(decoded.frame.payload, payload);

    let mut again = vec![0xff; 7];
    encode_header(&decoded.frame, crc, &mut again);
    let length = again.len() + key(decoded.frame.stream).len();
    assert!(length <= OVERHEAD_BYTES, "{length} bytes around a payload");
    // The two reserved bytes are written as zeros whatever was read.
    assert_eq!((&again[..6], &again[8..CRC_AT]), (&header[..6], &header[8..CRC_AT]));

    let second = decode(Some(&again), payload).expect("what was written is read");
    assert!(second.intact);
    assert_eq!(second.frame, decoded.frame);
    let _ = decoded.frame.time_base.as_f64();
    let _ = decoded.frame.geometry.pixels();
}

fn seeds() -> Vec<Vec<u8>> {
    let frame = Frame {
        run_id: RunId([1; 16]),
        stream: 2,
        seq: 3,
        pts: -4,
        time_base: Rational::new(1, 24),
        due_ns: 5,
        produced_ns: 6,
        due_wall_ns: 1_700_000_000_000_000_000,
        geometry: Geometry::new(1920, 1080),
        encoding: Encoding::Jpeg,
        origin: Origin::default(),
        parent: None,
        hop: 0,
        payload: Bytes::from_static(b"123456789"),
    };
    let origin = Origin { blocked_ns: 1, self_lag_ns: i64::MAX, enqueue_ns: i64::MIN };
    let derived = Frame {
        encoding: Encoding::Json,
        parent: Some((7, u64::MAX)),
        hop: 255,
        origin,
        payload: Bytes::new(),
        ..frame.clone()
    };
    [frame, derived].iter().map(seed).collect()
}

fn seed(frame: &Frame) -> Vec<u8> {
    let mut header = Vec::new();
    encode_header(frame, crc32c::crc32c(&frame.payload), &mut header);
    let length = u8::try_from(frame.payload.len()).expect("seeds have short payloads");
    [&[length], &frame.payload[..], &header].concat()
}
