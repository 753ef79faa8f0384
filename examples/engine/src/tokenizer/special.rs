//! Reads the special tokens of a model directory: from `tokenizer_config.json`, and those that it
//! does not have from `special_tokens_map.json`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::TokenizerError;

/// The names of special tokens in templates.
const NAMED: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The special tokens of a directory.
#[derive(Debug)]
pub(super) struct Special {
    path: PathBuf,
    config: Value,
    pub(super) named: BTreeMap<&'static str, String>,
}

impl Special {
    /// Reads a directory. Missing files count as empty.
    pub(super) fn read(directory: &Path) -> Result<Self, TokenizerError> {
        let path = directory.join("tokenizer_config.json");
        let (config, map) = (object(&path)?, object(&directory.join("special_tokens_map.json"))?);
        let named = |name| content(&config[name]).or_else(|| content(&map[name])).map(|text| (name, text));
        Ok(Self { named: NAMED.into_iter().filter_map(named).collect(), path, config })
    }

    /// The field `chat_template`, and the file that has it.
    pub(super) fn chat_template(&self) -> (&Path, &Value) {
        (&self.path, &self.config["chat_template"])
    }

    /// Refuses a tokenizer whose first or last token contradicts `add_bos_token` or
    /// `add_eos_token`, if these are set: versions of transformers differ in which one they follow.
    pub(super) fn check(&self, tokenizer: &tokenizers::Tokenizer, empty_text: &[u32]) -> Result<(), TokenizerError> {
        let ends =
            [("add_bos_token", "bos_token", empty_text.first()), ("add_eos_token", "eos_token", empty_text.last())];
        for (field, name, token) in ends {
            let (Some(asked), Some(text)) = (self.config[field].as_bool(), self.named.get(name)) else { continue };
            let added = token.is_some_and(|token| tokenizer.token_to_id(text) == Some(*token));
            if asked != added {
                let does = if added { "adds it" } else { "does not add it" };
                let reason = format!("{field} is {asked} for {text}, and tokenizer.json {does}");
                return Err(TokenizerError::Read { path: self.path.clone(), reason });
            }
        }
        Ok(())
    }
}

/// The text of a special token, from a string or from the field `content` of an object.
fn content(field: &Value) -> Option<String> {
    field.as_str().or_else(|| field["content"].as_str()).map(str::to_owned)
}

/// The JSON of a file; `null` if there is no file.
fn object(path: &Path) -> Result<Value, TokenizerError> {
    let broken = |reason| TokenizerError::Read { path: path.to_owned(), reason };
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| broken(error.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(broken(error.to_string())),
    }
}
