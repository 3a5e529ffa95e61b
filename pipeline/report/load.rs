//! Reads a run folder. A finished one has `summary.json`; an unfinished one is read as far as it was written, and `notes` says
//! what is missing or damaged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use contract::histogram::{HistogramText, NsHistogram};
use contract::latency::Step;
use contract::phases::Phase;
use contract::series::SeriesRow;
use contract::summary::{SCHEMA_VERSION, Summary};
use serde::Deserialize;

/// Why a run folder could not be read or its report not written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("run folder {path} does not exist: name the folder that `reelbench run` printed")]
    NoFolder { path: PathBuf },
    #[error("{path} is not a run folder: it has neither summary.json nor series.jsonl nor scenario.yaml")]
    NotARun { path: PathBuf },
    #[error("read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is not a summary: {source}; run the scenario again or restore the file")]
    Summary { path: PathBuf, source: serde_json::Error },
    #[error("{path} has schema version {found}, this reelbench reads {SCHEMA_VERSION}: use the version that wrote it")]
    Version { path: PathBuf, found: String },
    #[error("write {path}: {source}")]
    Write { path: PathBuf, source: std::io::Error },
}

/// `histograms.json`: all samples of each step, merged over stages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Histograms {
    /// Frames due in main.
    #[serde(default)]
    pub main: BTreeMap<String, HistogramText>,
    /// Frames due before or after main.
    #[serde(default)]
    pub outside: BTreeMap<String, HistogramText>,
}

/// What a run left behind.
#[derive(Clone, Debug, Default)]
pub struct RunFolder {
    /// Absent for a summary without a folder.
    pub path: Option<PathBuf>,
    /// Absent when the run did not finish.
    pub summary: Option<Summary>,
    pub series: Vec<SeriesRow>,
    pub histograms: Histograms,
    /// The scenario's text as run.
    pub scenario: Option<String>,
    /// What is missing or damaged.
    pub notes: Vec<String>,
}

impl RunFolder {
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        if !path.is_dir() {
            return Err(ReportError::NoFolder { path: path.to_owned() });
        }
        let mut notes = Vec::new();
        let summary = read_summary(&path.join("summary.json"))?;
        let series = read_series(&path.join("series.jsonl"), &mut notes)?;
        let scenario = read_text(&path.join("scenario.yaml"))?;
        if summary.is_none() && series.is_none() && scenario.is_none() {
            return Err(ReportError::NotARun { path: path.to_owned() });
        }
        if summary.is_none() {
            notes.insert(
                0,
                "the run did not finish: there is no summary.json, hence no verdict and no audit".to_owned(),
            );
        }
        if scenario.is_none() {
            notes.push("scenario.yaml is missing".to_owned());
        }
        let histograms = read_histograms(&path.join("histograms.json"), summary.is_some(), &mut notes)?;
        Ok(RunFolder {
            path: Some(path.to_owned()),
            summary,
            series: series.unwrap_or_default(),
            histograms,
            scenario,
            notes,
        })
    }

    /// A summary alone, without series, histograms and scenario text.
    pub fn of(summary: Summary) -> Self {
        RunFolder { summary: Some(summary), ..RunFolder::default() }
    }

    /// The scenario's name, else the folder's.
    pub fn name(&self) -> String {
        let folder = || self.path.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        self.summary.as_ref().map(|summary| summary.scenario.name.clone()).or_else(folder).unwrap_or_default()
    }

    /// The rows of one phase.
    pub fn rows(&self, phase: Phase) -> impl Iterator<Item = &SeriesRow> {
        self.series.iter().filter(move |row| row.phase == phase)
    }

    /// The samples of a step due in main, where they were kept and can be read.
    pub fn histogram(&self, step: Step) -> Option<NsHistogram> {
        self.histograms.main.get(step.name()).and_then(|text| NsHistogram::from_text(text).ok())
    }
}

fn read_text(path: &Path) -> Result<Option<String>, ReportError> {
    match fs::read(path) {
        // A scenario is UTF-8; a damaged one is shown with marks rather than refused.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ReportError::Read { path: path.to_owned(), source }),
    }
}

fn read_summary(path: &Path) -> Result<Option<Summary>, ReportError> {
    #[derive(Deserialize)]
    struct Versioned {
        schema_version: serde_json::Value,
    }
    let Some(text) = read_text(path)? else { return Ok(None) };
    let wrong = |source| ReportError::Summary { path: path.to_owned(), source };
    let versioned: Versioned = serde_json::from_str(&text).map_err(wrong)?;
    if versioned.schema_version != SCHEMA_VERSION {
        return Err(ReportError::Version { path: path.to_owned(), found: versioned.schema_version.to_string() });
    }
    serde_json::from_str(&text).map(Some).map_err(wrong)
}

/// A run that was killed may leave half a line at the end; other lines that do not parse are counted.
fn read_series(path: &Path, notes: &mut Vec<String>) -> Result<Option<Vec<SeriesRow>>, ReportError> {
    let wrong = |source| ReportError::Read { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            notes.push("series.jsonl is missing: no time series".to_owned());
            return Ok(None);
        }
        Err(source) => return Err(wrong(source)),
    };
    let (mut rows, mut damaged, mut last_is_damaged) = (Vec::new(), Vec::new(), false);
    for (index, line) in BufReader::new(file).split(b'\n').enumerate() {
        let line = line.map_err(wrong)?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let row = serde_json::from_slice::<SeriesRow>(&line);
        last_is_damaged = row.is_err();
        match row {
            Ok(row) => rows.push(row),
            Err(_) => damaged.push(index + 1),
        }
    }
    if last_is_damaged {
        damaged.pop();
        notes.push("the last line of series.jsonl is cut off: the second it describes is not shown".to_owned());
    }
    if let Some(first) = damaged.first() {
        let lines = damaged.len();
        notes.push(format!("series.jsonl: {lines} lines do not parse and are left out, the first is line {first}"));
    }
    Ok(Some(rows))
}

fn read_histograms(path: &Path, finished: bool, notes: &mut Vec<String>) -> Result<Histograms, ReportError> {
    let Some(text) = read_text(path)? else {
        if finished {
            notes.push("histograms.json is missing: no distribution of the age".to_owned());
        }
        return Ok(Histograms::default());
    };
    match serde_json::from_str(&text) {
        Ok(histograms) => Ok(histograms),
        Err(error) => {
            notes.push(format!("histograms.json does not parse: {error}"));
            Ok(Histograms::default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_finished_folder_reads_whole() {
        let folder = fixture::folder();
        assert_eq!(folder.notes, Vec::<String>::new());
        assert!(folder.summary.is_some() && folder.scenario.is_some());
        let lines = fs::read_to_string(fixture::path().join("series.jsonl")).unwrap().lines().count();
        assert_eq!((folder.series.len(), lines > 60), (lines, true));
    }

    #[test]
    fn the_histograms_give_the_percentiles_of_the_summary() {
        let (folder, summary) = (fixture::folder(), fixture::summary());
        for (step, stats) in &summary.latency_ns {
            assert_eq!(&folder.histogram(*step).unwrap().stats(), stats, "{}", step.name());
        }
        assert!(summary.latency_ns.contains_key(&Step::EndToEnd));
    }

    #[test]
    fn a_cut_last_line_is_noted_and_the_rest_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = fs::read_to_string(fixture::path().join("series.jsonl")).unwrap();
        let lines: Vec<&str> = text.lines().take(20).collect();
        fs::write(dir.path().join("series.jsonl"), format!("{}\n{{\"mono_ns\": 12", lines.join("\n"))).unwrap();
        let folder = RunFolder::read(dir.path()).unwrap();
        assert_eq!((folder.series.len(), folder.summary.is_none()), (20, true));
        assert!(folder.notes[0].contains("did not finish"));
        assert!(folder.notes.iter().any(|note| note.contains("cut off")), "{:?}", folder.notes);
    }

    #[test]
    fn what_is_not_a_run_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let empty = RunFolder::read(dir.path()).unwrap_err().to_string();
        assert!(empty.contains("is not a run folder"), "{empty}");
        let absent = RunFolder::read(&dir.path().join("nowhere")).unwrap_err().to_string();
        assert!(absent.contains("nowhere does not exist"), "{absent}");
        fs::write(dir.path().join("summary.json"), "{\"schema_version\": 7}").unwrap();
        let newer = RunFolder::read(dir.path()).unwrap_err().to_string();
        assert!(newer.contains("schema version 7"), "{newer}");
        fs::write(dir.path().join("summary.json"), "{\"schema_version\": 1, \"run_id\"").unwrap();
        let broken = RunFolder::read(dir.path()).unwrap_err().to_string();
        assert!(broken.contains("is not a summary"), "{broken}");
    }
}
