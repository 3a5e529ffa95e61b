//! Shared pieces of the whole-program tests.
