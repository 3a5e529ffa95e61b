//! The options a broker is started with, and their checks.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::error::BrokerError;

/// Most nodes one process plays: each costs a listener and a directory.
const MAX_NODES: u16 = 64;
/// A segment must hold index positions of 32 bits, as the format on disk has them.
const MAX_SEGMENT_BYTES: u64 = i32::MAX as u64;

/// When appended data is forced to the device. A roll always forces the closed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlushPolicy {
    /// Force all replicas of a partition after this many messages, before they are acknowledged. Default: never.
    pub every_messages: Option<u64>,
    /// Force a partition at the latest this long after its oldest unforced append. Default: left to the kernel.
    pub every_ms: Option<u64>,
}

impl FlushPolicy {
    /// Leave it to the kernel, as brokers do that rely on replication.
    pub const OPERATING_SYSTEM: FlushPolicy = FlushPolicy { every_messages: None, every_ms: None };
}

/// Everything a broker is started with.
#[derive(Debug, Clone)]
pub struct BrokerOptions {
    /// Where topics, offsets and replica directories live; created when absent, locked while in use.
    pub data_dir: PathBuf,
    /// Virtual brokers, each with its own port and replica directory. Default 3.
    pub nodes: u16,
    /// Address of node 1; node n listens on the n-1th port after it. Port 0: an ephemeral port for each node.
    pub listen: SocketAddr,
    /// Host told to clients, for example a container's name. Default: the listening address.
    pub advertised_host: Option<String>,
    /// Default of the topic setting `segment.bytes`. Default 1 GiB.
    pub segment_bytes: u64,
    /// Default of the topic settings `flush.messages` and `flush.ms`.
    pub flush: FlushPolicy,
    /// Default of the topic setting `retention.bytes` (per partition). Default: keep everything.
    pub retention_bytes: Option<u64>,
    /// Default of the topic setting `max.message.bytes` (largest batch). Default 1,048,588.
    pub max_message_bytes: u32,
    /// Refuse appends with a storage error when the file system's free space would fall below this. Default 256 MiB.
    pub disk_floor_bytes: u64,
    /// How often retention and time-based flushing look at the partitions. Default 500 ms.
    pub maintenance_ms: u64,
    /// Create a topic that a client asks for, when the client allows it. Default true.
    pub auto_create_topics: bool,
    /// Wait this long for more members when an empty group is joined. Default 0.
    pub initial_rebalance_delay_ms: u64,
    /// Shortest session timeout a consumer may ask for. Default 6,000 ms.
    pub min_session_timeout_ms: u64,
    /// Connections served at once; further ones are closed at once and counted. Default 4,096.
    pub max_connections: usize,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        BrokerOptions {
            data_dir: PathBuf::from("data/broker"),
            nodes: 3,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertised_host: None,
            segment_bytes: 1 << 30,
            flush: FlushPolicy::OPERATING_SYSTEM,
            retention_bytes: None,
            max_message_bytes: 1_048_588,
            disk_floor_bytes: 256 << 20,
            maintenance_ms: 500,
            auto_create_topics: true,
            initial_rebalance_delay_ms: 0,
            min_session_timeout_ms: 6_000,
            max_connections: 4_096,
        }
    }
}

impl BrokerOptions {
    /// Refuse what cannot work, before anything is created.
    pub(crate) fn check(&self) -> Result<(), BrokerError> {
        let refuse = |option, problem: String| Err(BrokerError::Option { option, problem });
        if self.nodes == 0 || self.nodes > MAX_NODES {
            return refuse("nodes", format!("{} given, allowed are 1 to {MAX_NODES}", self.nodes));
        }
        if self.segment_bytes < 1024 || self.segment_bytes > MAX_SEGMENT_BYTES {
            return refuse(
                "segment_bytes",
                format!("{} given, allowed are 1024 to {MAX_SEGMENT_BYTES}", self.segment_bytes),
            );
        }
        if self.max_message_bytes > crate::api::MAX_FRAME_BYTES {
            let most = crate::api::MAX_FRAME_BYTES;
            return refuse(
                "max_message_bytes",
                format!("{} given, at most {most} fit a request", self.max_message_bytes),
            );
        }
        if self.maintenance_ms == 0 {
            return refuse("maintenance_ms", "0 given, it must be at least 1".to_owned());
        }
        if self.listen.port() != 0 && self.listen.port().checked_add(self.nodes - 1).is_none() {
            return refuse("listen", format!("{} nodes need consecutive ports after {}", self.nodes, self.listen));
        }
        if self.listen.ip().is_unspecified() && self.advertised_host.is_none() {
            let problem =
                format!("{} accepts from everywhere, so advertised_host must name what clients can reach", self.listen);
            return refuse("advertised_host", problem);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_accepted() {
        BrokerOptions::default().check().unwrap();
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        let cases: Vec<(&str, BrokerOptions)> = vec![
            ("nodes", BrokerOptions { nodes: 0, ..Default::default() }),
            ("segment_bytes", BrokerOptions { segment_bytes: 3 << 30, ..Default::default() }),
            ("listen", BrokerOptions { listen: "127.0.0.1:65535".parse().unwrap(), ..Default::default() }),
            ("advertised_host", BrokerOptions { listen: "0.0.0.0:9092".parse().unwrap(), ..Default::default() }),
        ];
        for (name, options) in cases {
            let text = options.check().unwrap_err().to_string();
            assert!(text.contains(&format!("option {name}")), "{text}");
        }
    }
}
