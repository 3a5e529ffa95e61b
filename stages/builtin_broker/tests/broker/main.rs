//! The built-in broker against a real client, librdkafka, and against its own promises about the disk.

#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod checks;
mod child;
mod crash;
mod disk_full;
mod groups;
mod hostile;
mod protocol;
mod raw;
mod restart;
mod storage;
mod support;
