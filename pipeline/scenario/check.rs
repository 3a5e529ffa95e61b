//! Everything that is wrong with a scenario, without touching the host: first against the schemas, then what only the whole
//! can tell (names, topology, ranges).

use contract::Registry;
use serde_json::{Value as Json, json};

use crate::hint::{did_you_mean, quoted};
use crate::model::Scenario;
use crate::problem::Findings;
use crate::tree::{Node, Value};
use crate::walk::walk;

mod topology;
mod values;

/// Collects every problem of a parsed scenario.
pub(crate) fn check(root: &Node, registry: &Registry, found: &mut Findings) {
    let document = schemars::schema_for!(Scenario).to_value();
    walk(root, &without_items(&document), &document, "", found);
    if !matches!(root.value, Value::Mapping(_)) {
        return;
    }
    for list in LISTS {
        let item = document.pointer(&format!("/properties/{list}/items")).cloned().unwrap_or(Json::Bool(true));
        for (index, node) in entries(root, list).iter().enumerate() {
            walk(node, &item, &document, &label(list, index, node), found);
        }
    }
    for (index, node) in entries(root, "stages").iter().enumerate() {
        stage_config(node, &label("stages", index, node), registry, found);
    }
    values::check(root, found);
    topology::check(root, registry, found);
}

/// The lists whose entries have a name of their own.
const LISTS: [&str; 3] = ["topics", "stages", "observe"];

/// Settings of `broker` that an external cluster has no use for.
pub(crate) const BUILT_IN_ONLY: [&str; 5] = ["nodes", "data_dir", "free_space_floor", "flush", "restart"];

/// The key that names an entry of a list.
pub(crate) fn name_key(list: &str) -> &'static str {
    if list == "topics" { "name" } else { "id" }
}

fn entries<'a>(root: &'a Node, list: &str) -> &'a [Node] {
    root.get(list).map_or(&[], Node::items)
}

/// Whose value a message is about.
fn label(list: &str, index: usize, node: &Node) -> String {
    let name = node.text_of(name_key(list));
    match (list, name, node.text_of("kind")) {
        (_, None, _) => format!("{list}[{index}]: "),
        ("stages", Some(id), Some(kind)) => format!("stage `{id}` ({kind}): "),
        ("stages", Some(id), None) => format!("stage `{id}`: "),
        ("topics", Some(name), _) => format!("topic `{name}`: "),
        (_, Some(id), _) => format!("{list} `{id}`: "),
    }
}

/// The document's schema with anything allowed in the named lists: their entries are checked under their own names.
fn without_items(document: &Json) -> Json {
    let mut shallow = document.clone();
    for list in LISTS {
        if let Some(items) = shallow.pointer_mut(&format!("/properties/{list}/items")) {
            *items = json!(true);
        }
    }
    shallow
}

/// `config:` against the schema of the stage's kind.
fn stage_config(node: &Node, label: &str, registry: &Registry, found: &mut Findings) {
    let Some(kind) = node.text_of("kind") else { return };
    let Some(entry) = registry.find(kind) else {
        let kinds: Vec<&str> = registry.entries().map(|entry| entry.kind).collect();
        let hint = did_you_mean(kind, kinds.iter().copied());
        let message = format!("{label}unknown kind `{kind}`, expected one of {}{hint}", quoted(kinds));
        return found.error(node.place_of("kind"), message);
    };
    let schema = (entry.schema)().to_value();
    let absent = Node::empty_mapping(node.place);
    walk(node.get("config").unwrap_or(&absent), &schema, &schema, label, found);
}

/// The scenario of a tree without problems.
pub(crate) fn typed(root: &Node, found: &mut Findings) -> Option<Scenario> {
    if found.errors() > 0 {
        return None;
    }
    // Entry by entry first, so that what no schema expresses still has a place near it.
    part::<crate::model::RunConfig>(root.get("run"), "run: ", found);
    part::<crate::model::BrokerConfig>(root.get("broker"), "broker: ", found);
    part::<crate::model::VerdictConfig>(root.get("verdict"), "verdict: ", found);
    for (index, node) in entries(root, "topics").iter().enumerate() {
        part::<contract::admin::TopicConfig>(Some(node), &label("topics", index, node), found);
    }
    for (index, node) in entries(root, "stages").iter().enumerate() {
        part::<crate::model::StageConfig>(Some(node), &label("stages", index, node), found);
    }
    if found.errors() > 0 {
        return None;
    }
    serde_json::from_value(root.to_json()).map_err(|error| found.error(root.place, error.to_string())).ok()
}

fn part<T: serde::de::DeserializeOwned>(node: Option<&Node>, label: &str, found: &mut Findings) {
    let Some(node) = node else { return };
    if let Err(error) = serde_json::from_value::<T>(node.to_json()) {
        found.error(node.place, format!("{label}{error}"));
    }
}

#[cfg(test)]
mod tests {
    use crate::load_text;
    use crate::problem::lines;
    use crate::testing::{GOOD, REGISTRY};

    /// Problems of the good scenario with one piece replaced.
    fn problems(piece: &str, instead: &str) -> String {
        assert!(GOOD.contains(piece), "{piece}");
        match load_text(&GOOD.replacen(piece, instead, 1), "f.yaml", &[], &REGISTRY) {
            Ok(loaded) => lines(&loaded.warnings),
            Err(problems) => problems.to_string(),
        }
    }

    #[track_caller]
    fn expect(piece: &str, instead: &str, problem: &str) {
        assert_eq!(problems(piece, instead), problem);
    }

    #[test]
    fn a_good_scenario_has_no_problems() {
        assert_eq!(problems("", ""), "");
    }

    #[test]
    fn an_unknown_field_is_named_with_its_place_stage_and_what_is_expected() {
        expect(
            "fps: 24",
            "fsp: 24",
            "f.yaml:14:43: stage `cameras` (decode): unknown field `fsp`, expected one of `file`, `streams`, `fps`, \
             `mode`, `payload`, `size`, `look_ahead`, `start`; did you mean `fps`?",
        );
        expect(
            "quality: 75",
            "qualty: 75",
            "f.yaml:14:75: stage `cameras` (decode): unknown field `payload.qualty`, expected one of `kind`, `quality`; \
             did you mean `quality`?",
        );
        expect(
            "run: { name: good, main: 20s }",
            "run: { name: good, mian: 20s }",
            "f.yaml:2:20: unknown field `run.mian`, expected one of `name`, `seed`, `warmup`, `main`, `drain`, \
             `deadline`, `ready`; did you mean `main`?",
        );
        expect(
            "observe:",
            "obsrve:",
            "f.yaml:23:1: unknown field `obsrve`, expected one of `run`, `broker`, `topics`, `stages`, `verdict`, \
             `observe`; did you mean `observe`?",
        );
    }

    #[test]
    fn wrong_values_say_what_is_wanted() {
        expect(
            "main: 20s",
            "main: 20",
            "f.yaml:2:26: `run.main` must be a time with a unit, such as \"30s\", not the number 20: write \"20s\" if \
             seconds are meant",
        );
        expect(
            "main: 20s",
            "main: 20sec",
            "f.yaml:2:26: `run.main`: `20sec` is not a time with a unit, such as \"30s\" or \"500ms\"",
        );
        expect(
            "disk_budget: 10GB",
            "disk_budget: 99999999999999TB",
            "f.yaml:5:16: `broker.disk_budget`: `99999999999999TB` is too large",
        );
        expect(
            "policy: deadline",
            "policy: dedline",
            "f.yaml:13:24: stage `cameras` (decode): `publish.policy` must be one of `block`, `drop-new`, `drop-old`, \
             `deadline`, not the text `dedline`; did you mean `deadline`?",
        );
        expect(
            "compression: none",
            "compression: none, acks: 1",
            "f.yaml:13:76: stage `cameras` (decode): `publish.acks` must be one of `0`, `1`, `all`, not the number 1: \
             write \"1\" in quotes",
        );
        expect(
            "streams: 3",
            "streams: three",
            "f.yaml:14:40: stage `cameras` (decode): `streams` must be a whole number, not the text `three`",
        );
        expect(
            "streams: 3",
            "streams: 0",
            "f.yaml:14:40: stage `cameras` (decode): `streams` must be at least 1, not 0",
        );
        expect(
            "streams: 3",
            "streams: 5000000000",
            "f.yaml:14:40: stage `cameras` (decode): `streams` must be at most 4294967295, not 5000000000",
        );
        expect(
            "streams: 3",
            "streams:",
            "f.yaml:14:38: stage `cameras` (decode): `streams` must be a whole number, not nothing: write a value or \
             leave the key out",
        );
        expect(
            "partitions: 6",
            "partitions: 6.5",
            "f.yaml:7:33: topic `frames`: `partitions` must be a whole number, not the number 6.5",
        );
        expect(
            "kind: jpeg",
            "kind: jpg",
            "f.yaml:14:69: stage `cameras` (decode): `payload.kind` must be one of `jpeg`, `nv12`, not the text `jpg`; \
             did you mean `jpeg`?",
        );
        expect(
            "start: { after: 2s }",
            "start: { before: 2s }",
            "f.yaml:14:97: stage `cameras` (decode): missing field `start.after`\n\
             f.yaml:14:99: stage `cameras` (decode): unknown field `start.before`, expected one of `after`",
        );
        expect(
            "start: { after: 2s }",
            "start: later",
            "f.yaml:14:97: stage `cameras` (decode): `start` must be one of `now`, `after: ...`, not the text `later`",
        );
        expect(
            "start: { after: 2s }",
            "size: { width: 8, height: 70000 }",
            "f.yaml:14:105: stage `cameras` (decode): `size.width` must be at least 16, not 8\n\
             f.yaml:14:116: stage `cameras` (decode): `size.height` must be at most 65535, not 70000",
        );
    }

    #[test]
    fn missing_fields_are_explained() {
        expect("      model: lite0", "      top: 3", "f.yaml:21:7: stage `classify` (infer): missing field `model`");
        expect(
            "file: clip.mp4, ",
            "",
            "f.yaml:14:13: stage `cameras` (decode): missing field `file` (A file that FFmpeg reads)",
        );
        expect(
            "name: good, ",
            "",
            "f.yaml:2:6: missing field `run.name` (Name of the run, for folders and reports: letters, digits, `-` and `_`)",
        );
        expect(
            "  - id: cameras\n    kind: decode\n",
            "  - kind: decode\n",
            "f.yaml:10:5: stages[0]: missing field `id` (Unique name: letters, digits, `-` and `_`)",
        );
    }

    #[test]
    fn all_problems_come_at_once_in_file_order() {
        let text = GOOD
            .replace("main: 20s", "main: 20")
            .replace("replication: 3", "replication: 4")
            .replace("kind: infer", "kind: infr")
            .replace("budget: 0.001", "budget: 2")
            .replace("fps: 24", "fsp: 24");
        let problems = load_text(&text, "f.yaml", &["run.seed=x".into()], &REGISTRY).unwrap_err();
        let places: Vec<_> = problems.0.iter().map(|problem| (problem.line, problem.column)).collect();
        assert_eq!(
            places,
            [
                (Some(2), Some(26)),
                (Some(7), Some(49)),
                (Some(14), Some(43)),
                (Some(16), Some(11)),
                (Some(22), Some(20)),
                (None, None)
            ],
            "{problems}"
        );
        assert!(problems.to_string().contains("--set run.seed=x: `run.seed` must be a whole number"), "{problems}");
    }

    #[test]
    fn kinds_and_ports_must_fit() {
        expect(
            "kind: infer",
            "kind: infr",
            "f.yaml:16:11: stage `classify` (infr): unknown kind `infr`, expected one of `decode`, `infer`, `audit`, \
             `exporter`; did you mean `infer`?",
        );
        expect("    to: frames\n", "", "f.yaml:10:5: stage `cameras` (decode): missing field `to`, the topic to write\n\
             f.yaml:12:5: stage `cameras` (decode): `publish` has no effect without `to`\n\
             f.yaml:16:11: stage `classify` (infer): no stage writes topic `frames`: add one, or set `reuse: true` on the \
             topic if it holds frames already".replace("f.yaml:12:5: stage `cameras` (decode): `publish` has no effect without `to`\n", "").as_str());
        expect(
            "    to: frames\n",
            "    to: frames\n    from: results\n",
            "f.yaml:13:5: stage `cameras` (decode): `from` is not for this kind: it does not read a topic\n\
             f.yaml:13:11: stage `cameras` (decode): reads topic `results`, which holds what it writes itself: a circle \
             never ends\n\
             f.yaml:18:11: stage `classify` (infer): reads topic `frames`, which holds what it writes itself: a circle \
             never ends",
        );
    }

    #[test]
    fn topics_must_exist_be_used_and_be_written() {
        expect(
            "    to: results\n",
            "    to: result\n",
            "f.yaml:18:9: stage `classify` (infer): unknown topic `result`: `topics` has `frames`, `results`; did you \
             mean `results`?",
        );
        expect(
            "    to: results\n",
            "",
            "f.yaml:8:13: topic `results`: no stage reads or writes it: name it in `from` or `to`, or remove it",
        );
        expect(
            "    from: frames\n    to: results\n",
            "    from: results\n",
            "f.yaml:17:11: stage `classify` (infer): no stage writes topic `results`: add one, or set `reuse: true` on \
             the topic if it holds frames already",
        );
        expect(
            "name: results",
            "name: frames",
            "f.yaml:8:13: topics: the name `frames` is taken by the entry in line 7\n\
             f.yaml:18:9: stage `classify` (infer): unknown topic `results`: `topics` has `frames`",
        );
        expect(
            "    to: results\n",
            "    to: frames\n",
            "f.yaml:8:13: topic `results`: no stage reads or writes it: name it in `from` or `to`, or remove it\n\
             f.yaml:17:11: stage `classify` (infer): reads topic `frames`, which holds what it writes itself: a circle \
             never ends",
        );
    }

    #[test]
    fn two_stages_do_not_share_a_topic() {
        let second = "  - id: uhd\n    kind: decode\n    to: frames\n    config: { file: b.mp4 }\n  - id: classify\n";
        expect(
            "  - id: classify\n",
            second,
            "f.yaml:17:9: stage `uhd` (decode): topic `frames` is already written by stage `cameras`, and their streams \
             would share numbers: give each stage its own topic",
        );
    }

    #[test]
    fn more_instances_than_partitions_is_a_warning_only() {
        expect(
            "instances: 2",
            "instances: 8",
            "f.yaml:19:16: warning: stage `classify` (infer): 8 instances share 6 partitions of `frames`: 2 will read nothing",
        );
    }

    #[test]
    fn ranges_and_names_are_checked() {
        expect(
            "replication: 3",
            "replication: 5",
            "f.yaml:7:49: topic `frames`: `replication` 5 needs as many brokers, the built-in broker has 3 nodes: raise \
             `broker.nodes`",
        );
        expect(
            "replication: 3",
            "replication: 0",
            "f.yaml:7:49: topic `frames`: `replication` must be at least 1 and at most the brokers",
        );
        expect("main: 20s", "main: 0s", "f.yaml:2:26: `run.main` must be longer than 0");
        expect("name: good", "name: a b", "f.yaml:2:14: `run.name` may hold letters, digits, `-` and `_`, not ' '");
        expect("budget: 0.001", "budget: -1", "f.yaml:22:20: `verdict.budget` is a share between 0 and 1, not -1");
        expect(
            "policy: deadline, ",
            "",
            "f.yaml:13:16: stage `cameras` (decode): `publish.deadline` has no effect without `policy: deadline`",
        );
        expect(
            "    to: frames\n",
            "    to: frames\n    spread: copy\n",
            "f.yaml:13:5: stage `cameras` (decode): `spread` has no effect with one topic: name several in `to`",
        );
        expect(
            "nodes: 3",
            "client: { sasl.password: hunter2 }\n  nodes: 3",
            "f.yaml:4:28: `broker.client.sasl.password` is a secret and would be in the run record: name an environment \
             variable \"${NAME}\" or a file \"@path\"",
        );
        expect(
            "nodes: 3",
            "bootstrap_servers: localhost",
            "f.yaml:4:22: `broker.bootstrap_servers`: `localhost` has no port: write host:port",
        );
    }

    #[test]
    fn no_stage_schema_goes_beyond_what_is_checked() {
        for entry in REGISTRY.entries() {
            assert_eq!(
                crate::walk::unknown_keywords(&(entry.schema)().to_value()),
                Vec::<String>::new(),
                "{}",
                entry.kind
            );
        }
        let scenario = schemars::schema_for!(crate::Scenario).to_value();
        assert_eq!(crate::walk::unknown_keywords(&scenario), Vec::<String>::new());
    }
}
