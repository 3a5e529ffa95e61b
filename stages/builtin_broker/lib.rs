//! The built-in broker: a single process that speaks the Kafka protocol and plays several nodes with real replicas.
//!
//! It exists so that a first run needs neither a JVM nor a container and still loads the disk as a log-structured
//! broker does. It is not Apache Kafka, and results made with it say so. What differs:
//!
//! - Followers are written by the leader's process: no fetch traffic between brokers, no changes of the in-sync set, one
//!   fate for all replicas. Killing one node alone is not possible.
//! - An acknowledged batch is in the page cache of the host. It survives the process; power loss only with a flush policy.
//! - No transactions, compaction, TLS, SASL, access control, quotas, or altering of settings after creation.
//! - No `.timeindex`: a search by timestamp reads batch headers. Compressed batches are not opened, so such a search ends
//!   at the beginning of the batch that holds the timestamp.
//! - An idempotent producer's first batch in a partition must be number 0 while nothing was deleted there.
//! - The classic group protocol only. A member's subscription is limited to 1 MiB.

mod api;
mod batch;
mod broker;
mod clock;
mod connection;
mod coordinator;
mod data_dir;
mod decode_limits;
mod durable;
mod error;
mod facts;
mod group;
mod listeners;
mod offsets;
mod options;
mod producer_ids;
mod request;
mod request_shapes;
mod serve;
mod storage;
mod topic_config;
mod topics;
mod waiters;

pub use api::{SERVED_APIS, ServedApi};
pub use broker::Broker;
pub use error::BrokerError;
pub use facts::BrokerFacts;
pub use options::{BrokerOptions, FlushPolicy};
pub use request::fuzz_request;
