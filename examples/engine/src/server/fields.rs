//! The fields of a JSON body. Each known field is taken out by name; fields that are left are
//! refused.

use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::ApiError;

/// Fields that are ignored because they do not affect the answer.
const WITHOUT_EFFECT: [&str; 7] =
    ["metadata", "parallel_tool_calls", "safety_identifier", "service_tier", "store", "stream_options", "user"];

/// The text of an error, with words instead of the names of Rust types.
fn in_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let types = [
        ("expected usize", "expected a whole number of 0 or more"),
        ("expected i64", "expected a whole number"),
        ("expected f32", "expected a number"),
    ];
    types.iter().fold(text, |text, (name, words)| text.replace(name, words))
}

/// An object in a body, and its path for errors.
pub(super) struct Fields {
    fields: Map<String, Value>,
    place: String,
}

impl Fields {
    /// The fields of a body.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let refused = |reason| ApiError::new(StatusCode::BAD_REQUEST, reason);
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self { fields, place: String::new() }),
            Ok(_) => Err(refused("the body is no JSON object".to_owned())),
            Err(error) => Err(refused(format!("the body is no JSON: {error}"))),
        }
    }

    /// The fields of an object inside a body; `place` is its name in errors.
    pub(super) fn inside(value: Value, place: &str) -> Result<Self, ApiError> {
        match value {
            Value::Object(fields) => Ok(Self { fields, place: format!("{place}.") }),
            _ => Err(ApiError::field(place, format!("{place} is no object"))),
        }
    }

    /// The name of a field in errors.
    pub(super) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.place)
    }

    /// Takes a field; `None` if it is missing or null.
    pub(super) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        match self.fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value).map(Some).map_err(|error| {
                let name = self.name(name);
                ApiError::field(&name, format!("{name}: {}", in_words(&error)))
            }),
        }
    }

    /// Takes a field that is not supported. A value is accepted only if `missing` returns true for
    /// it: it then means the same as a missing field.
    pub(super) fn without(&mut self, name: &str, missing: impl FnOnce(&Value) -> bool) -> Result<(), ApiError> {
        match self.fields.remove(name) {
            Some(value) if !value.is_null() && !missing(&value) => {
                let name = self.name(name);
                Err(ApiError::field(&name, format!("{name} is not supported")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses fields that were not taken.
    pub(super) fn finish(self) -> Result<(), ApiError> {
        let unknown = |(name, value): &(&String, &Value)| !value.is_null() && !WITHOUT_EFFECT.contains(&name.as_str());
        match self.fields.iter().find(unknown) {
            Some((name, _)) => {
                let name = self.name(name);
                Err(ApiError::field(&name, format!("{name} is not supported")))
            }
            None => Ok(()),
        }
    }
}
