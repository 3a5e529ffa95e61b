//! Where something is written and what is wrong with it: every problem of a scenario, in the order of the file.

use std::fmt;

use serde::Serialize;

/// Where a value comes from. Ordered as a reader meets them: the file from top to bottom, then the overrides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Counted from 1, in characters.
    File { line: u32, column: u32 },
    /// Index of the `--set` that wrote it.
    Set(u32),
}

/// Whether the scenario can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

/// One thing to mend, with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub severity: Severity,
    /// The file as it was named, or the `--set` argument.
    pub source: String,
    /// Counted from 1; absent for an override and for a file that could not be read.
    pub line: Option<u32>,
    pub column: Option<u32>,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        let kind = if self.severity == Severity::Warning { "warning: " } else { "" };
        write!(f, ": {kind}{}", self.message)
    }
}

/// Why a scenario is refused: every problem found, one a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// A single problem with a file as a whole.
    pub fn of_file(source: impl Into<String>, message: impl Into<String>) -> Self {
        Problems(vec![Problem {
            severity: Severity::Error,
            source: source.into(),
            line: None,
            column: None,
            message: message.into(),
        }])
    }
}

/// Problems as lines of text.
pub fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// The names behind places: the file and the `--set` arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    pub file: String,
    pub overrides: Vec<String>,
}

impl Sources {
    pub fn problem(&self, severity: Severity, place: Place, message: String) -> Problem {
        match place {
            Place::File { line, column } => {
                Problem { severity, source: self.file.clone(), line: Some(line), column: Some(column), message }
            }
            Place::Set(index) => {
                let text = self.overrides.get(index as usize).map_or("", String::as_str);
                Problem { severity, source: format!("--set {text}"), line: None, column: None, message }
            }
        }
    }
}

/// Problems while they are being collected, in any order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Findings(Vec<(Severity, Place, String)>);

impl Findings {
    pub fn error(&mut self, place: Place, message: impl Into<String>) {
        self.0.push((Severity::Error, place, message.into()));
    }
    pub fn warning(&mut self, place: Place, message: impl Into<String>) {
        self.0.push((Severity::Warning, place, message.into()));
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn errors(&self) -> usize {
        self.0.iter().filter(|(severity, ..)| *severity == Severity::Error).count()
    }
    pub fn append(&mut self, other: Findings) {
        self.0.extend(other.0);
    }
    /// In file order; two checks that say the same of one place say it once.
    pub fn into_problems(mut self, sources: &Sources) -> Vec<Problem> {
        self.0.sort_by_key(|(_, place, _)| *place);
        self.0.dedup();
        self.0.into_iter().map(|(severity, place, message)| sources.problem(severity, place, message)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_come_in_file_order_with_overrides_last() {
        let sources = Sources { file: "a.yaml".into(), overrides: vec!["run.main=5".into()] };
        let mut found = Findings::default();
        found.error(Place::Set(0), "third");
        found.warning(Place::File { line: 9, column: 1 }, "second");
        found.error(Place::File { line: 2, column: 7 }, "first");
        found.error(Place::File { line: 2, column: 7 }, "first");
        let text = lines(&found.into_problems(&sources));
        assert_eq!(text, "a.yaml:2:7: first\na.yaml:9:1: warning: second\n--set run.main=5: third");
    }
}
