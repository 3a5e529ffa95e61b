//! JSON values as block YAML: the scenario as it was run, in one canonical form that reads back as the same values.

use serde_json::Value as Json;

/// YAML text of a value; ends with a line break.
pub(crate) fn yaml(value: &Json) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

/// Without the keys that are null: an absent key says the same.
pub(crate) fn without_nulls(value: Json) -> Json {
    match value {
        Json::Object(map) => {
            let kept = map.into_iter().filter(|(_, inner)| !inner.is_null());
            Json::Object(kept.map(|(key, inner)| (key, without_nulls(inner))).collect())
        }
        Json::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

fn block(value: &Json, indent: usize, out: &mut String) {
    match value {
        Json::Object(map) if !map.is_empty() => {
            for (index, (key, inner)) in map.iter().enumerate() {
                if index > 0 {
                    pad(indent, out);
                }
                out.push_str(&text(key));
                out.push(':');
                below(inner, indent, out);
            }
        }
        Json::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    pad(indent, out);
                }
                out.push_str("- ");
                block(item, indent + 2, out);
            }
        }
        single => {
            out.push_str(&flow(single));
            out.push('\n');
        }
    }
}

/// The value of a key: on the same line when it is a single one, else indented below.
fn below(value: &Json, indent: usize, out: &mut String) {
    let nested = match value {
        Json::Object(map) => !map.is_empty(),
        Json::Array(items) => !items.is_empty(),
        _ => false,
    };
    if nested {
        out.push('\n');
        pad(indent + 2, out);
        block(value, indent + 2, out);
    } else {
        out.push(' ');
        block(value, indent, out);
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn flow(value: &Json) -> String {
    match value {
        Json::String(word) => text(word),
        Json::Object(_) => "{}".into(),
        Json::Array(_) => "[]".into(),
        other => other.to_string(),
    }
}

/// A plain word where it cannot be taken for anything else, else in double quotes.
fn text(word: &str) -> String {
    const RESERVED: [&str; 8] = ["null", "true", "false", "yes", "no", "on", "off", "y"];
    let first = word.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '/' || c == '_');
    let rest = word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.'));
    let lower = word.to_ascii_lowercase();
    if first && rest && !RESERVED.contains(&lower.as_str()) && lower != "n" {
        return word.to_owned();
    }
    quoted(word)
}

fn quoted(word: &str) -> String {
    let mut out = String::from("\"");
    for c in word.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            // Line separators and anything invisible: a reader of the text must see what is there.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                out.push_str(&format!("\\u{:04X}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Findings, Place};
    use proptest::prelude::*;
    use serde_json::json;

    fn back(text: &str) -> Json {
        let mut found = Findings::default();
        let node = crate::yaml::parse(text, |line, column| Place::File { line, column }, &mut found);
        assert_eq!(found.errors(), 0, "{text}\n{found:?}");
        node.unwrap().to_json()
    }

    fn any_value() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Json::from),
            "\\PC{0,12}".prop_map(Json::from),
            any::<String>().prop_map(Json::from),
            prop_oneof![
                Just("no"),
                Just("~"),
                Just("12:30"),
                Just("1e5"),
                Just(""),
                Just("- a"),
                Just("a: b"),
                Just("# x")
            ]
            .prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 64, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
                proptest::collection::btree_map("\\PC{0,8}", inner, 0..5).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    #[test]
    fn the_text_is_block_yaml() {
        let value =
            json!({ "run": { "name": "x" }, "stages": [{ "id": "a", "to": ["b", "c"], "config": {} }], "main": "30s" });
        let expected =
            "run:\n  name: x\nstages:\n  - id: a\n    to:\n      - b\n      - c\n    config: {}\nmain: \"30s\"\n";
        assert_eq!(yaml(&value), expected);
    }

    proptest! {
        #[test]
        fn any_value_reads_back_as_itself(value in any_value()) {
            prop_assert_eq!(back(&yaml(&value)), value);
        }
    }
}
