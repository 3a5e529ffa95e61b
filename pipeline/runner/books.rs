//! Closes the books of a run: audit, latency, disks, verdict; writes `summary.json` and `histograms.json`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use contract::flow::{Acks, Policy, PublishConfig, Spread};
use contract::histogram::{HistogramText, NsHistogram};
use contract::latency::Step;
use contract::ledger::Mark;
use contract::phases::Phase;
use contract::recorder::{Counter, DropCount, Outcome};
use contract::stage::Ports;
use contract::summary::{
    Audit, BrokerFacts, HostEntry, InferenceIdentity, InstanceFacts, SCHEMA_VERSION, ScenarioFacts, StageFacts,
    Summary, TopicAudit,
};
use scenario::model::{DecodeRole, StageConfig};

use crate::audit::{self, Books, Topic};
use crate::fleet::Instance;
use crate::session::Run;
use crate::verdict::{Evidence, SelfLag, judge};
use crate::{disks, topology};

/// Label of every result of the built-in broker.
pub const BUILT_IN_LABEL: &str = "built-in broker; its numbers do not stand for Apache Kafka";

/// What a publisher promises: its acks, and whether it is idempotent.
fn promise(publish: &PublishConfig) -> (Acks, bool) {
    (publish.acks, publish.idempotence.unwrap_or(publish.acks == Acks::All))
}

/// Makes the summary, writes it, and removes broker data that is not to be kept.
pub async fn settle(run: Run) -> io::Result<Summary> {
    let books = books(&run);
    let audit = audited(&run, &books);
    let latency = Latency::gather(&run);
    let inference = inference(&run, &books);
    let evidence = evidence(&run, audit.as_ref(), &latency, &inference);
    let summary = Summary {
        schema_version: SCHEMA_VERSION,
        run_id: run.control.run_id.to_string(),
        scenario: scenario_facts(&run),
        hosts: vec![HostEntry {
            name: run.host.name.clone(),
            boot_id: run.host.boot_id.clone(),
            offset_ns: 0,
            error_ns: 0,
            drift_ppm: None,
        }],
        started: rfc3339(run.started_ns),
        interrupted: run.interrupted(),
        verdict: judge(&evidence),
        audit,
        inference,
        broker: Some(broker_facts(&run)),
        latency_ns: latency.stats(true),
        latency_outside_main_ns: latency.stats(false),
        stages: stages(&run),
        disks: disks::by_phase(
            &run.watch.rows,
            &run.phases,
            &run.storage,
            run.first_sample.as_ref(),
            run.last_sample.as_ref(),
        ),
        host: run.host.clone(),
        phases: run.phases.clone(),
        storage: run.storage.clone(),
        baseline: run.baseline.clone(),
        sync: run.sync.clone(),
        preflight: run.preflight.clone(),
        warnings: warnings(&run),
    };
    if !run.options.keep_data {
        // First, because on one file system it makes room for the result.
        run.remove_data();
    }
    write_json(&run.options.out.join("histograms.json"), &latency.texts())?;
    write_json(&run.options.out.join("summary.json"), &summary)?;
    Ok(summary)
}

/// Writes beside, syncs and renames: a reader sees the whole file or none.
fn write_json(path: &Path, value: &impl serde::Serialize) -> io::Result<()> {
    let beside = path.with_extension("json.part");
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    let written = std::fs::write(&beside, text)
        .and_then(|()| std::fs::File::open(&beside)?.sync_all())
        .and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn books(run: &Run) -> Vec<Books> {
    let of_instance = |(index, instance): (usize, &Instance)| Books {
        stage_id: instance.stage.stage_id.clone(),
        died: instance.lost.is_some(),
        sets: run.fleet.ledger(index).unwrap_or_default(),
        delta: instance.delta.clone(),
    };
    run.fleet.instances.iter().enumerate().map(of_instance).collect()
}

fn topic_of(run: &Run, config: &contract::admin::TopicConfig) -> Topic {
    let scenario = &run.options.scenario;
    let writers: Vec<&StageConfig> =
        scenario.stages.iter().filter(|stage| stage.outputs().contains(&config.name)).collect();
    let is_source = |stage: &&StageConfig| topology::ports(&run.services.registry, stage) == Some(Ports::Source);
    Topic {
        name: config.name.clone(),
        source: writers.iter().any(is_source),
        writers: writers.iter().map(|stage| stage.id.clone()).collect(),
        audited_by: topology::auditor(scenario, &config.name).map(|stage| stage.id.clone()),
        partitions: config.partitions as i32,
        replication: config.replication,
        spread: writers.first().map(|stage| stage.spread).unwrap_or_default(),
        spread_over: writers.first().map_or(1, |stage| stage.outputs().len()),
        acknowledged: writers.iter().all(|stage| stage.publish.acks != Acks::None),
        ends: run.ends.get(&config.name).cloned(),
    }
}

fn audited(run: &Run, books: &[Books]) -> Option<Audit> {
    let configs = &run.options.scenario.topics;
    let topics: Vec<TopicAudit> = configs.iter().map(|config| audit::audit(&topic_of(run, config), books)).collect();
    if !topics.iter().any(|topic| topic.source) {
        return None;
    }
    let sources = |counter| run.fleet.sum(counter, |instance| is_source(run, instance));
    let auditors = |counter| run.fleet.sum(counter, |instance| is_auditor(run, instance));
    let mut drops: BTreeMap<(String, String), u64> = BTreeMap::new();
    for drop in run.fleet.instances.iter().filter(|i| is_source(run, i)).flat_map(|i| &i.delta.drops) {
        *drops.entry((drop.stage.clone(), drop.reason.clone())).or_default() += drop.count;
    }
    Some(Audit {
        scheduled: scheduled(run),
        totals: audit::totals(&topics),
        offered_main: sources(Counter::OfferedMain),
        late: auditors(Counter::Late),
        dropped_main: sources(Counter::DroppedMain),
        drops: drops.into_iter().map(|((stage, reason), count)| DropCount { stage, reason, count }).collect(),
        acknowledged_only: topics.iter().filter(|t| t.audited_by.is_none()).map(|t| t.topic.clone()).collect(),
        topics,
    })
}

/// Frames due by the schedule, in every topic they were to go to.
fn scheduled(run: &Run) -> u64 {
    let of_stage = |stage: &&StageConfig| {
        let due = run.fleet.sum(Counter::Scheduled, |instance| instance.stage.stage_id == stage.id);
        match stage.spread {
            Spread::Copy => due * stage.outputs().len() as u64,
            Spread::Streams => due,
        }
    };
    topology::sources(&run.options.scenario, &run.services.registry).iter().map(of_stage).sum()
}

fn kind_ports(run: &Run, instance: &Instance) -> Option<Ports> {
    run.services.registry.find(&instance.stage.kind).map(|entry| entry.ports)
}

fn is_source(run: &Run, instance: &Instance) -> bool {
    kind_ports(run, instance) == Some(Ports::Source)
}

fn is_consumer(run: &Run, instance: &Instance) -> bool {
    matches!(kind_ports(run, instance), Some(Ports::Transform | Ports::Sink))
}

/// It belongs to the group that audits a source topic.
fn is_auditor(run: &Run, instance: &Instance) -> bool {
    let scenario = &run.options.scenario;
    let source_topics = topology::sources(scenario, &run.services.registry).into_iter().flat_map(|s| s.outputs());
    let mut auditors = source_topics.filter_map(|topic| topology::auditor(scenario, &topic));
    auditors.any(|stage| stage.id == instance.stage.stage_id)
}

/// Merged histograms, main and outside.
struct Latency {
    main: BTreeMap<Step, NsHistogram>,
    outside: BTreeMap<Step, NsHistogram>,
}

impl Latency {
    /// The chain comes from the auditing stages; decode, encode and ack from the sources.
    fn gather(run: &Run) -> Self {
        let mut latency = Latency { main: BTreeMap::new(), outside: BTreeMap::new() };
        for instance in &run.fleet.instances {
            for (step, pair) in &instance.delta.steps {
                // The chain is over the frames that an auditing stage finished, so that its parts are of one population.
                let of_sources = matches!(step, Step::Decode | Step::Encode | Step::Ack);
                let wanted = if of_sources { is_source(run, instance) } else { is_auditor(run, instance) };
                if wanted {
                    merge(&mut latency.main, *step, pair.main.as_ref());
                    merge(&mut latency.outside, *step, pair.outside.as_ref());
                }
            }
        }
        latency
    }

    fn stats(&self, main: bool) -> BTreeMap<Step, contract::histogram::LatencyStats> {
        let side = if main { &self.main } else { &self.outside };
        side.iter().map(|(step, histogram)| (*step, histogram.stats())).collect()
    }

    fn texts(&self) -> BTreeMap<&'static str, BTreeMap<Step, HistogramText>> {
        let texts = |side: &BTreeMap<Step, NsHistogram>| side.iter().map(|(step, h)| (*step, h.to_text())).collect();
        BTreeMap::from([("main", texts(&self.main)), ("outside", texts(&self.outside))])
    }
}

/// Self-lag of every frame a source offered in main, beside its frame period; an unpaced source has neither.
fn self_lags(run: &Run) -> Vec<SelfLag> {
    let sources = topology::sources(&run.options.scenario, &run.services.registry);
    let of_stage = |stage: &StageConfig| {
        let mut all = NsHistogram::default();
        run.fleet.of_stage(&stage.id).for_each(|instance| all.merge(&instance.delta.main_histogram(Step::SelfLag)));
        let frame_period_ns = frame_period_ns(run, stage)?;
        Some(SelfLag { stage: stage.id.clone(), p99_ns: all.stats().p99, frame_period_ns })
    };
    sources.into_iter().filter_map(of_stage).collect()
}

fn merge(side: &mut BTreeMap<Step, NsHistogram>, step: Step, text: Option<&HistogramText>) {
    if let Some(histogram) = text.and_then(|text| NsHistogram::from_text(text).ok()) {
        side.entry(step).or_default().merge(&histogram);
    }
}

fn inference(run: &Run, books: &[Books]) -> BTreeMap<String, InferenceIdentity> {
    let scenario = &run.options.scenario;
    let infers = |stage: &&StageConfig| topology::ports(&run.services.registry, stage) == Some(Ports::Transform);
    let of_stage = |stage: &StageConfig| {
        let fact = |name: &str| {
            let mut facts = run.fleet.of_stage(&stage.id).filter_map(|instance| instance.delta.facts.get(name));
            facts.next().and_then(|value| value.as_str().map(str::to_owned))
        };
        // From the ledgers alone: they are exact to the frame after a kill, counters are up to a second old.
        let mine: Vec<&Books> = books.iter().filter(|books| books.stage_id == stage.id).collect();
        let topic = stage.from.clone().unwrap_or_default();
        let delivered = mine.iter().map(|books| books.sets.count(Mark::Seen, &topic)).sum::<u64>();
        let ended = |outcome: Outcome| -> u64 {
            mine.iter().map(|books| books.sets.count_reason(Mark::Done, outcome as u8, &topic)).sum()
        };
        let (inferred, not_selected) = (ended(Outcome::Inferred), ended(Outcome::NotSelected));
        let (dropped, failed, corrupt) = (ended(Outcome::Dropped), ended(Outcome::Failed), ended(Outcome::Corrupt));
        let finished = inferred + not_selected + dropped + failed + corrupt;
        let identity = InferenceIdentity {
            delivered,
            inferred,
            not_selected,
            dropped,
            failed,
            corrupt,
            unfinished: delivered.saturating_sub(finished),
            identity_holds: finished <= delivered && counters_agree(run, &mine, &stage.id, finished),
            model: fact("model"),
            model_weights: fact("model_weights"),
        };
        (stage.id.clone(), identity)
    };
    scenario.stages.iter().filter(infers).map(of_stage).collect()
}

/// Two books of the same: what living instances counted must equal what their ledgers hold.
fn counters_agree(run: &Run, mine: &[&Books], stage_id: &str, finished: u64) -> bool {
    let sum = |counter| run.fleet.sum(counter, |instance| instance.stage.stage_id == stage_id);
    let ends = [Counter::Inferred, Counter::NotSelected, Counter::InferDropped, Counter::InferFailed, Counter::Corrupt];
    mine.iter().any(|books| books.died) || ends.into_iter().map(sum).sum::<u64>() == finished
}

fn evidence(
    run: &Run,
    audit: Option<&Audit>,
    latency: &Latency,
    inference: &BTreeMap<String, InferenceIdentity>,
) -> Evidence {
    let scenario = &run.options.scenario;
    let sources = topology::sources(scenario, &run.services.registry);
    let promises: Vec<(Acks, bool)> = sources.iter().map(|stage| promise(&stage.publish)).collect();
    let died = |wanted: &dyn Fn(&Instance) -> bool| -> Vec<(String, String)> {
        let lost = run.fleet.instances.iter().filter(|instance| wanted(instance));
        lost.filter_map(|instance| Some((instance.role(), why_ended(instance)?))).collect()
    };
    let stats = |step: Step| latency.main.get(&step).map(NsHistogram::stats);
    let p99 = stats(Step::EndToEnd).or_else(|| stats(Step::Handed)).and_then(|stats| stats.p99);
    let sum = |counter| run.fleet.sum(counter, |_| true);
    Evidence {
        audit: audit.map(|audit| audit.totals.clone()),
        acks_all: promises.iter().any(|(acks, _)| *acks == Acks::All),
        idempotent: !promises.is_empty() && promises.iter().all(|(_, idempotent)| *idempotent),
        scheduled: audit.map_or(0, |audit| audit.scheduled),
        offered_main: audit.map_or(0, |audit| audit.offered_main),
        late: audit.map_or(0, |audit| audit.late),
        dropped_main: audit.map_or(0, |audit| audit.dropped_main),
        budget: scenario.verdict.budget,
        deadline_ns: scenario.run.deadline.ns(),
        main_ns: run.main_ns.zip(run.drain_ns).map_or(0, |(main, drain)| drain - main),
        lag_slopes: run
            .main_ns
            .zip(run.drain_ns)
            .map_or_else(Vec::new, |(main, drain)| run.watch.lag_slopes(main, drain)),
        broker_died: run.broker_died.clone(),
        broker_silent: run.broker_silent.clone(),
        storage_full: run.storage_full.clone(),
        closed_loop: sources.iter().any(|stage| frame_period_ns(run, stage).is_none()),
        consumers_died: died(&|instance| is_consumer(run, instance)),
        inference_failed: inference.values().map(|identity| identity.failed).sum(),
        unfinished: inference.values().map(|identity| identity.unfinished).sum(),
        commit_errors: sum(Counter::CommitErrors),
        self_lags: self_lags(run),
        self_lag_over: sum(Counter::SelfLagOver),
        decode_under_test: scenario.verdict.decode == DecodeRole::UnderTest,
        wall_step_ns: run.watch.wall_step_ns,
        data_dir_ram: run.data_dir().is_some() && run.storage.first().is_some_and(|facts| facts.ram),
        device_and_log_bytes: device_and_log_bytes(run),
        others_died: died(&|instance| !is_consumer(run, instance)),
        steal: run.watch.steal(),
        max_steal: scenario.verdict.max_steal,
        interrupted: run.interrupted(),
        chains_broken: sum(Counter::ChainBroken),
        p99_limit_ns: scenario.verdict.p99.map(|limit| limit.ns()),
        p99_ns: p99,
    }
}

/// Why an instance ended other than by finishing.
fn why_ended(instance: &Instance) -> Option<String> {
    let failed = instance.error.as_ref().map(ToString::to_string);
    instance.lost.clone().or(failed)
}

/// The frame period of a paced source.
fn frame_period_ns(run: &Run, stage: &StageConfig) -> Option<i64> {
    let demand = run.demands.get(&stage.id)?;
    let rate = demand.frames_per_second? / f64::from(demand.streams?.max(1));
    (rate > 0.0).then(|| (1e9 / rate) as i64)
}

/// Bytes the device took from before t0 until after sync, beside what the logs hold.
fn device_and_log_bytes(run: &Run) -> Option<(u64, u64)> {
    let device = run.storage.first().filter(|_| run.data_dir().is_some())?.device.clone()?;
    let written =
        |sample: &Option<contract::host::HostSample>| Some(sample.as_ref()?.devices.get(&device)?.total.write_bytes);
    let synced = run.sync.as_ref()?.seconds.is_some();
    let bytes = written(&run.last_sample)?.checked_sub(written(&run.first_sample)?)?;
    run.log_bytes.filter(|_| synced).map(|log| (bytes, log))
}

fn scenario_facts(run: &Run) -> ScenarioFacts {
    ScenarioFacts {
        name: run.options.scenario.run.name.clone(),
        path: run.options.path.display().to_string(),
        sha256: run.options.sha256.clone(),
        seed: run.options.scenario.run.seed,
        version: run.options.version.clone(),
        deadline_ns: run.options.scenario.run.deadline.ns(),
        overrides: run.options.overrides.clone(),
    }
}

fn broker_facts(run: &Run) -> BrokerFacts {
    let built_in = run.data_dir().is_some();
    BrokerFacts {
        kind: if built_in { "built-in" } else { "external" }.into(),
        version: built_in.then(|| run.options.version.clone()),
        nodes: match built_in {
            true => u32::from(run.options.scenario.broker.nodes),
            false => run.bootstrap.split(',').count() as u32,
        },
        bootstrap_servers: run.bootstrap.clone(),
        data_dir: run.data_dir().map(|dir| dir.display().to_string()),
        log_bytes: run.log_bytes,
        died: run.broker_died.is_some(),
        label: built_in.then(|| BUILT_IN_LABEL.to_owned()),
    }
}

fn stages(run: &Run) -> BTreeMap<String, StageFacts> {
    let of_stage = |stage: &StageConfig| {
        let instances: Vec<&Instance> = run.fleet.of_stage(&stage.id).collect();
        let (mut counters, mut reasons, mut facts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut latency = BTreeMap::new();
        for instance in &instances {
            instance.delta.counters.iter().for_each(|(name, n)| *counters.entry(name.clone()).or_default() += n);
            instance.delta.reasons.iter().for_each(|(name, n)| *reasons.entry(name.clone()).or_default() += n);
            facts.extend(instance.delta.facts.clone());
            instance.delta.steps.iter().for_each(|(step, pair)| merge(&mut latency, *step, pair.main.as_ref()));
        }
        let facts = StageFacts {
            kind: stage.kind.clone(),
            from: stage.from.clone(),
            to: stage.outputs(),
            instances: instances.iter().map(|instance| instance_facts(run, instance)).collect(),
            counters,
            reasons,
            facts,
            latency_ns: latency.iter().map(|(step, histogram)| (*step, histogram.stats())).collect(),
        };
        (stage.id.clone(), facts)
    };
    run.options.scenario.stages.iter().map(of_stage).collect()
}

fn instance_facts(run: &Run, instance: &Instance) -> InstanceFacts {
    let process = run.watch.processes.get(&instance.role());
    InstanceFacts {
        index: instance.index,
        host: instance.host.clone(),
        pid: instance.pid,
        state: instance.final_state().into(),
        error: why_ended(instance),
        cpu_seconds: process.map(|process| process.cpu_seconds),
        rss_bytes: process.map(|process| process.rss_bytes),
        read_bytes: process.and_then(|process| process.read_bytes),
        write_bytes: process.and_then(|process| process.write_bytes),
    }
}

fn warnings(run: &Run) -> Vec<String> {
    let mut warnings = run.warnings.clone();
    if run.watch.wall_step_ns.abs() > 1_000_000 {
        let moved = run.watch.wall_step_ns as f64 / 1e6;
        warnings.push(format!("the wall clock moved by {moved:.1} ms against the monotonic clock"));
    }
    let synced = run.sync.as_ref().and_then(|sync| sync.seconds).unwrap_or(0.0);
    let main_seconds = run.main_ns.zip(run.drain_ns).map_or(0.0, |(main, drain)| (drain - main) as f64 / 1e9);
    if synced > main_seconds * 0.1 && main_seconds > 0.0 {
        warnings.push(format!(
            "write debt: the final sync took {synced:.1} s for {main_seconds:.0} s of load, so the page cache took what the \
             device did not; lengthen `run.main`"
        ));
    }
    let blocks = |stage: &&StageConfig| stage.publish.policy == Policy::Block;
    let sources = topology::sources(&run.options.scenario, &run.services.registry);
    if sources.iter().any(|stage| blocks(stage) && stage_blocked(run, stage)) {
        warnings.push(
            "publishing blocked (policy `block`): from then on the load followed the broker (closed loop)".to_owned(),
        );
    }
    let swapped = run.watch.rows.iter().filter_map(|row| row.host.as_ref()?.memory.map(|m| m.swap_used_bytes)).max();
    if swapped.is_some_and(|bytes| bytes > 0) {
        warnings.push("the host has swapped: memory is short, latencies include paging".into());
    }
    if run.phases.iter().all(|phase| phase.name != Phase::Main) {
        warnings.push("main was not reached: latency and lateness have no samples".into());
    }
    warnings
}

fn stage_blocked(run: &Run, stage: &StageConfig) -> bool {
    let blocked = |instance: &Instance| instance.delta.main_histogram(Step::Blocked).stats().max.unwrap_or(0) > 0;
    run.fleet.of_stage(&stage.id).any(blocked)
}

/// UTC as RFC 3339 with seconds.
fn rfc3339(real_ns: i64) -> String {
    let seconds = real_ns.div_euclid(1_000_000_000);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Date of a day count since 1970 (proleptic Gregorian; algorithm by H. Hinnant).
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// A name for a run folder: `<name>-20260131-235959`.
pub fn folder_name(run_name: &str) -> String {
    let stamp: String = rfc3339(contract::clock::real_ns()).chars().filter(char::is_ascii_digit).collect();
    format!("{run_name}-{}-{}", &stamp[..8], &stamp[8..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_equal_those_of_the_calendar() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_399_000_000_000), "2000-02-28T23:59:59Z");
        assert_eq!(rfc3339(951_782_400_000_000_000), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_798_761_599_999_999_999), "2026-12-31T23:59:59Z");
    }
}
