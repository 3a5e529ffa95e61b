//! A table of cells that prints as aligned text and as HTML, so that both show the same figures.

use crate::text::{plain, wrap};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

#[derive(Clone, Debug)]
struct Column {
    head: String,
    align: Align,
    /// Too much for 100 columns of text: HTML only.
    wide: bool,
}

/// Rows under named columns.
#[derive(Clone, Debug)]
pub struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// A text column is not squeezed below this many characters.
const NARROWEST: usize = 10;
const GAP: &str = "  ";

impl Grid {
    /// Columns by name with a mark in front: `<` text, `>` number; `+` before it: HTML only.
    pub fn new(heads: &[&str]) -> Self {
        Grid { columns: heads.iter().map(|head| Column::parse(head)).collect(), rows: Vec::new() }
    }

    pub fn push(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a row has one cell for each column");
        self.rows.push(row);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Aligned lines of at most `width` characters; text cells wrap.
    pub fn text(&self, width: usize) -> String {
        let shown: Vec<usize> = (0..self.columns.len()).filter(|index| !self.columns[*index].wide).collect();
        let widths = self.widths(&shown, width);
        let mut out = String::new();
        let heads: Vec<String> = shown.iter().map(|index| self.columns[*index].head.clone()).collect();
        self.line(&mut out, &shown, &widths, &heads);
        for row in &self.rows {
            let cells: Vec<String> =
                shown.iter().map(|index| row.get(*index).map(|cell| plain(cell)).unwrap_or_default()).collect();
            self.line(&mut out, &shown, &widths, &cells);
        }
        out
    }

    fn widths(&self, shown: &[usize], width: usize) -> Vec<usize> {
        let longest = |index: &usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(*index)).map(|cell| cell.chars().count());
            cells.chain([self.columns[*index].head.chars().count()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = shown.iter().map(longest).collect();
        let gaps = GAP.len() * shown.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > width {
            let texts = (0..shown.len()).filter(|place| self.columns[shown[*place]].align == Align::Left);
            let Some(widest) = texts.max_by_key(|place| widths[*place]) else { break };
            if widths[widest] <= NARROWEST {
                break;
            }
            widths[widest] -= 1;
        }
        widths
    }

    fn line(&self, out: &mut String, shown: &[usize], widths: &[usize], cells: &[String]) {
        let wrapped: Vec<Vec<String>> = cells.iter().zip(widths).map(|(cell, width)| wrap(cell, *width)).collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(0);
        for level in 0..height {
            let parts: Vec<String> = (0..shown.len())
                .map(|place| {
                    let cell = wrapped[place].get(level).map(String::as_str).unwrap_or_default();
                    match self.columns[shown[place]].align {
                        Align::Left => format!("{cell:<0$}", widths[place]),
                        Align::Right => format!("{cell:>0$}", widths[place]),
                    }
                })
                .collect();
            out.push_str(parts.join(GAP).trim_end());
            out.push('\n');
        }
    }

    /// A `<table>`; at most `most` rows, the rest counted.
    pub fn html(&self, caption: &str, most: usize) -> String {
        let mut out = String::from("<div class=\"scroll\"><table>");
        out.push_str(&format!("<caption class=\"sr\">{}</caption><thead><tr>", escape(caption)));
        for column in &self.columns {
            out.push_str(&format!("<th scope=\"col\"{}>{}</th>", column.class(), escape(&column.head)));
        }
        out.push_str("</tr></thead><tbody>");
        for row in self.rows.iter().take(most) {
            out.push_str("<tr>");
            for (column, cell) in self.columns.iter().zip(row) {
                out.push_str(&format!("<td{}>{}</td>", column.class(), cell_html(cell)));
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div>");
        if self.rows.len() > most {
            let more = self.rows.len() - most;
            out.push_str(&format!("<p class=\"note\">and {more} more rows, in summary.json</p>"));
        }
        out
    }
}

impl Column {
    fn parse(head: &str) -> Self {
        let (wide, head) = head.strip_prefix('+').map_or((false, head), |rest| (true, rest));
        let (align, head) = match head.strip_prefix('>') {
            Some(rest) => (Align::Right, rest),
            None => (Align::Left, head.strip_prefix('<').unwrap_or(head)),
        };
        Column { head: head.to_owned(), align, wide }
    }

    fn class(&self) -> &'static str {
        match self.align {
            Align::Left => "",
            Align::Right => " class=\"n\"",
        }
    }
}

/// A verdict in a cell gets its colour; the word itself stays, so colour says nothing alone.
fn cell_html(cell: &str) -> String {
    match cell {
        "PASS" | "holds" | "yes" => format!("<b class=\"good\">{cell}</b>"),
        "FAIL" | "BROKEN" | "NO" => format!("<b class=\"bad\">{cell}</b>"),
        "INVALID" => format!("<b class=\"odd\">{cell}</b>"),
        _ => escape(cell),
    }
}

/// Text as HTML, safe in content and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_text_wraps_within_the_width() {
        let mut grid = Grid::new(&["<rule", ">seen", "+<html only"]);
        grid.push(vec!["one rule that is long".into(), "1,234".into(), "x".into()]);
        grid.push(vec!["short".into(), "-".into(), "y".into()]);
        assert_eq!(grid.text(20), "rule            seen\none rule that  1,234\nis long\nshort              -\n");
    }

    #[test]
    fn html_escapes_cells_and_counts_what_it_leaves_out() {
        let mut grid = Grid::new(&["<a"]);
        (0..3).for_each(|_| grid.push(vec!["<script>'\"&\u{1b}".into()]));
        let html = grid.html("c", 2);
        assert!(html.contains("<td>&lt;script&gt;&#39;&quot;&amp;\u{fffd}</td>") && html.contains("and 1 more rows"));
    }
}
