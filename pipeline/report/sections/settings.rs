//! What the stages say of themselves: decode mode, pace and payload of each source, and all other settings.

use contract::summary::{StageFacts, Summary};
use serde_json::Value;

use super::Section;
use crate::figures::LOOP_KIND;
use crate::grid::Grid;
use crate::text::{BLANK, blank};

/// One row for each source; how frames are made decides what a result means.
pub fn sources(summary: &Summary) -> Option<Section> {
    let mut grid = Grid::new(&["<stage", "<decode mode", ">streams", "<pace", "<payload", "<video"]);
    let mut lines = Vec::new();
    let sources = summary.stages.iter().filter(|(_, stage)| stage.kind == "decode" || stage.facts.contains_key("mode"));
    for (id, stage) in sources {
        let fact = |name: &str| stage.facts.get(name).map_or_else(blank, words);
        grid.push(vec![id.clone(), fact("mode"), fact("streams"), fact("pace"), fact("payload"), fact("video")]);
        lines.extend(stage.facts.get(LOOP_KIND).map(|label| format!("{id}: {}", words(label))));
    }
    Section::new("sources", "Sources", "").lines(lines).grid(grid).shown()
}

pub fn settings(summary: &Summary) -> Option<Section> {
    let mut grid = Grid::new(&["<stage", "<fact", "<value"]);
    for (id, stage) in &summary.stages {
        for (index, (name, value)) in facts(stage).into_iter().enumerate() {
            grid.push(vec![if index == 0 { id.clone() } else { String::new() }, name, value]);
        }
    }
    Section::new("settings", "Settings", "what each stage says of itself").grid(grid).html_only().shown()
}

fn facts(stage: &StageFacts) -> Vec<(String, String)> {
    stage.facts.iter().map(|(name, value)| (name.clone(), words(value))).collect()
}

/// A JSON value as a phrase: `encoding jpeg, quality 75`.
fn words(value: &Value) -> String {
    match value {
        Value::Null => BLANK.to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(", "),
        Value::Object(map) => {
            let known = map.iter().filter(|(_, value)| !value.is_null());
            known.map(|(name, value)| format!("{name} {}", words(value))).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_settings_read_as_phrases() {
        let value = json!({"encoding": "jpeg", "quality": 75, "size": null, "list": [1, "b"]});
        assert_eq!(words(&value), "encoding jpeg, quality 75, list 1, b");
    }
}
