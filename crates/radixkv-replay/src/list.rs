//! A JSON list whose reading does not abort the process if memory is short.

use std::{fmt, marker::PhantomData};

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

/// The elements of a list; `None` if memory was short.
pub(super) struct List<T>(Option<Vec<T>>);

impl<T> List<T> {
    /// All elements, if there was memory for them.
    pub(super) fn into_vec(self) -> Option<Vec<T>> {
        self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(list: D) -> Result<Self, D::Error> {
        list.deserialize_seq(Elements(PhantomData))
    }
}

struct Elements<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Elements<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<List<T>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element()? {
            if elements.try_reserve(1).is_err() {
                drop(elements);
                while list.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(List(None));
            }
            elements.push(element);
        }
        Ok(List(Some(elements)))
    }
}
