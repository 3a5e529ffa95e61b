//! Strict YAML 1.2 to a tree with places. Duplicate keys, tags, anchors, aliases and a second document are problems;
//! size and depth are bounded, so that no text can exhaust memory, the stack or patience.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};
use serde_json::Number;

use crate::problem::{Findings, Place};
use crate::tree::{Entry, Node, Value, shortened};

/// Longest text; the largest scenario anyone wrote by hand is a hundredth of it.
pub const MAX_BYTES: usize = 1 << 20;
/// Deepest nesting; the model needs about eight levels.
pub const MAX_DEPTH: usize = 64;
/// Most keys, values and list entries together.
pub const MAX_NODES: usize = 100_000;

/// Parses one document. With a syntax error the problem stands alone and there is no tree.
pub(crate) fn parse(text: &str, place: impl Fn(u32, u32) -> Place, found: &mut Findings) -> Option<Node> {
    let before = found.errors();
    if let Err((line, column, message)) = printable(text) {
        found.error(place(line, column), message);
        return None;
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // The parser is not ours and overflow checks are on: whatever it trips over is a refused file, not a crash.
    let parsed = catch_unwind(AssertUnwindSafe(|| {
        let mut builder = Builder::new(&place);
        let outcome = builder.run(text);
        (builder.root.take(), std::mem::take(&mut builder.found), outcome)
    }));
    let start = place(1, 1);
    let Ok((root, collected, outcome)) = parsed else {
        found.error(start, "the YAML parser failed on this text: simplify what was changed last");
        return None;
    };
    found.append(collected);
    if let Err(Stop { place, message }) = outcome {
        found.error(place, message);
        return None;
    }
    if root.is_none() && found.errors() == before {
        found.error(start, "the file is empty: a scenario needs `run` and `stages`");
    }
    root
}

/// The size and the characters: a NUL would end the text early without a word.
fn printable(text: &str) -> Result<(), (u32, u32, String)> {
    if text.len() > MAX_BYTES {
        return Err((1, 1, format!("the file is {} bytes long, at most {MAX_BYTES} are read", text.len())));
    }
    for (row, line) in text.split('\n').enumerate() {
        let strange = line.chars().enumerate().find(|(_, c)| c.is_control() && !matches!(c, '\t' | '\r'));
        if let Some((column, character)) = strange {
            let message =
                format!("control character U+{:04X}: write it as an escape in double quotes", character as u32);
            return Err((row as u32 + 1, column as u32 + 1, message));
        }
    }
    Ok(())
}

/// Why parsing ends early.
struct Stop {
    place: Place,
    message: String,
}

/// A mapping or list that is not closed yet.
enum Open {
    List(Vec<Node>),
    Mapping { entries: Vec<Entry>, seen: HashSet<String>, key: Option<(String, Place)> },
}

struct Builder<'a, P> {
    place: &'a P,
    stack: Vec<(Place, Open)>,
    root: Option<Node>,
    documents: usize,
    nodes: usize,
    found: Findings,
}

impl<'a, P: Fn(u32, u32) -> Place> Builder<'a, P> {
    fn new(place: &'a P) -> Self {
        Builder { place, stack: Vec::new(), root: None, documents: 0, nodes: 0, found: Findings::default() }
    }

    fn at(&self, marker: &Marker) -> Place {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (self.place)(small(marker.line()), small(marker.col()).saturating_add(1))
    }

    fn run(&mut self, text: &str) -> Result<(), Stop> {
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| Stop {
                place: self.at(error.marker()),
                message: format!("YAML syntax: {}", error.info().trim_end_matches('.')),
            })?;
            let place = self.at(&span.start);
            self.event(event, place)?;
        }
        Ok(())
    }

    fn event(&mut self, event: Event<'_>, place: Place) -> Result<(), Stop> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    let message = "a second document starts here: one file holds one scenario".into();
                    return Err(Stop { place, message });
                }
            }
            Event::Alias(_) => {
                self.found.error(place, "aliases are not used here: write the value out");
                self.value(Node::new(place, Value::Null))?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.decorations(anchor, tag.is_some(), place);
                self.scalar(&text, style, place)?;
            }
            Event::SequenceStart(anchor, tag) => {
                self.decorations(anchor, tag.is_some(), place);
                self.open(place, Open::List(Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                self.decorations(anchor, tag.is_some(), place);
                self.open(place, Open::Mapping { entries: Vec::new(), seen: HashSet::new(), key: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn decorations(&mut self, anchor: usize, tagged: bool, place: Place) {
        if anchor != 0 {
            self.found.error(place, "anchors are not used here: write the value out where it is needed");
        }
        if tagged {
            self.found.error(place, "tags are not used here: write the plain value, in quotes if it is a text");
        }
    }

    fn open(&mut self, place: Place, open: Open) -> Result<(), Stop> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(Stop { place, message: format!("nested deeper than {MAX_DEPTH} levels") });
        }
        self.key_must_be_text(place)?;
        self.stack.push((place, open));
        Ok(())
    }

    /// In a mapping that waits for a key, only a scalar may follow.
    fn key_must_be_text(&self, place: Place) -> Result<(), Stop> {
        match self.stack.last() {
            Some((_, Open::Mapping { key: None, .. })) => {
                Err(Stop { place, message: "a key must be a plain word, not a list or a mapping".into() })
            }
            _ => Ok(()),
        }
    }

    fn close(&mut self) -> Result<(), Stop> {
        let Some((place, open)) = self.stack.pop() else { return Ok(()) };
        let value = match open {
            Open::List(items) => Value::List(items),
            Open::Mapping { entries, .. } => Value::Mapping(entries),
        };
        self.value(Node::new(place, value))
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, place: Place) -> Result<(), Stop> {
        if let Some((_, Open::Mapping { key: key @ None, .. })) = self.stack.last_mut() {
            *key = Some((text.to_owned(), place));
            return self.count(place);
        }
        let value = match style {
            ScalarStyle::Plain => plain(text).unwrap_or_else(|message| {
                self.found.error(place, message);
                Value::Null
            }),
            _ => Value::Text(text.to_owned()),
        };
        self.value(Node::new(place, value))
    }

    fn count(&mut self, place: Place) -> Result<(), Stop> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Stop { place, message: format!("more than {MAX_NODES} keys and values") });
        }
        Ok(())
    }

    fn value(&mut self, node: Node) -> Result<(), Stop> {
        self.count(node.place)?;
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some((_, Open::List(items))) => items.push(node),
            Some((_, Open::Mapping { entries, seen, key })) => match key.take() {
                Some((key, key_place)) => {
                    if seen.insert(key.clone()) {
                        entries.push(Entry { key, key_place, node });
                    } else {
                        let message = format!("key `{}` is written twice in one mapping", shortened(&key));
                        self.found.error(key_place, message);
                    }
                }
                // An alias in the place of a key, already reported.
                None => *key = Some((String::new(), node.place)),
            },
        }
        Ok(())
    }
}

/// YAML 1.2 core schema: `no`, `on` and `12:30` are texts.
fn plain(text: &str) -> Result<Value, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(format!("`{text}` is not a finite number"));
    }
    let too_large = || format!("the number `{}` is too large", shortened(text));
    for (prefix, radix) in [("0o", 8), ("0x", 16)] {
        if let Some(digits) = text.strip_prefix(prefix).filter(|digits| is_number(digits, radix)) {
            return u64::from_str_radix(digits, radix).map(|n| Value::Number(n.into())).map_err(|_| too_large());
        }
    }
    if is_number(unsigned, 10) {
        let signed = text.strip_prefix('+').unwrap_or(text);
        let number = signed.parse::<u64>().map(Number::from).or_else(|_| signed.parse::<i64>().map(Number::from));
        return number.map(Value::Number).map_err(|_| too_large());
    }
    if is_decimal(unsigned) {
        let number = text.parse::<f64>().ok().and_then(Number::from_f64);
        return number.map(Value::Number).ok_or_else(too_large);
    }
    Ok(Value::Text(text.to_owned()))
}

fn is_number(digits: &str, radix: u32) -> bool {
    !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix))
}

/// `[0-9]+(\.[0-9]*)?` or `\.[0-9]+`, with an optional exponent.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    if exponent.is_some_and(|digits| !is_number(digits.strip_prefix(['-', '+']).unwrap_or(digits), 10)) {
        return false;
    }
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |part: &str| part.is_empty() || is_number(part, 10);
    digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Sources, lines};
    use serde_json::json;

    fn at(line: u32, column: u32) -> Place {
        Place::File { line, column }
    }

    fn parsed(text: &str) -> (Option<Node>, String) {
        let mut found = Findings::default();
        let node = parse(text, at, &mut found);
        let sources = Sources { file: "f".into(), overrides: Vec::new() };
        (node, lines(&found.into_problems(&sources)))
    }

    fn json_of(text: &str) -> serde_json::Value {
        let (node, problems) = parsed(text);
        assert_eq!(problems, "", "{text}");
        node.unwrap().to_json()
    }

    #[test]
    fn words_of_older_yaml_stay_texts() {
        let text = "[no, on, y, 12:30, 1_000, 2026-01-01, 0b1, 0x, ., e5, 1e, .e1, '1', \"true\", <<]";
        let expected = json!([
            "no",
            "on",
            "y",
            "12:30",
            "1_000",
            "2026-01-01",
            "0b1",
            "0x",
            ".",
            "e5",
            "1e",
            ".e1",
            "1",
            "true",
            "<<"
        ]);
        assert_eq!(json_of(text), expected);
    }

    #[test]
    fn core_schema_scalars_are_typed() {
        let text = "[1, -2, +3, 0x1F, 0o17, 1.5, .5, 1., 1e3, true, False, ~, null, 18446744073709551615]";
        let expected = json!([1, -2, 3, 31, 15, 1.5, 0.5, 1.0, 1000.0, true, false, null, null, u64::MAX]);
        assert_eq!(json_of(text), expected);
    }

    #[test]
    fn every_key_and_value_knows_its_place() {
        let (node, _) = parsed("# comment\nrun:\n  name: é\n  list: [a, bb]\nstages:\n  - id: x\n");
        let node = node.unwrap();
        assert_eq!(node.place, at(2, 1));
        let run = node.get("run").unwrap();
        assert_eq!(run.place, at(3, 3));
        assert_eq!(run.key_place("name"), at(3, 3));
        assert_eq!(run.place_of("name"), at(3, 9));
        assert_eq!(run.get("list").unwrap().items()[1].place, at(4, 13));
        assert_eq!(node.get("stages").unwrap().items()[0].place, at(6, 5));
    }

    #[test]
    fn what_yaml_allows_and_scenarios_do_not_is_refused_with_its_place() {
        for (text, problem) in [
            ("a: 1\na: 2\n", "f:2:1: key `a` is written twice in one mapping"),
            ("a: 1\n---\nb: 2\n", "f:2:1: a second document starts here: one file holds one scenario"),
            ("a: !x 1\n", "f:1:4: tags are not used here: write the plain value, in quotes if it is a text"),
            ("a: .inf\n", "f:1:4: `.inf` is not a finite number"),
            ("a: 99999999999999999999\n", "f:1:4: the number `99999999999999999999` is too large"),
            ("? [a]\n: b\n", "f:1:3: a key must be a plain word, not a list or a mapping"),
            ("a: b\0c: d\n", "f:1:5: control character U+0000: write it as an escape in double quotes"),
            ("", "f:1:1: the file is empty: a scenario needs `run` and `stages`"),
        ] {
            assert_eq!(parsed(text).1, problem, "{text:?}");
        }
        let (_, problems) = parsed("a: &x 1\nb: *x\n");
        assert!(problems.contains("f:1:4: anchors") && problems.contains("f:2:4: aliases"), "{problems}");
        assert!(parsed("a: [1, 2\nb: 3\n").1.starts_with("f:2:"), "{}", parsed("a: [1, 2\nb: 3\n").1);
    }

    #[test]
    fn size_depth_and_count_are_bounded() {
        let deep = format!("a: {}", "[".repeat(100_000));
        assert!(parsed(&deep).1.contains("recursion limit exceeded"), "{}", parsed(&deep).1);
        assert!(parsed(&"[".repeat(100)).1.contains("nested deeper than 64"), "{}", parsed(&"[".repeat(100)).1);
        let wide = format!("a: [{}]", "1,".repeat(MAX_NODES + 10));
        assert!(parsed(&wide).1.contains("more than 100000 keys"));
        let long = format!("a: {}", "x".repeat(MAX_BYTES));
        assert!(parsed(&long).1.contains("at most 1048576"));
        let nested_maps: String = (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
        assert!(parsed(&nested_maps).1.contains("nested deeper"));
    }
}
