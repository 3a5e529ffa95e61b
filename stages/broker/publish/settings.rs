//! From the scenario's `publish:` and the largest frame to the client's settings and the bounds of each lane.

use contract::flow::{Acks, Compression, OutputSpec, Policy, PublishConfig};
use contract::{Cx, StageError};
use serde_json::json;

use super::lane::LaneLimits;
use crate::client::{self, Settings};
use crate::size_chain::{self, Profile};

const DEFAULT_MESSAGE_TIMEOUT_MS: u64 = 30_000;
/// With idempotence the most that keeps order; without it the same, so that the two can be compared.
const REQUESTS_IN_FLIGHT: u32 = 5;

/// Everything the publisher is set to.
#[derive(Clone, Debug)]
pub(crate) struct PublishSettings {
    pub(crate) client: Settings,
    pub(crate) limits: LaneLimits,
    pub(crate) policy: Policy,
    /// Age at which policy `deadline` gives a frame up.
    pub(crate) deadline_ns: i64,
    /// Largest batch, and so the largest record.
    pub(crate) batch_limit_bytes: u64,
    /// Whether a positive delivery report means that the broker has the frame: with acks "0" it only means sent.
    pub(crate) reports_are_acks: bool,
    profile: Profile,
}

impl PublishSettings {
    pub(crate) fn new(cx: &Cx, spec: &OutputSpec) -> Result<Self, StageError> {
        let place = || format!("stage {}: publish", cx.stage_id);
        let limit = size_chain::batch_limit_bytes(spec.max_frame_bytes).ok_or_else(|| {
            let ceiling = size_chain::CEILING_BYTES >> 20;
            let message = format!(
                "frames of up to {} bytes need batches of more than {ceiling} MiB; send smaller or encoded frames",
                spec.max_frame_bytes
            );
            StageError::limit(place(), message)
        })?;
        let publish = &spec.publish;
        let idempotence = publish.idempotence.unwrap_or(publish.acks == Acks::All);
        if idempotence && publish.acks != Acks::All {
            return Err(StageError::config(place(), "`idempotence: true` needs `acks: \"all\"`"));
        }
        let lanes: i32 = spec.topics.iter().map(|topic| topic.partitions).sum();
        if spec.topics.is_empty() || spec.topics.iter().any(|topic| topic.partitions < 1) {
            return Err(StageError::config(place(), "needs at least one topic, each with a partition"));
        }
        let profile = Profile::of(spec.max_frame_bytes);
        let queue = publish.queue.map_or_else(|| profile.queue_bytes(spec.max_frame_bytes), |queue| queue.0);
        let limits = lane_limits(publish.policy, queue, lanes as u64, spec.max_frame_bytes);
        let deadline = publish.deadline.map(|span| i64::try_from(span.0.as_nanos()).unwrap_or(i64::MAX));
        Ok(PublishSettings {
            client: client_settings(cx, spec, profile, limit, idempotence, limits.window_bytes * lanes as u64),
            limits,
            policy: publish.policy,
            deadline_ns: deadline.unwrap_or(cx.deadline_ns),
            batch_limit_bytes: limit,
            reports_are_acks: publish.acks != Acks::None,
            profile,
        })
    }

    /// For the record: what is really in force.
    pub(crate) fn fact(&self) -> serde_json::Value {
        json!({
            "profile": self.profile.name(),
            "policy": self.policy,
            "partition_window_bytes": self.limits.window_bytes,
            "partition_queue_bytes": self.limits.queue_bytes,
            "deadline_ns": self.deadline_ns,
            "client": client::shown(&self.client),
        })
    }
}

/// Every partition gets an even share, and never less than two frames, so that one can be sent while another is made. A
/// policy that gives up accepted frames can do so only while the client library does not have them: half the share is kept
/// back.
fn lane_limits(policy: Policy, queue_bytes: u64, lanes: u64, max_frame_bytes: u64) -> LaneLimits {
    let frame = size_chain::record_bytes(max_frame_bytes);
    let share = (queue_bytes / lanes).max(2 * frame);
    match policy {
        Policy::Block | Policy::DropNew => LaneLimits { window_bytes: share, queue_bytes: 0 },
        Policy::DropOld | Policy::Deadline => LaneLimits { window_bytes: share - share / 2, queue_bytes: share / 2 },
    }
}

fn client_settings(
    cx: &Cx,
    spec: &OutputSpec,
    profile: Profile,
    limit_bytes: u64,
    idempotence: bool,
    windows_bytes: u64,
) -> Settings {
    let publish: &PublishConfig = &spec.publish;
    let milliseconds = |span: contract::Span| span.0.as_secs_f64() * 1e3;
    let linger = publish.linger.map_or(profile.linger_ms() as f64, milliseconds);
    let batch = publish.batch_size.map_or_else(|| profile.batch_bytes(limit_bytes), |size| size.0).min(limit_bytes);
    let timeout = publish.message_timeout.map_or(DEFAULT_MESSAGE_TIMEOUT_MS as f64, milliseconds).max(1.0);
    let acks = match publish.acks {
        Acks::None => "0",
        Acks::Leader => "1",
        Acks::All => "all",
    };
    let compression = match publish.compression {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
        Compression::Gzip => "gzip",
    };
    // The lanes bound what the library holds; its own bounds are twice that, so that they never act first.
    let queue_kib = (2 * windows_bytes / 1024 + 1).clamp(1024, 2_147_483_647);
    let own = [
        ("acks", acks.to_owned()),
        ("enable.idempotence", idempotence.to_string()),
        ("compression.type", compression.to_owned()),
        ("linger.ms", linger.to_string()),
        ("batch.size", batch.to_string()),
        ("batch.num.messages", "100000".to_owned()),
        ("message.max.bytes", limit_bytes.to_string()),
        ("message.timeout.ms", (timeout as u64).to_string()),
        ("max.in.flight.requests.per.connection", REQUESTS_IN_FLIGHT.to_string()),
        ("queue.buffering.max.kbytes", queue_kib.to_string()),
        ("queue.buffering.max.messages", "0".to_owned()),
        ("statistics.interval.ms", "1000".to_owned()),
    ];
    let client_id = format!("reelbench-{}-{}", cx.stage_id, cx.index);
    client::settings(&spec.bootstrap_servers, &spec.client, &client_id, &own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::error::ErrorCode;
    use contract::flow::{Spread, TopicRef};

    fn spec(max_frame_bytes: u64, publish: PublishConfig) -> OutputSpec {
        OutputSpec {
            bootstrap_servers: "127.0.0.1:1".into(),
            client: [("sasl.password".to_owned(), "hunter2".to_owned())].into(),
            topics: vec![TopicRef { name: "frames".into(), partitions: 4, index: 0 }],
            spread: Spread::Streams,
            publish,
            max_frame_bytes,
        }
    }

    fn settings(max_frame_bytes: u64, publish: PublishConfig) -> Result<PublishSettings, StageError> {
        let folder = tempfile::tempdir().unwrap();
        let cx = contract::testing::context(folder.path(), &["frames"]);
        PublishSettings::new(&cx, &spec(max_frame_bytes, publish))
    }

    #[test]
    fn defaults_follow_the_frame_size() {
        let thumb = settings(10_400, PublishConfig::default()).unwrap();
        for (name, value) in [
            ("acks", "all"),
            ("enable.idempotence", "true"),
            ("linger.ms", "5"),
            ("batch.size", "1000000"),
            ("message.max.bytes", "2097152"),
            ("message.timeout.ms", "30000"),
            ("socket.nagle.disable", "true"),
            ("statistics.interval.ms", "1000"),
        ] {
            assert_eq!(thumb.client[name], value, "{name}");
        }
        assert_eq!(thumb.limits, LaneLimits { window_bytes: 16 << 20, queue_bytes: 0 });
        let raw = settings(6_220_800, PublishConfig::default()).unwrap();
        assert_eq!((raw.client["linger.ms"].as_str(), raw.client["batch.size"].as_str()), ("0", "16777216"));
        assert!(!raw.fact().to_string().contains("hunter2"));
    }

    #[test]
    fn a_policy_that_gives_frames_up_keeps_half_of_the_share_back() {
        let publish = PublishConfig { policy: Policy::DropOld, ..PublishConfig::default() };
        let old = settings(10_400, publish).unwrap();
        assert_eq!(old.limits, LaneLimits { window_bytes: 8 << 20, queue_bytes: 8 << 20 });
    }

    #[test]
    fn weak_acks_turn_idempotence_off_and_cannot_turn_it_on() {
        let weak = PublishConfig { acks: Acks::Leader, ..PublishConfig::default() };
        assert_eq!(settings(1_000, weak.clone()).unwrap().client["enable.idempotence"], "false");
        let wrong = PublishConfig { idempotence: Some(true), ..weak };
        assert_eq!(settings(1_000, wrong).unwrap_err().code, ErrorCode::Config);
        let none = PublishConfig { acks: Acks::None, ..PublishConfig::default() };
        assert!(!settings(1_000, none).unwrap().reports_are_acks);
    }

    #[test]
    fn a_frame_beyond_the_size_chain_is_refused_with_its_size() {
        let error = settings(49_766_400, PublishConfig::default()).unwrap_err();
        assert_eq!(error.code, ErrorCode::Limit);
        assert!(error.to_string().contains("49766400"), "{error}");
    }
}
