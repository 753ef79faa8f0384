//! Reads the log of a vLLM server.
//!
//! A request is one line, at level INFO until 2025 and at level DEBUG since:
//!
//! ```text
//! INFO 10-01 18:43:27 logger.py:36] Received request cmpl-1: prompt: 'Hello', params: ..., prompt_token_ids: [1, 15043], ...
//! DEBUG 02-13 11:33:33 [logger.py:49] Request cmpl-1 details: prompt: 'Hello', prompt_token_ids: [1, 15043], ...
//! INFO 02-13 11:33:39 [logger.py:80] Generated response cmpl-1: output: 'Hi', output_token_ids: [5], finish_reason: stop
//! ```

use super::{Prompt, Said, error::LogFault, python, time::Clock};

const LEVELS: [&str; 3] = ["INFO ", "DEBUG ", "WARNING "];
/// What a line reports, and the text that follows the name of its request.
const REPORTS: [(&str, &str); 3] =
    [(OUTPUT, ": output: "), ("Received request ", ": prompt: "), ("Request ", " details: prompt: ")];
const OUTPUT: &str = "Generated response ";

pub(super) fn read(line: &str, clock: &mut Clock) -> Result<Said, LogFault> {
    // Prompts and outputs may contain all these words, so the first ones of the line count.
    let levels = LEVELS.iter().filter_map(|level| line.split_once(level));
    let date = levels.min_by_key(|(before, _)| before.len()).map(|(_, date)| date);
    let milliseconds = date.and_then(|date| clock.milliseconds(date));
    let reports = REPORTS.iter().filter_map(|&(report, then)| {
        let (before, said) = line.split_once(report)?;
        said.contains(then).then_some((before.len(), report, said))
    });
    let Some((_, report, said)) = reports.min() else { return Ok(Said::Nothing) };
    if report == OUTPUT {
        return output(said);
    }
    let Some((name, prompt)) = said.split_once(": prompt: ") else { return Ok(Said::Nothing) };
    let name = name.trim_end_matches(" details").to_owned();
    let (text, rest) = match python::string(prompt) {
        Some((text, rest)) => (Some(text), rest),
        None => (None, prompt),
    };
    let tokens = match rest.split_once("prompt_token_ids: ") {
        Some((_, tokens)) => python::tokens(tokens)?,
        None => None,
    };
    let prompt = match (tokens, text) {
        (Some(tokens), _) => Prompt::Tokens(tokens),
        (None, Some(text)) => Prompt::Text(text),
        (None, None) => return Err(LogFault::Missing("prompt")),
    };
    Ok(Said::Request { name: Some(name), milliseconds, prompt, output: 0 })
}

/// Parses the number of generated tokens; the parts of a streamed answer are ignored.
fn output(said: &str) -> Result<Said, LogFault> {
    let Some((name, rest)) = said.split_once(": output: ").filter(|(name, _)| !name.ends_with("(streaming delta)"))
    else {
        return Ok(Said::Nothing);
    };
    let rest = python::string(rest).map_or(rest, |(_, rest)| rest);
    let tokens = match rest.split_once("output_token_ids: ") {
        Some((_, tokens)) => python::tokens(tokens)?,
        None => None,
    };
    let name = name.trim_end_matches(" (streaming complete)").to_owned();
    Ok(tokens.map_or(Said::Nothing, |tokens| Said::Output { name, tokens: tokens.len() }))
}
