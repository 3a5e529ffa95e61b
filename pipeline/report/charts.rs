//! Small SVG charts without scripts or fonts of their own. Colours are CSS classes (`c0` to `c7`), so that one file serves light
//! and dark; each chart has a title, a description and a legend with figures, so that it can be read without seeing it.

pub mod axis;
pub mod bars;
pub mod curve;
pub mod lines;

use crate::grid::escape;

/// Size of every chart in its own units; the page scales it.
pub const WIDTH: f64 = 580.0;
pub const HEIGHT: f64 = 230.0;
/// Width of a chart across both columns.
pub const WIDE: f64 = 1190.0;
/// Room for the ticks.
pub const LEFT: f64 = 58.0;
pub const RIGHT: f64 = 12.0;
pub const TOP: f64 = 26.0;
pub const BOTTOM: f64 = 30.0;
/// Colours there are; further lines begin anew.
pub const COLOURS: usize = 8;

/// A finished chart: `<figure>` markup, everything in it escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure(pub String);

/// What every chart has.
#[derive(Clone, Copy, Debug)]
pub struct Caption<'a> {
    /// Anchor, unique in the report.
    pub id: &'a str,
    pub title: &'a str,
    /// What is shown, for those who read and those who listen.
    pub about: &'a str,
}

/// One entry of a legend.
#[derive(Clone, Debug)]
pub struct Key {
    pub colour: usize,
    pub dashed: bool,
    pub name: String,
    pub figures: String,
}

impl Caption<'_> {
    /// Puts the parts of a chart together.
    pub fn figure(&self, height: f64, body: &str, keys: &[Key]) -> Figure {
        self.sized(WIDTH, height, body, keys)
    }

    /// Two columns wide.
    pub fn wide_figure(&self, height: f64, body: &str, keys: &[Key]) -> Figure {
        self.sized(WIDE, height, body, keys)
    }

    fn sized(&self, width: f64, height: f64, body: &str, keys: &[Key]) -> Figure {
        let class = if width > WIDTH { " class=\"wide\"" } else { "" };
        let (id, title, about) = (escape(self.id), escape(self.title), escape(self.about));
        let figures: Vec<String> = keys
            .iter()
            .filter(|key| !key.figures.is_empty())
            .map(|key| format!("{}: {}", key.name, key.figures))
            .collect();
        let told = escape(&figures.join("; "));
        let mut out = format!(
            "<figure id=\"{id}\"{class}><figcaption><h3>{title}</h3><p>{about}</p></figcaption>\
             <svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\
             <title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{about}. {told}</desc>{body}</svg>"
        );
        if !keys.is_empty() {
            out.push_str("<ul class=\"legend\">");
            for key in keys {
                let dashed = if key.dashed { " dashed" } else { "" };
                out.push_str(&format!(
                    "<li><span class=\"key b{}{dashed}\"></span>{} <span class=\"fig\">{}</span></li>",
                    key.colour % COLOURS,
                    escape(&key.name),
                    escape(&key.figures)
                ));
            }
            out.push_str("</ul>");
        }
        out.push_str("</figure>");
        Figure(out)
    }
}

/// Text in a chart.
pub fn label(x: f64, y: f64, class: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escape(text))
}

/// A straight line.
pub fn rule(from: (f64, f64), to: (f64, f64), class: &str) -> String {
    format!("<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" class=\"{class}\"/>", from.0, from.1, to.0, to.1)
}
