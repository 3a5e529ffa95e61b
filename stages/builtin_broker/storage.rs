//! Partitions on disk: segments, replicas, recovery.

pub(crate) mod flusher;
pub(crate) mod index;
pub(crate) mod partition;
pub(crate) mod producers;
pub(crate) mod read;
pub(crate) mod recover;
pub(crate) mod scan;
pub(crate) mod segment;
pub(crate) mod shutdown_mark;
pub(crate) mod space;
