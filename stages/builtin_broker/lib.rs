//! The built-in broker: a single process that speaks the Kafka protocol and plays several nodes with real replicas.
//!
//! It exists so that a first run needs neither a JVM nor a container and still loads the disk as a log-structured
//! broker does. It is not Apache Kafka: followers are written by the leader's process, all replicas share one fate, and
//! there are no transactions, compaction, TLS or access control. Results made with it say so.

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
