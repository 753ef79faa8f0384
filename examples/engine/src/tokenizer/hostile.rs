//! Reads an untrusted `tokenizer.json`: limits its size and the growth of texts, and catches panics
//! of the library.
//!
//! The library panics on some files that it has accepted. It can be used after a panic: encoding
//! changes only a cache of words, whose locks are released.

use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// Maximum size of the file in bytes. Tokenizers with the largest vocabularies have a quarter of
/// this.
const LARGEST: u64 = 128 << 20;

/// Maximum factor by which all replacements together may lengthen a text.
const MOST_GROWTH: usize = 64;

/// The parts of the file that may replace text.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
}

/// Reads a tokenizer, and disables truncation and padding, as transformers does.
pub(super) fn read(path: &Path) -> Result<tokenizers::Tokenizer, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LARGEST {
        return Err(format!("more than {LARGEST} bytes"));
    }
    let parts: Parts = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let mut growth = 1;
    for (name, part) in
        [("normalizer", parts.normalizer), ("pre_tokenizer", parts.pre_tokenizer), ("decoder", parts.decoder)]
    {
        grows(&part, &mut growth);
        if growth > MOST_GROWTH {
            return Err(format!("its {name} makes a text more than {MOST_GROWTH} times longer"));
        }
    }
    caught(|| {
        let mut tokenizer = text.parse::<tokenizers::Tokenizer>().map_err(|error| error.to_string())?;
        tokenizer.with_padding(None).with_truncation(None).map_err(|error| error.to_string())?;
        Ok(tokenizer)
    })
}

/// The result of a call into the library; a panic becomes an error with the panic's message.
pub(super) fn caught<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("the tokenizer panicked: {}", said.unwrap_or("without a word")))
    })
}

/// Multiplies `growth` by the maximum growth of each replacement in this part.
fn grows(part: &Value, growth: &mut usize) {
    match part {
        Value::Object(fields) => {
            let len = |name: &str| fields.get(name).and_then(Value::as_str).map_or(0, str::len);
            let factor = match fields.get("type").and_then(Value::as_str) {
                // A match has at least one byte; an empty pattern matches before every byte.
                Some("Replace") => 1 + len("content"),
                _ => 1,
            };
            let pattern = fields.get("pattern").and_then(|pattern| pattern.get("String")).and_then(Value::as_str);
            let factor = pattern
                .filter(|pattern| !pattern.is_empty())
                .map_or(factor, |pattern| if factor == 1 { 1 } else { (factor - 1).div_ceil(pattern.len()).max(1) });
            *growth = growth.saturating_mul(factor);
            fields.values().for_each(|value| grows(value, growth));
        }
        Value::Array(values) => values.iter().for_each(|value| grows(value, growth)),
        _ => {}
    }
}
