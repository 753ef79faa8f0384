//! Reads the tokens that end a text, one or several, from `config.json` or
//! `generation_config.json`. If the second file exists, its value counts.

use std::fs;
use std::io;
use std::path::Path;

use radixkv::Token;
use serde::{Deserialize, Deserializer};

use super::ConfigError;

/// One token or a list of them.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    One(Token),
    Many(Vec<Token>),
}

impl OneOrMany {
    pub(super) fn tokens(self) -> Vec<Token> {
        match self {
            Self::One(token) => vec![token],
            Self::Many(tokens) => tokens,
        }
    }
}

/// Reads a field that may be missing or `null`. The outer `None` means that it is missing.
pub(super) fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<OneOrMany>>, D::Error> {
    Option::deserialize(deserializer)
        .map(Some)
        .map_err(|_| serde::de::Error::custom("eos_token_id is neither a token nor a list of tokens"))
}

#[derive(Deserialize)]
struct Generation {
    #[serde(default, deserialize_with = "given")]
    eos_token_id: Option<Option<OneOrMany>>,
}

/// The end tokens of `generation_config.json`; `None` if there is no such file. Empty if the file
/// has no such field.
pub(super) fn of_generation(directory: &Path) -> Result<Option<Vec<Token>>, ConfigError> {
    let path = directory.join("generation_config.json");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ConfigError::Read { path, source }),
    };
    let generation: Generation = serde_json::from_str(&text).map_err(|source| ConfigError::Parse { path, source })?;
    Ok(Some(generation.eos_token_id.flatten().map_or_else(Vec::new, OneOrMany::tokens)))
}
