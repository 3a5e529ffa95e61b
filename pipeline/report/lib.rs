//! Shows what a run found: the table in the terminal, `report.html`, the comparison of two runs, the schema of `summary.json`.
//! It reads run folders and nothing else, an unfinished one too. What a run does not tell is blank, never 0.

mod charts;
mod compare;
mod figures;
#[cfg(test)]
mod fixture;
mod grid;
mod html;
mod limits;
mod load;
mod plots;
mod processes;
mod schema;
mod sections;
mod table;
mod text;
mod truth;

pub use compare::{Comparison, Difference, FigurePair, Side, compare};
pub use html::{render_html, write_html};
pub use load::{Histograms, ReportError, RunFolder};
pub use schema::{summary_markdown, summary_schema};
pub use table::{TableOptions, table, table_with};

/// Name of the report in a run folder.
pub const REPORT_FILE: &str = "report.html";
