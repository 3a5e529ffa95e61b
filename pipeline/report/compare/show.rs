//! A comparison as text, Markdown and JSON.

use serde_json::Value;

use super::{Comparison, Difference, FigurePair, Side};
use crate::grid::Grid;
use crate::table::WIDTH;
use crate::text::{BLANK, blank, count, fixed, plain};

impl Comparison {
    /// Aligned text of at most 100 columns.
    pub fn text(&self) -> String {
        let mut out = format!("A  {}\nB  {}\n{}\n\n", self.a.line(), self.b.line(), self.note);
        let mut figures = Grid::new(&["<figure", "<unit", ">A", ">B", ">B - A", ">%"]);
        self.figures.iter().for_each(|figure| figures.push(figure.row().to_vec()));
        out.push_str(&figures.text(WIDTH));
        if self.differences.is_empty() {
            out.push_str("\nThe runs do not differ in version, scenario, broker, host or drive.\n");
        } else {
            let mut grid = Grid::new(&["<area", "<what differs", "<A", "<B"]);
            self.differences.iter().for_each(|difference| grid.push(difference.row().to_vec()));
            out.push('\n');
            out.push_str(&grid.text(WIDTH));
        }
        out
    }

    pub fn markdown(&self) -> String {
        let mut out = format!("- A: {}\n- B: {}\n\n{}\n", cell(&self.a.line()), cell(&self.b.line()), self.note);
        out.push_str("\n| figure | unit | A | B | B - A | % |\n|---|---|---:|---:|---:|---:|\n");
        self.figures.iter().for_each(|figure| out.push_str(&row(&figure.row())));
        if !self.differences.is_empty() {
            out.push_str("\n| area | what differs | A | B |\n|---|---|---|---|\n");
            self.differences.iter().for_each(|difference| out.push_str(&row(&difference.row())));
        }
        out
    }

    pub fn json(&self) -> Value {
        serde_json::to_value(self).expect("numbers are finite and keys are text")
    }
}

impl Side {
    fn line(&self) -> String {
        let verdict = self.verdict.unwrap_or("UNFINISHED");
        let parts = [Some(self.name.as_str()), self.started.as_deref(), self.folder.as_deref()];
        plain(&format!("{verdict} {}", parts.into_iter().flatten().collect::<Vec<_>>().join("  ")))
    }
}

impl FigurePair {
    fn row(&self) -> [String; 6] {
        let signed = |value: f64, text: String| if value > 0.0 { format!("+{text}") } else { text };
        let shown = |value: f64| if self.unit == "frames" { frames(value) } else { four_digits(value) };
        [
            self.id.clone(),
            self.unit.to_owned(),
            self.a.map_or_else(blank, shown),
            self.b.map_or_else(blank, shown),
            self.difference.map_or_else(blank, |value| signed(value, shown(value))),
            self.relative.map_or_else(blank, |share| signed(share, fixed(share * 100.0, 1))),
        ]
    }
}

impl Difference {
    fn row(&self) -> [String; 4] {
        let value = |value: &Option<String>| match value.as_deref() {
            None => blank(),
            Some("") => BLANK.to_owned(),
            Some(text) => text.lines().map(str::trim).collect::<Vec<_>>().join(" / "),
        };
        [self.area.to_owned(), self.what.clone(), value(&self.a), value(&self.b)]
    }
}

fn frames(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", count(value.abs() as u64))
}

/// Four digits that matter, so that a small difference is seen in the values too.
fn four_digits(value: f64) -> String {
    let size = value.abs();
    let decimals = [(1000.0, 0), (100.0, 1), (10.0, 2)].into_iter().find(|(from, _)| size >= *from);
    fixed(value, if size == 0.0 { 0 } else { decimals.map_or(3, |(_, decimals)| decimals) })
}

fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Text that cannot end a cell or start markup.
fn cell(text: &str) -> String {
    plain(text).replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace('`', "\\`")
}
