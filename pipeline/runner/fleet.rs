//! Every instance of a run as the runner sees it: calls to all at once, last known books, who is lost.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use contract::error::StageError;
use contract::ledger::LedgerSets;
use contract::phases::Phase;
use contract::recorder::{Counter, Delta};
use contract::stage::DrainTarget;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::agent::LEDGER_FILE;
use crate::api::{DeltaReply, PhaseCall, Prepare, Record, Start, State, StateReply, sets};
use crate::client::{Client, ClientError};
use crate::control::{Control, Expected};

/// Bound of a call that answers at once.
const CALL: Duration = Duration::from_secs(2);
/// A record may carry the sets of hundreds of streams.
const RECORD: Duration = Duration::from_secs(20);
/// Missed deltas after which an instance is lost.
const MISSES: u32 = 3;

/// One instance.
pub struct Instance {
    pub stage: Expected,
    pub index: u32,
    pub pid: u32,
    pub host: String,
    pub base_url: String,
    /// Its folder, when it is on this host.
    pub work_dir: Option<PathBuf>,
    pub state: State,
    pub error: Option<StageError>,
    pub delta: Delta,
    pub misses: u32,
    /// Why nothing more is heard of it.
    pub lost: Option<String>,
    pub record: Option<Record>,
}

impl Instance {
    pub fn role(&self) -> String {
        format!("{}-{}", self.stage.stage_id, self.index)
    }

    /// Nothing more will come of it.
    pub fn is_over(&self) -> bool {
        self.lost.is_some() || self.state.is_final()
    }

    /// How it ended, for the record.
    pub fn final_state(&self) -> &'static str {
        if self.lost.is_some() { "lost" } else { self.state.name() }
    }
}

/// All instances.
pub struct Fleet {
    client: Client,
    pub instances: Vec<Instance>,
}

impl Fleet {
    /// From the registrations; `work_dirs` by pid for children of this runner.
    pub fn new(control: &Control, work_dirs: &BTreeMap<u32, PathBuf>) -> Self {
        let instance = |(stage, index, registration): (Expected, u32, crate::api::Registration)| Instance {
            stage,
            index,
            pid: registration.pid,
            host: registration.host.name,
            base_url: registration.base_url,
            work_dir: work_dirs.get(&registration.pid).cloned(),
            state: State::Idle,
            error: None,
            delta: Delta::default(),
            misses: 0,
            lost: None,
            record: None,
        };
        Fleet { client: Client::default(), instances: control.instances().into_iter().map(instance).collect() }
    }

    pub fn of_stage<'a>(&'a self, stage_id: &'a str) -> impl Iterator<Item = &'a Instance> {
        self.instances.iter().filter(move |instance| instance.stage.stage_id == stage_id)
    }

    /// Posts to each chosen instance at once; returns the failures by role.
    async fn post_each<B: Serialize + Send + Sync + 'static>(
        &self,
        path: &str,
        bodies: Vec<(usize, B)>,
    ) -> Vec<(String, ClientError)> {
        let mut calls = JoinSet::new();
        for (index, body) in bodies {
            let (client, url) = (self.client.clone(), format!("{}{path}", self.instances[index].base_url));
            calls.spawn(async move { (index, client.post::<B, serde_json::Value>(&url, &body, CALL).await) });
        }
        let results = calls.join_all().await;
        let failed = |(index, result): (usize, Result<serde_json::Value, ClientError>)| {
            result.err().map(|error| (self.instances[index].role(), error))
        };
        results.into_iter().filter_map(failed).collect()
    }

    fn alive(&self) -> Vec<usize> {
        (0..self.instances.len()).filter(|index| !self.instances[*index].is_over()).collect()
    }

    pub async fn prepare(&self, common: &Prepare) -> Vec<(String, ClientError)> {
        let body = |index: usize| {
            let instance = &self.instances[index];
            (index, Prepare { index: instance.index, of: instance.stage.of, ..common.clone() })
        };
        self.post_each("/v1/prepare", (0..self.instances.len()).map(body).collect()).await
    }

    pub async fn start(&self, t0_mono_ns: i64) -> Vec<(String, ClientError)> {
        self.post_each("/v1/start", self.alive().into_iter().map(|index| (index, Start { t0_mono_ns })).collect()).await
    }

    pub async fn phase(&self, name: Phase, at_ns: i64) -> Vec<(String, ClientError)> {
        let call = PhaseCall { name, at_ns };
        self.post_each("/v1/phase", self.alive().into_iter().map(|index| (index, call)).collect()).await
    }

    /// Gives a stage's instances their drain target.
    pub async fn drain(&self, stage_id: &str, target: &DrainTarget) -> Vec<(String, ClientError)> {
        let chosen = self.alive().into_iter().filter(|index| self.instances[*index].stage.stage_id == stage_id);
        self.post_each("/v1/drain", chosen.map(|index| (index, target.clone())).collect()).await
    }

    pub async fn abort(&self) {
        let none = serde_json::Value::Null;
        self.post_each("/v1/abort", self.alive().into_iter().map(|index| (index, none.clone())).collect()).await;
    }

    pub async fn release(&self) {
        let none = serde_json::Value::Null;
        let heard = (0..self.instances.len()).filter(|index| self.instances[*index].lost.is_none());
        self.post_each("/v1/release", heard.map(|index| (index, none.clone())).collect()).await;
    }

    /// Refreshes every state; an instance that does not answer keeps its last one.
    pub async fn refresh_states(&mut self) {
        let mut calls = JoinSet::new();
        for index in self.alive() {
            let (client, url) = (self.client.clone(), format!("{}/v1/state", self.instances[index].base_url));
            calls.spawn(async move { (index, client.get::<StateReply>(&url, CALL).await) });
        }
        for (index, result) in calls.join_all().await {
            if let Ok(reply) = result {
                self.instances[index].state = reply.state;
                self.instances[index].error = reply.error;
            }
        }
    }

    /// One round of deltas; an instance that misses three in a row is lost.
    pub async fn gather(&mut self, control: &Control, timeout: Duration) {
        let mut calls = JoinSet::new();
        for index in self.alive() {
            let (client, url) = (self.client.clone(), format!("{}/v1/delta", self.instances[index].base_url));
            calls.spawn(async move { (index, client.get::<DeltaReply>(&url, timeout).await) });
        }
        for (index, result) in calls.join_all().await {
            let instance = &mut self.instances[index];
            match result {
                Ok(reply) => {
                    instance.misses = 0;
                    instance.state = reply.state;
                    instance.error = reply.error;
                    instance.delta = reply.delta;
                    control.note_delta(&instance.stage.stage_id, instance.index, &instance.delta);
                }
                Err(error) => {
                    instance.misses += 1;
                    if instance.misses >= MISSES {
                        instance.lost = Some(format!("not heard for {MISSES} s: {error}"));
                    }
                }
            }
        }
    }

    /// Final books of every instance: its record, or for a dead one the last delta and the ledger file it left.
    pub async fn gather_records(&mut self) {
        let mut calls = JoinSet::new();
        for (index, instance) in self.instances.iter().enumerate().filter(|(_, instance)| instance.lost.is_none()) {
            let (client, url) = (self.client.clone(), format!("{}/v1/record", instance.base_url));
            calls.spawn(async move { (index, client.get::<Record>(&url, RECORD).await) });
        }
        for (index, result) in calls.join_all().await {
            let instance = &mut self.instances[index];
            match result {
                Ok(record) => {
                    instance.delta = record.delta.clone();
                    instance.record = Some(record);
                }
                Err(error) => {
                    instance.lost.get_or_insert_with(|| format!("gave no record: {error}"));
                }
            }
        }
    }

    /// What an instance noted; from its record, else from its ledger file.
    pub fn ledger(&self, index: usize) -> Option<LedgerSets> {
        let instance = &self.instances[index];
        match &instance.record {
            Some(record) => Some(sets(record.sets.clone())),
            None => LedgerSets::read(&instance.work_dir.as_ref()?.join(LEDGER_FILE)).ok(),
        }
    }

    /// Sum of a counter over the instances of the chosen stages.
    pub fn sum(&self, counter: Counter, chosen: impl Fn(&Instance) -> bool) -> u64 {
        self.instances.iter().filter(|instance| chosen(instance)).map(|instance| instance.delta.counter(counter)).sum()
    }
}
