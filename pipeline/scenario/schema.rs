//! The JSON Schema of a scenario file for editors and other tools: the model, with `config` of each stage by its kind.

use contract::{Ports, Registry, StageEntry};
use serde_json::{Map, Value as Json, json};

use crate::model::Scenario;

/// The complete schema; stage configs are chosen by `kind`.
pub fn json_schema(registry: &Registry) -> Json {
    let mut document = schemars::schema_for!(Scenario).to_value();
    let mut definitions = Map::new();
    let mut choices = Vec::new();
    for entry in registry.entries() {
        let (config, inner) = stage_schema(entry);
        choices.push(choice(entry, &config));
        definitions.insert(config_name(entry.kind), config);
        definitions.extend(inner);
    }
    if let Some(stage) = document.pointer_mut("/$defs/StageConfig").and_then(Json::as_object_mut) {
        if let Some(properties) = stage.get_mut("properties").and_then(Json::as_object_mut) {
            properties.insert("kind".into(), kinds(registry));
        }
        stage.insert("allOf".into(), choices.into());
    }
    if let Some(known) = document.get_mut("$defs").and_then(Json::as_object_mut) {
        known.extend(definitions);
    }
    document
}

fn config_name(kind: &str) -> String {
    format!("{kind}.config")
}

fn kinds(registry: &Registry) -> Json {
    let kinds: Vec<Json> =
        registry.entries().map(|entry| json!({ "const": entry.kind, "description": entry.about })).collect();
    json!({ "description": "What the stage does.", "type": "string", "oneOf": kinds })
}

/// `if kind is this, then config is that, and from and to are as its ports say`.
fn choice(entry: &StageEntry, config: &Json) -> Json {
    let mut properties = json!({ "config": { "$ref": format!("#/$defs/{}", config_name(entry.kind)) } });
    let mut required: Vec<&str> = Vec::new();
    let (reads, writes) = match entry.ports {
        Ports::Source => (Some(false), Some(true)),
        Ports::Transform => (Some(true), None),
        Ports::Sink => (Some(true), Some(false)),
        Ports::Alone => (Some(false), Some(false)),
    };
    for (key, wanted) in [("from", reads), ("to", writes)] {
        match wanted {
            Some(true) => required.push(key),
            Some(false) => properties[key] = json!({ "type": "null" }),
            None => {}
        }
    }
    if config.get("required").and_then(Json::as_array).is_some_and(|fields| !fields.is_empty()) {
        required.push("config");
    }
    json!({
        "if": { "properties": { "kind": { "const": entry.kind } }, "required": ["kind"] },
        "then": { "properties": properties, "required": required },
    })
}

/// A stage's own schema, and its definitions under names that no other stage has.
fn stage_schema(entry: &StageEntry) -> (Json, Map<String, Json>) {
    let mut schema = (entry.schema)().to_value();
    let mut inner = Map::new();
    if let Some(map) = schema.as_object_mut() {
        map.remove("$schema");
        if let Some(Json::Object(definitions)) = map.remove("$defs") {
            inner = definitions.into_iter().map(|(name, value)| (format!("{}.{name}", entry.kind), value)).collect();
        }
    }
    rename_references(&mut schema, entry.kind);
    inner.values_mut().for_each(|value| rename_references(value, entry.kind));
    (schema, inner)
}

fn rename_references(schema: &mut Json, kind: &str) {
    match schema {
        Json::Object(map) => {
            for (key, value) in map.iter_mut() {
                let renamed =
                    value.as_str().filter(|_| key == "$ref").map(|target| match target.strip_prefix("#/$defs/") {
                        Some(name) => format!("#/$defs/{kind}.{name}"),
                        None => format!("#/$defs/{}", config_name(kind)),
                    });
                match renamed {
                    Some(target) => *value = target.into(),
                    None => rename_references(value, kind),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| rename_references(item, kind)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Findings, Place};
    use crate::testing::{GOOD, REGISTRY};

    fn json_of(text: &str) -> Json {
        let place = |line, column| Place::File { line, column };
        crate::yaml::parse(text, place, &mut Findings::default()).unwrap().to_json()
    }

    #[test]
    fn an_independent_validator_agrees_on_good_and_bad_files() {
        let schema = json_schema(&REGISTRY);
        jsonschema::meta::validate(&schema).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let first = validator.iter_errors(&json_of(GOOD)).map(|error| error.to_string()).next();
        assert_eq!(first, None);
        for (piece, instead) in [
            ("fps: 24", "fsp: 24"),
            ("quality: 75", "quality: high"),
            ("kind: jpeg", "kind: jpg"),
            ("after: 2s", "before: 2s"),
            ("kind: infer", "kind: infr"),
            ("    from: frames\n", ""),
            ("      model: lite0", "      {}"),
            ("main: 20s", "main: 20"),
            ("    to: frames\n", "    to: frames\n    from: results\n"),
        ] {
            assert!(!validator.is_valid(&json_of(&GOOD.replacen(piece, instead, 1))), "{instead}");
        }
    }

    #[test]
    fn every_reference_has_its_target() {
        fn references(schema: &Json, out: &mut Vec<String>) {
            match schema {
                Json::Object(map) => {
                    out.extend(map.get("$ref").and_then(Json::as_str).map(str::to_owned));
                    map.values().for_each(|value| references(value, out));
                }
                Json::Array(items) => items.iter().for_each(|item| references(item, out)),
                _ => {}
            }
        }
        let schema = json_schema(&REGISTRY);
        let mut all = Vec::new();
        references(&schema, &mut all);
        assert!(all.contains(&"#/$defs/decode.Mode".to_owned()), "{all:?}");
        for target in all {
            assert!(schema.pointer(target.trim_start_matches('#')).is_some(), "{target}");
        }
    }
}
