//! From the bytes of a frame to a typed request, without panic and with bounded memory.

use bytes::{Buf, Bytes};
use kafka_protocol::messages::{
    ApiKey, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest, DescribeLogDirsRequest, FetchRequest,
    FindCoordinatorRequest, HeartbeatRequest, InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest,
    ListOffsetsRequest, MetadataRequest, OffsetCommitRequest, OffsetFetchRequest, ProduceRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::Decodable;

use crate::api::{self, ServedApi};
use crate::decode_limits::{self, Malformed, Walker};

/// What every request starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub api_key: i16,
    pub version: i16,
    pub correlation_id: i32,
    pub client_id: String,
}

/// One decoded request.
#[derive(Debug)]
pub(crate) enum Request {
    Produce(ProduceRequest),
    Fetch(FetchRequest),
    ListOffsets(ListOffsetsRequest),
    Metadata(MetadataRequest),
    OffsetCommit(OffsetCommitRequest),
    OffsetFetch(OffsetFetchRequest),
    FindCoordinator(FindCoordinatorRequest),
    JoinGroup(JoinGroupRequest),
    Heartbeat(HeartbeatRequest),
    LeaveGroup(LeaveGroupRequest),
    SyncGroup(SyncGroupRequest),
    ApiVersions,
    CreateTopics(CreateTopicsRequest),
    DeleteTopics(DeleteTopicsRequest),
    InitProducerId(InitProducerIdRequest),
    DescribeConfigs(DescribeConfigsRequest),
    DescribeLogDirs(DescribeLogDirsRequest),
    /// ApiVersions in a version of the future: answered in version 0, so that the client can step back.
    ApiVersionsTooNew,
}

/// Decode a frame (without its length). Batches stay slices of `frame`: nothing big is copied.
pub(crate) fn decode(frame: &Bytes) -> Result<(Header, Request), Malformed> {
    let mut walker = Walker::new(frame, false);
    let (api_key, version, correlation_id) = (walker.i16()?, walker.i16()?, walker.i32()?);
    let api = api::find(api_key).ok_or(Malformed::Unknown)?;
    let served = (api.min_version..=api.max_version).contains(&version);
    let mut header = Header { api_key, version, correlation_id, client_id: String::new() };
    if !served {
        let too_new = api.key == ApiKey::ApiVersions;
        return if too_new { Ok((header, Request::ApiVersionsTooNew)) } else { Err(Malformed::Unknown) };
    }
    header.client_id = walker.text()?.unwrap_or_default().to_owned();
    let mut walker = Walker::new(walker.rest(), version >= api.flexible_from);
    walker.tags()?;
    let mut body = frame.clone();
    body.advance(frame.len() - walker.rest().len());
    Ok((header, decode_body(api, version, body)?))
}

fn decode_body(api: &ServedApi, version: i16, mut body: Bytes) -> Result<Request, Malformed> {
    decode_limits::check(api, version, &body)?;
    fn to<T: Decodable>(body: &mut Bytes, version: i16) -> Result<T, Malformed> {
        T::decode(body, version).map_err(|_| Malformed::Decoder)
    }
    let body = &mut body;
    Ok(match api.key {
        ApiKey::Produce => Request::Produce(to(body, version)?),
        ApiKey::Fetch => Request::Fetch(to(body, version)?),
        ApiKey::ListOffsets => Request::ListOffsets(to(body, version)?),
        ApiKey::Metadata => Request::Metadata(to(body, version)?),
        ApiKey::OffsetCommit => Request::OffsetCommit(to(body, version)?),
        ApiKey::OffsetFetch => Request::OffsetFetch(to(body, version)?),
        ApiKey::FindCoordinator => Request::FindCoordinator(to(body, version)?),
        ApiKey::JoinGroup => Request::JoinGroup(to(body, version)?),
        ApiKey::Heartbeat => Request::Heartbeat(to(body, version)?),
        ApiKey::LeaveGroup => Request::LeaveGroup(to(body, version)?),
        ApiKey::SyncGroup => Request::SyncGroup(to(body, version)?),
        ApiKey::ApiVersions => Request::ApiVersions,
        ApiKey::CreateTopics => Request::CreateTopics(to(body, version)?),
        ApiKey::DeleteTopics => Request::DeleteTopics(to(body, version)?),
        ApiKey::InitProducerId => Request::InitProducerId(to(body, version)?),
        ApiKey::DescribeConfigs => Request::DescribeConfigs(to(body, version)?),
        ApiKey::DescribeLogDirs => Request::DescribeLogDirs(to(body, version)?),
        _ => return Err(Malformed::Unknown),
    })
}

/// Entry for a fuzzer: decode the bytes as a frame, and check every batch of a produce request.
pub fn fuzz_request(bytes: &[u8]) {
    let frame = Bytes::copy_from_slice(bytes);
    let Ok((_, request)) = decode(&frame) else { return };
    let Request::Produce(produce) = request else { return };
    let batches = produce.topic_data.iter().flat_map(|topic| &topic.partition_data);
    for batch in batches.filter_map(|partition| partition.records.as_ref()) {
        if let Ok(header) = crate::batch::check(batch, u32::MAX) {
            let _ = crate::batch::first_record_at(batch, &header, i64::MIN);
        }
    }
}
