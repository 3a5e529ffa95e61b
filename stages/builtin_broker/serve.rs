//! Answer requests: one function for each request type, one place that picks it and frames the response.

mod configs;
mod fetch;
mod groups;
mod list_offsets;
mod metadata;
mod offsets;
mod produce;
mod topics;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiVersionsResponse, FindCoordinatorResponse, InitProducerIdResponse};
use kafka_protocol::protocol::{Encodable, StrBytes};

use crate::api::{self, SERVED_APIS, code};
use crate::coordinator::Coordinator;
use crate::data_dir::DataDir;
use crate::facts::Counters;
use crate::offsets::Offsets;
use crate::options::BrokerOptions;
use crate::producer_ids::ProducerIds;
use crate::request::{Header, Request};
use crate::topics::Topics;
use crate::waiters::Waiter;

/// Where clients reach a node.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub node: u16,
    pub host: String,
    pub port: u16,
}

/// What all connections share.
pub(crate) struct Shared {
    pub options: BrokerOptions,
    pub endpoints: Vec<Endpoint>,
    pub data: DataDir,
    pub topics: Topics,
    pub offsets: Offsets,
    pub coordinator: Coordinator,
    pub producer_ids: ProducerIds,
    pub counters: Arc<Counters>,
    pub stopping: AtomicBool,
}

/// All groups are coordinated by node 1.
pub(crate) const COORDINATOR_NODE: u16 = 1;

/// A connection as the handlers see it.
pub(crate) struct Caller<'a> {
    pub shared: &'a Shared,
    /// The node whose port the client connected to.
    pub node: u16,
    pub waiter: &'a Arc<Waiter>,
}

/// What happens after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The response is in the buffer.
    Respond,
    /// The client wants no response.
    Silent,
    /// The client wants no response but must learn that its data was refused.
    Close,
}

/// The encoder refused a response: a defect, the connection ends.
#[derive(Debug, thiserror::Error)]
#[error("response cannot be encoded: {0}")]
pub(crate) struct Unencodable(String);

/// A response under construction: the frame's length is filled in at the end.
pub(crate) struct ResponseBuffer<'a> {
    pub bytes: &'a mut Vec<u8>,
}

impl<'a> ResponseBuffer<'a> {
    fn begin(bytes: &'a mut Vec<u8>, header: &Header) -> ResponseBuffer<'a> {
        bytes.clear();
        bytes.extend([0; 4]);
        bytes.extend(header.correlation_id.to_be_bytes());
        // Flexible response headers end with tagged fields; ApiVersions must be readable before versions are known.
        let flexible = api::find(header.api_key).is_some_and(|api| header.version >= api.flexible_from);
        if flexible && header.api_key != kafka_protocol::messages::ApiKey::ApiVersions as i16 {
            bytes.push(0);
        }
        ResponseBuffer { bytes }
    }

    fn body<T: Encodable>(&mut self, body: &T, version: i16) -> Result<(), Unencodable> {
        body.encode(self.bytes, version).map_err(|error| Unencodable(error.to_string()))
    }

    fn finish(self) -> Result<(), Unencodable> {
        let length = i32::try_from(self.bytes.len() - 4).map_err(|error| Unencodable(error.to_string()))?;
        self.bytes[..4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

/// Text in a response.
fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

/// Answer one request into `output`.
pub(crate) fn answer(
    caller: &Caller<'_>,
    header: &Header,
    request: Request,
    output: &mut Vec<u8>,
) -> Result<Outcome, Unencodable> {
    let version = header.version;
    let mut response = ResponseBuffer::begin(output, header);
    let mut outcome = Outcome::Respond;
    match request {
        Request::Produce(request) => {
            let acknowledged = request.acks != 0;
            let (body, refused) = produce::answer(caller, request);
            response.body(&body, version)?;
            if !acknowledged {
                outcome = if refused { Outcome::Close } else { Outcome::Silent };
            }
        }
        Request::Fetch(request) => fetch::answer(caller, version, &request, response.bytes),
        Request::ListOffsets(request) => response.body(&list_offsets::answer(caller, &request), version)?,
        Request::Metadata(request) => response.body(&metadata::answer(caller, version, &request), version)?,
        Request::OffsetCommit(request) => response.body(&offsets::commit(caller, &request), version)?,
        Request::OffsetFetch(request) => response.body(&offsets::fetch(caller, version, &request), version)?,
        Request::FindCoordinator(request) => {
            response.body(&find_coordinator(caller, version, request.key_type), version)?;
        }
        Request::JoinGroup(request) => response.body(&groups::join(caller, header, &request), version)?,
        Request::Heartbeat(request) => response.body(&groups::heartbeat(caller, &request), version)?,
        Request::LeaveGroup(request) => response.body(&groups::leave(caller, version, &request), version)?,
        Request::SyncGroup(request) => response.body(&groups::sync(caller, &request), version)?,
        Request::ApiVersions => response.body(&api_versions(code::NONE), version)?,
        Request::ApiVersionsTooNew => response.body(&api_versions(code::UNSUPPORTED_VERSION), 0)?,
        Request::CreateTopics(request) => response.body(&topics::create(caller, version, &request), version)?,
        Request::DeleteTopics(request) => response.body(&topics::delete(caller, &request), version)?,
        Request::InitProducerId(request) => {
            response.body(&init_producer_id(caller, request.transactional_id.is_some()), version)?;
        }
        Request::DescribeConfigs(request) => response.body(&configs::describe(caller, version, &request), version)?,
        Request::DescribeLogDirs(request) => response.body(&configs::log_dirs(caller, &request), version)?,
    }
    response.finish()?;
    Ok(outcome)
}

fn api_versions(error: i16) -> ApiVersionsResponse {
    let row = |api: &api::ServedApi| {
        ApiVersion::default()
            .with_api_key(api.key as i16)
            .with_min_version(api.min_version)
            .with_max_version(api.max_version)
    };
    ApiVersionsResponse::default().with_error_code(error).with_api_keys(SERVED_APIS.iter().map(row).collect())
}

fn find_coordinator(caller: &Caller<'_>, version: i16, key_type: i8) -> FindCoordinatorResponse {
    const GROUP: i8 = 0;
    if key_type != GROUP {
        let refusal =
            FindCoordinatorResponse::default().with_error_code(code::INVALID_REQUEST).with_node_id((-1).into());
        let told = "the built-in broker has no transactions";
        return if version >= 1 { refusal.with_error_message(Some(text(told))) } else { refusal };
    }
    let endpoint = &caller.shared.endpoints[usize::from(COORDINATOR_NODE) - 1];
    FindCoordinatorResponse::default()
        .with_node_id(i32::from(endpoint.node).into())
        .with_host(text(&endpoint.host))
        .with_port(i32::from(endpoint.port))
}

fn init_producer_id(caller: &Caller<'_>, transactional: bool) -> InitProducerIdResponse {
    let refused = |error| {
        InitProducerIdResponse::default().with_error_code(error).with_producer_id((-1).into()).with_producer_epoch(-1)
    };
    if transactional {
        return refused(code::INVALID_REQUEST);
    }
    match caller.shared.producer_ids.next() {
        Ok(id) => InitProducerIdResponse::default().with_producer_id(id.into()).with_producer_epoch(0),
        Err(error) => {
            tracing::error!(%error, "cannot reserve producer ids");
            refused(code::STORAGE_ERROR)
        }
    }
}
