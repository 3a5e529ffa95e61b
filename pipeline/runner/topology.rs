//! What the scenario's parts mean to each other: who reads whom, in which order they drain, how large frames get.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use contract::frame::RunId;
use contract::stage::{Demand, Ports, Registry};
use scenario::Scenario;
use scenario::model::StageConfig;

/// A run id from the kernel's randomness; two runs never share one.
pub fn new_run_id() -> RunId {
    let mut id = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut id));
    if read.is_err() {
        id[..8].copy_from_slice(&contract::clock::real_ns().to_be_bytes());
        id[8..].copy_from_slice(&contract::clock::mono_ns().to_be_bytes());
    }
    RunId(id)
}

pub fn ports(registry: &Registry, stage: &StageConfig) -> Option<Ports> {
    registry.find(&stage.kind).map(|entry| entry.ports)
}

/// Stages with no `from`: what they offer is audited.
pub fn sources<'a>(scenario: &'a Scenario, registry: &Registry) -> Vec<&'a StageConfig> {
    scenario.stages.iter().filter(|stage| ports(registry, stage) == Some(Ports::Source)).collect()
}

/// The stage whose group audits a topic: the first that reads it.
pub fn auditor<'a>(scenario: &'a Scenario, topic: &str) -> Option<&'a StageConfig> {
    scenario.stages.iter().find(|stage| stage.from.as_deref() == Some(topic))
}

/// Consuming stages in the order they can drain: a stage after those that write what it reads.
pub fn drain_order(scenario: &Scenario) -> Vec<&StageConfig> {
    let mut waiting: Vec<&StageConfig> = scenario.stages.iter().filter(|stage| stage.from.is_some()).collect();
    let mut order = Vec::new();
    while !waiting.is_empty() {
        let ready = waiting.iter().position(|stage| {
            let from = stage.from.as_deref().unwrap_or_default();
            !waiting.iter().any(|other| other.id != stage.id && other.outputs().iter().any(|topic| topic == from))
        });
        // A cycle was refused by `check`; without one there is always a stage that waits for none.
        order.push(waiting.remove(ready.unwrap_or(0)));
    }
    order
}

/// What each stage asks for; a stage whose demand cannot be told is absent.
pub fn demands(scenario: &Scenario, registry: &Registry) -> BTreeMap<String, Demand> {
    let demand = |stage: &StageConfig| {
        let entry = registry.find(&stage.kind)?;
        (entry.demand)(stage.config.clone()).ok().map(|demand| (stage.id.clone(), demand))
    };
    scenario.stages.iter().filter_map(demand).collect()
}

/// Largest payload that any stage writes to a topic; 1 MiB where none tells.
pub fn max_frame_bytes(scenario: &Scenario, registry: &Registry, topic: &str) -> u64 {
    let writers = scenario.stages.iter().filter(|stage| stage.outputs().iter().any(|name| name == topic));
    let largest = writers.filter_map(|stage| {
        let entry = registry.find(&stage.kind)?;
        (entry.demand)(stage.config.clone()).ok()?.max_frame_bytes
    });
    largest.max().unwrap_or(1 << 20)
}
