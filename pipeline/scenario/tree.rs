//! A parsed document in which every key and value still knows where it was written.

use serde_json::{Map, Number};

use crate::problem::Place;

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub place: Place,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Mapping(Vec<Entry>),
}

/// One key of a mapping with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub key_place: Place,
    pub node: Node,
}

impl Node {
    pub fn new(place: Place, value: Value) -> Self {
        Node { place, value }
    }

    pub fn empty_mapping(place: Place) -> Self {
        Node::new(place, Value::Mapping(Vec::new()))
    }

    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Mapping(entries) => entries,
            _ => &[],
        }
    }

    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The text under a key, where there is one.
    pub fn text_of(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Node::text)
    }

    /// Place of the value under a key, else of the mapping itself.
    pub fn place_of(&self, key: &str) -> Place {
        self.get(key).map_or(self.place, |node| node.place)
    }

    /// Place of a key, else of the mapping itself.
    pub fn key_place(&self, key: &str) -> Place {
        self.entry(key).map_or(self.place, |entry| entry.key_place)
    }

    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(flag) => (*flag).into(),
            Value::Number(number) => number.clone().into(),
            Value::Text(text) => text.as_str().into(),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Mapping(entries) => {
                let map: Map<_, _> = entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect();
                map.into()
            }
        }
    }

    /// The first text at or below this node that is wanted.
    pub fn find(&self, wanted: &impl Fn(&str) -> bool) -> Option<&Node> {
        match &self.value {
            Value::Text(text) if wanted(text) => Some(self),
            Value::List(items) => items.iter().find_map(|item| item.find(wanted)),
            Value::Mapping(entries) => entries.iter().find_map(|entry| entry.node.find(wanted)),
            _ => None,
        }
    }

    /// What it is, for messages: "the text `x`", "a list".
    pub fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".into(),
            Value::Bool(flag) => format!("`{flag}`"),
            Value::Number(number) => format!("the number {number}"),
            Value::Text(text) => format!("the text `{}`", shortened(text)),
            Value::List(_) => "a list".into(),
            Value::Mapping(_) => "a mapping".into(),
        }
    }
}

/// A text short enough for a message, on one line.
pub fn shortened(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut short: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push_str("...");
    }
    short.replace("\\'", "'").replace("\\\"", "\"")
}
