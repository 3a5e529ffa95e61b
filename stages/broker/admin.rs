//! What the runner asks of a Kafka cluster before and after a run: brokers, the preflight, topics, offsets, bytes on disk.

mod log_dirs;
mod preflight;
mod wait;

use std::collections::BTreeMap;
use std::time::Duration;

use contract::StageError;
use contract::admin::{Admin, ClusterView, PreflightLink, TopicNeed};
use contract::clock::mono_ns;
use rdkafka::ClientContext;
use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, OwnedResourceSpecifier, ResourceSpecifier, TopicReplication,
};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;

use self::preflight::{Cluster, Told};
use self::wait::wait_for;
use crate::client::{self, ClientLog, Settings};
use crate::{size_chain, topic};

/// How long one administrative request may take.
const REQUEST: Duration = Duration::from_secs(30);
/// How long a new topic may be without leaders.
const LEADERS: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Log lines and errors of the admin client.
#[derive(Default)]
struct AdminContext(ClientLog);

impl ClientContext for AdminContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.0.line(level, facility, text);
    }
    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(&error, reason);
    }
}

/// `Admin` over librdkafka, and the Kafka protocol where that has no call.
pub struct KafkaAdmin {
    bootstrap: String,
    client: AdminClient<AdminContext>,
    /// Requests of our own are sent in the clear, and only to brokers that expect that.
    plain: bool,
}

/// An `Admin` for the brokers at `bootstrap`; `settings` are client properties (security), already resolved. Does not connect
/// yet.
pub fn admin(bootstrap: &str, settings: &BTreeMap<String, String>) -> Result<Box<dyn Admin>, StageError> {
    Ok(Box::new(KafkaAdmin::new(bootstrap, settings)?))
}

impl KafkaAdmin {
    pub fn new(bootstrap: &str, settings: &Settings) -> Result<Self, StageError> {
        let all = client::settings(bootstrap, settings, "reelbench-admin", &[]);
        let client = client::client_config(&all)
            .create_with_context(AdminContext::default())
            .map_err(|error| client::creation_error(bootstrap, &error))?;
        let plain = all.get("security.protocol").is_none_or(|protocol| protocol.eq_ignore_ascii_case("plaintext"));
        Ok(KafkaAdmin { bootstrap: bootstrap.to_owned(), client, plain })
    }

    fn metadata(&self, timeout: Duration) -> Result<Metadata, StageError> {
        topic::metadata(self.client.inner(), &self.bootstrap, timeout)
    }

    /// Settings of brokers and topics. What a broker refuses to tell is absent.
    fn settings_of(&self, resources: &[ResourceSpecifier<'_>]) -> Result<Vec<ConfigResource>, StageError> {
        if resources.is_empty() {
            return Ok(Vec::new());
        }
        let options = AdminOptions::new().request_timeout(Some(REQUEST));
        let told = wait_for(self.client.describe_configs(resources, &options))
            .map_err(|error| StageError::broker(&*self.bootstrap, format!("settings cannot be read: {error}")))?;
        Ok(told.into_iter().filter_map(Result::ok).collect())
    }

    fn look(&self, needs: &[TopicNeed]) -> Result<Cluster, StageError> {
        let metadata = self.metadata(REQUEST)?;
        let mut cluster = Cluster { topics: topic::views(&metadata), ..Cluster::default() };
        cluster.brokers = metadata.brokers().iter().map(|broker| (broker.id(), Told::new())).collect();
        // One request a broker: the library sends a broker's own settings to that broker only.
        for id in cluster.brokers.keys().copied().collect::<Vec<_>>() {
            for resource in self.settings_of(&[ResourceSpecifier::Broker(id)])? {
                cluster.brokers.insert(id, told(resource));
            }
        }
        let reused: Vec<ResourceSpecifier<'_>> = needs
            .iter()
            .filter(|need| need.config.reuse && cluster.topics.contains_key(&need.config.name))
            .map(|need| ResourceSpecifier::Topic(&need.config.name))
            .collect();
        for resource in self.settings_of(&reused)? {
            if let OwnedResourceSpecifier::Topic(name) = &resource.specifier {
                cluster.topic_settings.insert(name.clone(), told(resource));
            }
        }
        Ok(cluster)
    }

    fn create(&self, needs: &[&TopicNeed]) -> Result<(), StageError> {
        let settings = needs.iter().map(|need| topic_settings(need)).collect::<Result<Vec<_>, _>>()?;
        let new: Vec<NewTopic<'_>> = needs
            .iter()
            .zip(&settings)
            .map(|(need, settings)| NewTopic {
                name: &need.config.name,
                num_partitions: need.config.partitions as i32,
                replication: TopicReplication::Fixed(need.config.replication as i32),
                config: settings.iter().map(|(name, value)| (*name, value.as_str())).collect(),
            })
            .collect();
        let options = AdminOptions::new().request_timeout(Some(REQUEST)).operation_timeout(Some(REQUEST));
        let results = wait_for(self.client.create_topics(&new, &options))
            .map_err(|error| StageError::broker(&*self.bootstrap, format!("topics cannot be created: {error}")))?;
        for result in results {
            if let Err((name, code)) = result {
                return Err(creation_error(&name, code, needs));
            }
        }
        Ok(())
    }

    /// Waits until each topic is there with a leader for each partition.
    fn wait_for_leaders(&self, needs: &[TopicNeed]) -> Result<(), StageError> {
        let end_ns = mono_ns() + LEADERS.as_nanos() as i64;
        loop {
            let views = topic::views(&self.metadata(REQUEST)?);
            let missing = needs.iter().find(|need| {
                views
                    .get(&need.config.name)
                    .is_none_or(|view| view.partitions < need.config.partitions as i32 || !view.leaderless.is_empty())
            });
            let Some(need) = missing else { return Ok(()) };
            if mono_ns() >= end_ns {
                let message = format!("has partitions without a leader after {} s", LEADERS.as_secs());
                return Err(StageError::broker(format!("topic {}", need.config.name), message));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// First and end offset of every partition.
    fn watermarks(&self, name: &str, timeout: Duration) -> Result<BTreeMap<i32, (i64, i64)>, StageError> {
        let views = topic::views(&self.metadata(timeout)?);
        let place = format!("topic {name}");
        let view = views
            .get(name)
            .ok_or_else(|| StageError::broker(&*place, format!("does not exist on {}", self.bootstrap)))?;
        let end_ns = mono_ns() + timeout.as_nanos() as i64;
        let ask = |partition| {
            let offsets = self.offsets(name, partition, end_ns).map_err(|error| {
                let place = format!("{place}, partition {partition}");
                StageError::broker(place, format!("offsets cannot be read: {error}"))
            })?;
            Ok((partition, offsets))
        };
        (0..view.partitions).map(ask).collect()
    }

    /// First and end offset of a partition. A leader that was elected a moment ago may not know it yet and is asked again.
    fn offsets(&self, name: &str, partition: i32, end_ns: i64) -> Result<(i64, i64), KafkaError> {
        loop {
            let left = Duration::from_nanos((end_ns - mono_ns()).max(1_000_000) as u64);
            let error = match self.client.inner().fetch_watermarks(name, partition, left) {
                Ok(offsets) => return Ok(offsets),
                Err(error) => error,
            };
            let moves = matches!(
                error.rdkafka_error_code(),
                Some(
                    RDKafkaErrorCode::NotLeaderForPartition
                        | RDKafkaErrorCode::LeaderNotAvailable
                        | RDKafkaErrorCode::UnknownTopicOrPartition
                )
            );
            if !moves || mono_ns() >= end_ns {
                return Err(error);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

fn told(resource: ConfigResource) -> Told {
    resource.entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?))).collect()
}

/// What a new topic is set to.
fn topic_settings(need: &TopicNeed) -> Result<Vec<(&'static str, String)>, StageError> {
    let config = &need.config;
    let limit = size_chain::batch_limit_bytes(need.max_frame_bytes).ok_or_else(|| {
        let message = format!("frames of up to {} bytes are beyond the size chain", need.max_frame_bytes);
        StageError::limit(format!("topic {}", config.name), message)
    })?;
    let mut settings = vec![("max.message.bytes", config.max_message_bytes.map_or(limit, |size| size.0).to_string())];
    let mut add = |name, value: Option<String>| settings.extend(value.map(|value| (name, value)));
    add("retention.bytes", config.retention_bytes.map(|size| size.0.to_string()));
    add("retention.ms", config.retention.map(|span| span.0.as_millis().to_string()));
    add("segment.bytes", preflight::segment_bytes(need, limit).map(|bytes| bytes.to_string()));
    add("min.insync.replicas", config.min_insync_replicas.map(|n| n.to_string()));
    Ok(settings)
}

fn creation_error(name: &str, code: RDKafkaErrorCode, needs: &[&TopicNeed]) -> StageError {
    let place = format!("topic {name}");
    let config = needs.iter().map(|need| &need.config).find(|config| config.name == name);
    let message = match (code, config) {
        (RDKafkaErrorCode::TopicAlreadyExists, _) => {
            "exists already; delete it, name another, or set `reuse: true`".to_owned()
        }
        (RDKafkaErrorCode::InvalidReplicationFactor, Some(config)) => {
            format!("replication {} needs as many brokers; lower it or add brokers", config.replication)
        }
        (RDKafkaErrorCode::InvalidTopic, _) => "the broker refuses the name; use 1 to 249 of [A-Za-z0-9._-]".into(),
        _ => format!("cannot be created: {code}"),
    };
    StageError::broker(place, message)
}

impl Admin for KafkaAdmin {
    fn cluster(&self, timeout: Duration) -> Result<ClusterView, StageError> {
        let metadata = self.metadata(timeout)?;
        Ok(ClusterView {
            brokers: metadata.brokers().iter().map(|broker| format!("{}:{}", broker.host(), broker.port())).collect(),
            topics: metadata.topics().iter().map(|topic| topic.name().to_owned()).collect(),
        })
    }

    fn preflight(&self, topics: &[TopicNeed]) -> Result<Vec<PreflightLink>, StageError> {
        Ok(preflight::links(topics, &self.look(topics)?))
    }

    fn create_topics(&self, topics: &[TopicNeed]) -> Result<(), StageError> {
        let existing = topic::views(&self.metadata(REQUEST)?);
        let mut missing = Vec::new();
        for need in topics {
            let config = &need.config;
            let place = format!("topic {}", config.name);
            if let Some(problem) = topic::name_problem(&config.name) {
                return Err(StageError::config(place, format!("is not a topic name: {problem}")));
            }
            match existing.get(&config.name) {
                None => missing.push(need),
                Some(_) if !config.reuse => {
                    return Err(creation_error(&config.name, RDKafkaErrorCode::TopicAlreadyExists, &[]));
                }
                Some(view) => same_shape(place, view, need)?,
            }
        }
        if !missing.is_empty() {
            self.create(&missing)?;
        }
        self.wait_for_leaders(topics)
    }

    fn end_offsets(&self, topic: &str, timeout: Duration) -> Result<BTreeMap<i32, i64>, StageError> {
        Ok(self.watermarks(topic, timeout)?.into_iter().map(|(partition, (_, end))| (partition, end)).collect())
    }

    fn start_offsets(&self, topic: &str, timeout: Duration) -> Result<BTreeMap<i32, i64>, StageError> {
        Ok(self.watermarks(topic, timeout)?.into_iter().map(|(partition, (start, _))| (partition, start)).collect())
    }

    fn log_bytes(&self, topic: &str) -> Result<Option<u64>, StageError> {
        if !self.plain {
            return Ok(None);
        }
        let metadata = self.metadata(REQUEST)?;
        let views = topic::views(&metadata);
        let Some(view) = views.get(topic) else {
            return Err(StageError::broker(format!("topic {topic}"), format!("does not exist on {}", self.bootstrap)));
        };
        let mut bytes = 0;
        for broker in metadata.brokers() {
            let port = u16::try_from(broker.port()).unwrap_or_default();
            match log_dirs::topic_bytes_on(broker.host(), port, topic, view.partitions, REQUEST) {
                Ok(on_broker) => bytes += on_broker,
                Err(error) => {
                    // A part of the sum would be a wrong figure; a blank one is true.
                    tracing::warn!(topic, broker = broker.id(), %error, "bytes on disk are not told");
                    return Ok(None);
                }
            }
        }
        Ok(Some(bytes))
    }
}

fn same_shape(place: String, view: &topic::TopicView, need: &TopicNeed) -> Result<(), StageError> {
    let config = &need.config;
    if (view.partitions as u32, view.replication as u32) == (config.partitions, config.replication) {
        return Ok(());
    }
    let message = format!(
        "exists with {} partitions and {} replicas, the scenario says {} and {}; make the two agree",
        view.partitions, view.replication, config.partitions, config.replication
    );
    Err(StageError::broker(place, message))
}
