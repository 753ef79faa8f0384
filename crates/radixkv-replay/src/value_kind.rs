//! The kind of a JSON value, read without storing the value, which may be long.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The kind of a JSON value, as far as error messages distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Null,
    /// An integer from 0 to 2^64 - 1.
    Natural(u64),
    /// An integer from -2^63 to -1.
    Negative(i64),
    /// Any other number.
    Number,
    /// A list of integers from 0 to 2^64 - 1, by its largest; 0 if the list is empty.
    Naturals(u64),
    Other,
}

impl<'de> Deserialize<'de> for ValueKind {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        value.deserialize_any(Kinds { is_element: false })
    }
}

/// Reads the kind of a value. The contents of an element of a list are ignored at any depth: the
/// JSON parser limits how deep values are read, but not how deep they are ignored.
struct Kinds {
    is_element: bool,
}

impl<'de> DeserializeSeed<'de> for Kinds {
    type Value = ValueKind;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<ValueKind, D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Kinds {
    type Value = ValueKind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<ValueKind, E> {
        Ok(ValueKind::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<ValueKind, E> {
        Ok(ValueKind::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<ValueKind, E> {
        Ok(ValueKind::Other)
    }

    fn visit_u64<E>(self, number: u64) -> Result<ValueKind, E> {
        Ok(ValueKind::Natural(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<ValueKind, E> {
        Ok(u64::try_from(number).map_or(ValueKind::Negative(number), ValueKind::Natural))
    }

    fn visit_f64<E>(self, _: f64) -> Result<ValueKind, E> {
        Ok(ValueKind::Number)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ValueKind, A::Error> {
        if self.is_element {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(ValueKind::Other);
        }
        let mut kind = ValueKind::Naturals(0);
        while let Some(element) = list.next_element_seed(Self { is_element: true })? {
            kind = match (kind, element) {
                (ValueKind::Naturals(largest), ValueKind::Natural(number)) => ValueKind::Naturals(largest.max(number)),
                _ => ValueKind::Other,
            };
        }
        Ok(kind)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<ValueKind, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(ValueKind::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        let cases = [
            ("null", ValueKind::Null),
            ("7", ValueKind::Natural(7)),
            ("18446744073709551615", ValueKind::Natural(u64::MAX)),
            ("18446744073709551616", ValueKind::Number),
            ("-1", ValueKind::Negative(-1)),
            ("-9223372036854775809", ValueKind::Number),
            ("1.0", ValueKind::Number),
            ("[]", ValueKind::Naturals(0)),
            ("[3, 9, 4]", ValueKind::Naturals(9)),
            ("[3, -9]", ValueKind::Other),
            ("[[3]]", ValueKind::Other),
            ("{\"a\": [1, {}], \"b\": null}", ValueKind::Other),
            ("\"7\"", ValueKind::Other),
            ("true", ValueKind::Other),
        ];
        for (text, kind) in cases {
            assert_eq!(serde_json::from_str::<ValueKind>(text).expect(text), kind, "{text}");
        }
        assert!(serde_json::from_str::<ValueKind>("[1,").is_err());
        for depth in [100, 127, 128, 1000] {
            let deep = "[".repeat(depth) + &"]".repeat(depth);
            assert_eq!(serde_json::from_str::<ValueKind>(&deep).expect("a value"), ValueKind::Other, "{depth}");
        }
    }
}
