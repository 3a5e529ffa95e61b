//! Scenario files: strict YAML with places, every problem in one run, a published JSON Schema.

pub mod model;

pub use model::Scenario;
