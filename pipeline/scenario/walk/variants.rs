//! `oneOf` and `anyOf`: find the alternative the writer meant and report its problems, not those of all alternatives.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::scalar::{fits, plain, types, values, wish};
use super::{Walker, reference};
use crate::problem::Findings;
use crate::tree::{Node, Value};

/// Alternatives within alternatives: deeper than any schema of ours, and the guard against circles.
const DEEPEST: usize = 8;

impl<'s> Walker<'s> {
    pub(super) fn variants(&mut self, node: &Node, list: &'s [Json]) {
        let mut flat = Vec::new();
        self.flatten(list, DEEPEST, &mut flat);
        let fitting: Vec<&'s Json> = flat.iter().copied().filter(|schema| self.takes(node, schema)).collect();
        if fitting.is_empty() {
            return self.no_type_fits(node, &flat);
        }
        if matches!(node.value, Value::Text(_)) && fitting.iter().all(|schema| self.names(schema).is_some()) {
            let allowed: Vec<Json> = fitting.iter().flat_map(|schema| self.names(schema).unwrap_or_default()).collect();
            if !allowed.contains(&node.to_json()) {
                let keyed: Vec<String> = flat
                    .iter()
                    .filter_map(|schema| only_key(self.behind(schema)))
                    .map(|key| format!("{key}: ..."))
                    .collect();
                self.not_one_of(node, &allowed, &keyed);
            }
            return;
        }
        match self.chosen(node, &fitting) {
            Choice::Variant(schema) => self.node(node, schema),
            Choice::Wrong(message, at_key) => {
                let place = at_key.map_or(node.place, |key| node.place_of(&key));
                self.error(place, message);
            }
            Choice::Unclear => self.best(node, &fitting),
        }
    }

    /// Alternatives of alternatives are alternatives.
    fn flatten(&self, list: &'s [Json], depth: usize, out: &mut Vec<&'s Json>) {
        for schema in list {
            let target = reference(schema, self.root).filter(|_| schema.get("properties").is_none()).unwrap_or(schema);
            let inner = ["oneOf", "anyOf"].iter().find_map(|key| target.get(*key).and_then(Json::as_array));
            match inner.filter(|_| depth > 0 && target.get("properties").is_none()) {
                Some(inner) => self.flatten(inner, depth - 1, out),
                None => out.push(target),
            }
        }
    }

    /// The schema behind references, for looking at; what stands beside a reference is not needed for that.
    fn behind(&self, schema: &'s Json) -> &'s Json {
        reference(schema, self.root).unwrap_or(schema)
    }

    fn takes(&self, node: &Node, schema: &'s Json) -> bool {
        let Some(map) = self.behind(schema).as_object() else { return schema == &Json::Bool(true) };
        let types = types(map);
        match values(map) {
            Some(values) if types.is_empty() => values.iter().any(|value| value.is_string() == node.text().is_some()),
            _ => types.is_empty() || types.iter().any(|name| fits(node, name)),
        }
    }

    /// The texts of an alternative that is nothing but texts.
    fn names(&self, schema: &'s Json) -> Option<Vec<Json>> {
        values(self.behind(schema).as_object()?)
    }

    fn no_type_fits(&mut self, node: &Node, flat: &[&'s Json]) {
        let named: Vec<Json> = flat.iter().filter_map(|schema| self.names(schema)).flatten().collect();
        if !named.is_empty() && !matches!(node.value, Value::Mapping(_) | Value::List(_)) {
            return self.not_one_of(node, &named, &[]);
        }
        let mut wishes: Vec<String> = Vec::new();
        for map in flat.iter().filter_map(|schema| self.behind(schema).as_object()) {
            let wish = wish(map, &types(map));
            if !wish.is_empty() && !wishes.contains(&wish) {
                wishes.push(wish);
            }
        }
        if let [only] = flat.iter().filter(|schema| **schema != &null_schema()).collect::<Vec<_>>()[..] {
            // One alternative beside null: its own message is the better one.
            return self.node(node, only);
        }
        let message = format!("{} must be {}, not {}", self.subject(), wishes.join(" or "), node.describe());
        self.error(node.place, message);
    }

    /// Which alternative of a mapping is meant, by its tag or by its only key.
    fn chosen(&self, node: &Node, fitting: &[&'s Json]) -> Choice<'s> {
        if let [only] = fitting {
            return Choice::Variant(only);
        }
        if !matches!(node.value, Value::Mapping(_)) {
            return Choice::Unclear;
        }
        if let Some(tag) = self.tag(fitting) {
            return self.by_tag(node, fitting, tag);
        }
        let keys: Option<Vec<&str>> = fitting.iter().map(|schema| only_key(schema)).collect();
        match keys {
            Some(keys) => match keys.iter().position(|key| node.get(key).is_some()) {
                Some(index) => Choice::Variant(fitting[index]),
                None => {
                    let expected = crate::hint::quoted(keys.iter().copied());
                    Choice::Wrong(format!("{} needs one of {expected}", self.subject()), None)
                }
            },
            None => Choice::Unclear,
        }
    }

    /// The property that is a constant in every alternative.
    fn tag(&self, fitting: &[&'s Json]) -> Option<&'s str> {
        let constants = |schema: &'s Json| -> BTreeSet<&'s str> {
            let properties = schema.get("properties").and_then(Json::as_object);
            let constant = properties.into_iter().flatten().filter(|(_, inner)| inner.get("const").is_some());
            constant.map(|(name, _)| name.as_str()).collect()
        };
        let mut shared = fitting.iter().map(|schema| constants(schema));
        let first = shared.next()?;
        shared.fold(first, |all, next| all.intersection(&next).copied().collect()).first().copied()
    }

    fn by_tag(&self, node: &Node, fitting: &[&'s Json], tag: &str) -> Choice<'s> {
        let value = |schema: &Json| schema.pointer(&format!("/properties/{tag}/const")).cloned();
        let known: Vec<String> = fitting.iter().filter_map(|schema| value(schema)).map(|value| plain(&value)).collect();
        let expected = crate::hint::quoted(known.iter().map(String::as_str));
        let Some(written) = node.get(tag) else {
            return Choice::Wrong(format!("missing field `{}`, one of {expected}", self.field(tag)), None);
        };
        match fitting.iter().find(|schema| value(schema) == Some(written.to_json())) {
            Some(schema) => Choice::Variant(schema),
            None => {
                let hint = written
                    .text()
                    .map_or_else(String::new, |text| crate::hint::did_you_mean(text, known.iter().map(String::as_str)));
                let message =
                    format!("`{}` must be one of {expected}, not {}{hint}", self.field(tag), written.describe());
                Choice::Wrong(message, Some(tag.to_owned()))
            }
        }
    }

    /// The alternative with the fewest problems.
    fn best(&mut self, node: &Node, fitting: &[&'s Json]) {
        let mut fewest: Option<Findings> = None;
        for schema in fitting {
            let mut trial = Walker {
                root: self.root,
                label: self.label.clone(),
                path: self.path.clone(),
                found: Findings::default(),
            };
            trial.node(node, schema);
            if fewest.as_ref().is_none_or(|best| trial.found.len() < best.len()) {
                fewest = Some(trial.found);
            }
        }
        self.found.append(fewest.unwrap_or_default());
    }
}

enum Choice<'s> {
    Variant(&'s Json),
    /// A message, and the key whose value it concerns.
    Wrong(String, Option<String>),
    Unclear,
}

fn null_schema() -> Json {
    serde_json::json!({ "type": "null" })
}

/// The only required key of an externally tagged variant.
fn only_key(schema: &Json) -> Option<&str> {
    let required = schema.get("required")?.as_array()?;
    let closed = schema.get("additionalProperties") == Some(&Json::Bool(false));
    match (&required[..], closed) {
        ([Json::String(key)], true) if schema.get("properties")?.as_object()?.len() == 1 => Some(key),
        _ => None,
    }
}
