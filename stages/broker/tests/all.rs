//! Publishing, consuming and administration against a real broker: the one at `REELBENCH_BOOTSTRAP` (one node is enough),
//! else the built-in one.

mod administer;
mod group;
mod policies;
mod read_back;
mod support;
