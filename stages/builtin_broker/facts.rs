//! Counters of what the broker did, and their snapshot for reports.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use kafka_protocol::messages::ApiKey;
use serde::{Deserialize, Serialize};

use crate::storage::partition::lock;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A snapshot of the broker's counters since it was started.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct BrokerFacts {
            $($(#[$doc])* pub $name: u64,)*
            /// Requests by type and version, as `Produce v7`: what the clients ask for.
            pub requests_by_version: BTreeMap<String, u64>,
        }

        /// The live counters, shared by all threads.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub $name: AtomicU64,)*
            by_version: Mutex<BTreeMap<(i16, i16), u64>>,
        }

        impl Counters {
            pub fn snapshot(&self) -> BrokerFacts {
                BrokerFacts {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    requests_by_version: self.requests_by_version(),
                }
            }
        }
    };
}

counters! {
    /// Connections accepted.
    connections,
    /// Connections closed at once because `max_connections` were open.
    connections_refused,
    /// Requests decoded and worked on.
    requests,
    /// Requests that could not be decoded; their connection was closed.
    requests_malformed,
    /// Requests whose work panicked; their connection was closed. Anything but 0 is a defect.
    requests_panicked,
    /// Bytes of request frames read.
    bytes_in,
    /// Bytes of responses written.
    bytes_out,
    /// Batches stored (each once, whatever the replication).
    batches_appended,
    /// Records in those batches.
    records_appended,
    /// Bytes of those batches, once.
    bytes_appended,
    /// Bytes written to replica files: bytes appended times replication.
    bytes_replicated,
    /// Exact repeats by idempotent producers, answered with the old offset.
    batches_repeated,
    /// Batches refused, whatever the reason.
    batches_refused,
    /// Batches refused because the write failed or free space would fall below the floor.
    storage_errors,
    /// Bytes of batches sent to consumers.
    bytes_fetched,
    /// Calls that force a replica's segment file to the device.
    fsyncs,
    /// Segments closed and replaced by a new one.
    segments_rolled,
    /// Segments deleted by retention.
    segments_deleted,
    /// Bytes of leader segments deleted by retention.
    bytes_deleted,
    /// Bytes of segment files read while starting.
    recovery_scanned_bytes,
    /// Segments looked into while starting.
    recovery_scanned_segments,
    /// Bytes cut off damaged or unfinished tails while starting.
    recovery_cut_bytes,
    /// Bytes copied to replicas that were behind while starting.
    recovery_copied_bytes,
    /// Group rebalances completed.
    rebalances,
    /// Offset commits stored, one for each partition.
    offsets_committed,
}

impl Counters {
    /// Count a decoded request.
    pub fn count_request(&self, api_key: i16, version: i16) {
        add(&self.requests, 1);
        *lock(&self.by_version).entry((api_key, version)).or_default() += 1;
    }

    fn requests_by_version(&self) -> BTreeMap<String, u64> {
        let name = |key: i16| ApiKey::try_from(key).map_or_else(|()| key.to_string(), |key| format!("{key:?}"));
        let by_version = lock(&self.by_version);
        by_version.iter().map(|((key, version), count)| (format!("{} v{version}", name(*key)), *count)).collect()
    }
}

/// Add to a counter; relaxed because counters order nothing.
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
