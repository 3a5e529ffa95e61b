//! A scenario file to a checked `Scenario`: read, override, check everything, and keep the text as it is run.

use std::fs;
use std::path::{Path, PathBuf};

use contract::Registry;
use sha2::{Digest, Sha256};

use crate::auditors;
use crate::check::{self, BUILT_IN_ONLY};
use crate::emit;
use crate::model::Scenario;
use crate::overrides;
use crate::problem::{Findings, Place, Problem, Problems, Severity, Sources};
use crate::tree::Node;
use crate::yaml;

/// A scenario without errors.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub scenario: Scenario,
    /// The scenario as it is run: overrides and defaults written out, canonical YAML. Loading it gives the same scenario.
    pub text: String,
    /// SHA-256 of `text`, in hexadecimal.
    pub sha256: String,
    /// The file as it was named.
    pub path: PathBuf,
    pub overrides: Vec<String>,
    /// What does not prevent a run.
    pub warnings: Vec<Problem>,
    tree: Node,
    sources: Sources,
}

/// Loads a file with `--set` arguments; on failure every problem, in file order.
pub fn load(path: &Path, overrides: &[String], registry: &Registry) -> Result<Loaded, Problems> {
    let name = path.display().to_string();
    let text = read(path).map_err(|message| Problems::of_file(&name, message))?;
    let mut loaded = load_text(&text, &name, overrides, registry)?;
    loaded.path = path.to_owned();
    Ok(loaded)
}

fn read(path: &Path) -> Result<String, String> {
    let metadata = fs::metadata(path).map_err(|error| format!("cannot read the scenario: {error}"))?;
    if metadata.is_dir() {
        return Err("is a folder: name a scenario file in it".into());
    }
    if metadata.len() > yaml::MAX_BYTES as u64 {
        return Err(format!("is {} bytes long: a scenario has at most {}", metadata.len(), yaml::MAX_BYTES));
    }
    if !metadata.is_file() {
        return Err("is no regular file: a device or pipe may never end".into());
    }
    let bytes = fs::read(path).map_err(|error| format!("cannot read the scenario: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let line =
            error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8: a scenario is a text")
    })
}

/// Loads a text; `name` stands for the file in messages.
pub fn load_text(text: &str, name: &str, overrides: &[String], registry: &Registry) -> Result<Loaded, Problems> {
    let sources = Sources { file: name.to_owned(), overrides: overrides.to_vec() };
    let mut found = Findings::default();
    let tree = yaml::parse(text, |line, column| Place::File { line, column }, &mut found).map(|mut tree| {
        for (index, argument) in overrides.iter().enumerate() {
            overrides::apply(&mut tree, argument, index as u32, &mut found);
        }
        check::check(&tree, registry, &mut found);
        tree
    });
    let scenario = tree.as_ref().and_then(|tree| check::typed(tree, &mut found));
    let problems = found.into_problems(&sources);
    match (tree, scenario) {
        (Some(tree), Some(scenario)) => {
            let text = text_of(&scenario);
            let (sha256, path) = (sha256_of(&text), PathBuf::from(name));
            Ok(Loaded {
                scenario,
                text,
                sha256,
                path,
                overrides: overrides.to_vec(),
                warnings: problems,
                tree,
                sources,
            })
        }
        _ => Err(Problems(problems)),
    }
}

/// The canonical text of a scenario.
pub fn text_of(scenario: &Scenario) -> String {
    let value = serde_json::to_value(scenario).expect("a scenario is made of texts, numbers, lists and mappings");
    let mut value = emit::without_nulls(value);
    without_effectless(&mut value);
    emit::yaml(&value)
}

/// Drops defaults that have no effect where they stand, which `check` would refuse in a file.
fn without_effectless(value: &mut serde_json::Value) {
    if let Some(broker) = value.get_mut("broker").and_then(serde_json::Value::as_object_mut)
        && broker.contains_key("bootstrap_servers")
    {
        BUILT_IN_ONLY.iter().for_each(|key| drop(broker.shift_remove(*key)));
    }
    let stages = value.get_mut("stages").and_then(serde_json::Value::as_array_mut);
    for stage in stages.into_iter().flatten().filter_map(serde_json::Value::as_object_mut) {
        let topics = stage.get("to").map_or(0, |to| to.as_array().map_or(1, Vec::len));
        let effectless = [("spread", topics < 2), ("publish", topics == 0), ("consume", !stage.contains_key("from"))];
        effectless.iter().filter(|(_, drop)| *drop).for_each(|(key, _)| drop(stage.shift_remove(*key)));
    }
}

/// SHA-256 in hexadecimal.
pub fn sha256_of(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Loaded {
    /// The same with an `audit` stage for each source topic that no stage reads; the text as run says so too.
    pub fn with_auditors(mut self) -> Self {
        self.scenario = auditors::with_auditors(self.scenario);
        self.text = text_of(&self.scenario);
        self.sha256 = sha256_of(&self.text);
        self
    }

    /// A problem with the entry `name` of `stages`, `topics` or `observe`, at the first culprit that is a value below it or
    /// a field of its config, else at a value that the message repeats, else at the entry.
    pub fn problem_with(&self, list: &str, name: &str, culprits: &[String], message: String) -> Problem {
        let items = self.tree.get(list).map_or(&[][..], Node::items);
        let entry = items.iter().find(|node| node.text_of(check::name_key(list)) == Some(name));
        let place = entry.map_or(self.tree.place, |entry| {
            let field = |name: &str| name.split('.').try_fold(entry.get("config")?, |node, key| node.get(key));
            let value = |text: &String| entry.find(&|found| found == text).or_else(|| field(text));
            let repeated = || entry.get("config")?.find(&|text| text.len() > 3 && message.contains(text));
            culprits.iter().find_map(value).or_else(repeated).unwrap_or(entry).place
        });
        self.sources.problem(Severity::Error, place, message)
    }

    /// A problem with the value at a path of keys, or with the nearest key above it.
    pub fn problem_at(&self, path: &[&str], message: String) -> Problem {
        let mut node = &self.tree;
        for key in path {
            match node.get(key) {
                Some(inner) => node = inner,
                None => break,
            }
        }
        self.sources.problem(Severity::Error, node.place, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{GOOD, REGISTRY};

    #[test]
    fn the_text_as_run_loads_to_the_same_scenario_and_the_same_text() {
        let overrides = ["stages.cameras.config.streams=30".to_owned(), "run.main=5s".to_owned()];
        let loaded = load_text(GOOD, "good.yaml", &overrides, &REGISTRY).unwrap().with_auditors();
        assert_eq!(loaded.scenario.stages[0].config["streams"], 30);
        let again = load_text(&loaded.text, "as-run.yaml", &[], &REGISTRY).unwrap();
        assert_eq!(again.scenario, loaded.scenario);
        assert_eq!((again.text, again.sha256), (loaded.text, loaded.sha256));
    }

    #[test]
    fn comments_and_style_do_not_change_the_hash_but_values_do() {
        let hash = |text: &str| load_text(text, "f", &[], &REGISTRY).unwrap().sha256;
        assert_eq!(hash(GOOD), hash(&GOOD.replace("# Question: does it load?", "# another comment")));
        assert_ne!(hash(GOOD), hash(&GOOD.replace("streams: 3", "streams: 4")));
        assert_eq!(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn files_that_cannot_be_read_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let problem = |path: &Path| load(path, &[], &REGISTRY).unwrap_err().to_string();
        assert!(problem(folder.path()).ends_with("is a folder: name a scenario file in it"));
        let absent = folder.path().join("absent.yaml");
        assert!(problem(&absent).starts_with(&format!("{}: cannot read the scenario: ", absent.display())));
        let binary = folder.path().join("binary.yaml");
        fs::write(&binary, b"run:\n  name: \xff\n").unwrap();
        assert!(problem(&binary).ends_with("line 2 is not UTF-8: a scenario is a text"), "{}", problem(&binary));
    }

    #[test]
    fn problems_of_other_parts_get_the_place_of_what_they_name() {
        let loaded = load_text(GOOD, "f", &[], &REGISTRY).unwrap();
        let problem = loaded.problem_with("stages", "cameras", &["clip.mp4".into()], "gone".into());
        assert_eq!(problem.to_string(), "f:14:21: gone");
        let culprits = ["nowhere".to_owned(), "payload.quality".to_owned()];
        assert_eq!(loaded.problem_with("stages", "cameras", &culprits, "low".into()).to_string(), "f:14:84: low");
        let problem = loaded.problem_with("stages", "classify", &[], "no model lite0 here".into());
        assert_eq!(problem.to_string(), "f:21:14: no model lite0 here");
        assert_eq!(loaded.problem_with("topics", "frames", &[], "full".into()).to_string(), "f:7:5: full");
        assert_eq!(loaded.problem_at(&["broker", "disk_budget"], "small".into()).to_string(), "f:5:16: small");
    }
}
