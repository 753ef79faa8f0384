//! Reads MessagePack values from untrusted bytes.
//!
//! An announced length is accepted only if enough bytes follow, and lists grow as their elements
//! are read. So the received bytes bound the memory, whatever lengths they announce.

use rmp::{Marker, decode as msgpack};

use super::DecodeError;

/// Maximum number of list elements to allocate before they are read.
const ROOM: usize = 1024;
/// Maximum nesting depth of values.
const DEEPEST: usize = 16;

/// The rest of a payload that was not read yet.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, length: bytes.len() }
    }

    /// The number of bytes that were read.
    pub(super) fn at(&self) -> usize {
        self.length - self.rest.len()
    }

    pub(super) fn rest(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn unexpected(&self, wanted: &'static str) -> DecodeError {
        DecodeError::Unexpected { wanted, at: self.at() }
    }

    pub(super) fn peek(&self) -> Result<Marker, DecodeError> {
        self.rest.first().map(|&byte| Marker::from_u8(byte)).ok_or(DecodeError::Truncated { at: self.at() })
    }

    /// Reads a value with one of the library's functions.
    fn value<T, E>(
        &mut self,
        wanted: &'static str,
        read: impl FnOnce(&mut &'a [u8]) -> Result<T, E>,
    ) -> Result<T, DecodeError> {
        self.peek()?;
        let mut rest = self.rest;
        let value = read(&mut rest).map_err(|_| self.unexpected(wanted))?;
        self.rest = rest;
        Ok(value)
    }

    /// Skips nil; `false` if the next value is not nil.
    pub(super) fn nil(&mut self) -> Result<bool, DecodeError> {
        let is_nil = self.peek()? == Marker::Null;
        if is_nil {
            self.rest = &self.rest[1..];
        }
        Ok(is_nil)
    }

    /// Reads nil as `None`, and anything else with `read`.
    pub(super) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.nil()? { Ok(None) } else { read(self).map(Some) }
    }

    /// Reads the length of an array. Each element takes at least one byte.
    pub(super) fn array(&mut self, wanted: &'static str) -> Result<usize, DecodeError> {
        let length = self.value(wanted, msgpack::read_array_len)?;
        self.announced(length as usize)
    }

    /// Reads the number of entries of a map. Each entry takes at least two bytes.
    pub(super) fn map(&mut self, wanted: &'static str) -> Result<usize, DecodeError> {
        let length = self.value(wanted, msgpack::read_map_len)?;
        self.announced((length as usize).saturating_mul(2))?;
        Ok(length as usize)
    }

    fn announced(&self, length: usize) -> Result<usize, DecodeError> {
        if length > self.rest.len() { Err(DecodeError::Truncated { at: self.length }) } else { Ok(length) }
    }

    /// Reads an array with `read` for each element.
    pub(super) fn list<T>(
        &mut self,
        wanted: &'static str,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let length = self.array(wanted)?;
        let mut list = Vec::with_capacity(length.min(ROOM));
        for _ in 0..length {
            list.push(read(self)?);
        }
        Ok(list)
    }

    pub(super) fn unsigned(&mut self, wanted: &'static str) -> Result<u64, DecodeError> {
        self.value(wanted, msgpack::read_int)
    }

    pub(super) fn signed(&mut self, wanted: &'static str) -> Result<i64, DecodeError> {
        self.value(wanted, msgpack::read_int)
    }

    pub(super) fn u32(&mut self, wanted: &'static str) -> Result<u32, DecodeError> {
        self.value(wanted, msgpack::read_int)
    }

    /// `None` if the next value is not an integer; else whether its encoding is signed.
    pub(super) fn integer(&self) -> Result<Option<bool>, DecodeError> {
        Ok(match self.peek()? {
            Marker::FixPos(_) | Marker::U8 | Marker::U16 | Marker::U32 | Marker::U64 => Some(false),
            Marker::FixNeg(_) | Marker::I8 | Marker::I16 | Marker::I32 | Marker::I64 => Some(true),
            _ => None,
        })
    }

    /// Reads a number, integer or floating-point.
    pub(super) fn number(&mut self, wanted: &'static str) -> Result<f64, DecodeError> {
        match self.peek()? {
            Marker::F64 => self.value(wanted, msgpack::read_f64),
            Marker::F32 => self.value(wanted, msgpack::read_f32).map(f64::from),
            _ => self.signed(wanted).map(|number| number as f64),
        }
    }

    pub(super) fn bool(&mut self) -> Result<bool, DecodeError> {
        self.value("truth", msgpack::read_bool)
    }

    pub(super) fn text(&mut self, wanted: &'static str) -> Result<&'a str, DecodeError> {
        let at = self.unexpected(wanted);
        let length = self.value(wanted, msgpack::read_str_len)?;
        let bytes = self.take(length as usize)?;
        std::str::from_utf8(bytes).map_err(|_| at)
    }

    pub(super) fn bytes(&mut self, wanted: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = self.value(wanted, msgpack::read_bin_len)?;
        self.take(length as usize)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        self.announced(length)?;
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(taken)
    }

    /// Skips a value of any type.
    pub(super) fn skip(&mut self) -> Result<(), DecodeError> {
        self.skip_within(DEEPEST)
    }

    fn skip_within(&mut self, depth: usize) -> Result<(), DecodeError> {
        let values = match self.peek()? {
            Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => self.array("array")?,
            Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => 2 * self.map("map")?,
            _ => return self.skip_plain(),
        };
        let deeper = depth.checked_sub(1).ok_or(DecodeError::TooDeep { at: self.at() })?;
        (0..values).try_for_each(|_| self.skip_within(deeper))
    }

    /// Skips a value that contains no other values.
    fn skip_plain(&mut self) -> Result<(), DecodeError> {
        let (head, length) = match self.peek()? {
            Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
                (0, self.value("text", msgpack::read_str_len)?)
            }
            Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => (0, self.value("bytes", msgpack::read_bin_len)?),
            Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => (1, 0),
            Marker::U8 | Marker::I8 => (1, 1),
            Marker::U16 | Marker::I16 => (1, 2),
            Marker::U32 | Marker::I32 | Marker::F32 => (1, 4),
            Marker::U64 | Marker::I64 | Marker::F64 => (1, 8),
            _ => (0, self.value("value", msgpack::read_ext_meta)?.size),
        };
        self.take(head + length as usize).map(drop)
    }

    /// The maximum nesting depth of values.
    pub(super) fn deepest() -> usize {
        DEEPEST
    }
}
