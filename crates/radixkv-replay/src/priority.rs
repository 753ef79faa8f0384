//! A request's priority, from the field of its row that the user names.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use radixkv::Priority;

use super::value_kind::ValueKind;

/// What is wrong with the field that was named for priorities.
///
/// # Examples
///
/// ```
/// assert_eq!(radixkv_replay::PriorityFault::NotAPriority.to_string(), "not an integer of 64 bits");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PriorityFault {
    /// The row does not have it.
    #[error("missing")]
    Missing,
    /// Its value is not a priority.
    #[error("not an integer of 64 bits")]
    NotAPriority,
}

/// The priority in `field` of a line that was read as a row before.
pub(super) fn parse(line: &[u8], field: &str) -> Result<Priority, PriorityFault> {
    let mut row = serde_json::Deserializer::from_slice(line);
    let level = Named(field).deserialize(&mut row).ok().flatten().ok_or(PriorityFault::Missing)?;
    let level = match level {
        ValueKind::Natural(level) => i64::try_from(level).ok(),
        ValueKind::Negative(level) => Some(level),
        _ => None,
    };
    level.map(Priority::new).ok_or(PriorityFault::NotAPriority)
}

/// One field of an object; the values of the others are ignored.
struct Named<'a>(&'a str);

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
            if name == self.0 {
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
        for value in ["9223372036854775808", "-9223372036854775809", "1.5", "null", "\"7\"", "[7]", "1e300"] {
            assert_eq!(parsed(&format!("{{\"slo\": {value}}}")), Err(PriorityFault::NotAPriority), "{value}");
        }
    }
}
