//! What the disk took in against what was published: device bytes, log bytes, payload x replicas, and the write debt.

use contract::summary::{DiskFacts, Summary};

use crate::figures::{WHOLE_RUN, data_device};

/// Bytes of the whole run, the sync at its end included.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StorageTruth {
    pub device: Option<String>,
    /// Written to the whole device, by anyone.
    pub device_bytes: Option<u64>,
    /// Held by the logs over all replicas.
    pub log_bytes: Option<u64>,
    pub payload_bytes: Option<u64>,
    /// Payload times the replication factor of its topic.
    pub replicated_bytes: Option<u64>,
    /// Absent figures, in words.
    pub why_blank: Option<String>,
}

impl StorageTruth {
    /// Device bytes for each byte that had to be stored: 1.00 when every replica is written once.
    pub fn amplification(&self) -> Option<f64> {
        ratio(self.device_bytes, self.replicated_bytes)
    }

    /// Device bytes for each payload byte: the replication factor when nothing else is written.
    pub fn per_payload_byte(&self) -> Option<f64> {
        ratio(self.device_bytes, self.payload_bytes)
    }

    /// Log bytes for each payload byte and replica: above 1 by the record format, below by compression or retention.
    pub fn log_overhead(&self) -> Option<f64> {
        ratio(self.log_bytes, self.replicated_bytes)
    }
}

fn ratio(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    match (part, whole) {
        (Some(part), Some(whole)) if whole > 0 => Some(part as f64 / whole as f64),
        _ => None,
    }
}

pub fn storage_truth(summary: &Summary) -> StorageTruth {
    let topics = summary.audit.as_ref().map(|audit| audit.topics.as_slice()).filter(|topics| !topics.is_empty());
    let total = |of: fn(u64, u32) -> u64| {
        topics.map(|topics| {
            topics.iter().fold(0u64, |sum, topic| sum.saturating_add(of(topic.payload_bytes, topic.replication)))
        })
    };
    let mut truth = StorageTruth {
        log_bytes: summary.broker.as_ref().and_then(|broker| broker.log_bytes),
        payload_bytes: total(|bytes, _| bytes),
        replicated_bytes: total(|bytes, replicas| bytes.saturating_mul(u64::from(replicas))),
        ..StorageTruth::default()
    };
    match data_device(summary) {
        None => truth.why_blank = Some(why_no_device(summary)),
        Some(device) => {
            truth.device = Some(device.to_owned());
            let disk = summary.disks.iter().find(|disk| disk.device == device);
            truth.device_bytes = disk.and_then(written);
            if truth.device_bytes.is_none() {
                truth.why_blank = Some(format!("{device} was not measured until after the sync"));
            }
        }
    }
    truth
}

/// The figures over the whole run; else the sum of its parts, if the sync is one of them: before it most bytes may still be in
/// memory.
fn written(disk: &DiskFacts) -> Option<u64> {
    const WRITING: [&str; 4] = ["warm-up", "main", "drain", "sync"];
    if let Some(whole) = disk.phases.get(WHOLE_RUN) {
        return Some(whole.write_bytes);
    }
    disk.phases.get("sync")?;
    let parts = WRITING.iter().filter_map(|name| disk.phases.get(*name));
    Some(parts.fold(0, |sum, phase| sum.saturating_add(phase.write_bytes)))
}

fn why_no_device(summary: &Summary) -> String {
    let Some(broker) = &summary.broker else { return "the run had no broker".to_owned() };
    let Some(dir) = &broker.data_dir else {
        return "the broker's data directory is not known here: its devices are on its own hosts".to_owned();
    };
    let reason = summary.storage.iter().find(|storage| storage.path == *dir).and_then(|s| s.no_device_reason.clone());
    reason.unwrap_or_else(|| format!("the device behind {dir} is not known"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn each_topic_counts_with_its_own_replication() {
        let mut summary = fixture::summary();
        let topics = &mut summary.audit.as_mut().unwrap().topics;
        topics.truncate(2);
        (topics[0].payload_bytes, topics[0].replication) = (100, 3);
        (topics[1].payload_bytes, topics[1].replication) = (50, 1);
        let truth = storage_truth(&summary);
        assert_eq!((truth.payload_bytes, truth.replicated_bytes), (Some(150), Some(350)));
    }

    #[test]
    fn device_bytes_without_those_of_the_sync_are_blank() {
        let mut summary = fixture::summary();
        let whole = storage_truth(&summary).device_bytes;
        summary.disks[0].phases.remove(WHOLE_RUN);
        let parts = storage_truth(&summary).device_bytes;
        assert!(whole >= parts && parts.is_some(), "{whole:?} {parts:?}");
        summary.disks[0].phases.remove("sync");
        let truth = storage_truth(&summary);
        assert_eq!(truth.device_bytes, None);
        assert!(truth.why_blank.unwrap().contains("until after the sync"));
    }

    #[test]
    fn an_external_broker_leaves_device_bytes_blank_with_the_reason() {
        let mut summary = fixture::summary();
        let broker = summary.broker.as_mut().unwrap();
        (broker.kind, broker.data_dir) = ("external".into(), None);
        let truth = storage_truth(&summary);
        assert_eq!((truth.device_bytes, truth.amplification()), (None, None));
        assert!(truth.why_blank.unwrap().contains("on its own hosts"));
    }
}
