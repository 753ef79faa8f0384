//! Errors in a model's `config.json`.

/// Why a model's `config.json` cannot be used; the message names the field.
///
/// # Examples
///
/// ```
/// use radixkv_replay::model::ModelConfig;
///
/// let error = ModelConfig::from_json(br#"{"num_hidden_layers": 80}"#).expect_err("little is known");
/// assert_eq!(error.to_string(), "the field num_attention_heads is missing");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file is not a JSON object.
    #[error("not a JSON object: {0}")]
    NotAnObject(Box<str>),
    /// A field is missing that the figures depend on.
    #[error("the field {0} is missing")]
    Missing(Box<str>),
    /// The value has the wrong type or size.
    #[error("the field {field} is {value}, not {wanted}")]
    Wrong {
        /// The field, with the object that contains it.
        field: Box<str>,
        /// Its value.
        value: Box<str>,
        /// What the value should be.
        wanted: &'static str,
    },
    /// The field changes the figures in an unsupported way.
    #[error("the field {field} is {value}: {why}")]
    Unsupported {
        /// The field, with the object that contains it.
        field: Box<str>,
        /// Its value.
        value: Box<str>,
        /// Why the field is unsupported.
        why: &'static str,
    },
}
