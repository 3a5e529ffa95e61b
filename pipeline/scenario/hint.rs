//! The nearest known name, for "did you mean".

/// The name with the fewest edits, if it is near enough to be meant.
pub(crate) fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (wanted.chars().count() / 3).max(1) + 1;
    let near = names.into_iter().map(|name| (distance(wanted, name), name));
    near.filter(|(edits, name)| *edits <= limit && *edits < name.chars().count())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

/// `; did you mean `x`?` or nothing.
pub(crate) fn did_you_mean<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(wanted, names).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// `` `a`, `b`, `c` ``
pub(crate) fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Edits (insert, delete, replace, swap of neighbours) between two words, ignoring case and the kind of dash.
fn distance(a: &str, b: &str) -> usize {
    /// Longer words are not typing errors of each other.
    const LONGEST: usize = 64;
    let word =
        |text: &str| text.chars().take(LONGEST).map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect();
    let (a, b): (Vec<char>, Vec<char>) = (word(a), word(b));
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_near_and_other_words_are_not() {
        let names = ["streams", "fps", "mode", "drop-old"];
        assert_eq!(nearest("fsp", names), Some("fps"));
        assert_eq!(nearest("stream", names), Some("streams"));
        assert_eq!(nearest("drop_old", names), Some("drop-old"));
        assert_eq!(nearest("Mode", names), Some("mode"));
        assert_eq!(nearest("quality", names), None);
        assert_eq!(nearest("x", names), None);
    }
}
