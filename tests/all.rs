//! One test binary for the whole program.

mod architecture;
mod cli;
mod configs;
mod deaths;
mod quickstart;
mod readme;
