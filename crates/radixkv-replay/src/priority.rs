//! Reads a request's priority from the field of its row that the user names.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use radixkv::Priority;

use super::value_kind::ValueKind;

/// Why a row's priority could not be read.
///
/// # Examples
///
/// ```
/// assert_eq!(radixkv_replay::PriorityFault::NotAPriority.to_string(), "not an integer of 64 bits");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PriorityFault {
    /// The row lacks the field.
    #[error("missing")]
    Missing,
    /// The value is not a priority.
    #[error("not an integer of 64 bits")]
    NotAPriority,
}

/// The priority in `field` of a line that was already parsed as a row.
pub(super) fn parse(line: &[u8], field: &str) -> Result<Priority, PriorityFault> {
    let mut row = serde_json::Deserializer::from_slice(line);
    let is_there = Cell::new(false);
    let level = match (Named { field, is_there: &is_there }.deserialize(&mut row), is_there.get()) {
        (_, false) => return Err(PriorityFault::Missing),
        (Ok(Some(ValueKind::Natural(level))), _) => i64::try_from(level).ok(),
        (Ok(Some(ValueKind::Negative(level))), _) => Some(level),
        // The line has been parsed with this field ignored, so its value is at fault.
        _ => None,
    };
    level.map(Priority::new).ok_or(PriorityFault::NotAPriority)
}

/// One field of an object; the values of the others are ignored.
struct Named<'a> {
    field: &'a str,
    /// Set once the field is seen.
    is_there: &'a Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for Named<'_> {
    type Value = Option<ValueKind>;

    fn deserialize<D: Deserializer<'de>>(self, row: D) -> Result<Option<ValueKind>, D::Error> {
        row.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Named<'_> {
    type Value = Option<ValueKind>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Option<ValueKind>, A::Error> {
        let mut found = None;
        while let Some(name) = fields.next_key::<Cow<'_, str>>()? {
            if name == self.field {
                self.is_there.set(true);
                found = Some(fields.next_value()?);
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_an_integer_of_64_bits() {
        let parsed = |line: &str| parse(line.as_bytes(), "slo").map(Priority::level);
        assert_eq!(parsed(r#"{"a": [1, {"slo": 3}], "slo": 7, "b": {}}"#), Ok(7));
        assert_eq!((parsed(r#"{"slo": -1}"#), parsed(r#"{"\u0073lo": 100}"#)), (Ok(-1), Ok(100)));
        for level in [i64::MIN, i64::MAX] {
            assert_eq!(parsed(&format!("{{\"slo\": {level}}}")), Ok(level));
        }
        assert_eq!(parsed(r#"{"SLO": 1}"#), Err(PriorityFault::Missing));
        let wrong = ["9223372036854775808", "-9223372036854775809", "1.5", "null", "\"7\"", "[7]", "1e300", "1e400"];
        let deep = [1, 126, 127, 128, 5000].map(|depth| "[".repeat(depth) + &"]".repeat(depth));
        let deep_maps = [127, 5000].map(|depth| "{\"a\": ".repeat(depth) + "1" + &"}".repeat(depth));
        let values =
            wrong.iter().copied().chain(["\"\\ud800\""]).chain(deep.iter().chain(&deep_maps).map(String::as_str));
        for value in values {
            let line = format!("{{\"slo\": {value}}}");
            assert_eq!(parsed(&line), Err(PriorityFault::NotAPriority), "{value}");
        }
    }
}
