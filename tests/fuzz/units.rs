//! Sizes and spans: a text is read exactly when the published pattern allows it and the value fits, the value is exact,
//! and what is printed is read as the same value.

#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use contract::{ByteSize, Span};
use fuzz::write_seeds;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

const SIZES: &[(&str, u128)] = &[
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
const TIMES: &[(&str, u128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

fuzz_target!(init: write_seeds(&seeds()), |bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    check::<ByteSize>(text, SIZES, |size| size.0);
    check::<Span>(text, TIMES, |span| u64::try_from(span.0.as_nanos()).expect("a span is read from 64 bits"));
});

/// What a text should mean.
enum Wanted {
    Refused,
    Value(u64),
    /// More digits than this check can follow.
    Unknown,
}

fn wanted(text: &str, units: &[(&str, u128)]) -> Wanted {
    let letters = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let Some((_, scale)) = units.iter().find(|(name, _)| *name == letters) else { return Wanted::Refused };
    let number = &text[..text.len() - letters.len()];
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Wanted::Refused;
    }
    let digits = fraction.trim_end_matches('0');
    let Ok(whole) = whole.parse::<u128>() else { return Wanted::Refused };
    if whole > u128::from(u64::MAX) {
        return Wanted::Refused;
    }
    if digits.len() > 18 {
        return Wanted::Unknown;
    }
    let power = 10_u128.pow(digits.len() as u32);
    let below_one = digits.parse::<u128>().unwrap_or(0) * scale / power;
    u64::try_from(whole * scale + below_one).map_or(Wanted::Refused, Wanted::Value)
}

fn check<T>(text: &str, units: &[(&str, u128)], value_of: impl Fn(&T) -> u64)
where
    T: FromStr<Err = String> + Display + Debug + PartialEq + Serialize + DeserializeOwned,
{
    let read = text.parse::<T>();
    match (wanted(text, units), &read) {
        (Wanted::Value(value), Ok(read)) => assert_eq!(value_of(read), value, "{text}"),
        (Wanted::Refused, Ok(read)) => panic!("`{text}` is read as {read:?}"),
        (Wanted::Value(value), Err(error)) => panic!("`{text}` is {value}, but: {error}"),
        (Wanted::Unknown, _) | (Wanted::Refused, Err(_)) => {}
    }
    let Ok(read) = read else { return };
    assert_eq!(read.to_string().parse().as_ref(), Ok(&read));
    let json = serde_json::to_string(&read).expect("a text");
    assert_eq!(serde_json::from_str::<T>(&json).expect("what was written is read"), read);
}

fn seeds() -> Vec<Vec<u8>> {
    let texts =
        ["64MiB", "0.1GB", "100B", "1.5KiB", "30s", "500ms", "2m", "1h", "0.000000001s", "18446744073709551615B"];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
