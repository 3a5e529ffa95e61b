//! The JSON Schema of `summary.json`, and the reference page made from it.

use contract::summary::Summary;
use serde_json::{Map, Value};

/// The schema that every `summary.json` validates against.
pub fn summary_schema() -> Value {
    let mut schema = schemars::schema_for!(Summary).to_value();
    if let Value::Object(root) = &mut schema {
        root.insert("title".into(), "summary.json of a reelbench run".into());
    }
    schema
}

/// `docs/reference/summary.md`.
pub fn summary_markdown() -> String {
    let schema = summary_schema();
    let mut out = String::from(
        "# summary.json\n\nThe result of a run. Made from the schema (`reelbench schema summary`); do not edit by hand.\n\
         What does not apply is absent or null, never 0. Times are nanoseconds where the name ends in `_ns`, and count from \
         the first frame due.\n",
    );
    object(&mut out, "Summary", &schema);
    let definitions = schema.get("$defs").and_then(Value::as_object);
    for (name, definition) in definitions.into_iter().flatten() {
        object(&mut out, name, definition);
    }
    out
}

fn object(out: &mut String, name: &str, schema: &Value) {
    out.push_str(&format!("\n## {name}\n"));
    if let Some(about) = description(schema) {
        out.push_str(&format!("\n{about}\n"));
    }
    if let Some(values) = words(schema) {
        out.push_str(&format!("\n{values}\n"));
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    out.push_str("\n| field | type | always | meaning |\n|---|---|---|---|\n");
    for (field, property) in properties {
        let always = if required.contains(&field.as_str()) { "yes" } else { "" };
        let meaning = description(property).unwrap_or_default();
        out.push_str(&format!("| `{field}` | {} | {always} | {meaning} |\n", type_words(property)));
    }
}

fn description(schema: &Value) -> Option<String> {
    let text = schema.get("description")?.as_str()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|"))
}

/// The words of an enumeration; one with documented words is a list of constants.
fn words(schema: &Value) -> Option<String> {
    let constant = |item: &Value| item.get("const").map(Value::to_string);
    let list = |item: &Value| match item.get("enum").and_then(Value::as_array) {
        Some(words) => words.iter().map(Value::to_string).collect(),
        None => constant(item).into_iter().collect::<Vec<_>>(),
    };
    let mut found = list(schema);
    let alternatives = schema.get("oneOf").and_then(Value::as_array);
    if found.is_empty() {
        let lines = alternatives?.iter().flat_map(|item| {
            let about = description(item).map(|about| format!(": {about}")).unwrap_or_default();
            list(item).into_iter().map(move |word| format!("- `{}`{about}", word.trim_matches('"')))
        });
        return Some(lines.collect::<Vec<_>>().join("\n"));
    }
    found.iter_mut().for_each(|word| *word = format!("`{}`", word.trim_matches('"')));
    Some(format!("One of {}.", found.join(", ")))
}

fn type_words(property: &Value) -> String {
    let Some(map) = property.as_object() else { return "any".to_owned() };
    if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(options) = map.get("anyOf").and_then(Value::as_array) {
        return options.iter().map(type_words).collect::<Vec<_>>().join(" or ");
    }
    match map.get("type") {
        Some(Value::String(kind)) => kind_words(kind, map),
        Some(Value::Array(kinds)) => {
            let words = kinds.iter().filter_map(Value::as_str).map(|kind| kind_words(kind, map));
            words.collect::<Vec<_>>().join(" or ")
        }
        _ => "any".to_owned(),
    }
}

fn kind_words(kind: &str, map: &Map<String, Value>) -> String {
    match kind {
        "array" => format!("list of {}", map.get("items").map_or_else(|| "any".to_owned(), type_words)),
        "object" => match map.get("additionalProperties").filter(|values| values.is_object()) {
            Some(values) => format!("map to {}", type_words(values)),
            None => "object".to_owned(),
        },
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn validator() -> jsonschema::Validator {
        jsonschema::validator_for(&summary_schema()).unwrap()
    }

    fn fixture_json() -> Value {
        serde_json::from_str(&std::fs::read_to_string(fixture::path().join("summary.json")).unwrap()).unwrap()
    }

    #[test]
    fn the_fixture_validates_against_the_schema() {
        let errors: Vec<String> = validator().iter_errors(&fixture_json()).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new());
    }

    #[test]
    fn a_summary_without_frames_validates_and_has_no_audit() {
        let mut summary = fixture::summary();
        (summary.audit, summary.broker, summary.baseline, summary.sync) = (None, None, None, None);
        summary.latency_ns.clear();
        let json = serde_json::to_value(&summary).unwrap();
        assert!(validator().is_valid(&json) && json.get("audit").is_none() && json.get("latency_ns").is_none());
    }

    #[test]
    fn the_schema_refuses_what_is_not_a_summary() {
        let refused = |change: fn(&mut Value)| {
            let mut json = fixture_json();
            change(&mut json);
            !validator().is_valid(&json)
        };
        assert!(refused(|json| json["verdict"]["status"] = "MAYBE".into()));
        assert!(refused(|json| json["audit"]["offered"] = Value::Null));
        assert!(refused(|json| json["audit"]["lost"] = (-1).into()));
        assert!(refused(|json| json["surprise"] = 1.into()));
        assert!(refused(|json| {
            json.as_object_mut().unwrap().remove("stages");
        }));
    }

    #[test]
    fn the_reference_names_every_top_field_and_links_what_it_uses() {
        let page = summary_markdown();
        let schema = summary_schema();
        for field in schema["properties"].as_object().unwrap().keys() {
            assert!(page.contains(&format!("| `{field}` |")), "{field}");
        }
        for name in schema["$defs"].as_object().unwrap().keys() {
            assert!(page.contains(&format!("\n## {name}\n")), "{name}");
        }
        assert!(page.contains("`PASS`") && page.contains("[LatencyStats](#latencystats)"));
    }
}
