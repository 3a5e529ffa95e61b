//! The served requests with their versions, as data in one place, and the error codes of the protocol.

use kafka_protocol::messages::ApiKey;

/// Largest request frame; a larger one closes the connection.
pub(crate) const MAX_FRAME_BYTES: u32 = 128 << 20;

/// One served request type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedApi {
    pub key: ApiKey,
    pub min_version: i16,
    pub max_version: i16,
    /// First version with compact lengths and tagged fields, also in the request header.
    pub flexible_from: i16,
}

const fn served(key: ApiKey, min_version: i16, max_version: i16, flexible_from: i16) -> ServedApi {
    ServedApi { key, min_version, max_version, flexible_from }
}

/// Old enough to need neither topic ids nor fetch sessions, new enough for librdkafka 2.x.
pub const SERVED_APIS: &[ServedApi] = &[
    served(ApiKey::Produce, 3, 9, 9),
    served(ApiKey::Fetch, 4, 11, 12),
    served(ApiKey::ListOffsets, 1, 5, 6),
    served(ApiKey::Metadata, 0, 8, 9),
    served(ApiKey::OffsetCommit, 2, 7, 8),
    served(ApiKey::OffsetFetch, 1, 7, 6),
    served(ApiKey::FindCoordinator, 0, 2, 3),
    served(ApiKey::JoinGroup, 0, 5, 6),
    served(ApiKey::Heartbeat, 0, 3, 4),
    served(ApiKey::LeaveGroup, 0, 3, 4),
    served(ApiKey::SyncGroup, 0, 3, 4),
    served(ApiKey::ApiVersions, 0, 3, 3),
    served(ApiKey::CreateTopics, 2, 4, 5),
    served(ApiKey::DeleteTopics, 1, 3, 4),
    served(ApiKey::InitProducerId, 0, 3, 2),
    served(ApiKey::DescribeConfigs, 1, 3, 4),
    served(ApiKey::DescribeLogDirs, 1, 2, 2),
];

/// The row of a request type, if it is served at all.
pub(crate) fn find(key: i16) -> Option<&'static ServedApi> {
    SERVED_APIS.iter().find(|api| api.key as i16 == key)
}

/// Error codes as the protocol numbers them.
pub(crate) mod code {
    pub const NONE: i16 = 0;
    pub const OFFSET_OUT_OF_RANGE: i16 = 1;
    pub const CORRUPT_MESSAGE: i16 = 2;
    pub const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    pub const NOT_LEADER: i16 = 6;
    pub const MESSAGE_TOO_LARGE: i16 = 10;
    pub const OFFSET_METADATA_TOO_LARGE: i16 = 12;
    pub const COORDINATOR_NOT_AVAILABLE: i16 = 15;
    pub const NOT_COORDINATOR: i16 = 16;
    pub const INVALID_TOPIC: i16 = 17;
    pub const INVALID_REQUIRED_ACKS: i16 = 21;
    pub const ILLEGAL_GENERATION: i16 = 22;
    pub const INCONSISTENT_GROUP_PROTOCOL: i16 = 23;
    pub const INVALID_GROUP_ID: i16 = 24;
    pub const UNKNOWN_MEMBER_ID: i16 = 25;
    pub const INVALID_SESSION_TIMEOUT: i16 = 26;
    pub const REBALANCE_IN_PROGRESS: i16 = 27;
    pub const UNSUPPORTED_VERSION: i16 = 35;
    pub const TOPIC_ALREADY_EXISTS: i16 = 36;
    pub const INVALID_PARTITIONS: i16 = 37;
    pub const INVALID_REPLICATION_FACTOR: i16 = 38;
    pub const INVALID_REPLICA_ASSIGNMENT: i16 = 39;
    pub const INVALID_CONFIG: i16 = 40;
    pub const INVALID_REQUEST: i16 = 42;
    pub const UNSUPPORTED_FOR_MESSAGE_FORMAT: i16 = 43;
    pub const OUT_OF_ORDER_SEQUENCE: i16 = 45;
    pub const INVALID_PRODUCER_EPOCH: i16 = 47;
    pub const STORAGE_ERROR: i16 = 56;
    pub const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
    pub const UNKNOWN_LEADER_EPOCH: i16 = 76;
    pub const MEMBER_ID_REQUIRED: i16 = 79;
    pub const GROUP_MAX_SIZE_REACHED: i16 = 81;
    pub const FENCED_INSTANCE_ID: i16 = 82;
    pub const INVALID_RECORD: i16 = 87;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flexible_versions_agree_with_the_protocol_crate() {
        for api in SERVED_APIS {
            for version in api.min_version..=api.max_version {
                let header = api.key.request_header_version(version);
                assert_eq!(header >= 2, version >= api.flexible_from, "{:?} v{version}", api.key);
            }
        }
    }
}
