//! Converts request logs to traces, with hash ids instead of texts, so that a trace can be shared.
//!
//! A prompt becomes a list of hash ids, one for each `unit` tokens. Two requests have the same id
//! where their tokens and all tokens before them are the same; the ids count up from 0 and reveal
//! nothing else. Times are milliseconds since the first request.
//!
//! Sharing is preserved in whole units: replay a converted trace with blocks of `unit` tokens, or a
//! multiple.
//!
//! | format | is |
//! |---|---|
//! | `openai` | JSON lines with the `messages` of a chat or the `prompt` of a completion, bare or in a `body` or `request`; texts are rendered as ChatML |
//! | `vllm` | the log of a vLLM server with `--enable-log-requests`, and the lines of `--enable-log-outputs` for lengths |
//! | `sglang` | the log of an SGLang server with `--log-requests --log-requests-level 3` |
//! | `azure` | Azure's public traces: CSV with `TIMESTAMP,ContextTokens,GeneratedTokens`; no tokens are shared |
//! | `mooncake` | Mooncake's public traces, which already have the format of traces; their ids are renumbered |

mod azure;
mod chat;
mod error;
mod ids;
mod mooncake;
mod python;
mod sglang;
mod time;
mod tokenize;
mod vllm;

use std::{
    fmt,
    io::{Read, Write},
    str::FromStr,
};

use radixkv::key::Token;
use serde::Serialize;

pub use error::{ConvertError, LogFault};
pub use tokenize::{ByteTokens, Tokenize};

use crate::{
    limits::Limits,
    lines::{LineFault, Lines},
    source,
};
use ids::Ids;

/// The format of a log.
///
/// # Examples
///
/// ```
/// use radixkv_replay::convert::LogFormat;
///
/// assert_eq!("vllm".parse(), Ok(LogFormat::Vllm));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// JSON lines of chats.
    OpenAi,
    /// The log of a vLLM server.
    Vllm,
    /// The log of an SGLang server.
    Sglang,
    /// Azure's public traces.
    Azure,
    /// Mooncake's public traces.
    Mooncake,
}

impl LogFormat {
    /// Every format.
    pub const ALL: [Self; 5] = [Self::OpenAi, Self::Vllm, Self::Sglang, Self::Azure, Self::Mooncake];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Azure => "azure",
            Self::Mooncake => "mooncake",
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or("none of openai, vllm, sglang, azure, mooncake")
    }
}

/// The configuration of a conversion.
///
/// # Examples
///
/// ```
/// use radixkv_replay::convert::{ByteTokens, ConvertConfig, LogFormat};
///
/// let config = ConvertConfig { unit: 64, tokenizer: Some(&ByteTokens), ..ConvertConfig::new(LogFormat::OpenAi) };
/// # assert_eq!(config.unit, 64);
/// ```
#[derive(Clone, Copy)]
pub struct ConvertConfig<'a> {
    /// The format of the log.
    pub format: LogFormat,
    /// Tokens per hash id, more than zero.
    pub unit: usize,
    /// The tokenizer for logs with texts; a log with token ids needs none.
    pub tokenizer: Option<&'a dyn Tokenize>,
    /// Limits on lines, rows and hash ids.
    pub limits: Limits,
}

impl ConvertConfig<'_> {
    /// Creates the default configuration for a format: 16 tokens per hash id, no tokenizer, the
    /// usual limits.
    #[must_use]
    pub fn new(format: LogFormat) -> Self {
        Self { format, unit: 16, tokenizer: None, limits: Limits::default() }
    }
}

/// The result of a conversion.
///
/// # Examples
///
/// As for [`convert()`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Converted {
    /// Number of rows of the trace.
    pub requests: usize,
    /// Number of tokens of all prompts.
    pub prompt_tokens: u64,
    /// Number of distinct hash ids.
    pub hash_ids: usize,
    /// Lines of the log that do not concern a request.
    pub other_lines: usize,
}

/// One request of a log.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    timestamp: f64,
    input_length: usize,
    output_length: usize,
    hash_ids: Vec<u64>,
}

/// Timestamps from here on, in milliseconds, are refused: about the age of the universe.
const NO_TIME: f64 = 4e20;

/// The prompt of a request, as the log gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Prompt {
    Text(String),
    Tokens(Vec<Token>),
    /// Only a length: no tokens are shared.
    Length(usize),
    /// The ids of another trace, and the number of tokens.
    Ids(Vec<u64>, usize),
}

/// The content of a line of a log.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    /// A request. `name` is set if another line has its output; `output` is the number of generated
    /// tokens.
    Request {
        name: Option<String>,
        milliseconds: Option<f64>,
        prompt: Prompt,
        output: usize,
    },
    /// The number of tokens that were generated for a request.
    Output {
        name: String,
        tokens: usize,
    },
    Nothing,
}

/// Reads a log and writes a trace in the same order; returns counts of what was converted.
///
/// # Errors
///
/// Fails if the log cannot be read, if a line is malformed or exceeds a limit, if a prompt is text
/// and there is no tokenizer, if there is no request, and if the trace cannot be written.
///
/// # Panics
///
/// Panics if [`unit`](ConvertConfig::unit) is zero.
///
/// # Examples
///
/// ```
/// use radixkv_replay::convert::{ConvertConfig, LogFormat, convert};
///
/// let log = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.6805900,396,109\n";
/// let mut trace = Vec::new();
/// let converted = convert(log.as_bytes(), &ConvertConfig::new(LogFormat::Azure), &mut trace)?;
/// assert_eq!((converted.requests, converted.prompt_tokens), (2, 770));
/// let rows = String::from_utf8(trace)?;
/// assert!(rows.ends_with("{\"timestamp\":4000.0,\"input_length\":396,\"output_length\":109,\"hash_ids\":[]}\n"));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub fn convert(
    log: impl Read + 'static,
    config: &ConvertConfig<'_>,
    trace: &mut dyn Write,
) -> Result<Converted, ConvertError> {
    assert!(config.unit > 0, "a hash id stands for at least one token");
    let mut converter = Converter::new(config);
    converter.read(log)?;
    converter.write(trace)
}

struct Converter<'a> {
    config: &'a ConvertConfig<'a>,
    ids: Ids,
    rows: Vec<Row>,
    /// Rows by the names of their requests, for outputs in later lines.
    named: std::collections::HashMap<String, usize>,
    clock: time::Clock,
    line: usize,
    other_lines: usize,
    tokens: usize,
}

impl<'a> Converter<'a> {
    fn new(config: &'a ConvertConfig<'a>) -> Self {
        Self {
            config,
            ids: Ids::default(),
            rows: Vec::new(),
            named: Default::default(),
            clock: time::Clock::default(),
            line: 0,
            other_lines: 0,
            tokens: 0,
        }
    }

    fn read(&mut self, log: impl Read + 'static) -> Result<(), ConvertError> {
        let text = source::decompress(log).map_err(|source| ConvertError::Read { line: 0, source })?;
        let mut lines = Lines::new(text, self.config.limits.line_bytes);
        let unreadable = |fault, line| match fault {
            LineFault::Read(source) => ConvertError::Read { line, source },
            LineFault::TooLong => ConvertError::Line { line: line + 1, fault: LogFault::TooLong },
            LineFault::NoMemory(source) => ConvertError::NoMemory(source),
        };
        while let Some(line) = lines.next().map_err(|fault| unreadable(fault, self.line))? {
            self.line += 1;
            let number = self.line;
            self.add(String::from_utf8_lossy(line).trim())
                .map_err(|fault| ConvertError::Line { line: number, fault })?;
        }
        if self.rows.is_empty() {
            return Err(ConvertError::Empty { lines: self.line, format: self.config.format });
        }
        Ok(())
    }

    fn add(&mut self, line: &str) -> Result<(), LogFault> {
        match self.said(line)? {
            Said::Nothing => self.other_lines += 1,
            Said::Output { name, tokens } => self.output(&name, tokens),
            Said::Request { name, milliseconds, prompt, output } => {
                // Without a time of its own, a request follows the one before.
                let next = || self.rows.last().map_or(0.0, |row| row.timestamp + 1.0);
                let time = milliseconds.unwrap_or_else(next);
                if !(-NO_TIME..NO_TIME).contains(&time) {
                    return Err(LogFault::Wrong { field: "timestamp", wanted: "a time" });
                }
                self.request(name, time, prompt, output)?;
            }
        }
        Ok(())
    }

    fn said(&mut self, line: &str) -> Result<Said, LogFault> {
        match self.config.format {
            _ if line.is_empty() => Ok(Said::Nothing),
            LogFormat::OpenAi => chat::read(line, self.config.tokenizer),
            LogFormat::Vllm => vllm::read(line, &mut self.clock),
            LogFormat::Sglang => sglang::read(line),
            LogFormat::Azure => azure::read(line),
            LogFormat::Mooncake => mooncake::read(line),
        }
    }

    fn output(&mut self, name: &str, tokens: usize) {
        if let Some(&row) = self.named.get(name) {
            self.rows[row].output_length = tokens;
        }
    }

    fn request(
        &mut self,
        name: Option<String>,
        timestamp: f64,
        prompt: Prompt,
        output_length: usize,
    ) -> Result<(), LogFault> {
        let (input_length, hash_ids) = match prompt {
            Prompt::Text(text) => {
                let tokenizer = self.config.tokenizer.ok_or(LogFault::NoTokenizer)?;
                let tokens = tokenizer.tokens(&text).map_err(LogFault::Tokenizer)?;
                (tokens.len(), self.ids.of_tokens(&tokens, self.config.unit))
            }
            Prompt::Tokens(tokens) => (tokens.len(), self.ids.of_tokens(&tokens, self.config.unit)),
            Prompt::Length(tokens) => (tokens, Vec::new()),
            Prompt::Ids(ids, tokens) => (tokens, ids.into_iter().map(|id| self.ids.of_id(id)).collect()),
        };
        self.tokens = self.tokens.saturating_add(hash_ids.len());
        if self.tokens > self.config.limits.tokens || self.rows.len() >= self.config.limits.max_rows() {
            return Err(LogFault::TooMuch);
        }
        name.map(|name| self.named.insert(name, self.rows.len()));
        self.rows.push(Row { timestamp, input_length, output_length, hash_ids });
        Ok(())
    }

    fn write(self, trace: &mut dyn Write) -> Result<Converted, ConvertError> {
        let first = self.rows.iter().map(|row| row.timestamp).fold(f64::INFINITY, f64::min);
        let mut prompt_tokens = 0;
        for mut row in self.rows.iter().cloned() {
            // Rounded to the microsecond.
            row.timestamp = ((row.timestamp - first) * 1e3).round() / 1e3;
            prompt_tokens += row.input_length as u64;
            serde_json::to_writer(&mut *trace, &row).map_err(|error| ConvertError::Write(error.into()))?;
            trace.write_all(b"\n").map_err(ConvertError::Write)?;
        }
        let (requests, hash_ids) = (self.rows.len(), self.ids.len());
        Ok(Converted { requests, prompt_tokens, hash_ids, other_lines: self.other_lines })
    }
}

#[cfg(test)]
mod tests;
