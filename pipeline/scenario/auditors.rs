//! Every frame is accounted for: a topic that a source writes and no stage reads gets a stage that reads it back.

use std::collections::BTreeSet;

use contract::flow::{ConsumeConfig, PublishConfig, Spread};

use crate::model::{Scenario, StageConfig};

/// The kind that reads a topic back and checks it.
pub const AUDIT_KIND: &str = "audit";

/// Adds a stage `audit-<topic>` for each source topic that no stage reads.
pub fn with_auditors(mut scenario: Scenario) -> Scenario {
    let read: BTreeSet<String> = scenario.stages.iter().filter_map(|stage| stage.from.clone()).collect();
    let sources = scenario.stages.iter().filter(|stage| stage.from.is_none());
    let mut unread = Vec::new();
    for topic in sources.flat_map(StageConfig::outputs) {
        if !read.contains(&topic) && !unread.contains(&topic) {
            unread.push(topic);
        }
    }
    for topic in unread {
        let id = free_id(&scenario, &topic);
        scenario.stages.push(auditor(id, topic));
    }
    scenario
}

/// `audit-<topic>`, in the letters of a stage id and not taken.
fn free_id(scenario: &Scenario, topic: &str) -> String {
    // A topic may have dots and 249 characters, an id neither.
    let name: String = topic.chars().take(80).map(|c| if c == '.' { '-' } else { c }).collect();
    let taken = |id: &str| scenario.stages.iter().any(|stage| stage.id == id);
    let first = format!("{AUDIT_KIND}-{name}");
    let numbered = (2u32..).map(|n| format!("{first}-{n}"));
    std::iter::once(first.clone()).chain(numbered).find(|id| !taken(id)).expect("ids are fewer than numbers")
}

fn auditor(id: String, topic: String) -> StageConfig {
    StageConfig {
        id,
        kind: AUDIT_KIND.into(),
        from: Some(topic),
        to: None,
        spread: Spread::default(),
        instances: 1,
        publish: PublishConfig::default(),
        consume: ConsumeConfig::default(),
        config: serde_json::Value::Object(Default::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_text;
    use crate::testing::{GOOD, REGISTRY};

    fn with_auditors_of(text: &str) -> Vec<(String, Option<String>)> {
        let scenario = with_auditors(load_text(text, "f", &[], &REGISTRY).unwrap().scenario);
        scenario.stages.into_iter().skip(1).map(|stage| (stage.id, stage.from)).collect()
    }

    #[test]
    fn a_source_topic_that_is_read_needs_no_auditor() {
        assert_eq!(with_auditors_of(GOOD), [("classify".into(), Some("frames".into()))]);
    }

    #[test]
    fn each_source_topic_without_a_reader_gets_one_auditor_with_an_id_of_its_own() {
        let text = "run: { name: x }
topics: [{ name: a.b }, { name: a-b }, { name: c }]
stages:
  - { id: cameras, kind: decode, to: [a.b, a-b, c], config: { file: x } }
  - { id: audit-c, kind: infer, from: c, config: { model: m } }
";
        let expected = [
            ("audit-c".to_owned(), Some("c".to_owned())),
            ("audit-a-b".into(), Some("a.b".into())),
            ("audit-a-b-2".into(), Some("a-b".into())),
        ];
        assert_eq!(with_auditors_of(text), expected);
    }
}
