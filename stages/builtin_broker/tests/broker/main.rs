//! The built-in broker against a real client, librdkafka, and against its own promises about the disk.

mod checks;
mod child;
mod crash;
mod disk_full;
mod hostile;
mod protocol;
mod raw;
mod restart;
mod storage;
mod support;
