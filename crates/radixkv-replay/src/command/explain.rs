//! `radixkv explain`: compares two prompts.

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::Args;
use radixkv::Token;
use radixkv_replay::{Explained, convert::Tokenize};
use serde::Serialize;

use crate::{
    console,
    figures::{counted, grouped},
    grid::{Cell, Column, Grid, wrapped},
    input::Input,
    output::OutputError,
    report::json,
    screen::Screen,
    serving::count,
    status::AT_FAULT,
    tokenizer,
};

/// Maximum number of bytes of a prompt.
const MAX_BYTES: u64 = 64 << 20;
/// Number of tokens shown before the first difference, and from it on.
const BEFORE: usize = 4;
const AFTER: usize = 8;

/// Show what two prompts share, where they diverge, and what a cache reuses.
///
/// A prompt is a file of tokens (a JSON list, or numbers between spaces, commas or lines), or
/// with --tokenizer a text.
///
/// Exit status: 0 on success, 2 if the command line or a file is at fault.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The prompt that is cached first, or - for standard input
    a: PathBuf,
    /// The prompt that is looked up after it, or - for standard input
    b: PathBuf,
    /// The prompts are texts: a model's tokenizer.json (in builds with the feature tokenizers), or
    /// bytes: one token for each byte
    #[arg(long, value_name = "FILE|bytes")]
    tokenizer: Option<PathBuf>,
    /// Tokens per block
    #[arg(long, default_value = "16", value_name = "TOKENS", value_parser = count)]
    block_size: usize,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

/// The report as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    a: String,
    b: String,
    #[serde(flatten)]
    explained: &'a Explained,
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> ExitCode {
    match explain(arguments, screen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::say(format_args!("radixkv: {error}"));
            ExitCode::from(AT_FAULT)
        }
    }
}

fn explain(arguments: &Arguments, screen: &Screen) -> Result<(), Box<dyn Error>> {
    let tokenizer = arguments.tokenizer.as_deref().map(tokenizer::open).transpose()?;
    let inputs = [&arguments.a, &arguments.b].map(|path| Input::new(path));
    if inputs[0] == Input::Stdin && inputs[1] == Input::Stdin {
        return Err("both prompts are standard input: give a file for one of them".into());
    }
    let tokens = [read(&inputs[0], tokenizer.as_deref())?, read(&inputs[1], tokenizer.as_deref())?];
    let explained = Explained::new(&tokens[0], &tokens[1], arguments.block_size);
    let [a, b] = inputs.each_ref().map(Input::name);
    let text = match arguments.json {
        true => json(&Printed { a, b, explained: &explained })?,
        false => shown(&[a, b], &tokens, &explained, tokenizer.as_deref(), screen),
    };
    Ok(console::print(&text).map_err(OutputError::stdout)?)
}

fn read(input: &Input, tokenizer: Option<&dyn Tokenize>) -> Result<Vec<Token>, Box<dyn Error>> {
    let name = input.name();
    let bytes = input.bytes(MAX_BYTES).map_err(|error| format!("{name}: cannot be read: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{name}: not a text in UTF-8"))?;
    match tokenizer {
        Some(tokenizer) => {
            tokenizer.tokens(&text).map_err(|error| format!("{name}: the tokenizer failed: {error}").into())
        }
        None => listed(&text).map_err(|word| {
            format!("{name}: {word:?} is not a token, an integer from 0 to 2^32 - 1; a text needs --tokenizer").into()
        }),
    }
}

/// Parses a list of numbers; the error is the first word that is not a token.
fn listed(text: &str) -> Result<Vec<Token>, String> {
    let list = text.trim();
    let list = list.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or(list);
    let words = list.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
    words.map(|word| word.parse().map_err(|_| word.chars().take(20).collect())).collect()
}

fn shown(
    names: &[String; 2],
    tokens: &[Vec<Token>; 2],
    explained: &Explained,
    tokenizer: Option<&dyn Tokenize>,
    screen: &Screen,
) -> String {
    let mut parts = vec![figures(names, explained).text(screen)];
    parts.push(wrapped(&verdict(explained), screen.width()));
    if tokens.iter().any(|tokens| tokens.len() > explained.shared_tokens) {
        parts.push(side_by_side(tokens, explained, tokenizer).text(screen));
    }
    parts.join("\n\n")
}

fn figures(names: &[String; 2], explained: &Explained) -> Grid {
    let mut table = Grid::of_pairs();
    let mut row = |what: &str, value: String| table.row([what.into(), value.into()]);
    let blocks = |tokens: usize| counted((tokens / explained.block_size) as u64, "whole block");
    let tokens = |tokens: usize| counted(tokens as u64, "token");
    for (letter, (name, &length)) in ["A", "B"].into_iter().zip(names.iter().zip(&explained.tokens)) {
        row(letter, format!("{name}: {}, {} of {}", tokens(length), blocks(length), explained.block_size));
    }
    row("shared from the start", tokens(explained.shared_tokens));
    row("whole blocks", grouped(explained.whole_blocks as u64));
    row("mid-block", tokens(explained.mid_block_tokens));
    let of_b = 100.0 * explained.block_hash_tokens as f64 / explained.tokens[1].max(1) as f64;
    row("a block-hash cache recovers", format!("{} of B ({of_b:.2} %)", tokens(explained.block_hash_tokens)));
    if explained.block_hash_tokens_capped < explained.block_hash_tokens {
        row("of them, without B's last token", tokens(explained.block_hash_tokens_capped));
    }
    table
}

/// States where the prompts diverge, and where they agree again.
fn verdict(explained: &Explained) -> String {
    let (at, [a, b]) = (explained.shared_tokens, explained.tokens);
    let (block, offset) = (at / explained.block_size, at % explained.block_size);
    let place = format!("token {} (block {block}, token {offset} of it; counted from 0)", grouped(at as u64));
    let mut said = match (at == a, at == b) {
        (true, true) => return "The prompts are the same.".to_owned(),
        (true, false) => format!("A ends at {place}, and B continues."),
        (false, true) => format!("B ends at {place}, and A continues."),
        (false, false) => format!("The prompts diverge at {place}."),
    };
    if let Some([a, b]) = explained.rejoins_at {
        let (a, b) = (grouped(a as u64), grouped(b as u64));
        said += &format!(" They agree again from token {a} of A and {b} of B: no prefix cache can reuse that.");
    }
    said
}

/// A table of the tokens around the first difference.
fn side_by_side(tokens: &[Vec<Token>; 2], explained: &Explained, tokenizer: Option<&dyn Tokenize>) -> Grid {
    let mut grid = Grid::new([
        Column::figures("token"),
        Column::figures("block"),
        Column::words("A"),
        Column::words("B"),
        Column::words(""),
    ]);
    let at = explained.shared_tokens;
    let end = (at + AFTER).min(tokens.iter().map(Vec::len).max().unwrap_or(0));
    for place in at.saturating_sub(BEFORE)..end {
        let [a, b] = tokens.each_ref().map(|tokens| tokens.get(place).copied());
        let cells = [a, b].map(|token| token.map_or(String::new(), |token| named(token, tokenizer)));
        let mark = match (place < at, place == at, a == b) {
            (true, ..) => Cell::good("="),
            (_, true, _) => Cell::bad("parts"),
            (_, _, true) => "".into(),
            _ => Cell::bad("x"),
        };
        let [a, b] = cells.map(Cell::from);
        grid.row([grouped(place as u64).into(), (place / explained.block_size).to_string().into(), a, b, mark]);
    }
    grid
}

/// A token's number, and its text if the tokenizer has one.
fn named(token: Token, tokenizer: Option<&dyn Tokenize>) -> String {
    match tokenizer.and_then(|tokenizer| tokenizer.text(token)) {
        Some(text) => format!("{token} {text:?}"),
        None => token.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use radixkv_replay::convert::ByteTokens;

    use super::*;

    #[test]
    fn tokens_are_listed_in_several_ways() {
        assert_eq!(listed("[1, 2,3]\n"), Ok(vec![1, 2, 3]));
        assert_eq!(listed("1 2\n3,4"), Ok(vec![1, 2, 3, 4]));
        assert_eq!(listed(" "), Ok(vec![]));
        assert_eq!(listed("1 two"), Err("two".to_owned()));
        assert_eq!(named(104, Some(&ByteTokens)), "104 \"h\"");
    }
}
