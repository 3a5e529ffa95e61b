//! The fields of every served request, in wire order, for the walk that precedes decoding.

use kafka_protocol::messages::ApiKey;

use crate::decode_limits::{Field, Shape};
use Shape::{Blob, Fixed, List, OptionalBlob, OptionalList, OptionalText, Tags, Text};

const fn always(shape: Shape) -> Field {
    Field { shape, since: 0, until: i16::MAX }
}

const fn since(since: i16, shape: Shape) -> Field {
    Field { shape, since, until: i16::MAX }
}

const fn between(since: i16, until: i16, shape: Shape) -> Field {
    Field { shape, since, until }
}

/// Lists of partition numbers and of plain names.
const NUMBERS: &[Field] = &[always(Fixed(4))];
const NAMES: &[Field] = &[always(Text)];

const PRODUCE: &[Field] = &[
    always(OptionalText), // transactional id
    always(Fixed(2)),     // acks
    always(Fixed(4)),     // timeout
    always(List(&[always(Text), always(List(&[always(Fixed(4)), always(OptionalBlob), always(Tags)])), always(Tags)])),
    always(Tags),
];

const FETCH: &[Field] = &[
    always(Fixed(4)),   // replica
    always(Fixed(12)),  // max wait, min bytes, max bytes
    always(Fixed(1)),   // isolation level
    since(7, Fixed(8)), // session id and epoch
    always(List(&[
        always(Text),
        always(List(&[
            always(Fixed(4)),   // partition
            since(9, Fixed(4)), // leader epoch
            always(Fixed(8)),   // fetch offset
            since(5, Fixed(8)), // log start offset
            always(Fixed(4)),   // max bytes
        ])),
    ])),
    since(7, List(&[always(Text), always(List(NUMBERS))])), // forgotten topics
    since(11, Text),                                        // rack
];

const LIST_OFFSETS: &[Field] = &[
    always(Fixed(4)),   // replica
    since(2, Fixed(1)), // isolation level
    always(List(&[always(Text), always(List(&[always(Fixed(4)), since(4, Fixed(4)), always(Fixed(8))]))])),
];

const METADATA: &[Field] = &[
    between(0, 0, List(NAMES)),
    since(1, OptionalList(NAMES)),
    since(4, Fixed(1)), // allow auto creation
    since(8, Fixed(2)), // authorised operations
];

const OFFSET_COMMIT: &[Field] = &[
    always(Text),            // group
    always(Fixed(4)),        // generation
    always(Text),            // member
    since(7, OptionalText),  // instance
    between(2, 4, Fixed(8)), // retention time
    always(List(&[always(Text), always(List(&[always(Fixed(12)), since(6, Fixed(4)), always(OptionalText)]))])),
];

const OFFSET_FETCH: &[Field] = &[
    always(Text),
    between(1, 1, List(&[always(Text), always(List(NUMBERS)), since(6, Tags)])),
    since(2, OptionalList(&[always(Text), always(List(NUMBERS)), since(6, Tags)])),
    since(7, Fixed(1)), // require stable
    since(6, Tags),
];

const FIND_COORDINATOR: &[Field] = &[always(Text), since(1, Fixed(1))];

const JOIN_GROUP: &[Field] = &[
    always(Text),
    always(Fixed(4)),       // session timeout
    since(1, Fixed(4)),     // rebalance timeout
    always(Text),           // member
    since(5, OptionalText), // instance
    always(Text),           // protocol type
    always(List(&[always(Text), always(Blob)])),
];

const HEARTBEAT: &[Field] = &[always(Text), always(Fixed(4)), always(Text), since(3, OptionalText)];

const LEAVE_GROUP: &[Field] =
    &[always(Text), between(0, 2, Text), since(3, List(&[always(Text), always(OptionalText)]))];

const SYNC_GROUP: &[Field] = &[
    always(Text),
    always(Fixed(4)),
    always(Text),
    since(3, OptionalText),
    always(List(&[always(Text), always(Blob)])),
];

const API_VERSIONS: &[Field] = &[since(3, Text), since(3, Text), since(3, Tags)];

const CREATE_TOPICS: &[Field] = &[
    always(List(&[
        always(Text),
        always(Fixed(6)), // partitions, replication
        always(List(&[always(Fixed(4)), always(List(NUMBERS))])),
        always(List(&[always(Text), always(OptionalText)])),
    ])),
    always(Fixed(5)), // timeout, validate only
];

const DELETE_TOPICS: &[Field] = &[always(List(NAMES)), always(Fixed(4))];

const INIT_PRODUCER_ID: &[Field] = &[always(OptionalText), always(Fixed(4)), since(3, Fixed(10)), since(2, Tags)];

const DESCRIBE_CONFIGS: &[Field] = &[
    always(List(&[always(Fixed(1)), always(Text), always(OptionalList(NAMES))])),
    always(Fixed(1)),   // synonyms
    since(3, Fixed(1)), // documentation
];

const DESCRIBE_LOG_DIRS: &[Field] =
    &[always(OptionalList(&[always(Text), always(List(NUMBERS)), since(2, Tags)])), since(2, Tags)];

/// The fields of a request type; `None` when it is not served.
pub(crate) fn of(key: ApiKey) -> Option<&'static [Field]> {
    Some(match key {
        ApiKey::Produce => PRODUCE,
        ApiKey::Fetch => FETCH,
        ApiKey::ListOffsets => LIST_OFFSETS,
        ApiKey::Metadata => METADATA,
        ApiKey::OffsetCommit => OFFSET_COMMIT,
        ApiKey::OffsetFetch => OFFSET_FETCH,
        ApiKey::FindCoordinator => FIND_COORDINATOR,
        ApiKey::JoinGroup => JOIN_GROUP,
        ApiKey::Heartbeat => HEARTBEAT,
        ApiKey::LeaveGroup => LEAVE_GROUP,
        ApiKey::SyncGroup => SYNC_GROUP,
        ApiKey::ApiVersions => API_VERSIONS,
        ApiKey::CreateTopics => CREATE_TOPICS,
        ApiKey::DeleteTopics => DELETE_TOPICS,
        ApiKey::InitProducerId => INIT_PRODUCER_ID,
        ApiKey::DescribeConfigs => DESCRIBE_CONFIGS,
        ApiKey::DescribeLogDirs => DESCRIBE_LOG_DIRS,
        _ => return None,
    })
}
