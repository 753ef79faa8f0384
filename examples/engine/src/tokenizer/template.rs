//! The folder's chat template, rendered as transformers renders it.
//!
//! The template is `chat_template.jinja`, or else `chat_template` of `tokenizer_config.json` (of several the one named
//! `default`). It sees `messages`, `tools` and `documents` (both none), `add_generation_prompt`, the special tokens that
//! the folder names, `raise_exception`, `strftime_now`, and a `tojson` that writes as Python's `json.dumps` does.
//!
//! A template of unknown origin is bounded in what it makes: all of it by the library's fuel, and one step of it by `bounded`. Not bounded
//! is the text of a list that has one other list many times, and that again, where `~` makes it: the library has no place to ask in.

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

/// What one chat may take beside its messages: the library counts instructions, and 64 bytes made as one. A template that needs more goes round
/// in circles, or builds what no model reads.
const FUEL: u64 = 1_000_000;
/// What it may take for each byte of a message: 32 bytes made.
const FUEL_OF_BYTE: f64 = 0.5;

const NAME: &str = "chat";

/// Why a chat has no text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The folder has no template: continue plain texts instead.
    #[error("the model's folder has no chat template")]
    None,
    /// The folder's template is none that can be rendered.
    #[error("{place}: {reason}")]
    Invalid {
        /// Where the template stands.
        place: String,
        /// Why.
        reason: String,
    },
    /// The template refuses these messages.
    #[error("the chat template refuses the messages: {reason}")]
    Refused {
        /// What the template says.
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
    /// The template of a model's directory.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be parsed.
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

    /// A template with the special tokens that it may name.
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

    /// The text of a chat, up to where the assistant is to answer if `add_generation_prompt`.
    ///
    /// # Errors
    ///
    /// What the template says against these messages.
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

/// How Python writes values that Rust writes otherwise.
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
    // What `json.dumps` is given by itself, and other values are refused by `assert_all_used`.
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

/// The template of a `chat_template` field: a text, or the one named `default` of several.
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
