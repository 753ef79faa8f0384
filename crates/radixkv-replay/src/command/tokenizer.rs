//! Opens a model's tokenizer, or the one that makes each byte a token.

use std::{error::Error, path::Path};

use radixkv_replay::convert::{ByteTokens, Tokenize};

/// The argument for the tokenizer that makes each byte a token.
const BYTES: &str = "bytes";

/// Whether the argument names a file.
pub(crate) fn is_file(path: &Path) -> bool {
    path.as_os_str() != BYTES
}

/// Opens the tokenizer of a `tokenizer.json`, or the one for bytes.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Tokenize>, Box<dyn Error>> {
    if !is_file(path) {
        return Ok(Box::new(ByteTokens));
    }
    of_model(path)
}

#[cfg(not(feature = "tokenizers"))]
fn of_model(path: &Path) -> Result<Box<dyn Tokenize>, Box<dyn Error>> {
    let path = path.display();
    Err(format!("{path}: this build cannot read tokenizers: enable the feature tokenizers, or use --tokenizer bytes")
        .into())
}

#[cfg(feature = "tokenizers")]
fn of_model(path: &Path) -> Result<Box<dyn Tokenize>, Box<dyn Error>> {
    let tokenizer = tokenizers::Tokenizer::from_file(path);
    let tokenizer = tokenizer.map_err(|error| format!("{}: cannot be read as a tokenizer: {error}", path.display()))?;
    Ok(Box::new(OfModel(tokenizer)))
}

/// A model's tokenizer.
#[cfg(feature = "tokenizers")]
struct OfModel(tokenizers::Tokenizer);

#[cfg(feature = "tokenizers")]
impl Tokenize for OfModel {
    fn tokens(&self, text: &str) -> Result<Vec<radixkv::Token>, Box<str>> {
        let encoded = self.0.encode(text, false).map_err(|error| error.to_string())?;
        Ok(encoded.get_ids().to_vec())
    }

    fn text(&self, token: radixkv::Token) -> Option<String> {
        self.0.decode(&[token], false).ok().filter(|text| !text.is_empty())
    }
}
