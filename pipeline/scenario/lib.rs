//! Scenario files: strict YAML with places, every problem in one run, a published JSON Schema.
//!
//! [`load`] reads and checks a file, [`with_auditors`] adds what the audit needs, [`Offer`] says what load it will put on
//! the broker, [`json_schema`] publishes what may be written.

mod auditors;
mod check;
mod emit;
mod hint;
mod load;
pub mod model;
mod overrides;
pub mod problem;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod walk;
pub mod yaml;

pub use auditors::{AUDIT_KIND, with_auditors};
pub use load::{Loaded, load, load_text, sha256_of, text_of};
pub use model::Scenario;
pub use problem::{Problem, Problems, Severity};
