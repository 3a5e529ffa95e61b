//! The runner's book of instances: who registered, what is missing, what /metrics tells.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use contract::frame::RunId;
use contract::metrics::{self, Source};
use contract::recorder::Delta;

use crate::api::{API, Registered, Registration};

/// What a stage needs to be complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub stage_id: String,
    pub kind: String,
    pub of: u32,
}

pub struct Control {
    pub run_id: RunId,
    scenario_sha256: String,
    version: String,
    expected: Vec<Expected>,
    inner: Mutex<Inner>,
    pub changed: tokio::sync::Notify,
}

#[derive(Default)]
struct Inner {
    /// By stage id and index.
    registered: BTreeMap<String, BTreeMap<u32, Registration>>,
    deltas: BTreeMap<(String, u32), Delta>,
}

impl Control {
    pub fn new(run_id: RunId, scenario_sha256: &str, version: &str, expected: Vec<Expected>) -> Self {
        Control {
            run_id,
            scenario_sha256: scenario_sha256.to_owned(),
            version: version.to_owned(),
            expected,
            inner: Mutex::default(),
            changed: tokio::sync::Notify::new(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts an instance and gives it its index; a repeated call gets the same answer.
    pub fn register(&self, new: Registration) -> Result<Registered, String> {
        let stage = self.expected.iter().find(|expected| expected.stage_id == new.stage_id);
        let stage = stage.ok_or_else(|| format!("the scenario has no stage `{}`", new.stage_id))?;
        for (what, ours, theirs) in [
            ("API version", API.to_string(), new.api.to_string()),
            ("reelbench version", self.version.clone(), new.version.clone()),
            ("scenario", self.scenario_sha256.clone(), new.scenario_sha256.clone()),
        ] {
            if ours != theirs {
                return Err(format!("{what} differs: runner has {ours}, `{}` has {theirs}", new.stage_id));
            }
        }
        let mut inner = self.lock();
        let slots = inner.registered.entry(new.stage_id.clone()).or_default();
        let known = slots.iter().find(|(_, known)| known.instance_uuid == new.instance_uuid).map(|(index, _)| *index);
        // The number a launcher gave its process, so that names of processes, folders and logs agree; else the first free.
        let wished = new.instance.filter(|wish| *wish < stage.of && !slots.contains_key(wish));
        let free = wished.or_else(|| (0..stage.of).find(|index| !slots.contains_key(index)));
        let Some(index) = known.or(free) else {
            return Err(format!("stage `{}` already has its {} instances", new.stage_id, stage.of));
        };
        slots.entry(index).or_insert(new);
        drop(inner);
        self.changed.notify_waiters();
        Ok(Registered { run_id: self.run_id, index, of: stage.of })
    }

    /// Instances not registered yet, such as `classify (1 of 2)`.
    pub fn missing(&self) -> Vec<String> {
        let inner = self.lock();
        let missing = |expected: &Expected| {
            let have = inner.registered.get(&expected.stage_id).map_or(0, BTreeMap::len) as u32;
            (have < expected.of).then(|| format!("{} ({} of {})", expected.stage_id, expected.of - have, expected.of))
        };
        self.expected.iter().filter_map(missing).collect()
    }

    /// Every registered instance: stage, kind, index, of.
    pub fn instances(&self) -> Vec<(Expected, u32, Registration)> {
        let inner = self.lock();
        let of_stage = |expected: &Expected| {
            let slots = inner.registered.get(&expected.stage_id).cloned().unwrap_or_default();
            let expected = expected.clone();
            slots.into_iter().map(move |(index, slot)| (expected.clone(), index, slot))
        };
        self.expected.iter().flat_map(of_stage).collect()
    }

    pub fn note_delta(&self, stage_id: &str, index: u32, delta: &Delta) {
        self.lock().deltas.insert((stage_id.to_owned(), index), delta.clone());
    }

    /// All instances' metrics in one page.
    pub fn metrics(&self) -> String {
        let inner = self.lock();
        let kind = |stage_id: &str| {
            self.expected.iter().find(|expected| expected.stage_id == stage_id).map_or("", |found| found.kind.as_str())
        };
        let parts: Vec<_> = inner
            .deltas
            .iter()
            .map(|((stage, index), delta)| (Source { stage, kind: kind(stage), instance: *index }, delta))
            .collect();
        metrics::render(&parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> Control {
        let expected = vec![Expected { stage_id: "a".into(), kind: "decode".into(), of: 2 }];
        Control::new(RunId([1; 16]), "sha", "1.0", expected)
    }

    fn registration(uuid: &str) -> Registration {
        Registration {
            stage_id: "a".into(),
            instance_uuid: uuid.into(),
            base_url: String::new(),
            api: API,
            version: "1.0".into(),
            scenario_sha256: "sha".into(),
            instance: None,
            pid: 1,
            host: Default::default(),
        }
    }

    #[test]
    fn replicas_get_an_index_by_registration_and_keep_it() {
        let control = control();
        assert_eq!(control.missing(), ["a (2 of 2)"]);
        assert_eq!(control.register(registration("x")).map(|r| r.index), Ok(0));
        assert_eq!(control.register(registration("y")).map(|r| r.index), Ok(1));
        assert_eq!(control.register(registration("x")).map(|r| (r.index, r.of)), Ok((0, 2)));
        assert!(control.missing().is_empty());
        assert!(control.register(registration("z")).unwrap_err().contains("already has its 2 instances"));
    }

    #[test]
    fn a_launched_instance_gets_the_number_it_was_launched_with() {
        let control = control();
        let wish = |uuid, instance| Registration { instance: Some(instance), ..registration(uuid) };
        assert_eq!(control.register(wish("x", 1)).map(|r| r.index), Ok(1));
        // Taken and impossible numbers fall back to a free one.
        assert_eq!(control.register(wish("y", 1)).map(|r| r.index), Ok(0));
        assert!(control.register(wish("z", 7)).is_err());
    }

    #[test]
    fn a_mismatch_is_named() {
        let mut other = registration("x");
        other.scenario_sha256 = "else".into();
        assert!(control().register(other).unwrap_err().contains("scenario differs"));
        let mut unknown = registration("x");
        unknown.stage_id = "b".into();
        assert!(control().register(unknown).unwrap_err().contains("no stage `b`"));
    }
}
