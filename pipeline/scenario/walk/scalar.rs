//! Types, texts and numbers against a schema, with messages that say what to write instead.

use contract::units::{BYTE_SIZE_PATTERN, SPAN_PATTERN};
use contract::{ByteSize, Span};
use serde_json::{Map, Number, Value as Json};

use super::Walker;
use crate::hint::{did_you_mean, quoted};
use crate::tree::{Node, Value, shortened};

impl Walker<'_> {
    /// Reports a node of the wrong type; false stops further checks of it.
    pub(super) fn type_fits(&mut self, node: &Node, map: &Map<String, Json>) -> bool {
        let types = types(map);
        if types.is_empty() || types.iter().any(|name| fits(node, name)) {
            return self.allowed(node, map);
        }
        if let Some(values) = values(map).filter(|_| !matches!(node.value, Value::List(_) | Value::Mapping(_))) {
            self.not_one_of(node, &values, &[]);
            return false;
        }
        let wish = wish(map, &types);
        let message =
            format!("{} must be {wish}, not {}{}", self.subject(), node.describe(), remedy(node, map, &types));
        self.error(node.place, message);
        false
    }

    /// `enum` and `const`.
    fn allowed(&mut self, node: &Node, map: &Map<String, Json>) -> bool {
        let Some(values) = values(map) else { return true };
        let json = node.to_json();
        if values.contains(&json) {
            return true;
        }
        self.not_one_of(node, &values, &[]);
        false
    }

    /// `more` are alternatives that are not single values.
    pub(super) fn not_one_of(&mut self, node: &Node, values: &[Json], more: &[String]) {
        let names: Vec<String> = values.iter().map(plain).collect();
        let expected = quoted(names.iter().chain(more).map(String::as_str));
        let hint = match &node.value {
            Value::Text(text) => did_you_mean(text, names.iter().map(String::as_str)),
            // `acks: 1` is a number, the allowed value is the text.
            Value::Number(_) | Value::Bool(_) if values.contains(&plain(&node.to_json()).into()) => {
                format!(": write \"{}\" in quotes", plain(&node.to_json()))
            }
            _ => String::new(),
        };
        let wish = if names.len() + more.len() == 1 { expected } else { format!("one of {expected}") };
        let message = format!("{} must be {wish}, not {}{hint}", self.subject(), node.describe());
        self.error(node.place, message);
    }

    pub(super) fn text(&mut self, node: &Node, text: &str, map: &Map<String, Json>) {
        let problem = match map.get("pattern").and_then(Json::as_str) {
            Some(BYTE_SIZE_PATTERN) => text.parse::<ByteSize>().err(),
            Some(SPAN_PATTERN) => text.parse::<Span>().err(),
            _ => None,
        };
        if let Some(problem) = problem {
            let message = format!("{}: {problem}", self.subject());
            self.error(node.place, message);
        }
        let length = text.chars().count() as u64;
        if map.get("minLength").and_then(Json::as_u64).is_some_and(|fewest| length < fewest) {
            let message = format!("{} must not be empty", self.subject());
            self.error(node.place, message);
        }
        if let Some(most) = map.get("maxLength").and_then(Json::as_u64).filter(|most| length > *most) {
            let message = format!("{} must have at most {most} characters, not {length}", self.subject());
            self.error(node.place, message);
        }
    }

    pub(super) fn number(&mut self, node: &Node, number: &Number, map: &Map<String, Json>) {
        let value = number.as_f64().unwrap_or(f64::INFINITY);
        let bound = |key: &str| map.get(key).and_then(Json::as_f64);
        let named = map.get("format").and_then(Json::as_str).and_then(range);
        let lowest = bound("minimum").or(named.map(|(low, _)| low)).filter(|low| value < *low);
        let highest = bound("maximum").or(named.map(|(_, high)| high)).filter(|high| value > *high);
        let above = bound("exclusiveMinimum").filter(|low| value <= *low);
        let below = bound("exclusiveMaximum").filter(|high| value >= *high);
        let wishes = [
            lowest.map(|n| format!("at least {n}")),
            highest.map(|n| format!("at most {n}")),
            above.map(|n| format!("greater than {n}")),
            below.map(|n| format!("less than {n}")),
        ];
        for wish in wishes.into_iter().flatten() {
            let message = format!("{} must be {wish}, not {number}", self.subject());
            self.error(node.place, message);
        }
    }
}

/// The names under `type`, which is a name or a list of names.
pub(super) fn types(map: &Map<String, Json>) -> Vec<&str> {
    match map.get("type") {
        Some(Json::String(name)) => vec![name],
        Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    }
}

pub(super) fn fits(node: &Node, name: &str) -> bool {
    match &node.value {
        Value::Null => name == "null",
        Value::Bool(_) => name == "boolean",
        Value::Number(number) => name == "number" || (name == "integer" && !number.is_f64()),
        Value::Text(_) => name == "string",
        Value::List(_) => name == "array",
        Value::Mapping(_) => name == "object",
    }
}

/// The values of `enum` or `const`.
pub(super) fn values(map: &Map<String, Json>) -> Option<Vec<Json>> {
    match (map.get("enum"), map.get("const")) {
        (Some(Json::Array(values)), _) => Some(values.clone()),
        (_, Some(value)) => Some(vec![value.clone()]),
        _ => None,
    }
}

/// What a schema wants, in words.
pub(super) fn wish(map: &Map<String, Json>, types: &[&str]) -> String {
    let one = |name: &&str| match *name {
        "string" => match map.get("pattern").and_then(Json::as_str) {
            Some(BYTE_SIZE_PATTERN) => "a size with a unit, such as \"64MiB\"".to_owned(),
            Some(SPAN_PATTERN) => "a time with a unit, such as \"30s\"".to_owned(),
            _ => "a text".to_owned(),
        },
        "integer" => "a whole number".into(),
        "number" => "a number".into(),
        "boolean" => "`true` or `false`".into(),
        "array" => "a list".into(),
        "object" => "a mapping".into(),
        other => other.into(),
    };
    // An absent key says the same as null.
    types.iter().filter(|name| **name != "null").map(one).collect::<Vec<_>>().join(" or ")
}

/// What to write instead, where it is plain from what was written.
fn remedy(node: &Node, map: &Map<String, Json>, types: &[&str]) -> String {
    let written = plain(&node.to_json());
    match &node.value {
        Value::Null => ": write a value or leave the key out".into(),
        Value::Number(_) if types.contains(&"string") => match map.get("pattern").and_then(Json::as_str) {
            Some(SPAN_PATTERN) => format!(": write \"{written}s\" if seconds are meant"),
            Some(BYTE_SIZE_PATTERN) => format!(": write \"{written}B\" if bytes are meant"),
            _ => format!(": write \"{written}\" in quotes"),
        },
        Value::Bool(_) if types.contains(&"string") => format!(": write \"{written}\" in quotes"),
        Value::Text(text) if types.contains(&"boolean") => match text.to_ascii_lowercase().as_str() {
            "yes" | "on" => ": write true".into(),
            "no" | "off" => ": write false".into(),
            _ => String::new(),
        },
        Value::Text(text) if types.contains(&"integer") && text.parse::<u64>().is_ok() => {
            ": leave out the quotes".into()
        }
        _ => String::new(),
    }
}

/// A JSON value as a person would write it.
pub(super) fn plain(value: &Json) -> String {
    match value {
        Json::String(text) => shortened(text),
        other => other.to_string(),
    }
}

/// Bounds of the integer formats that schemars names without a maximum.
fn range(format: &str) -> Option<(f64, f64)> {
    match format {
        "uint8" => Some((0.0, f64::from(u8::MAX))),
        "uint16" => Some((0.0, f64::from(u16::MAX))),
        "uint32" => Some((0.0, f64::from(u32::MAX))),
        "uint64" | "uint" => Some((0.0, u64::MAX as f64)),
        "int8" => Some((f64::from(i8::MIN), f64::from(i8::MAX))),
        "int16" => Some((f64::from(i16::MIN), f64::from(i16::MAX))),
        "int32" => Some((f64::from(i32::MIN), f64::from(i32::MAX))),
        _ => None,
    }
}
