//! Everything that speaks to a Kafka broker as a client: publishing, consuming, topics, and the `audit` stage. The only crate
//! that names rdkafka; stages see `Input` and `Output` of the contract.

pub mod adapters;
pub mod admin;
pub mod audit;
mod client;
pub mod consume;
pub mod publish;
pub mod size_chain;
mod statistics;
mod topic;

use contract::StageEntry;

pub use adapters::KafkaAdapters;
pub use admin::admin;

/// The stage kinds of this crate.
pub const STAGES: &[StageEntry] = &[StageEntry::of::<audit::Audit>()];
