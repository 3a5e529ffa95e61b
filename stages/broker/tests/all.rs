//! Publishing, consuming and administration against a real broker: the one at `REELBENCH_BOOTSTRAP` (one node is enough),
//! else the built-in one.

#![expect(clippy::unwrap_used, reason = "a helper of a test may fail the test")]

mod administer;
mod group;
mod outage;
mod policies;
mod read_back;
mod support;
