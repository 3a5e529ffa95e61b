//! The topics: their list on disk, creation with placement of replicas, deletion.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use crate::api::code;
use crate::data_dir::{self, DataDir};
use crate::durable;
use crate::error::BrokerError;
use crate::options::BrokerOptions;
use crate::storage::partition::{Partition, Placement, StorageContext, lock};
use crate::storage::recover;
use crate::storage::shutdown_mark::{self, PartitionMark, Trust};
use crate::topic_config::{self, TopicSettings};

/// Partitions of one topic; every replica costs an open file.
const PARTITIONS_MAX: i32 = 1_000;
/// Partitions of all topics together.
const ALL_PARTITIONS_MAX: usize = 10_000;
/// Longest topic name, as the protocol has it.
const NAME_MAX: usize = 249;
/// Partitions and replication of a topic created by being asked for.
const AUTO_PARTITIONS: i32 = 3;
const AUTO_REPLICATION: i16 = 1;

/// What is kept of a topic in the list on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TopicRecord {
    name: String,
    partitions: i32,
    replication: u16,
    configs: BTreeMap<String, String>,
}

/// A served topic.
pub(crate) struct Topic {
    pub name: String,
    pub replication: u16,
    /// Settings as they were given.
    pub configs: BTreeMap<String, String>,
    pub settings: TopicSettings,
    pub partitions: Vec<Arc<Partition>>,
}

/// What a client wants to create.
#[derive(Debug, Clone)]
pub(crate) struct TopicPlan {
    pub name: String,
    /// -1: the broker's default.
    pub partitions: i32,
    /// -1: the broker's default.
    pub replication: i16,
    pub configs: BTreeMap<String, String>,
}

/// Code and text of a refusal.
pub(crate) type Refusal = (i16, String);

/// All topics.
pub(crate) struct Topics {
    by_name: RwLock<BTreeMap<String, Arc<Topic>>>,
    /// One creation or deletion at a time.
    changing: Mutex<()>,
    list_path: PathBuf,
    data_path: PathBuf,
    options: BrokerOptions,
    context: StorageContext,
}

impl Topics {
    /// Read the list and recover every partition.
    pub fn open(data: &DataDir, options: &BrokerOptions, context: StorageContext) -> Result<Topics, BrokerError> {
        let topics = Topics {
            by_name: RwLock::default(),
            changing: Mutex::new(()),
            list_path: data.path.join("topics.json"),
            data_path: data.path.clone(),
            options: options.clone(),
            context,
        };
        let records: Vec<TopicRecord> = durable::read_json(&topics.list_path)?.unwrap_or_default();
        topics.remove_strays(&records)?;
        let (trust, marks) = shutdown_mark::take(&data.path)?;
        for record in records {
            let topic = topics.recover(record, trust, &marks)?;
            topics.insert(topic);
        }
        Ok(topics)
    }

    /// Directories of topics whose creation or deletion was interrupted.
    fn remove_strays(&self, records: &[TopicRecord]) -> Result<(), BrokerError> {
        let names = |record: &TopicRecord| {
            let name = record.name.clone();
            (0..record.partitions).map(move |partition| format!("{name}-{partition}")).collect::<Vec<_>>()
        };
        let known: BTreeSet<String> = records.iter().flat_map(names).collect();
        for node in 1..=self.options.nodes {
            let dir = data_dir::node_dir(&self.data_path, node);
            for entry in fs::read_dir(&dir).map_err(BrokerError::directory(&dir, "read"))? {
                let entry = entry.map_err(BrokerError::directory(&dir, "read"))?;
                if !known.contains(&*entry.file_name().to_string_lossy()) && entry.path().is_dir() {
                    tracing::warn!(path = %entry.path().display(), "removing the remains of an unlisted topic");
                    fs::remove_dir_all(entry.path()).map_err(BrokerError::directory(entry.path(), "remove"))?;
                }
            }
        }
        Ok(())
    }

    fn recover(
        &self,
        record: TopicRecord,
        trust: Trust,
        marks: &BTreeMap<String, PartitionMark>,
    ) -> Result<Topic, BrokerError> {
        let settings = topic_config::parse(&record.configs, record.replication, &self.options)
            .map_err(|problem| BrokerError::Damaged { path: self.list_path.clone(), problem })?;
        let mut partitions = Vec::new();
        for index in 0..record.partitions {
            let placement = self.place(&record.name, index, record.replication);
            let mark = marks.get(&placement.name());
            let found = recover::recover(&placement, trust, mark, &self.context.counters)?;
            partitions.push(Arc::new(Partition::new(placement, settings.clone(), self.context.clone(), found)));
        }
        Ok(Topic { name: record.name, replication: record.replication, configs: record.configs, settings, partitions })
    }

    /// Partition p is led by node p mod N + 1; the replicas are the next ones round the ring.
    fn place(&self, topic: &str, index: i32, replication: u16) -> Placement {
        let nodes = u32::from(self.options.nodes);
        let node = |step: u32| u16::try_from((index.unsigned_abs() + step) % nodes + 1).unwrap_or(1);
        let replicas: Vec<u16> = (0..u32::from(replication)).map(node).collect();
        let dir = |node: &u16| data_dir::node_dir(&self.data_path, *node).join(format!("{topic}-{index}"));
        let dirs = replicas.iter().map(dir).collect();
        Placement { topic: topic.to_owned(), index, replicas, dirs }
    }

    fn insert(&self, topic: Topic) {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        by_name.insert(topic.name.clone(), Arc::new(topic));
    }

    pub fn get(&self, name: &str) -> Option<Arc<Topic>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All topics by name.
    pub fn all(&self) -> Vec<Arc<Topic>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The partition, if `node` leads it. The error is the code to answer.
    pub fn led_by(&self, node: u16, topic: &str, index: i32) -> Result<Arc<Partition>, i16> {
        let topic = self.get(topic).ok_or(code::UNKNOWN_TOPIC_OR_PARTITION)?;
        let position = usize::try_from(index).map_err(|_| code::UNKNOWN_TOPIC_OR_PARTITION)?;
        let partition = topic.partitions.get(position).ok_or(code::UNKNOWN_TOPIC_OR_PARTITION)?;
        if partition.placement.leader() == node { Ok(Arc::clone(partition)) } else { Err(code::NOT_LEADER) }
    }

    /// Create a topic, or only check that it could be created.
    pub fn create(&self, plan: &TopicPlan, validate_only: bool) -> Result<(), Refusal> {
        let _changing = lock(&self.changing);
        let record = self.check(plan)?;
        if validate_only {
            return Ok(());
        }
        let settings = topic_config::parse(&record.configs, record.replication, &self.options)
            .map_err(|problem| (code::INVALID_CONFIG, problem))?;
        let mut partitions = Vec::new();
        for index in 0..record.partitions {
            let placement = self.place(&record.name, index, record.replication);
            let found = recover::create(&placement).map_err(|error| {
                self.remove_dirs(&record);
                (code::STORAGE_ERROR, format!("create files of {}: {error}", placement.name()))
            })?;
            partitions.push(Arc::new(Partition::new(placement, settings.clone(), self.context.clone(), found)));
        }
        // Listed before it is seen: what is acknowledged in a topic must not be taken for a stray after a crash.
        self.write_list(Some(&record)).map_err(|error| {
            self.remove_dirs(&record);
            (code::STORAGE_ERROR, format!("write the topic list: {error}"))
        })?;
        let TopicRecord { name, replication, configs, .. } = record;
        self.insert(Topic { name, replication, configs, settings, partitions });
        Ok(())
    }

    fn check(&self, plan: &TopicPlan) -> Result<TopicRecord, Refusal> {
        let name = &plan.name;
        if !valid_name(name) {
            let problem = format!("topic name `{name}` must be 1 to {NAME_MAX} of A-Z a-z 0-9 . _ - and not . or ..");
            return Err((code::INVALID_TOPIC, problem));
        }
        if self.get(name).is_some() {
            return Err((code::TOPIC_ALREADY_EXISTS, format!("topic `{name}` already exists")));
        }
        let partitions = if plan.partitions == -1 { AUTO_PARTITIONS } else { plan.partitions };
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            let problem = format!("topic `{name}` with {partitions} partitions: allowed are 1 to {PARTITIONS_MAX}");
            return Err((code::INVALID_PARTITIONS, problem));
        }
        let existing: usize = self.all().iter().map(|topic| topic.partitions.len()).sum();
        if existing + partitions.unsigned_abs() as usize > ALL_PARTITIONS_MAX {
            let problem = format!("topic `{name}`: {existing} partitions exist, the broker holds {ALL_PARTITIONS_MAX}");
            return Err((code::INVALID_PARTITIONS, problem));
        }
        let replication = if plan.replication == -1 { AUTO_REPLICATION } else { plan.replication };
        let nodes = self.options.nodes;
        let replication = u16::try_from(replication).ok().filter(|replication| (1..=nodes).contains(replication));
        let Some(replication) = replication else {
            let problem = format!("topic `{name}` with replication {}: only {nodes} nodes", plan.replication);
            return Err((code::INVALID_REPLICATION_FACTOR, problem));
        };
        topic_config::parse(&plan.configs, replication, &self.options)
            .map_err(|problem| (code::INVALID_CONFIG, problem))?;
        Ok(TopicRecord { name: name.clone(), partitions, replication, configs: plan.configs.clone() })
    }

    /// Create a topic because a client asked for its metadata.
    pub fn create_on_demand(&self, name: &str) -> Result<(), i16> {
        let (partitions, replication) = (AUTO_PARTITIONS, AUTO_REPLICATION);
        let plan = TopicPlan { name: name.to_owned(), partitions, replication, configs: BTreeMap::new() };
        match self.create(&plan, false) {
            Err((code, _)) if code != code::TOPIC_ALREADY_EXISTS => Err(code),
            _ => Ok(()),
        }
    }

    fn remove_dirs(&self, record: &TopicRecord) {
        for index in 0..record.partitions {
            for dir in self.place(&record.name, index, record.replication).dirs {
                // What cannot be removed now is a stray at the next start.
                let _ = fs::remove_dir_all(dir);
            }
        }
    }

    fn write_list(&self, new: Option<&TopicRecord>) -> std::io::Result<()> {
        let record = |topic: Arc<Topic>| TopicRecord {
            name: topic.name.clone(),
            partitions: i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX),
            replication: topic.replication,
            configs: topic.configs.clone(),
        };
        let records: Vec<TopicRecord> = self.all().into_iter().map(record).chain(new.cloned()).collect();
        durable::replace_json(&self.list_path, &records)
    }

    /// Delete a topic: first from the list, then its files.
    pub fn delete(&self, name: &str) -> Result<(), Refusal> {
        let _changing = lock(&self.changing);
        let removed = self.by_name.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        let Some(topic) = removed else {
            return Err((code::UNKNOWN_TOPIC_OR_PARTITION, format!("topic `{name}` does not exist")));
        };
        if let Err(error) = self.write_list(None) {
            self.by_name.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), topic);
            return Err((code::STORAGE_ERROR, format!("write the topic list: {error}")));
        }
        for partition in &topic.partitions {
            if let Err(error) = partition.delete() {
                tracing::warn!(partition = partition.placement.name(), %error, "files not removed; the next start removes them");
            }
        }
        Ok(())
    }

    /// Write index files and the mark of a clean stop.
    pub fn close(&self) -> Result<(), BrokerError> {
        let mut marks = BTreeMap::new();
        for topic in self.all() {
            for partition in &topic.partitions {
                if let Some(mark) = partition.close() {
                    marks.insert(partition.placement.name(), mark);
                }
            }
        }
        shutdown_mark::leave(&self.data_path, marks)
    }
}

fn valid_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_MAX).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_the_protocol_allows() {
        assert!(valid_name("frames.v1_A-0") && valid_name(&"a".repeat(249)));
        for bad in ["", ".", "..", "a/b", "a b", "ü", &"a".repeat(250)] {
            assert!(!valid_name(bad), "{bad}");
        }
    }
}
