//! `radixkv convert`: converts a request log to a trace.

use std::{error::Error, io, path::PathBuf, process::ExitCode};

use clap::Args;
use radixkv_replay::{
    Limits,
    convert::{ConvertConfig, ConvertError, Converted, LogFault, LogFormat, convert},
};

use crate::{
    console,
    figures::counted,
    input::Input,
    output::{Output, Written, check_not_read},
    serving::{count, unit},
    status::AT_FAULT,
    tokenizer,
};

/// The argument that means standard output instead of a file.
const STDOUT: &str = "-";

/// Convert a request log to a trace: ids instead of texts, so that it can be shared.
///
/// A prompt becomes a list of ids, one for each --unit tokens; two requests share an id where their
/// tokens, and all tokens before them, are equal. Times become milliseconds since the first
/// request. Formats:
///
/// openai: JSON lines with the messages of a chat or the prompt of a completion, bare or in a body
/// or request. Texts are rendered as ChatML and need a --tokenizer.
///
/// vllm: the log of a vLLM server with --enable-log-requests (since 2025 at the level DEBUG);
/// with --enable-log-outputs, the lengths of answers.
///
/// sglang: the log of an SGLang server with --log-requests --log-requests-level 3.
///
/// azure: Azure's public traces (TIMESTAMP,ContextTokens,GeneratedTokens), in which nothing is
/// shared.
///
/// mooncake: Mooncake's public traces; give their --unit, 512.
///
/// Exit status: 0 on success, 2 if the command line, the log or the system is at fault.
#[derive(Args)]
pub(crate) struct Arguments {
    /// File of the log, plain or compressed with gzip or zstd, or - for standard input
    log: PathBuf,
    /// Format of the log: openai, vllm, sglang, azure or mooncake
    #[arg(long, value_name = "FORMAT")]
    format: LogFormat,
    /// Tokens per id; shared prefixes are kept in whole units
    #[arg(long, default_value = "16", value_name = "TOKENS", value_parser = unit)]
    unit: u32,
    /// A model's tokenizer.json (in builds with the feature tokenizers), or bytes: one token for
    /// each byte
    #[arg(long, value_name = "FILE|bytes")]
    tokenizer: Option<PathBuf>,
    /// Write the trace to a file, or - for standard output; an existing file is replaced only on
    /// success [default: -]
    #[arg(long, short, value_name = "FILE.jsonl")]
    output: Option<PathBuf>,
    /// Bytes of a line, decompressed [default: 64 MiB]
    #[arg(long, value_name = "BYTES", value_parser = count)]
    max_line_bytes: Option<usize>,
    /// Ids of the whole trace [default: 2^28]
    #[arg(long, value_name = "IDS", value_parser = count)]
    max_tokens: Option<usize>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match converted(arguments) {
        // The reader of standard output closed it, because it needs no more.
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(Converted { requests, prompt_tokens, hash_ids, other_lines, .. })) => {
            let lines = counted(other_lines as u64, "other line");
            let (requests, tokens) = (counted(requests as u64, "request"), counted(prompt_tokens, "prompt token"));
            let ids = counted(hash_ids as u64, "distinct id");
            console::say(format_args!("radixkv: {requests}, {tokens}, {ids}; {lines}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            let name = Input::new(&arguments.log).name();
            match error.downcast_ref() {
                Some(error @ ConvertError::Line { fault, .. }) => {
                    let remedy = match fault {
                        LogFault::NoTokenizer => "; give a --tokenizer",
                        LogFault::TooLong => "; raise the limit with --max-line-bytes",
                        LogFault::TooMuch => "; raise the limit with --max-tokens, or convert a part of the log",
                        _ => "",
                    };
                    console::say(format_args!("radixkv: {name}: {error}{remedy}"));
                }
                Some(error) => console::say(format_args!("radixkv: {name}: {error}")),
                None => console::say(format_args!("radixkv: {error}")),
            }
            ExitCode::from(AT_FAULT)
        }
    }
}

/// Converts the log; `None` if the reader of standard output closed it before the end.
fn converted(arguments: &Arguments) -> Result<Option<Converted>, Box<dyn Error>> {
    let input = Input::new(&arguments.log);
    input.check_stdout()?;
    let output = arguments.output.as_deref().filter(|path| path.as_os_str() != STDOUT);
    let output = output.map(|path| Output::new(path, &input)).transpose()?;
    let tokenizer_file = arguments.tokenizer.clone().filter(|path| tokenizer::is_file(path));
    check_not_read(&tokenizer_file, [&arguments.output])?;
    let tokenizer = arguments.tokenizer.as_deref().map(tokenizer::open).transpose()?;
    let mut limits = Limits::default();
    limits.line_bytes = arguments.max_line_bytes.unwrap_or(limits.line_bytes);
    limits.tokens = arguments.max_tokens.unwrap_or(limits.tokens);
    let config = ConvertConfig {
        unit: arguments.unit as usize,
        tokenizer: tokenizer.as_deref(),
        limits,
        ..ConvertConfig::new(arguments.format)
    };
    let log = input.open().map_err(|error| format!("{}: cannot be opened: {error}", input.name()))?;
    let Some(output) = output else {
        let mut stdout = io::BufWriter::new(io::stdout().lock());
        let written = convert(log, &config, &mut stdout);
        let flushed = |found| io::Write::flush(&mut stdout).map(|()| found).map_err(ConvertError::Write);
        return match written.and_then(flushed) {
            Err(ConvertError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(None),
            found => Ok(Some(found?)),
        };
    };
    let mut found = None;
    let written = output.write(|file| match convert(log, &config, file) {
        Err(ConvertError::Write(error)) => Err(error),
        converted => {
            found = Some(converted);
            Ok(())
        }
    })?;
    // If the log cannot be converted, an existing file stays as it is.
    let Some(found) = found.transpose()? else { return Ok(None) };
    Written::publish(written)?;
    Ok(Some(found))
}
