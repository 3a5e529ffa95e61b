//! Stages and topics as a graph: names that exist once, ports that fit, no topic without writer or use, no circle.

use std::collections::{BTreeMap, BTreeSet};

use contract::{Ports, Registry};

use super::{entries, label, name_key};
use crate::hint::{did_you_mean, quoted};
use crate::problem::{Findings, Place};
use crate::tree::{Node, Value};

/// Most stages; each is at least one process.
const MOST_STAGES: usize = 1000;

/// A stage as far as its wiring can be read, whatever else is wrong with it.
struct Wiring<'a> {
    node: &'a Node,
    label: String,
    ports: Option<Ports>,
    from: Option<(&'a str, Place)>,
    to: Vec<(&'a str, Place)>,
    instances: u64,
}

struct Graph<'a> {
    stages: Vec<Wiring<'a>>,
    topics: BTreeMap<&'a str, &'a Node>,
    /// Every topic entry has a readable name; otherwise "unknown topic" would be a guess.
    complete: bool,
}

pub(super) fn check(root: &Node, registry: &Registry, found: &mut Findings) {
    for list in super::LISTS {
        unique(root, list, found);
    }
    if let Some(stages) = root.get("stages").filter(|node| matches!(&node.value, Value::List(_))) {
        match stages.items().len() {
            0 => found.error(stages.place, "`stages` needs at least one entry"),
            n if n > MOST_STAGES => {
                return found.error(stages.place, format!("`stages` takes at most {MOST_STAGES} entries, not {n}"));
            }
            _ => {}
        }
    }
    let graph = Graph::new(root, registry);
    for stage in &graph.stages {
        ports(stage, found);
        several_topics(stage, found);
        instances(stage, &graph, found);
    }
    let known = unknown_topics(&graph, found);
    if known && graph.complete {
        unused_and_unwritten(&graph, found);
        shared_topics(&graph, found);
    }
    circle(&graph, found);
}

impl<'a> Graph<'a> {
    fn new(root: &'a Node, registry: &Registry) -> Self {
        let stages = entries(root, "stages").iter().enumerate().map(|(index, node)| Wiring::new(index, node, registry));
        let topics = entries(root, "topics").iter().filter_map(|node| Some((node.text_of("name")?, node)));
        let complete = entries(root, "topics").iter().all(|node| node.text_of("name").is_some());
        Graph { stages: stages.collect(), topics: topics.collect(), complete }
    }
}

impl<'a> Wiring<'a> {
    fn new(index: usize, node: &'a Node, registry: &Registry) -> Self {
        let named = |node: &'a Node| node.text().map(|text| (text, node.place));
        let to = node.get("to").map(|to| match &to.value {
            Value::List(items) => items.iter().filter_map(named).collect(),
            _ => named(to).into_iter().collect(),
        });
        let instances = node.get("instances").and_then(|node| match &node.value {
            Value::Number(number) => number.as_u64(),
            _ => None,
        });
        Wiring {
            node,
            label: label("stages", index, node),
            ports: node.text_of("kind").and_then(|kind| registry.find(kind)).map(|entry| entry.ports),
            from: node.get("from").and_then(named),
            to: to.unwrap_or_default(),
            instances: instances.unwrap_or(1),
        }
    }

    fn has(&self, key: &str) -> bool {
        self.node.get(key).is_some_and(|node| node.value != Value::Null)
    }
}

fn unique(root: &Node, list: &str, found: &mut Findings) {
    let key = name_key(list);
    let mut seen = BTreeMap::new();
    for node in entries(root, list) {
        let Some(name) = node.text_of(key) else { continue };
        if let Some(Place::File { line, .. }) = seen.insert(name, node.place_of(key)) {
            found.error(node.place_of(key), format!("{list}: the {key} `{name}` is taken by the entry in line {line}"));
        }
    }
}

fn ports(stage: &Wiring<'_>, found: &mut Findings) {
    let Some(ports) = stage.ports else { return };
    let (reads, writes) = match ports {
        Ports::Source => (Some(false), Some(true)),
        Ports::Transform => (Some(true), None),
        Ports::Sink => (Some(true), Some(false)),
        Ports::Alone => (Some(false), Some(false)),
    };
    for (key, wanted, adapter, what) in [("from", reads, "consume", "read"), ("to", writes, "publish", "write")] {
        let label = &stage.label;
        match (wanted, stage.has(key)) {
            (Some(true), false) => {
                found.error(stage.node.place, format!("{label}missing field `{key}`, the topic to {what}"));
            }
            (Some(false), true) => {
                let message = format!("{label}`{key}` is not for this kind: it does not {what} a topic");
                found.error(stage.node.key_place(key), message);
            }
            _ => {}
        }
        if !stage.has(key) && stage.has(adapter) && wanted != Some(true) {
            let message = format!("{label}`{adapter}` has no effect without `{key}`");
            found.error(stage.node.key_place(adapter), message);
        }
    }
}

fn several_topics(stage: &Wiring<'_>, found: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (topic, place) in &stage.to {
        if !seen.insert(*topic) {
            found.error(*place, format!("{}topic `{topic}` is named twice in `to`", stage.label));
        }
    }
    if stage.has("to")
        && stage.to.is_empty()
        && matches!(&stage.node.get("to").map(|to| &to.value), Some(Value::List(items)) if items.is_empty())
    {
        found.error(stage.node.place_of("to"), format!("{}`to` names no topic", stage.label));
    }
    if stage.node.get("spread").is_some() && stage.to.len() < 2 {
        let message = format!("{}`spread` has no effect with one topic: name several in `to`", stage.label);
        found.error(stage.node.key_place("spread"), message);
    }
}

/// A member of a group without a partition reads nothing.
fn instances(stage: &Wiring<'_>, graph: &Graph<'_>, found: &mut Findings) {
    let Some((topic, _)) = stage.from else { return };
    let partitions = graph.topics.get(topic).and_then(|topic| match topic.get("partitions").map(|node| &node.value) {
        None => Some(1),
        Some(Value::Number(number)) => number.as_u64(),
        Some(_) => None,
    });
    if let Some(partitions) = partitions.filter(|partitions| stage.instances > *partitions) {
        let message = format!(
            "{}{} instances share {partitions} partition{} of `{topic}`: {} will read nothing",
            stage.label,
            stage.instances,
            if partitions == 1 { "" } else { "s" },
            stage.instances - partitions
        );
        found.warning(stage.node.place_of("instances"), message);
    }
}

/// True when every topic that a stage names is declared.
fn unknown_topics(graph: &Graph<'_>, found: &mut Findings) -> bool {
    let mut known = true;
    for stage in &graph.stages {
        for (topic, place) in stage.from.iter().chain(&stage.to) {
            if graph.topics.contains_key(topic) {
                continue;
            }
            known = false;
            if !graph.complete {
                continue;
            }
            let names = graph.topics.keys().copied();
            let expected = match graph.topics.len() {
                0 => "declare it under `topics`".to_owned(),
                _ => format!("`topics` has {}{}", quoted(names.clone()), did_you_mean(topic, names)),
            };
            found.error(*place, format!("{}unknown topic `{topic}`: {expected}", stage.label));
        }
    }
    known
}

fn unused_and_unwritten(graph: &Graph<'_>, found: &mut Findings) {
    let written: BTreeSet<&str> = graph.stages.iter().flat_map(|stage| &stage.to).map(|(topic, _)| *topic).collect();
    let read: BTreeSet<&str> = graph.stages.iter().filter_map(|stage| stage.from).map(|(topic, _)| topic).collect();
    for (topic, node) in &graph.topics {
        if !written.contains(topic) && !read.contains(topic) {
            let message =
                format!("topic `{topic}`: no stage reads or writes it: name it in `from` or `to`, or remove it");
            found.error(node.place_of("name"), message);
        }
    }
    for stage in &graph.stages {
        let Some((topic, place)) = stage.from else { continue };
        let reuse = graph.topics.get(topic).and_then(|topic| topic.get("reuse"));
        let filled_before = reuse.is_some_and(|reuse| reuse.value == Value::Bool(true));
        if !written.contains(topic) && !filled_before {
            let message = format!(
                "{}no stage writes topic `{topic}`: add one, or set `reuse: true` on the topic if it holds frames already",
                stage.label
            );
            found.error(place, message);
        }
    }
}

/// The audit knows a frame by topic, stream and number: frames of two stages on one topic would be taken for one another.
fn shared_topics(graph: &Graph<'_>, found: &mut Findings) {
    let mut writers: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (index, stage) in graph.stages.iter().enumerate() {
        let id = stage.node.text_of("id").unwrap_or_default();
        // What a stage reads and writes at once is a circle, reported as such.
        let others = stage.to.iter().filter(|(topic, _)| stage.from.is_none_or(|(from, _)| from != *topic));
        for (topic, place) in others {
            let (first, first_id) = *writers.entry(topic).or_insert((index, id));
            if first != index {
                let message = format!(
                    "{}topic `{topic}` is already written by stage `{first_id}`, and their streams would share numbers: \
                     give each stage its own topic",
                    stage.label
                );
                found.error(*place, message);
            }
        }
    }
}

/// A stage that reads, over other stages, what it writes.
fn circle(graph: &Graph<'_>, found: &mut Findings) {
    let mut readers: BTreeMap<&str, Vec<&Wiring<'_>>> = BTreeMap::new();
    for stage in &graph.stages {
        if let Some((topic, _)) = stage.from {
            readers.entry(topic).or_default().push(stage);
        }
    }
    for stage in &graph.stages {
        if let Some((topic, place)) = stage.from.filter(|(topic, _)| leads_to(stage, topic, &readers)) {
            let message =
                format!("{}reads topic `{topic}`, which holds what it writes itself: a circle never ends", stage.label);
            found.error(place, message);
        }
    }
}

fn leads_to(start: &Wiring<'_>, origin: &str, readers: &BTreeMap<&str, Vec<&Wiring<'_>>>) -> bool {
    let mut open: Vec<&str> = start.to.iter().map(|(topic, _)| *topic).collect();
    let mut seen: BTreeSet<&str> = open.iter().copied().collect();
    while let Some(topic) = open.pop() {
        if topic == origin {
            return true;
        }
        for (next, _) in readers.get(topic).into_iter().flatten().flat_map(|stage| &stage.to) {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    false
}
