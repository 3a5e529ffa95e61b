//! Checks a tree against a JSON Schema, collecting every problem with its place. It knows the part of the vocabulary that
//! schemars writes for our types; `unknown_keywords` tells a test when a schema goes beyond it.

use serde_json::{Map, Value as Json};

use crate::hint::{did_you_mean, quoted};
use crate::problem::{Findings, Place};
use crate::tree::{Node, Value, shortened};

mod scalar;
mod variants;

/// More problems than this help nobody, and bound the work on a hostile text.
pub(crate) const MOST_PROBLEMS: usize = 1000;

/// Checks nodes against the schemas of one document.
pub(crate) struct Walker<'s> {
    /// Holds `$defs`.
    root: &'s Json,
    /// Says whose value it is: "stage `cameras` (decode): ".
    label: String,
    /// Keys from the labelled thing down to the node at hand.
    path: Vec<String>,
    found: Findings,
}

/// Checks `node` against a `schema` whose references are in `root`; `label` opens each message.
pub(crate) fn walk(node: &Node, schema: &Json, root: &Json, label: &str, found: &mut Findings) {
    let mut walker = Walker { root, label: label.to_owned(), path: Vec::new(), found: Findings::default() };
    walker.node(node, schema);
    found.append(walker.found);
}

impl<'s> Walker<'s> {
    fn error(&mut self, place: Place, message: impl AsRef<str>) {
        if self.found.len() < MOST_PROBLEMS {
            self.found.error(place, format!("{}{}", self.label, message.as_ref()));
        }
    }

    /// `` `publish.policy` ``, for messages about the node at hand.
    fn subject(&self) -> String {
        if self.path.is_empty() { "it".into() } else { format!("`{}`", self.path.join(".")) }
    }

    fn field(&self, key: &str) -> String {
        let above = self.path.iter().map(String::as_str);
        above.chain([shortened(key).as_str()]).collect::<Vec<_>>().join(".")
    }

    /// Follows `$ref`; what stands beside it is merged in, as an internally tagged newtype variant needs.
    fn resolve(&self, schema: &'s Json) -> std::borrow::Cow<'s, Json> {
        let mut current = schema;
        // References to references end; the bound only guards against a circle.
        for _ in 0..16 {
            let Some(target) = reference(current, self.root) else { return std::borrow::Cow::Borrowed(current) };
            let Some(beside) = current.as_object().filter(|map| map.contains_key("properties")) else {
                current = target;
                continue;
            };
            return std::borrow::Cow::Owned(merged(target, beside));
        }
        std::borrow::Cow::Borrowed(current)
    }

    fn node(&mut self, node: &Node, schema: &'s Json) {
        match self.resolve(schema) {
            std::borrow::Cow::Borrowed(schema) => self.resolved(node, schema),
            std::borrow::Cow::Owned(schema) => {
                // The merged schema lives for this call only, so a walker of the same words does the rest.
                let mut inner = Walker {
                    root: &with_defs(schema, self.root),
                    label: self.label.clone(),
                    path: self.path.clone(),
                    found: Findings::default(),
                };
                let root = inner.root;
                inner.resolved(node, root);
                self.found.append(inner.found);
            }
        }
    }

    fn resolved(&mut self, node: &Node, schema: &'s Json) {
        let Some(map) = schema.as_object() else {
            if schema == &Json::Bool(false) {
                let message = format!("{} is not allowed here", self.subject());
                self.error(node.place, message);
            }
            return;
        };
        for alternatives in ["oneOf", "anyOf"] {
            if let Some(list) = map.get(alternatives).and_then(Json::as_array) {
                self.variants(node, list);
            }
        }
        for part in map.get("allOf").and_then(Json::as_array).into_iter().flatten() {
            self.node(node, part);
        }
        if !self.type_fits(node, map) {
            return;
        }
        match &node.value {
            Value::Text(text) => self.text(node, text, map),
            Value::Number(number) => self.number(node, number, map),
            Value::List(items) => self.list(node, items, map),
            Value::Mapping(_) => self.mapping(node, map),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn list(&mut self, node: &Node, items: &[Node], map: &'s Map<String, Json>) {
        self.length(node, items.len(), map);
        let fixed = map.get("prefixItems").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        for (index, item) in items.iter().enumerate() {
            let Some(schema) = fixed.get(index).or_else(|| map.get("items")) else { break };
            let key = format!("{}[{index}]", self.path.pop().unwrap_or_default());
            let bare = key[..key.len() - format!("[{index}]").len()].to_owned();
            self.path.push(key);
            self.node(item, schema);
            self.path.pop();
            self.path.push(bare);
        }
    }

    fn length(&mut self, node: &Node, items: usize, map: &Map<String, Json>) {
        let bound = |key: &str| map.get(key).and_then(Json::as_u64).map(|n| n as usize);
        if let Some(fewest) = bound("minItems").filter(|fewest| items < *fewest) {
            let message = format!("{} needs at least {fewest} entries, not {items}", self.subject());
            self.error(node.place, message);
        }
        if let Some(most) = bound("maxItems").filter(|most| items > *most) {
            let message = format!("{} takes at most {most} entries, not {items}", self.subject());
            self.error(node.place, message);
        }
    }

    fn mapping(&mut self, node: &Node, map: &'s Map<String, Json>) {
        let none = Map::new();
        let properties = map.get("properties").and_then(Json::as_object);
        for name in map.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str) {
            if node.get(name).is_none() {
                let message = format!("missing field `{}`{}", self.field(name), self.about(properties, name));
                self.error(node.place, message);
            }
        }
        for entry in node.entries() {
            if self.found.len() >= MOST_PROBLEMS {
                return;
            }
            let known = properties.and_then(|properties| properties.get(&entry.key));
            match known.or_else(|| map.get("additionalProperties")) {
                Some(Json::Bool(false)) => {
                    let names = properties.unwrap_or(&none).keys().map(String::as_str);
                    let message = self.unknown(&entry.key, names.collect());
                    self.error(entry.key_place, message);
                }
                Some(schema) => {
                    self.path.push(shortened(&entry.key));
                    self.node(&entry.node, schema);
                    self.path.pop();
                }
                None => {}
            }
        }
    }

    fn unknown(&self, key: &str, names: Vec<&str>) -> String {
        let field = self.field(key);
        if names.is_empty() {
            return format!("unknown field `{field}`: no field is taken here");
        }
        let expected = quoted(names.iter().copied());
        format!("unknown field `{field}`, expected one of {expected}{}", did_you_mean(key, names))
    }

    /// The first sentence of a field's description, so that a missing field explains itself.
    fn about(&self, properties: Option<&Map<String, Json>>, name: &str) -> String {
        let text = properties.and_then(|map| map.get(name)).and_then(|schema| schema.get("description"));
        let sentence = text.and_then(Json::as_str).map(|text| text.split(['\n', ';']).next().unwrap_or_default());
        sentence.map_or_else(String::new, |text| {
            format!(" ({})", text.split(". ").next().unwrap_or(text).trim_end_matches('.'))
        })
    }
}

/// The target of a schema's `$ref` within its document.
pub(crate) fn reference<'s>(schema: &Json, root: &'s Json) -> Option<&'s Json> {
    let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    root.pointer(pointer)
}

/// The target with the properties and required fields that stand beside its reference.
fn merged(target: &Json, beside: &Map<String, Json>) -> Json {
    let mut result = target.clone();
    let Some(map) = result.as_object_mut() else { return result };
    let mut properties = beside.get("properties").and_then(Json::as_object).cloned().unwrap_or_default();
    properties.extend(map.get("properties").and_then(Json::as_object).cloned().unwrap_or_default());
    map.insert("properties".into(), properties.into());
    let mut required = beside.get("required").and_then(Json::as_array).cloned().unwrap_or_default();
    required.extend(map.get("required").and_then(Json::as_array).cloned().unwrap_or_default());
    map.insert("required".into(), required.into());
    result
}

fn with_defs(mut schema: Json, root: &Json) -> Json {
    if let (Some(map), Some(defs)) = (schema.as_object_mut(), root.get("$defs")) {
        map.insert("$defs".into(), defs.clone());
    }
    schema
}

/// Validation keywords in a schema that the walker does not apply; they would be checked by nobody but serde.
pub fn unknown_keywords(schema: &Json) -> Vec<String> {
    const KNOWN: &[&str] = &[
        "$schema",
        "$id",
        "$ref",
        "$defs",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "type",
        "enum",
        "const",
        "oneOf",
        "anyOf",
        "allOf",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "format",
        "writeOnly",
        "readOnly",
        "contentEncoding",
    ];
    let mut unknown = Vec::new();
    visit_schemas(schema, &mut |map| unknown.extend(map.keys().filter(|key| !KNOWN.contains(&key.as_str())).cloned()));
    unknown
}

/// Calls `visit` for a schema and every schema inside it.
fn visit_schemas(schema: &Json, visit: &mut impl FnMut(&Map<String, Json>)) {
    let Some(map) = schema.as_object() else { return };
    visit(map);
    for named in ["properties", "$defs"] {
        map.get(named)
            .and_then(Json::as_object)
            .into_iter()
            .flatten()
            .for_each(|(_, inner)| visit_schemas(inner, visit));
    }
    for listed in ["oneOf", "anyOf", "allOf", "prefixItems"] {
        map.get(listed).and_then(Json::as_array).into_iter().flatten().for_each(|inner| visit_schemas(inner, visit));
    }
    for single in ["items", "additionalProperties"] {
        map.get(single).into_iter().for_each(|inner| visit_schemas(inner, visit));
    }
}
