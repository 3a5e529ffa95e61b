//! Numbers and words as people read them. A missing value is `-`, and so is one that is not a number.

/// What stands for a value that is not known.
pub const BLANK: &str = "-";

/// `1234567` as `1,234,567`.
pub fn count(value: u64) -> String {
    group(&value.to_string())
}

pub fn count_or_blank(value: Option<u64>) -> String {
    value.map_or_else(blank, count)
}

pub fn blank() -> String {
    BLANK.to_owned()
}

/// A number with so many decimals and grouped thousands.
pub fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return blank();
    }
    let text = format!("{:.*}", decimals, value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let is_zero = text.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    let sign = if value < 0.0 && !is_zero { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}", group(whole))
}

pub fn fixed_or_blank(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(blank, |value| fixed(value, decimals))
}

/// About three digits that matter: `0.042`, `4.21`, `57.1`, `1,234`.
pub fn short(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size == 0.0 => 0,
        _ if size >= 99.95 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        _ => 3,
    };
    if size > 0.0 && size < 0.0005 {
        return if value < 0.0 { "-<0.001".to_owned() } else { "<0.001".to_owned() };
    }
    fixed(value, decimals)
}

pub fn short_or_blank(value: Option<f64>) -> String {
    value.map_or_else(blank, short)
}

pub fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Nanoseconds as milliseconds, to the microsecond.
pub fn ms_or_blank(ns: Option<i64>) -> String {
    ns.map_or_else(blank, |ns| fixed(ms(ns), 3))
}

/// `0.123` as `12.3 %`.
pub fn percent(share: f64) -> String {
    let hundredth = share * 100.0;
    let decimals = if hundredth.abs() >= 99.95 || hundredth == 0.0 { 0 } else { 1 };
    if hundredth != 0.0 && hundredth.abs() < 0.05 {
        return "<0.1 %".to_owned();
    }
    format!("{} %", fixed(hundredth, decimals))
}

pub fn percent_or_blank(share: Option<f64>) -> String {
    share.map_or_else(blank, percent)
}

/// A share that must not be rounded up to the whole: 0.99999 is `99.999 %`, never `100 %`.
pub fn exact_percent(part: u64, whole: u64) -> Option<String> {
    if whole == 0 {
        return None;
    }
    if part == whole {
        return Some("100 %".to_owned());
    }
    let milli = u128::from(part) * 100_000 / u128::from(whole);
    Some(format!("{}.{:03} %", milli / 1000, milli % 1000))
}

/// Bytes with a binary unit: `1.70 GiB`.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut size = value as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1023.995 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let decimals = if size < 99.95 { 2 } else { 1 };
    format!("{} {}", fixed(size, decimals), UNITS[unit])
}

pub fn bytes_or_blank(value: Option<u64>) -> String {
    value.map_or_else(blank, bytes)
}

/// Text from a run folder, safe to print: a control character could move the cursor or colour the terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Breaks text into lines of at most `width` characters, at spaces where there are any.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        let used = line.chars().count();
        if used > 0 && used + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
        }
        while word.len() > width {
            // Names break after a joint where there is one.
            let joint = word[..width].iter().rposition(|c| matches!(c, '-' | '/' | '_' | ',' | ':'));
            let rest = word.split_off(joint.map_or(width, |place| place + 1));
            lines.push(word.into_iter().collect());
            word = rest;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

fn group(digits: &str) -> String {
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_grouped_and_signed() {
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([fixed(-1234.5, 1), fixed(-0.0001, 2), fixed(f64::NAN, 2)], ["-1,234.5", "0.00", "-"]);
        assert_eq!([short(0.0), short(0.0001), short(0.0421), short(4.213)], ["0", "<0.001", "0.042", "4.21"]);
        assert_eq!([short(57.14), short(99.97), short(1234.4)], ["57.1", "100", "1,234"]);
    }

    #[test]
    fn a_share_short_of_the_whole_never_reads_as_the_whole() {
        assert_eq!(exact_percent(999_999, 1_000_000).unwrap(), "99.999 %");
        assert_eq!(exact_percent(u64::MAX - 1, u64::MAX).unwrap(), "99.999 %");
        assert_eq!(exact_percent(5, 5).unwrap(), "100 %");
        assert_eq!(exact_percent(0, 0), None);
        assert_eq!(
            [percent(0.0), percent(0.0001), percent(0.1234), percent(1.0)],
            ["0 %", "<0.1 %", "12.3 %", "100 %"]
        );
    }

    #[test]
    fn bytes_carry_a_binary_unit() {
        assert_eq!([bytes(0), bytes(1023), bytes(1024), bytes(1 << 20)], ["0 B", "1023 B", "1.00 KiB", "1.00 MiB"]);
        assert_eq!([bytes((1 << 30) - 1), bytes(u64::MAX)], ["1.00 GiB", "16.00 EiB"]);
    }

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(plain("a\u{1b}[31mred\r\n\u{9b}x"), "a [31mred   x");
    }

    proptest! {
        #[test]
        fn wrapping_keeps_every_word_and_the_width(text in "[a-z ]{0,200}", width in 1usize..40) {
            let lines = wrap(&text, width);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= width));
            let (joined, wanted): (String, String) = (lines.concat(), text);
            prop_assert_eq!(joined.replace(' ', ""), wanted.replace(' ', ""));
        }
    }
}
