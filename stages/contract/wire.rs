//! Frame <-> record: key = stream as u32 big-endian, one header `reelbench`, value = payload.
//!
//! Header, big-endian: magic `RBFR`, version u8, encoding u8, reserved u16, run id 16 bytes, stream u32, seq u64, PTS i64,
//! time base u32/u32, due i64, produced i64, due wall i64, width u32, height u32, CRC-32C of the value u32 (88 bytes); then
//! fields of type u8, length u16, value. Unknown types are skipped, so that a newer writer can be read.

use bytes::Bytes;

use crate::frame::{Encoding, Frame, Geometry, Origin, Rational, RunId};

/// Name of the one record header.
pub const HEADER_NAME: &str = "reelbench";
/// Bytes of the fixed part.
pub const FIXED_BYTES: usize = 88;
/// Upper bound of what a frame adds to its payload on the wire: header, key and record framing.
pub const OVERHEAD_BYTES: usize = 256;

const MAGIC: [u8; 4] = *b"RBFR";
const VERSION: u8 = 1;

/// Field types. Reserved for later: child index and count (4), reference to a stored payload (5).
const FIELD_ORIGIN: u8 = 1;
const FIELD_HOP: u8 = 2;
const FIELD_PARENT: u8 = 3;

/// Why bytes are not a frame record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("record has no `{HEADER_NAME}` header")]
    NoHeader,
    #[error("header of {0} bytes is shorter than its fixed part or a field")]
    Short(usize),
    #[error("header does not start with the frame magic")]
    Magic,
    #[error("header version {0} is not known")]
    Version(u8),
    #[error("encoding {0} is not known")]
    Encoding(u8),
}

/// A decoded record: the frame, and whether its payload still has the CRC it was written with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    pub frame: Frame,
    pub intact: bool,
}

/// The record key of a stream.
pub fn key(stream: u32) -> [u8; 4] {
    stream.to_be_bytes()
}

/// Writes the header of `frame` into `out`, replacing what is there. `crc` is the CRC-32C of the payload; computing it once
/// per payload lets many streams share one.
pub fn encode_header(frame: &Frame, crc: u32, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, frame.encoding as u8, 0, 0]);
    out.extend_from_slice(&frame.run_id.0);
    out.extend_from_slice(&frame.stream.to_be_bytes());
    out.extend_from_slice(&frame.seq.to_be_bytes());
    out.extend_from_slice(&frame.pts.to_be_bytes());
    out.extend_from_slice(&frame.time_base.num.to_be_bytes());
    out.extend_from_slice(&frame.time_base.den.to_be_bytes());
    out.extend_from_slice(&frame.due_ns.to_be_bytes());
    out.extend_from_slice(&frame.produced_ns.to_be_bytes());
    out.extend_from_slice(&frame.due_wall_ns.to_be_bytes());
    out.extend_from_slice(&frame.geometry.width_px.to_be_bytes());
    out.extend_from_slice(&frame.geometry.height_px.to_be_bytes());
    out.extend_from_slice(&crc.to_be_bytes());
    debug_assert_eq!(out.len(), FIXED_BYTES);
    let mut origin = [0; 24];
    origin[..8].copy_from_slice(&frame.origin.blocked_ns.to_be_bytes());
    origin[8..16].copy_from_slice(&frame.origin.self_lag_ns.to_be_bytes());
    origin[16..].copy_from_slice(&frame.origin.enqueue_ns.to_be_bytes());
    field(out, FIELD_ORIGIN, &origin);
    if frame.hop != 0 {
        field(out, FIELD_HOP, &[frame.hop]);
    }
    if let Some((stream, seq)) = frame.parent {
        let mut parent = [0; 12];
        parent[..4].copy_from_slice(&stream.to_be_bytes());
        parent[4..].copy_from_slice(&seq.to_be_bytes());
        field(out, FIELD_PARENT, &parent);
    }
}

fn field(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    out.push(kind);
    out.extend_from_slice(&(value.len() as u16).to_be_bytes());
    out.extend_from_slice(value);
}

/// Reads big-endian numbers off the front of a slice.
struct Cursor<'a> {
    left: &'a [u8],
    total: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        if self.left.len() < n {
            return Err(WireError::Short(self.total));
        }
        let (head, tail) = self.left.split_at(n);
        self.left = tail;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }
    fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_be_bytes(self.array()?))
    }
    fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_be_bytes(self.array()?))
    }
    fn i64(&mut self) -> Result<i64, WireError> {
        Ok(i64::from_be_bytes(self.array()?))
    }
}

/// Reads a record. The payload is checked against its CRC, not refused: a corrupt frame is counted by the caller.
pub fn decode(header: Option<&[u8]>, payload: Bytes) -> Result<Decoded, WireError> {
    let header = header.ok_or(WireError::NoHeader)?;
    let mut cursor = Cursor { left: header, total: header.len() };
    if cursor.array()? != MAGIC {
        return Err(WireError::Magic);
    }
    let [version, encoding, _, _] = cursor.array()?;
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    let encoding = Encoding::from_code(encoding).ok_or(WireError::Encoding(encoding))?;
    let mut frame = Frame {
        run_id: RunId(cursor.array()?),
        stream: cursor.u32()?,
        seq: cursor.u64()?,
        pts: cursor.i64()?,
        time_base: Rational::new(cursor.u32()?, cursor.u32()?),
        due_ns: cursor.i64()?,
        produced_ns: cursor.i64()?,
        due_wall_ns: cursor.i64()?,
        geometry: Geometry::new(cursor.u32()?, cursor.u32()?),
        encoding,
        origin: Origin::default(),
        parent: None,
        hop: 0,
        payload,
    };
    let crc = cursor.u32()?;
    decode_fields(&mut cursor, &mut frame)?;
    let intact = crc32c::crc32c(&frame.payload) == crc;
    Ok(Decoded { frame, intact })
}

fn decode_fields(cursor: &mut Cursor<'_>, frame: &mut Frame) -> Result<(), WireError> {
    while !cursor.left.is_empty() {
        let [kind, high, low] = cursor.array()?;
        let value = cursor.take(usize::from(u16::from_be_bytes([high, low])))?;
        let mut value = Cursor { left: value, total: cursor.total };
        match kind {
            FIELD_ORIGIN => {
                frame.origin = Origin { blocked_ns: value.i64()?, self_lag_ns: value.i64()?, enqueue_ns: value.i64()? };
            }
            FIELD_HOP => [frame.hop] = value.array()?,
            FIELD_PARENT => frame.parent = Some((value.u32()?, value.u64()?)),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_frame() -> impl Strategy<Value = Frame> {
        let ids = (any::<[u8; 16]>(), any::<u32>(), any::<u64>(), any::<i64>());
        let times = (any::<[i64; 3]>(), any::<[i64; 3]>());
        let rest = (any::<[u32; 4]>(), 1u8..=5, any::<Option<(u32, u64)>>(), any::<u8>(), any::<Vec<u8>>());
        (ids, times, rest).prop_map(|(ids, (t, o), (g, encoding, parent, hop, payload))| Frame {
            run_id: RunId(ids.0),
            stream: ids.1,
            seq: ids.2,
            pts: ids.3,
            time_base: Rational::new(g[0], g[1]),
            due_ns: t[0],
            produced_ns: t[1],
            due_wall_ns: t[2],
            geometry: Geometry::new(g[2], g[3]),
            encoding: Encoding::from_code(encoding).unwrap(),
            origin: Origin { blocked_ns: o[0], self_lag_ns: o[1], enqueue_ns: o[2] },
            parent,
            hop,
            payload: payload.into(),
        })
    }

    fn header_of(frame: &Frame) -> Vec<u8> {
        let mut out = vec![7; 3];
        encode_header(frame, crc32c::crc32c(&frame.payload), &mut out);
        out
    }

    proptest! {
        #[test]
        fn a_record_carries_the_whole_frame(frame in any_frame()) {
            let header = header_of(&frame);
            prop_assert!(header.len() + 4 < OVERHEAD_BYTES);
            let decoded = decode(Some(&header), frame.payload.clone()).unwrap();
            prop_assert!(decoded.intact);
            prop_assert_eq!(decoded.frame, frame);
        }

        #[test]
        fn a_changed_payload_is_seen(frame in any_frame(), bit in 0usize..4096) {
            prop_assume!(!frame.payload.is_empty());
            let mut payload = frame.payload.to_vec();
            let bit = bit % (payload.len() * 8);
            payload[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!decode(Some(&header_of(&frame)), payload.into()).unwrap().intact);
        }

        #[test]
        fn unknown_fields_are_skipped(frame in any_frame(), kind in 6u8.., value in any::<Vec<u8>>()) {
            let mut header = header_of(&frame);
            field(&mut header, kind, &value);
            prop_assert_eq!(decode(Some(&header), frame.payload.clone()).unwrap().frame, frame);
        }

        #[test]
        fn any_bytes_are_refused_or_read(header in any::<Vec<u8>>(), cut in 0usize..200, frame in any_frame()) {
            let _ = decode(Some(&header), Bytes::new());
            let whole = header_of(&frame);
            let cut = cut.min(whole.len());
            if cut < FIXED_BYTES {
                prop_assert!(decode(Some(&whole[..cut]), Bytes::new()).is_err());
            }
        }
    }

    #[test]
    fn the_layout_does_not_change() {
        let frame = Frame {
            run_id: RunId([1; 16]),
            stream: 2,
            seq: 3,
            pts: 4,
            time_base: Rational::new(1, 24),
            due_ns: 5,
            produced_ns: 6,
            due_wall_ns: 7,
            geometry: Geometry::new(1920, 1080),
            encoding: Encoding::Jpeg,
            origin: Origin::default(),
            parent: None,
            hop: 0,
            payload: Bytes::from_static(b"123456789"),
        };
        let header = header_of(&frame);
        assert_eq!(&header[..8], b"RBFR\x01\x01\0\0");
        assert_eq!(&header[24..36], &[0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
        // CRC-32C of "123456789" is the published check value.
        assert_eq!(&header[84..88], &0xe306_9283u32.to_be_bytes());
    }

    #[test]
    fn a_record_without_our_header_is_named() {
        assert_eq!(decode(None, Bytes::new()), Err(WireError::NoHeader));
    }
}
