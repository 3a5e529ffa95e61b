//! Scenario files: strict YAML with places, every problem in one run, a published JSON Schema.
//!
//! [`load()`] reads and checks a file, [`with_auditors`] adds what the audit needs, [`offer()`] says what load it will put on
//! the broker, [`json_schema`] and [`reference_markdown`] publish what may be written.

mod auditors;
mod check;
mod emit;
mod hint;
mod load;
pub mod model;
#[cfg(test)]
mod mutation;
pub mod offer;
mod overrides;
pub mod problem;
mod reference;
mod schema;
mod secrets;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod walk;
pub mod yaml;

pub use auditors::{AUDIT_KIND, with_auditors};
pub use load::{Loaded, load, load_text, sha256_of, text_of};
pub use model::Scenario;
pub use offer::{Offer, offer};
pub use problem::{Problem, Problems, Severity};
pub use reference::reference_markdown;
pub use schema::json_schema;
