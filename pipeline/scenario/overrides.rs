//! `--set stages.cameras.config.streams=30`: a path of keys, with entries of `stages`, `topics` and `observe` named by
//! their id or name, and a value read as YAML.

use crate::check::name_key;
use crate::hint::{did_you_mean, quoted};
use crate::problem::{Findings, Place};
use crate::tree::{Entry, Node, Value, shortened};
use crate::yaml;

/// Longest path of keys.
const MOST_SEGMENTS: usize = 32;

/// Applies one `--set` argument to the tree; `index` is its number on the command line.
pub(crate) fn apply(root: &mut Node, argument: &str, index: u32, found: &mut Findings) {
    let place = Place::Set(index);
    let outcome = parse(argument, place, found).and_then(|(path, value)| match value {
        Some(value) => set(root, &path, value, place),
        None => Ok(()),
    });
    if let Err(message) = outcome {
        found.error(place, message);
    }
}

/// The path and the value; no value when its own problems are already reported.
fn parse(argument: &str, place: Place, found: &mut Findings) -> Result<(Vec<String>, Option<Node>), String> {
    let (path, text) = split_value(argument).ok_or("needs a path and a value: `stages.cameras.config.streams=30`")?;
    let segments = segments(path)?;
    if text.trim().is_empty() {
        return Ok((segments, Some(Node::new(place, Value::Text(String::new())))));
    }
    // An IPv6 address in brackets would read as a list.
    if segments == ["broker", "bootstrap_servers"] && !text.trim_start().starts_with(['"', '\'']) {
        return Ok((segments, Some(Node::new(place, Value::Text(text.trim().to_owned())))));
    }
    let before = found.errors();
    let value = yaml::parse(text, |_, _| place, found);
    Ok((segments, value.filter(|_| found.errors() == before)))
}

/// At the first `=` that is not inside quotes.
fn split_value(argument: &str) -> Option<(&str, &str)> {
    let mut quoted = false;
    let at = argument.char_indices().find(|(_, c)| {
        quoted ^= *c == '"';
        *c == '=' && !quoted
    });
    at.map(|(at, _)| (&argument[..at], &argument[at + 1..]))
}

/// Keys between dots; a key with dots of its own stands in double quotes.
fn segments(path: &str) -> Result<Vec<String>, String> {
    let mut segments = vec![String::new()];
    let mut quoted = false;
    for c in path.trim().chars() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted => segments.push(String::new()),
            other => segments.last_mut().expect("it begins with one segment").push(other),
        }
    }
    if quoted {
        return Err(format!("`{}` has a quote that is not closed", shortened(path)));
    }
    if segments.iter().any(String::is_empty) {
        return Err(format!("`{}` has an empty key: keys are joined by single dots", shortened(path)));
    }
    if segments.len() > MOST_SEGMENTS {
        return Err(format!("`{}` has more than {MOST_SEGMENTS} keys", shortened(path)));
    }
    // Client properties have dots in their names: the rest of the path is one key.
    if segments.len() > 3 && segments[..2] == ["broker", "client"] {
        let name = segments.split_off(2).join(".");
        segments.push(name);
    }
    Ok(segments)
}

fn set(root: &mut Node, path: &[String], value: Node, place: Place) -> Result<(), String> {
    let mut node = root;
    let mut walked = 0;
    while walked < path.len() {
        let taken = match &node.value {
            Value::List(items) => entry_of_list(items, path, walked)?.1,
            _ => 1,
        };
        node = step(node, path, walked, place)?;
        walked += taken;
    }
    *node = value;
    Ok(())
}

/// One key down, making it where a mapping lacks it.
fn step<'a>(node: &'a mut Node, path: &[String], walked: usize, place: Place) -> Result<&'a mut Node, String> {
    let key = &path[walked];
    if node.value == Value::Null {
        *node = Node::empty_mapping(place);
    }
    let described = node.describe();
    match &mut node.value {
        Value::Mapping(entries) => {
            let at = entries.iter().position(|entry| entry.key == *key).unwrap_or_else(|| {
                entries.push(Entry { key: key.clone(), key_place: place, node: Node::new(place, Value::Null) });
                entries.len() - 1
            });
            Ok(&mut entries[at].node)
        }
        Value::List(items) => {
            let (at, _) = entry_of_list(items, path, walked)?;
            Ok(&mut items[at])
        }
        _ => Err(format!("`{}` is {described}, it has no `{key}` in it", path[..walked].join("."))),
    }
}

/// Which entry of a list the path names, and by how many segments: a topic's name may have dots.
fn entry_of_list(items: &[Node], path: &[String], walked: usize) -> Result<(usize, usize), String> {
    let key = &path[walked];
    let list = path[..walked].join(".");
    let named = matches!(list.as_str(), "stages" | "topics" | "observe");
    if !named {
        let index = key.parse::<usize>().ok().filter(|index| *index < items.len());
        return index.map(|index| (index, 1)).ok_or_else(|| {
            format!("no entry `{}` in `{list}`: its {} entries are counted from 0", shortened(key), items.len())
        });
    }
    for taken in (1..=path.len() - walked).rev() {
        let name = path[walked..walked + taken].join(".");
        if let Some(at) = items.iter().position(|item| item.text_of(name_key(&list)) == Some(name.as_str())) {
            return Ok((at, taken));
        }
    }
    let names: Vec<&str> = items.iter().filter_map(|item| item.text_of(name_key(&list))).collect();
    let hint = did_you_mean(key, names.iter().copied());
    let known = if names.is_empty() { format!("`{list}` is empty") } else { format!("`{list}` has {}", quoted(names)) };
    Err(format!("no entry `{}` in `{list}`: {known}{hint}", shortened(key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Sources, lines};

    const TEXT: &str = "run: { name: x }
topics:
  - { name: a.b, partitions: 1 }
stages:
  - { id: cameras, kind: decode, config: { streams: 3, files: [one, two] } }
";

    fn after(arguments: &[&str]) -> (serde_json::Value, String) {
        let mut found = Findings::default();
        let mut root = yaml::parse(TEXT, |line, column| Place::File { line, column }, &mut found).unwrap();
        for (index, argument) in arguments.iter().enumerate() {
            apply(&mut root, argument, index as u32, &mut found);
        }
        let overrides = arguments.iter().map(|text| (*text).to_owned()).collect();
        let sources = Sources { file: "f".into(), overrides };
        (root.to_json(), lines(&found.into_problems(&sources)))
    }

    #[test]
    fn entries_are_named_by_id_and_missing_keys_are_made() {
        let arguments = [
            "stages.cameras.config.streams=30",
            "stages.cameras.publish.queue=64MiB",
            "stages.cameras.config.files.1=three",
            "topics.a.b.partitions=6",
            "broker.client.security.protocol=ssl",
            "broker.bootstrap_servers=[::1]:9092",
            "verdict={budget: 0.01}",
            "run.\"odd.key\"=\"a=b\"",
        ];
        let (json, problems) = after(&arguments);
        assert_eq!(problems, "");
        assert_eq!(json["stages"][0]["config"]["streams"], 30);
        assert_eq!(json["stages"][0]["config"]["files"][1], "three");
        assert_eq!(json["stages"][0]["publish"]["queue"], "64MiB");
        assert_eq!(json["topics"][0]["partitions"], 6);
        assert_eq!(json["broker"]["client"]["security.protocol"], "ssl");
        assert_eq!(json["broker"]["bootstrap_servers"], "[::1]:9092");
        assert_eq!(json["verdict"]["budget"], 0.01);
        assert_eq!(json["run"]["odd.key"], "a=b");
    }

    #[test]
    fn a_segment_that_is_not_there_is_named_with_a_hint() {
        for (argument, problem) in [
            (
                "stages.camras.config.streams=3",
                "no entry `camras` in `stages`: `stages` has `cameras`; did you mean `cameras`?",
            ),
            ("topics.x.partitions=3", "no entry `x` in `topics`: `topics` has `a.b`"),
            ("run.name.first=3", "`run.name` is the text `x`, it has no `first` in it"),
            (
                "stages.cameras.config.files.7=x",
                "no entry `7` in `stages.cameras.config.files`: its 2 entries are counted from 0",
            ),
            ("run.main", "needs a path and a value: `stages.cameras.config.streams=30`"),
            ("run..main=5s", "`run..main` has an empty key: keys are joined by single dots"),
            ("run.main=[1", "YAML syntax"),
        ] {
            let (_, problems) = after(&[argument]);
            let expected = format!("--set {argument}: {problem}");
            assert!(problems.starts_with(&expected), "{problems}\n{expected}");
        }
    }
}
