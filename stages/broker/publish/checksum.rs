//! CRC-32C of payloads, computed once for a payload that many streams share.

use std::sync::Mutex;

use bytes::Bytes;

/// Remembers the last payload. It is kept, not only its address: freed memory may be used again for other bytes.
#[derive(Debug, Default)]
pub(crate) struct Checksum {
    last: Mutex<Option<(Bytes, u32)>>,
}

impl Checksum {
    pub(crate) fn of(&self, payload: &Bytes) -> u32 {
        // Another thread's look-up is not worth waiting for.
        let Ok(mut last) = self.last.try_lock() else { return crc32c::crc32c(payload) };
        if let Some((kept, crc)) = last.as_ref()
            && kept.as_ptr() == payload.as_ptr()
            && kept.len() == payload.len()
        {
            return *crc;
        }
        let crc = crc32c::crc32c(payload);
        *last = Some((payload.clone(), crc));
        crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_at_the_address_of_an_earlier_one_has_its_own_checksum() {
        let checksum = Checksum::default();
        for n in 0..200u8 {
            let payload = Bytes::from(vec![n; 4096]);
            assert_eq!(checksum.of(&payload), crc32c::crc32c(&payload));
            assert_eq!(checksum.of(&payload.clone()), crc32c::crc32c(&payload));
            assert_eq!(checksum.of(&payload.slice(1..)), crc32c::crc32c(&payload[1..]));
        }
    }
}
