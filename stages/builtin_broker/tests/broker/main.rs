//! The built-in broker against a real client, librdkafka, and against its own promises about the disk.

mod checks;
mod support;
