//! Walk a request's bytes before they are decoded: bounds, lengths and numbers of elements.
//!
//! The protocol crate reserves memory for as many elements as an array claims to have. A claim of two thousand million
//! elements in a frame of 40 bytes would end the process, so no request reaches the decoder before its shape was walked.

use crate::api::ServedApi;

/// Most array elements and tagged fields of one request. A client with 300 topics of 100 partitions needs a third.
pub(crate) const MAX_ELEMENTS: usize = 100_000;

/// What stands in the bytes, in the order it stands there.
pub(crate) enum Shape {
    /// Bytes of a number or flag.
    Fixed(usize),
    /// A string that must be there.
    Text,
    /// A string that may be null.
    OptionalText,
    /// Bytes with a 32-bit length.
    Blob,
    /// Bytes that may be null.
    OptionalBlob,
    /// Elements that must be there.
    List(&'static [Field]),
    /// Elements, or null for "all".
    OptionalList(&'static [Field]),
    /// The tagged fields that end every structure of a flexible version.
    Tags,
}

/// A field and the versions that have it.
pub(crate) struct Field {
    pub shape: Shape,
    pub since: i16,
    pub until: i16,
}

/// Why a request is not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("request ends inside a field")]
    Short,
    #[error("negative length")]
    NegativeLength,
    #[error("more than {MAX_ELEMENTS} elements")]
    TooManyElements,
    #[error("null where a value is required")]
    Null,
    #[error("number longer than 32 bits")]
    LongNumber,
    #[error("text is not UTF-8")]
    Text,
    #[error("the request type has no decoder")]
    Unknown,
    #[error("the decoder refused the bytes")]
    Decoder,
}

/// Reads numbers and lengths off a slice without ever looking past its end.
pub(crate) struct Walker<'a> {
    rest: &'a [u8],
    flexible: bool,
    elements_left: usize,
}

impl<'a> Walker<'a> {
    pub fn new(bytes: &'a [u8], flexible: bool) -> Walker<'a> {
        Walker { rest: bytes, flexible, elements_left: MAX_ELEMENTS }
    }

    /// What was not walked yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn i16(&mut self) -> Result<i16, Malformed> {
        let bytes = self.take(2)?;
        Ok(i16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub fn i32(&mut self) -> Result<i32, Malformed> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub fn unsigned_varint(&mut self) -> Result<u32, Malformed> {
        let mut value = 0_u64;
        for position in 0..5 {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << (position * 7);
            if byte < 0x80 {
                return u32::try_from(value).map_err(|_| Malformed::LongNumber);
            }
        }
        Err(Malformed::LongNumber)
    }

    /// A length as the version writes it; `None` for null.
    fn length(&mut self, short: bool) -> Result<Option<usize>, Malformed> {
        if self.flexible {
            let encoded = self.unsigned_varint()?;
            return Ok(encoded.checked_sub(1).map(|length| length as usize));
        }
        let length = if short { i32::from(self.i16()?) } else { self.i32()? };
        match length {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| Malformed::NegativeLength),
        }
    }

    /// A string as the version writes it.
    pub fn text(&mut self) -> Result<Option<&'a str>, Malformed> {
        let Some(length) = self.length(true)? else { return Ok(None) };
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(Some).map_err(|_| Malformed::Text)
    }

    fn count_elements(&mut self, number: usize) -> Result<(), Malformed> {
        self.elements_left = self.elements_left.checked_sub(number).ok_or(Malformed::TooManyElements)?;
        Ok(())
    }

    /// Tagged fields are skipped: no served version gives one a meaning.
    pub fn tags(&mut self) -> Result<(), Malformed> {
        if !self.flexible {
            return Ok(());
        }
        let number = self.unsigned_varint()? as usize;
        self.count_elements(number)?;
        for _ in 0..number {
            let _tag = self.unsigned_varint()?;
            let length = self.unsigned_varint()? as usize;
            self.take(length)?;
        }
        Ok(())
    }

    fn list(&mut self, fields: &'static [Field], version: i16) -> Result<Option<()>, Malformed> {
        let Some(number) = self.length(false)? else { return Ok(None) };
        self.count_elements(number)?;
        for _ in 0..number {
            self.fields(fields, version)?;
        }
        Ok(Some(()))
    }

    /// Walk one structure.
    pub fn fields(&mut self, fields: &'static [Field], version: i16) -> Result<(), Malformed> {
        for field in fields.iter().filter(|field| (field.since..=field.until).contains(&version)) {
            match &field.shape {
                Shape::Fixed(length) => drop(self.take(*length)?),
                Shape::Text => drop(self.text()?.ok_or(Malformed::Null)?),
                Shape::OptionalText => drop(self.text()?),
                Shape::Blob => {
                    let length = self.length(false)?.ok_or(Malformed::Null)?;
                    self.take(length)?;
                }
                Shape::OptionalBlob => {
                    let length = self.length(false)?.unwrap_or(0);
                    self.take(length)?;
                }
                Shape::List(element) => self.list(element, version)?.ok_or(Malformed::Null)?,
                Shape::OptionalList(element) => drop(self.list(element, version)?),
                Shape::Tags => self.tags()?,
            }
        }
        Ok(())
    }
}

/// Check the body of a request whose version is served.
pub(crate) fn check(api: &ServedApi, version: i16, body: &[u8]) -> Result<(), Malformed> {
    let fields = crate::request_shapes::of(api.key).ok_or(Malformed::Unknown)?;
    Walker::new(body, version >= api.flexible_from).fields(fields, version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;

    fn metadata(body: &[u8]) -> Result<(), Malformed> {
        check(api::find(3).unwrap(), 1, body)
    }

    #[test]
    fn an_array_longer_than_the_request_is_refused() {
        assert_eq!(metadata(&[0x7f, 0xff, 0xff, 0xff]), Err(Malformed::TooManyElements));
        assert_eq!(metadata(&[0, 0, 0, 9, 0, 1, b'a']), Err(Malformed::Short));
    }

    #[test]
    fn negative_lengths_are_refused_except_null() {
        assert_eq!(metadata(&[0xff, 0xff, 0xff, 0xff]), Ok(()));
        assert_eq!(metadata(&[0xff, 0xff, 0xff, 0xfe]), Err(Malformed::NegativeLength));
        assert_eq!(metadata(&[0, 0, 0, 1, 0xff, 0xfe]), Err(Malformed::NegativeLength));
    }

    #[test]
    fn compact_lengths_beyond_32_bits_are_refused() {
        let mut walker = Walker::new(&[0xff, 0xff, 0xff, 0xff, 0x7f], true);
        assert_eq!(walker.unsigned_varint(), Err(Malformed::LongNumber));
    }
}
