//! Renders the chat template of a model directory in the same way as transformers.
//!
//! The template is `chat_template.jinja`, or else `chat_template` of `tokenizer_config.json` (if
//! there are several, the one named `default`). Its variables and functions are `messages`, `tools`
//! and `documents` (both none), `add_generation_prompt`, the directory's special tokens,
//! `raise_exception`, `strftime_now`, and a `tojson` that writes like Python's `json.dumps`.
//!
//! The output of an untrusted template is limited: in total by the library's fuel, and for a single
//! step by `bounded`. One case is not limited: the operator `~` on lists that contain another list
//! many times, at several levels. The library has no hook for it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::Value as Json;

use super::bounded;
use super::python_json;
use super::special::Special;
use crate::prompts::Message;

/// Maximum fuel for a chat, without its messages. The library counts one unit for each instruction
/// and for each 64 bytes of output. A template that needs more loops, or makes output that is too
/// long for any model.
const FUEL: u64 = 1_000_000;
/// Additional fuel for each byte of a message, enough for 32 bytes of output.
const FUEL_OF_BYTE: f64 = 0.5;

const NAME: &str = "chat";

/// Why a chat cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The directory has no template: use plain texts instead.
    #[error("the model's folder has no chat template")]
    None,
    /// The directory's template cannot be read or parsed.
    #[error("{place}: {reason}")]
    Invalid {
        /// The file that has the template.
        place: String,
        /// Why.
        reason: String,
    },
    /// The template refuses these messages.
    #[error("the chat template refuses the messages: {reason}")]
    Refused {
        /// The template's message.
        reason: String,
    },
}

/// A chat template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    special: BTreeMap<&'static str, String>,
}

impl Template {
    /// Reads the template of a model directory.
    ///
    /// # Errors
    ///
    /// If there is none, or if it cannot be read or parsed.
    pub(super) fn read(directory: &Path, special: &Special) -> Result<Self, TemplateError> {
        let file = directory.join("chat_template.jinja");
        let invalid = |path: &Path, reason| TemplateError::Invalid { place: path.display().to_string(), reason };
        let (place, source) = match fs::read_to_string(&file) {
            Ok(source) => (file.as_path(), source),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (path, field) = special.chat_template();
                (path, named(field).map_err(|reason| invalid(path, reason))?.ok_or(TemplateError::None)?)
            }
            Err(error) => return Err(invalid(&file, error.to_string())),
        };
        Self::new(source, special.named.clone()).map_err(|error| invalid(place, one_line(&error)))
    }

    /// Creates a template, with the special tokens that it can use by name.
    ///
    /// # Errors
    ///
    /// If it cannot be parsed.
    pub fn new(source: String, special: BTreeMap<&'static str, String>) -> Result<Self, Error> {
        let mut environment = Environment::new();
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        environment.set_unknown_method_callback(bounded::method);
        environment.set_formatter(|out, state, value| match python_word(value) {
            Some(word) => out.write_str(word).map_err(Error::from),
            None if bounded::is_nested(value) => out.write_str(&bounded::text(value)?).map_err(Error::from),
            None => minijinja::escape_formatter(out, state, value),
        });
        environment.add_filter("string", |value: &Value| bounded::text(value));
        environment.add_filter("tojson", tojson);
        environment.add_function("raise_exception", |reason: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, reason))
        });
        environment.add_function("strftime_now", strftime_now);
        environment.add_template_owned(NAME, source)?;
        Ok(Self { environment, special })
    }

    /// Renders a chat. With `add_generation_prompt`, the text ends where the assistant's answer
    /// begins.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Refused`], with the template's reason.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, TemplateError> {
        let refused = |error: Error| TemplateError::Refused { reason: one_line(&error) };
        let message = |m: &Message| Value::from_pairs([("role", m.role.as_str()), ("content", m.content.as_str())]);
        let given = [
            ("messages", Value::from(messages.iter().map(message).collect::<Vec<_>>())),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(add_generation_prompt)),
        ];
        let special = self.special.iter().map(|(name, text)| (*name, Value::from(text.as_str())));
        let context = Value::from_pairs(given.into_iter().chain(special));
        let bytes: usize = messages.iter().map(|m| m.role.len() + m.content.len()).sum();
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL + (FUEL_OF_BYTE * bytes as f64) as u64));
        environment.get_template(NAME).and_then(|template| template.render(context)).map_err(refused)
    }
}

/// Python's words for `None`, `True` and `False`.
fn python_word(value: &Value) -> Option<&'static str> {
    match (value.is_none(), value.is_true(), value.kind()) {
        (true, _, _) => Some("None"),
        (_, true, minijinja::value::ValueKind::Bool) => Some("True"),
        (_, false, minijinja::value::ValueKind::Bool) => Some("False"),
        _ => None,
    }
}

fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let failed = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let indent: Option<usize> = options.get("indent")?;
    // Accepted and ignored, because templates pass the values that are used here anyway. Other
    // options are refused by `assert_all_used`.
    let _: (Option<bool>, Option<bool>) = (options.get("ensure_ascii")?, options.get("sort_keys")?);
    options.assert_all_used()?;
    let text = python_json::dumps(value, indent.map(|spaces| spaces.min(64))).map_err(failed)?;
    Ok(Value::from_safe_string(text))
}

fn strftime_now(format: String) -> Result<String, Error> {
    let mut text = String::new();
    write!(text, "{}", chrono::Local::now().format(&format))
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, format!("{format:?} is no format of a time")))?;
    Ok(text)
}

/// The template in a `chat_template` field: a text, or the one named `default` in a list.
fn named(field: &Json) -> Result<Option<String>, String> {
    match field {
        Json::Null => Ok(None),
        Json::String(source) => Ok(Some(source.clone())),
        Json::Array(several) => several
            .iter()
            .find(|template| template["name"] == "default")
            .and_then(|template| template["template"].as_str())
            .map(|source| Some(source.to_owned()))
            .ok_or_else(|| "chat_template has several templates and none named default".to_owned()),
        other => Err(format!("chat_template {other}")),
    }
}

fn one_line(error: &Error) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned).replace('\n', " ")
}
