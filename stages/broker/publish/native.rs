//! Hands one record to the client library without copying its payload: rdkafka's own `send` copies every payload, which would
//! cost a pass over memory per frame and hold a payload shared by many streams once for each of them.

use std::ffi::{CStr, c_int, c_void};

use bytes::Bytes;
use contract::recorder::FrameRef;
use rdkafka::IntoOpaque;
use rdkafka::bindings::{rd_kafka_producev, rd_kafka_resp_err_t, rd_kafka_vtype_t};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, Producer};

use super::reports::Reports;

/// What travels with a record until its delivery report; keeps the payload alive for the library.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) payload: Bytes,
    pub(crate) of: FrameRef,
    pub(crate) lane: usize,
    /// Bytes taken from the lane's window.
    pub(crate) bytes: u64,
}

/// The name of the one header, for C.
const HEADER: &CStr = c"reelbench";

/// Where a record goes, and what it carries beside the payload.
pub(crate) struct Record<'a> {
    pub(crate) topic: &'a CStr,
    pub(crate) partition: i32,
    pub(crate) key: [u8; 4],
    pub(crate) header: &'a [u8],
}

/// Never blocks. On an error what was to be sent comes back.
#[expect(unsafe_code, reason = "sending without a copy is not in rdkafka's safe interface")]
pub(crate) fn produce(
    producer: &BaseProducer<Reports>,
    record: &Record<'_>,
    sent: Box<Sent>,
) -> Result<(), (RDKafkaErrorCode, Box<Sent>)> {
    let (payload, payload_len) = (sent.payload.as_ptr(), sent.payload.len());
    let opaque = sent.into_ptr();
    // SAFETY: the tags and argument types are those of librdkafka's `rd_kafka_producev`. Topic, key and header are copied
    // before it returns. The payload is not: it belongs to the `Sent` behind `opaque`, which is freed only when the delivery
    // report gives it back (the library has let go of the payload by then), or below when nothing was enqueued.
    let code = unsafe {
        rd_kafka_producev(
            producer.client().native_ptr(),
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_TOPIC,
            record.topic.as_ptr(),
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_PARTITION,
            record.partition,
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_MSGFLAGS,
            0 as c_int,
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_VALUE,
            payload.cast::<c_void>(),
            payload_len,
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_KEY,
            record.key.as_ptr().cast::<c_void>(),
            record.key.len(),
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_OPAQUE,
            opaque,
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADER,
            HEADER.as_ptr(),
            record.header.as_ptr().cast::<c_void>(),
            record.header.len(),
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_END,
        )
    };
    if code == rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    // SAFETY: the pointer was made from a `Box<Sent>` above, and on an error the library does not keep it.
    let sent = unsafe { Box::<Sent>::from_ptr(opaque) };
    Err((code.into(), sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_name_of_the_wire_format() {
        assert_eq!(HEADER.to_str(), Ok(contract::wire::HEADER_NAME));
    }
}
