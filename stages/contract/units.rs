//! Quantities as people write them in scenario files: `"64MiB"`, `"30s"`. A bare number is refused, never guessed.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes, written with a unit: `"512KiB"`, `"64MiB"`, `"2GiB"`, `"10MB"`, `"100B"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// A length of time, written with a unit: `"500ms"`, `"30s"`, `"2m"`, `"1h"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

const BYTE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

const TIME_UNITS_NS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Pattern of a byte size in the published JSON Schema.
pub const BYTE_SIZE_PATTERN: &str = r"^[0-9]+(\.[0-9]+)?(B|[kK]B|MB|GB|TB|KiB|MiB|GiB|TiB)$";
/// Pattern of a time span in the published JSON Schema.
pub const SPAN_PATTERN: &str = r"^[0-9]+(\.[0-9]+)?(ns|us|ms|s|m|min|h)$";

fn parse_quantity(text: &str, units: &[(&str, u64)], wish: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let wrong = || format!("`{text}` is not {wish}");
    let scale = units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale).ok_or_else(wrong)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
        return Err(wrong());
    }
    let too_large = || format!("`{text}` is too large");
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let mut total = whole.checked_mul(scale).ok_or_else(too_large)?;
    let mut place = u128::from(scale);
    let mut rest: u128 = 0;
    for digit in fraction.bytes().take(18) {
        // Integer arithmetic: 0.1 GB is exactly 100,000,000 bytes.
        rest = rest * 10 + u128::from(digit - b'0') * u128::from(scale);
        place *= 10;
    }
    let divisor = place / u128::from(scale.max(1));
    total = total.checked_add((rest / divisor.max(1)) as u64).ok_or_else(too_large)?;
    Ok(total)
}

impl FromStr for ByteSize {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse_quantity(text, BYTE_UNITS, "a size with a unit, such as \"64MiB\"").map(ByteSize)
    }
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let ns = parse_quantity(text, TIME_UNITS_NS, "a time with a unit, such as \"30s\" or \"500ms\"")?;
        Ok(Span(Duration::from_nanos(ns)))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, scale) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= scale && self.0.is_multiple_of(scale) {
                return write!(f, "{}{unit}", self.0 / scale);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos() as u64;
        for (unit, scale) in [("s", 1_000_000_000u64), ("ms", 1_000_000), ("us", 1_000)] {
            if ns.is_multiple_of(scale) {
                return write!(f, "{}{unit}", ns / scale);
            }
        }
        write!(f, "{ns}ns")
    }
}

impl Span {
    /// Whole nanoseconds; a span is never longer than the parser accepts, which fits.
    pub fn ns(self) -> i64 {
        i64::try_from(self.0.as_nanos()).unwrap_or(i64::MAX)
    }
    pub const fn from_secs(seconds: u64) -> Self {
        Span(Duration::from_secs(seconds))
    }
    pub const fn from_millis(milliseconds: u64) -> Self {
        Span(Duration::from_millis(milliseconds))
    }
}

macro_rules! quoted {
    ($name:ident, $pattern:expr, $about:expr) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'_, str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern, "description": $about })
            }
        }
    };
}
quoted!(ByteSize, BYTE_SIZE_PATTERN, "a size with a unit: \"64MiB\", \"10MB\"");
quoted!(Span, SPAN_PATTERN, "a time with a unit: \"30s\", \"500ms\", \"2m\"");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_and_spans_are_exact() {
        assert_eq!("64MiB".parse(), Ok(ByteSize(64 << 20)));
        assert_eq!("0.1GB".parse(), Ok(ByteSize(100_000_000)));
        assert_eq!("1.5KiB".parse(), Ok(ByteSize(1536)));
        assert_eq!("1.5s".parse(), Ok(Span(Duration::from_millis(1500))));
        assert_eq!("2m".parse(), Ok(Span(Duration::from_secs(120))));
    }

    #[test]
    fn bare_numbers_and_nonsense_are_refused() {
        for text in ["", "64", "MiB", "1.MiB", ".5s", "1.2.3s", "-1s", "1 s", "64mib", "99999999999999TB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(n in 0u64..u64::MAX / 2) {
            prop_assert_eq!(ByteSize(n).to_string().parse(), Ok(ByteSize(n)));
            prop_assert_eq!(Span(Duration::from_nanos(n)).to_string().parse(), Ok(Span(Duration::from_nanos(n))));
        }
        #[test]
        fn parsing_never_panics(text in "\\PC{0,24}") {
            let _ = text.parse::<ByteSize>();
            let _ = text.parse::<Span>();
        }
    }
}
