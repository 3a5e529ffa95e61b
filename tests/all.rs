//! One test binary for the whole program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a skipped test says so aloud")]

mod architecture;
mod cli;
mod configs;
mod deaths;
mod quickstart;
mod readme;
mod support;
