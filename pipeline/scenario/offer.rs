//! The load a scenario will put on the broker and the host, before anything runs: frames and bytes each second, times
//! replication, bytes on disk against the budget and the free space, CPU.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::num::NonZero;
use std::path::Path;
use std::thread::available_parallelism;

use contract::flow::Spread;
use contract::wire::OVERHEAD_BYTES;
use contract::{Demand, Registry, StageError};
use serde::Serialize;

use crate::load::Loaded;
use crate::model::{Scenario, StageConfig};
use crate::problem::{Problem, Severity};

mod table;

/// What `check` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Offer {
    pub scenario: String,
    /// Longest time frames are offered: warm-up and main.
    pub seconds: f64,
    pub stages: Vec<StageOffer>,
    pub topics: Vec<TopicOffer>,
    /// Totals over the topics that sources write; absent when one of them is unpaced.
    pub frames_per_second: Option<f64>,
    pub bytes_per_second: Option<f64>,
    /// With every replica of every topic.
    pub replicated_bytes_per_second: Option<f64>,
    /// Bytes on disk at the end of main, replicas included, as far as the rates are known.
    pub disk_bytes: u64,
    /// Every rate is known, so that `disk_bytes` is complete.
    pub disk_bytes_complete: bool,
    pub disk_budget_bytes: u64,
    pub free_space_floor_bytes: u64,
    /// Free space of the data directory, where it is known.
    pub free_bytes: Option<u64>,
    /// CPU-seconds each second of the stages that can tell, without the broker; absent when none can.
    pub cpu_seconds_per_second: Option<f64>,
    pub cpus: usize,
    /// What forbids the run, or should be known before it.
    pub findings: Vec<Finding>,
}

/// One stage with what it asks for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageOffer {
    pub id: String,
    pub kind: String,
    pub instances: u32,
    pub demand: Demand,
    pub bytes_per_second: Option<f64>,
}

/// One topic with what it will take in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopicOffer {
    pub name: String,
    pub partitions: u32,
    pub replication: u32,
    /// Written by a stage that reads nothing.
    pub source: bool,
    pub frames_per_second: Option<f64>,
    /// Payload, before replication.
    pub bytes_per_second: Option<f64>,
    /// Largest payload; absent when no writer tells.
    pub max_frame_bytes: Option<u64>,
    /// At the end of main, replicas included.
    pub disk_bytes: Option<u64>,
}

/// Something found when the stages and the host were asked, and which part of the scenario it concerns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub subject: Subject,
    pub message: String,
}

/// A part of the scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A stage by its id, and values or fields in its config that may be the culprit, likeliest first.
    Stage {
        id: String,
        culprits: Vec<String>,
    },
    Observe {
        id: String,
    },
    Broker {
        key: String,
    },
    Run {
        key: String,
    },
}

/// Asks every stage for its demand; probes the files that stages name.
pub fn offer(scenario: &Scenario, registry: &Registry) -> Offer {
    let mut findings = Vec::new();
    let stages: Vec<StageOffer> =
        scenario.stages.iter().map(|stage| stage_offer(stage, registry, &mut findings)).collect();
    let seconds = (scenario.run.warmup.0 + scenario.run.main.0).as_secs_f64();
    let topics = topic_offers(scenario, &stages, seconds);
    let sources = || topics.iter().filter(|topic| topic.source);
    let mut offer = Offer {
        scenario: scenario.run.name.clone(),
        seconds,
        frames_per_second: sources().map(|topic| topic.frames_per_second).sum(),
        bytes_per_second: sources().map(|topic| topic.bytes_per_second).sum(),
        replicated_bytes_per_second: sources()
            .map(|topic| topic.bytes_per_second.map(|bytes| bytes * f64::from(topic.replication)))
            .sum(),
        disk_bytes: topics.iter().filter_map(|topic| topic.disk_bytes).fold(0, u64::saturating_add),
        disk_bytes_complete: sources().all(|topic| topic.disk_bytes.is_some()),
        disk_budget_bytes: scenario.broker.disk_budget.0,
        free_space_floor_bytes: scenario.broker.free_space_floor.0,
        free_bytes: None,
        cpu_seconds_per_second: stages
            .iter()
            .filter_map(|stage| stage.demand.cpu_seconds_per_second)
            .reduce(|a, b| a + b),
        cpus: available_parallelism().map_or(1, NonZero::get),
        stages,
        topics,
        findings,
    };
    offer.compare_with_budget();
    offer.compare_with_cpus();
    offer.look_at_host(scenario);
    offer
}

impl Offer {
    /// With the free space of the data directory, which must hold the run above the floor.
    pub fn with_free_bytes(mut self, free_bytes: u64) -> Self {
        self.free_bytes = Some(free_bytes);
        let needed = self.disk_bytes.saturating_add(self.free_space_floor_bytes);
        if needed > free_bytes {
            let message = format!(
                "the run needs {} on disk and keeps {} free, the data directory has {} free: name another `broker.data_dir`, \
                 shorten `run.main` or lower the load",
                table::bytes(self.disk_bytes),
                table::bytes(self.free_space_floor_bytes),
                table::bytes(free_bytes)
            );
            self.find(Severity::Error, Subject::Broker { key: "data_dir".into() }, message);
        }
        self
    }

    /// Nothing forbids the run.
    pub fn is_runnable(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Warning)
    }

    fn find(&mut self, severity: Severity, subject: Subject, message: String) {
        self.findings.push(Finding { severity, subject, message });
    }

    fn compare_with_budget(&mut self) {
        if self.disk_bytes > self.disk_budget_bytes {
            let message = format!(
                "the run will put {} on disk, `broker.disk_budget` allows {}: raise it, shorten `run.main` or lower the load",
                table::bytes(self.disk_bytes),
                table::bytes(self.disk_budget_bytes)
            );
            self.find(Severity::Error, Subject::Broker { key: "disk_budget".into() }, message);
        }
    }

    fn compare_with_cpus(&mut self) {
        if let Some(wanted) = self.cpu_seconds_per_second.filter(|wanted| *wanted > self.cpus as f64) {
            let message = format!(
                "the stages want about {wanted:.1} CPUs without the broker, this host has {}: expect late frames",
                self.cpus
            );
            self.find(Severity::Warning, Subject::Run { key: "name".into() }, message);
        }
    }

    fn look_at_host(&mut self, scenario: &Scenario) {
        for observe in &scenario.observe {
            if let Err(error) = fs::metadata(&observe.path) {
                let message = format!("observe `{}`: cannot read {}: {error}", observe.id, observe.path.display());
                self.find(Severity::Error, Subject::Observe { id: observe.id.clone() }, message);
            }
        }
        if let Err(error) = scenario.broker.resolved_client() {
            self.find(Severity::Error, Subject::Broker { key: "client".into() }, error.to_string());
        }
        let external = scenario.broker.bootstrap_servers.is_some();
        if let Some(path) =
            scenario.broker.data_dir.as_deref().filter(|path| !external && path.exists() && !path.is_dir())
        {
            let message = format!("`broker.data_dir` {} is not a folder", path.display());
            self.find(Severity::Error, Subject::Broker { key: "data_dir".into() }, message);
        }
    }
}

fn stage_offer(stage: &StageConfig, registry: &Registry, findings: &mut Vec<Finding>) -> StageOffer {
    let mut complain = |culprits: Vec<String>, message: String| {
        let subject = Subject::Stage { id: stage.id.clone(), culprits };
        let message = format!("stage `{}` ({}): {message}", stage.id, stage.kind);
        findings.push(Finding { severity: Severity::Error, subject, message });
    };
    let answer = registry.find(&stage.kind).map(|entry| (entry.demand)(stage.config.clone()));
    let demand = match answer {
        Some(Ok(demand)) => demand,
        Some(Err(error)) => {
            complain(culprits(&error), error.to_string());
            Demand::default()
        }
        None => {
            complain(Vec::new(), format!("unknown kind `{}`", stage.kind));
            Demand::default()
        }
    };
    for path in &demand.files {
        if let Err(message) = readable(path) {
            complain(vec![path.display().to_string()], message);
        }
    }
    let bytes_per_second = demand.frames_per_second.zip(demand.frame_bytes).map(|(fps, bytes)| fps * bytes as f64);
    StageOffer { id: stage.id.clone(), kind: stage.kind.clone(), instances: stage.instances, demand, bytes_per_second }
}

/// What to look for in the file: the place of an error is often a value of it, and messages quote values and fields.
fn culprits(error: &StageError) -> Vec<String> {
    let quoted = error.message.split('`').skip(1).step_by(2);
    std::iter::once(error.place.as_str()).chain(quoted).map(str::to_owned).collect()
}

fn readable(path: &Path) -> Result<(), String> {
    let file = File::open(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    match file.metadata() {
        Ok(metadata) if metadata.is_dir() => Err(format!("cannot read {}: it is a folder", path.display())),
        _ => Ok(()),
    }
}

/// What one writer adds to one topic.
struct Share<'a> {
    stage: &'a StageOffer,
    source: bool,
    part: f64,
}

fn topic_offers(scenario: &Scenario, stages: &[StageOffer], seconds: f64) -> Vec<TopicOffer> {
    let mut shares: BTreeMap<String, Vec<Share<'_>>> = BTreeMap::new();
    for (stage, offered) in scenario.stages.iter().zip(stages) {
        let topics = stage.outputs();
        for (index, topic) in topics.iter().enumerate() {
            let part = match stage.spread {
                Spread::Copy => 1.0,
                Spread::Streams => part_of_streams(offered.demand.streams, index, topics.len()),
            };
            let share = Share { stage: offered, source: stage.from.is_none(), part };
            shares.entry(topic.clone()).or_default().push(share);
        }
    }
    let none = Vec::new();
    let offered = scenario.topics.iter().map(|topic| {
        let shares = shares.get(&topic.name).unwrap_or(&none);
        let sum = |of: &dyn Fn(&StageOffer) -> Option<f64>| -> Option<f64> {
            shares.iter().map(|share| of(share.stage).map(|value| value * share.part)).sum()
        };
        let frames_per_second = sum(&|stage| stage.demand.frames_per_second);
        let bytes_per_second = sum(&|stage| stage.bytes_per_second);
        let stored =
            frames_per_second.zip(bytes_per_second).map(|(frames, bytes)| frames * OVERHEAD_BYTES as f64 + bytes);
        let disk_bytes = stored.map(|bytes| (bytes * seconds * f64::from(topic.replication)) as u64);
        TopicOffer {
            name: topic.name.clone(),
            partitions: topic.partitions,
            replication: topic.replication,
            source: shares.iter().any(|share| share.source),
            frames_per_second,
            bytes_per_second,
            max_frame_bytes: shares.iter().filter_map(|share| share.stage.demand.max_frame_bytes).max(),
            disk_bytes: disk_bytes.map(|bytes| bytes.min(most_kept(topic).unwrap_or(u64::MAX))),
        }
    });
    offered.collect()
}

/// Streams whose number mod `topics` is `index`, as a share of all.
fn part_of_streams(streams: Option<u32>, index: usize, topics: usize) -> f64 {
    match streams.map(|streams| streams as usize).filter(|streams| *streams > 0) {
        Some(streams) => streams.saturating_sub(index).div_ceil(topics) as f64 / streams as f64,
        None => 1.0 / topics as f64,
    }
}

/// Bytes that retention leaves, replicas included: a segment goes when the rest still holds `retention_bytes`.
fn most_kept(topic: &contract::admin::TopicConfig) -> Option<u64> {
    let (retention, segment) = (topic.retention_bytes?.0, topic.segment_bytes?.0);
    // One segment more is written and another waits for the next look at it.
    let partition = retention.saturating_add(segment.saturating_mul(2));
    Some(partition.saturating_mul(u64::from(topic.partitions)).saturating_mul(u64::from(topic.replication)))
}

impl Loaded {
    /// The findings of an offer with their places in the file, in file order.
    pub fn problems_of(&self, offer: &Offer) -> Vec<Problem> {
        offer.findings.iter().map(|finding| self.place_finding(finding)).collect()
    }

    fn place_finding(&self, finding: &Finding) -> Problem {
        let message = finding.message.clone();
        let mut problem = match &finding.subject {
            Subject::Stage { id, culprits } => self.problem_with("stages", id, culprits, message),
            Subject::Observe { id } => self.problem_with("observe", id, &[], message),
            Subject::Broker { key } => self.problem_at(&["broker", key], message),
            Subject::Run { key } => self.problem_at(&["run", key], message),
        };
        problem.severity = finding.severity;
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_text;
    use crate::testing::{GOOD, REGISTRY};

    /// The good scenario with a clip that exists.
    fn loaded(overrides: &[&str]) -> (Loaded, tempfile::NamedTempFile) {
        let clip = tempfile::NamedTempFile::new().unwrap();
        let text = GOOD.replace("clip.mp4", &clip.path().display().to_string());
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        (load_text(&text, "f.yaml", &overrides, &REGISTRY).unwrap(), clip)
    }

    fn offered(overrides: &[&str]) -> Offer {
        offer(&loaded(overrides).0.scenario, &REGISTRY)
    }

    #[test]
    fn frames_bytes_and_disk_follow_from_the_demand() {
        let (loaded, _clip) = loaded(&["run.warmup=10s"]);
        let offer = offer(&loaded.scenario, &REGISTRY);
        assert_eq!(offer.findings, []);
        assert_eq!(offer.frames_per_second, Some(72.0));
        assert_eq!(offer.bytes_per_second, Some(14_400_000.0));
        assert_eq!(offer.replicated_bytes_per_second, Some(43_200_000.0));
        // 30 s of 72 frames of 200,000 bytes and at most 256 around each, three times.
        assert_eq!(offer.disk_bytes, 30 * 72 * 200_256 * 3);
        assert!(offer.disk_bytes_complete && offer.is_runnable());
        assert_eq!(offer.cpu_seconds_per_second, Some(0.625));
        assert_eq!(offer.topics[0].max_frame_bytes, Some(400_000));
        assert_eq!((offer.topics[1].frames_per_second, offer.topics[1].disk_bytes), (None, None));
    }

    #[test]
    fn a_load_beyond_the_budget_is_refused_at_the_budget() {
        let (loaded, _clip) = loaded(&["broker.disk_budget=1GB"]);
        let offer = offer(&loaded.scenario, &REGISTRY);
        assert!(!offer.is_runnable());
        let problem = loaded.problems_of(&offer)[0].to_string();
        assert_eq!(
            problem,
            "--set broker.disk_budget=1GB: the run will put 2.16 GB on disk, `broker.disk_budget` allows 1.00 GB: raise \
             it, shorten `run.main` or lower the load"
        );
    }

    #[test]
    fn free_space_must_hold_the_run_above_the_floor() {
        assert!(offered(&[]).with_free_bytes(100 << 30).findings.is_empty());
        let needed = offered(&[]).disk_bytes + (2 << 30);
        assert!(offered(&[]).with_free_bytes(needed).is_runnable());
        let short = offered(&[]).with_free_bytes(needed - 1);
        assert!(short.findings[0].message.contains("name another `broker.data_dir`"), "{:?}", short.findings);
    }

    #[test]
    fn retention_bounds_what_stays_on_disk() {
        let offer = offered(&["topics.frames.retention_bytes=10MB", "topics.frames.segment_bytes=5MB"]);
        assert_eq!(offer.disk_bytes, 20_000_000 * 6 * 3);
    }

    #[test]
    fn streams_are_shared_over_topics_and_copies_are_not() {
        let topics = |spread: &str| {
            let shared = format!(
                "stages.cameras={{id: cameras, kind: decode, to: [frames, results], spread: {spread}, config: {{file: /dev/null, streams: 3, fps: 10}}}}"
            );
            let offer = offered(&[&shared, "stages.classify={id: classify, kind: audit, from: frames}"]);
            offer.topics.iter().map(|topic| topic.frames_per_second.unwrap().round()).collect::<Vec<_>>()
        };
        assert_eq!(topics("streams"), [20.0, 10.0]);
        assert_eq!(topics("copy"), [30.0, 30.0]);
    }

    #[test]
    fn a_missing_file_and_a_refused_value_are_placed_at_the_value() {
        let loaded = load_text(GOOD, "f.yaml", &[], &REGISTRY).unwrap();
        let problems = loaded.problems_of(&offer(&loaded.scenario, &REGISTRY));
        let text = problems[0].to_string();
        assert!(text.starts_with("f.yaml:14:21: stage `cameras` (decode): cannot read clip.mp4: "), "{text}");
        let loaded = load_text(&GOOD.replace("fps: 24", "fps: -1"), "f.yaml", &[], &REGISTRY).unwrap();
        let problems = loaded.problems_of(&offer(&loaded.scenario, &REGISTRY));
        assert_eq!(problems[0].to_string(), "f.yaml:14:48: stage `cameras` (decode): fps: -1 is not a frame rate");
    }

    #[test]
    fn the_table_shows_rates_replication_disk_and_cpu() {
        let (loaded, _clip) = loaded(&["run.warmup=10s"]);
        let mut offer = offer(&loaded.scenario, &REGISTRY).with_free_bytes(50_000_000_000);
        offer.cpus = 2;
        let expected = "\
stage     kind      mode  streams  frames/s  KB/frame  MB/s   CPU
cameras   decode    each        3      72.0     200.0  14.4  0.12
classify  infer x2  -           -         -         -     -  0.50

topic    partitions  replication  frames/s  MB/s  MB/s with replicas  GB on disk
frames            6            3      72.0  14.4                43.2        1.30
results           3            1         -     -                   -           -

load  72.0 frames/s, 14.4 MB/s, with replicas 43.2 MB/s
disk  1.30 GB after 30 s of warm-up and main; budget 10.00 GB, free 50.00 GB, floor 2.15 GB
CPU   about 0.62 of 2, without the broker
";
        assert_eq!(offer.to_string(), expected);
        offer.stages[1].demand.cpu_seconds_per_second = None;
        offer.disk_bytes_complete = false;
        offer.frames_per_second = None;
        let text = offer.to_string();
        assert!(text.contains("load  unpaced or unknown: as fast as the broker takes it"), "{text}");
        assert!(
            text.contains("disk  as much as the broker takes in 30 s of warm-up and main; budget 10.00 GB"),
            "{text}"
        );
        assert!(text.contains("CPU   at least 0.62 of 2, without the broker"), "{text}");
    }
}
