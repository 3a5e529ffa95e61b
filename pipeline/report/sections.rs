//! The parts of a result, each a few lines and a grid, shown alike by the terminal table and the HTML report.

mod frames;
mod host;
mod settings;
mod storage;

pub use storage::broker_label;

use crate::grid::Grid;
use crate::load::RunFolder;

/// One part of a result.
#[derive(Clone, Debug)]
pub struct Section {
    /// Anchor in the report.
    pub id: &'static str,
    pub title: &'static str,
    /// Units, and what is shown.
    pub about: &'static str,
    /// Lines above the grid.
    pub lines: Vec<String>,
    pub grid: Option<Grid>,
    /// Details for the HTML report alone.
    pub html_only: bool,
}

impl Section {
    fn new(id: &'static str, title: &'static str, about: &'static str) -> Self {
        Section { id, title, about, lines: Vec::new(), grid: None, html_only: false }
    }

    fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    fn lines(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.lines.extend(lines);
        self
    }

    fn grid(mut self, grid: Grid) -> Self {
        self.grid = Some(grid).filter(|grid| !grid.is_empty());
        self
    }

    fn html_only(mut self) -> Self {
        self.html_only = true;
        self
    }

    fn shown(self) -> Option<Self> {
        (self.grid.is_some() || !self.lines.is_empty()).then_some(self)
    }
}

/// Every section that has something to say, in the order they are read.
pub fn sections(folder: &RunFolder) -> Vec<Section> {
    let summary = folder.summary.as_ref();
    let of = |section: fn(&contract::summary::Summary) -> Option<Section>| summary.and_then(section);
    [
        of(frames::audit),
        of(frames::inference),
        of(frames::latency),
        of(frames::latency_outside),
        of(frames::stages),
        of(frames::instances),
        of(settings::sources),
        of(settings::settings),
        host::processes(folder),
        of(storage::disks),
        of(storage::truth),
        of(storage::broker),
        of(frames::checks),
        host::warnings(folder),
        of(host::host),
        of(host::drives),
        of(host::clocks),
        of(host::preflight),
        of(host::phases),
        of(host::recipe),
    ]
    .into_iter()
    .flatten()
    .collect()
}
