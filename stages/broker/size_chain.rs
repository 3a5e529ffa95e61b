//! How large a record, a batch and a queue may be, from the largest frame: every limit between the publisher and the disk
//! follows from it, so that no link of the chain breaks first.

use contract::wire::OVERHEAD_BYTES;

const MIB: u64 = 1 << 20;
/// Smallest batch limit: twice the default of a broker.
const FLOOR_BYTES: u64 = 2 * MIB;
/// Largest batch limit: a request has to fit under the 100 MiB that a broker reads by default, with room for others.
pub const CEILING_BYTES: u64 = 64 * MIB;
/// What a produce request adds to its batch, generously.
pub const REQUEST_OVERHEAD_BYTES: u64 = 64 * 1024;

/// Bytes a frame takes on the wire and in queues.
pub fn record_bytes(payload_bytes: u64) -> u64 {
    payload_bytes + OVERHEAD_BYTES as u64
}

/// The batch limit `M` of the chain: max(2 MiB, next power of two of twice the largest frame); `None` above 64 MiB.
pub fn batch_limit_bytes(max_frame_bytes: u64) -> Option<u64> {
    let twice = max_frame_bytes.checked_mul(2)?;
    let limit = twice.checked_next_power_of_two()?.max(FLOOR_BYTES);
    (limit <= CEILING_BYTES).then_some(limit)
}

/// What suits a frame size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Below 64 KiB: batches pay, so wait a little for them.
    Thumb,
    /// To 2 MiB: a batch is a few frames.
    Frame,
    /// Uncompressed pictures: a batch is a frame.
    Raw,
}

impl Profile {
    pub fn of(max_frame_bytes: u64) -> Self {
        match max_frame_bytes {
            0..65_536 => Profile::Thumb,
            65_536..=2_097_152 => Profile::Frame,
            _ => Profile::Raw,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Profile::Thumb => "thumb",
            Profile::Frame => "frame",
            Profile::Raw => "raw",
        }
    }

    pub fn linger_ms(self) -> u64 {
        if self == Profile::Thumb { 5 } else { 0 }
    }

    pub fn batch_bytes(self, limit_bytes: u64) -> u64 {
        if self == Profile::Thumb { 1_000_000 } else { limit_bytes }
    }

    /// Bytes that may wait for acknowledgement, over all partitions.
    pub fn queue_bytes(self, max_frame_bytes: u64) -> u64 {
        match self {
            Profile::Thumb => 64 * MIB,
            Profile::Frame => 256 * MIB,
            Profile::Raw => (24 * record_bytes(max_frame_bytes)).clamp(64 * MIB, 256 * MIB),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_limit_is_a_power_of_two_with_room_for_two_frames() {
        let cases = [
            (10_400, 2 * MIB),
            (MIB, 2 * MIB),
            (MIB + 1, 4 * MIB),
            (3_110_400, 8 * MIB),
            (6_220_800, 16 * MIB),
            (12_441_600, 32 * MIB),
            (24_883_200, 64 * MIB),
        ];
        for (frame, limit) in cases {
            assert_eq!(batch_limit_bytes(frame), Some(limit), "{frame}");
        }
        assert_eq!(batch_limit_bytes(32 * MIB), Some(CEILING_BYTES));
        assert_eq!(batch_limit_bytes(32 * MIB + 1), None);
        assert_eq!(batch_limit_bytes(u64::MAX), None);
    }

    #[test]
    fn a_profile_follows_the_frame_size() {
        let frames = [65_535, 65_536, 2 * MIB, 2 * MIB + 1].map(Profile::of);
        assert_eq!(frames, [Profile::Thumb, Profile::Frame, Profile::Frame, Profile::Raw]);
        assert_eq!((Profile::Thumb.linger_ms(), Profile::Frame.linger_ms(), Profile::Raw.linger_ms()), (5, 0, 0));
        assert_eq!(Profile::Raw.queue_bytes(24_883_200), 256 * MIB);
        assert_eq!(Profile::Raw.queue_bytes(3 * MIB), 24 * (3 * MIB + 256));
    }
}
