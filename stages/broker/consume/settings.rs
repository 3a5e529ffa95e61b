//! From the scenario's `consume:` and the largest frame to the client's settings.

use std::time::Duration;

use contract::flow::InputSpec;
use contract::{Cx, StageError};

use crate::client::{self, Settings};
use crate::size_chain;

const MIB: u64 = 1 << 20;
const DEFAULT_QUEUE_BYTES: u64 = 64 * MIB;
const DEFAULT_COMMIT_INTERVAL: Duration = Duration::from_secs(1);
const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Bounds of the client library.
const MAX_FETCH_BYTES: u64 = 512 * MIB;

#[derive(Clone, Debug)]
pub(crate) struct ConsumeSettings {
    pub(crate) client: Settings,
    pub(crate) commit_interval: Duration,
}

impl ConsumeSettings {
    pub(crate) fn new(cx: &Cx, spec: &InputSpec) -> Result<Self, StageError> {
        let limit = size_chain::batch_limit_bytes(spec.max_frame_bytes).ok_or_else(|| {
            let message = format!(
                "frames of up to {} bytes do not fit into batches of {} MiB; send smaller or encoded frames",
                spec.max_frame_bytes,
                size_chain::CEILING_BYTES / MIB
            );
            StageError::limit(format!("stage {}: consume", cx.stage_id), message)
        })?;
        let fetch = (4 * limit).clamp(50 * MIB, MAX_FETCH_BYTES);
        let queue = spec.consume.queue.map_or(DEFAULT_QUEUE_BYTES, |queue| queue.0).max(2 * limit);
        let session = spec.consume.session_timeout.map_or(DEFAULT_SESSION_TIMEOUT, |span| span.0);
        let session_ms = (session.as_millis() as u64).max(1);
        let own = [
            ("group.id", spec.group.clone()),
            ("auto.offset.reset", "earliest".to_owned()),
            ("enable.auto.commit", "false".to_owned()),
            ("enable.auto.offset.store", "false".to_owned()),
            ("allow.auto.create.topics", "false".to_owned()),
            // Eager: on a rebalance everything is given back and assigned anew, so that an empty assignment is told too.
            ("partition.assignment.strategy", "range".to_owned()),
            ("session.timeout.ms", session_ms.to_string()),
            ("heartbeat.interval.ms", (session_ms / 3).clamp(1, 3_000).to_string()),
            ("max.poll.interval.ms", session_ms.max(300_000).to_string()),
            ("fetch.message.max.bytes", limit.to_string()),
            ("fetch.max.bytes", fetch.to_string()),
            ("receive.message.max.bytes", (fetch + MIB).max(100_000_000).to_string()),
            ("queued.max.messages.kbytes", (queue / 1024).clamp(1, 2_097_151).to_string()),
            // With large frames the queue is full most of the time; the default pauses fetching for 1 s then.
            ("fetch.queue.backoff.ms", "10".to_owned()),
            ("statistics.interval.ms", "1000".to_owned()),
        ];
        let client_id = format!("reelbench-{}-{}", cx.stage_id, cx.index);
        Ok(ConsumeSettings {
            client: client::settings(&spec.bootstrap_servers, &spec.client, &client_id, &own),
            commit_interval: spec.consume.commit_interval.map_or(DEFAULT_COMMIT_INTERVAL, |span| span.0),
        })
    }

    pub(crate) fn fact(&self) -> serde_json::Value {
        serde_json::json!({
            "commit_interval_ms": self.commit_interval.as_millis() as u64,
            "client": client::shown(&self.client),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::flow::{ConsumeConfig, TopicRef};
    use contract::units::ByteSize;

    fn settings(max_frame_bytes: u64, consume: ConsumeConfig) -> Result<ConsumeSettings, StageError> {
        let folder = tempfile::tempdir().unwrap();
        let cx = contract::testing::context(folder.path(), &["frames"]);
        let spec = InputSpec {
            bootstrap_servers: "127.0.0.1:1".into(),
            client: [("sasl.password".to_owned(), "hunter2".to_owned())].into(),
            topic: TopicRef { name: "frames".into(), partitions: 1, index: 0 },
            group: "reelbench-test".into(),
            consume,
            max_frame_bytes,
        };
        ConsumeSettings::new(&cx, &spec)
    }

    #[test]
    fn fetch_sizes_follow_the_size_chain() {
        let thumb = settings(10_400, ConsumeConfig::default()).unwrap();
        for (name, value) in [
            ("fetch.message.max.bytes", "2097152"),
            ("fetch.max.bytes", "52428800"),
            ("receive.message.max.bytes", "100000000"),
            ("queued.max.messages.kbytes", "65536"),
            ("fetch.queue.backoff.ms", "10"),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
        ] {
            assert_eq!(thumb.client[name], value, "{name}");
        }
        let raw = settings(24_883_200, ConsumeConfig::default()).unwrap();
        assert_eq!(raw.client["fetch.max.bytes"], (256 * MIB).to_string());
        assert_eq!(raw.client["receive.message.max.bytes"], (257 * MIB).to_string());
        assert_eq!(raw.client["queued.max.messages.kbytes"], (128 * 1024).to_string());
        assert!(settings(49_766_400, ConsumeConfig::default()).is_err());
        assert!(!raw.fact().to_string().contains("hunter2"));
    }

    #[test]
    fn a_queue_holds_at_least_two_batches() {
        let consume = ConsumeConfig { queue: Some(ByteSize(1024)), ..ConsumeConfig::default() };
        assert_eq!(settings(10_400, consume).unwrap().client["queued.max.messages.kbytes"], "4096");
    }
}
