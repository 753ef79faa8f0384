//! Reads the log of an SGLang server.
//!
//! ```text
//! [2025-03-03 17:53:04] Receive: obj=GenerateReqInput(text=None, input_ids=[151646, 198], ..., rid='ced0', ...)
//! [2025-03-03 17:53:05] Finish: obj=GenerateReqInput(...), out={..., 'meta_info': {'id': 'ced0', ..., 'completion_tokens': 9}}
//! ```

use super::{Prompt, Said, error::LogFault, python, time};

pub(super) fn read(line: &str) -> Result<Said, LogFault> {
    let (received, finished) = (line.split_once("Receive: obj=GenerateReqInput("), line.split_once("Finish: obj="));
    // A text may contain the words of the other line, so the first ones count.
    let (head, said) = match (received, finished) {
        (Some(received), Some(finished)) if received.0.len() < finished.0.len() => received,
        (_, Some((_, said))) => return Ok(output(said).unwrap_or(Said::Nothing)),
        (Some(received), None) => received,
        (None, None) => return Ok(Said::Nothing),
    };
    let milliseconds = head.rsplit_once('[').and_then(|(_, date)| time::milliseconds(date));
    // The text may contain anything, also names of fields: the fields are searched after it.
    let (text, rest) = match said.split_once("text=").and_then(|(_, text)| python::string(text)) {
        Some((text, rest)) => (Some(text), rest),
        None => (None, said),
    };
    if rest.starts_with(" ... ") {
        return Err(LogFault::Shortened);
    }
    let tokens = match rest.split_once("input_ids=") {
        Some((_, tokens)) => python::tokens(tokens)?,
        None => None,
    };
    let name = field(rest, "rid=").or_else(|| field(said, "rid="));
    let prompt = match (tokens, text) {
        (Some(tokens), _) => Prompt::Tokens(tokens),
        (None, Some(text)) => Prompt::Text(text),
        (None, None) => return Err(LogFault::Missing("input_ids")),
    };
    Ok(Said::Request { name, milliseconds, prompt, output: 0 })
}

fn output(said: &str) -> Option<Said> {
    let (_, about) = said.rsplit_once("'meta_info': ")?;
    let name = field(about, "'id': ")?;
    let (_, tokens) = about.split_once("'completion_tokens': ")?;
    let end = tokens.find(|c: char| !c.is_ascii_digit()).unwrap_or(tokens.len());
    Some(Said::Output { name, tokens: tokens[..end].parse().ok()? })
}

/// The string after a name.
fn field(text: &str, name: &str) -> Option<String> {
    let (_, value) = text.split_once(name)?;
    python::string(value).map(|(value, _)| value)
}
