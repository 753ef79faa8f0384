//! What kind of thing a JSON value is, found out without keeping the value: a line may be long.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// As much of a JSON value as a complaint about it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Null,
    /// An integer from 0 to 2^64 - 1.
    Natural(u64),
    /// Any other number.
    Number,
    /// A list of such integers, of which this is the largest; 0 if it is empty.
    Naturals(u64),
    Other,
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        value.deserialize_any(Shapes)
    }
}

struct Shapes;

impl<'de> Visitor<'de> for Shapes {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Shape, E> {
        Ok(Shape::Natural(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Shape, E> {
        Ok(u64::try_from(number).map_or(Shape::Number, Shape::Natural))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
        let mut shape = Shape::Naturals(0);
        while let Some(element) = list.next_element()? {
            shape = match (shape, element) {
                (Shape::Naturals(largest), Shape::Natural(number)) => Shape::Naturals(largest.max(number)),
                _ => Shape::Other,
            };
        }
        Ok(shape)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Shape, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Shape::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_apart() {
        let cases = [
            ("null", Shape::Null),
            ("7", Shape::Natural(7)),
            ("18446744073709551615", Shape::Natural(u64::MAX)),
            ("18446744073709551616", Shape::Number),
            ("-1", Shape::Number),
            ("1.0", Shape::Number),
            ("[]", Shape::Naturals(0)),
            ("[3, 9, 4]", Shape::Naturals(9)),
            ("[3, -9]", Shape::Other),
            ("[[3]]", Shape::Other),
            ("{\"a\": [1, {}], \"b\": null}", Shape::Other),
            ("\"7\"", Shape::Other),
            ("true", Shape::Other),
        ];
        for (text, shape) in cases {
            assert_eq!(serde_json::from_str::<Shape>(text).expect(text), shape, "{text}");
        }
        assert!(serde_json::from_str::<Shape>("[1,").is_err());
    }
}
