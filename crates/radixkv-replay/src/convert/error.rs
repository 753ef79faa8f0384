//! Errors of a conversion.

use std::{collections::TryReserveError, io};

use super::LogFormat;

/// Why a log could not be converted.
///
/// # Examples
///
/// ```
/// use radixkv_replay::convert::{ConvertConfig, LogFormat, convert};
///
/// let refused = convert("INFO: started\n".as_bytes(), &ConvertConfig::new(LogFormat::Vllm), &mut Vec::new());
/// assert_eq!(refused.expect_err("nothing").to_string(), "none of the 1 lines is a request in the format vllm");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The log cannot be read to its end.
    #[error("cannot be read past line {line}: {source}")]
    Read {
        /// The last line that could be read.
        line: usize,
        /// The error of the system or of the decompressor.
        source: io::Error,
    },
    /// A line is malformed.
    #[error("line {line}: {fault}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// Why it is malformed.
        fault: LogFault,
    },
    /// No line is a request; the log may have another format.
    #[error("none of the {lines} lines is a request in the format {format}")]
    Empty {
        /// Number of lines of the log.
        lines: usize,
        /// The format that was tried.
        format: LogFormat,
    },
    /// Memory is short: convert a part of the log.
    #[error("not enough memory: {0}")]
    NoMemory(TryReserveError),
    /// The trace cannot be written.
    #[error("the trace cannot be written: {0}")]
    Write(io::Error),
}

/// Why a line of a log could not be converted.
///
/// # Examples
///
/// ```
/// use radixkv_replay::convert::LogFault;
///
/// assert!(LogFault::NoTokenizer.to_string().starts_with("the prompt is text"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogFault {
    /// The line is too long: raise [`Limits::line_bytes`](crate::Limits::line_bytes).
    #[error("the line is longer than the limit")]
    TooLong,
    /// The trace would be too large: raise [`Limits::rows`](crate::Limits::rows) or
    /// [`Limits::tokens`](crate::Limits::tokens), or convert a part of the log.
    #[error("the trace would have more rows or hash ids than the limits allow")]
    TooMuch,
    /// The line is not a JSON object.
    #[error("not a JSON object")]
    NotAnObject,
    /// A field is missing.
    #[error("the field {0} is missing")]
    Missing(&'static str),
    /// A field has the wrong type.
    #[error("the field {field} is not {wanted}")]
    Wrong {
        /// The field.
        field: &'static str,
        /// What the value should be.
        wanted: &'static str,
    },
    /// The prompt is text, which needs a tokenizer.
    #[error("the prompt is text, and no tokenizer was given")]
    NoTokenizer,
    /// The log has a truncated prompt: configure the server to log whole prompts.
    #[error("the log has a truncated prompt: configure the server to log whole prompts")]
    Shortened,
    /// The tokenizer failed on the text.
    #[error("the tokenizer failed: {0}")]
    Tokenizer(Box<str>),
}
