//! Reads prompts: chats in JSON lines, or lines of plain text.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use radixkv::Token;
use serde::Deserialize;
use serde_json::Value;

use crate::tokenizer::{Tokenizer, TokenizerError};

/// One turn of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The role: `system`, `user`, `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

/// A prompt to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// A chat, which the assistant answers.
    Chat(Vec<Message>),
    /// A text.
    Text(String),
}

/// Why prompts cannot be read or tokenized.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The file cannot be read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is not a chat.
    #[error("{}:{line}: {reason}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1 on.
        line: usize,
        /// Why.
        reason: String,
    },
    /// A prompt has no token.
    #[error("prompt {number} is empty")]
    Empty {
        /// The number of the prompt, from 1 on.
        number: usize,
    },
    /// The file has no prompt.
    #[error("{}: no prompts", .path.display())]
    None {
        /// The file.
        path: PathBuf,
    },
    /// The tokenizer refuses a prompt.
    #[error("prompt {number}: {source}")]
    Tokens {
        /// The number of the prompt, from 1 on.
        number: usize,
        /// Why.
        source: TokenizerError,
    },
}

#[derive(Deserialize)]
struct Line {
    messages: Vec<LineMessage>,
}

#[derive(Deserialize)]
struct LineMessage {
    role: String,
    content: Value,
}

impl Prompt {
    /// Reads a file: each line of a `.jsonl` or `.json` is a chat
    /// (`{"messages": [{"role": "user", "content": "..."}]}`), each line of any other file is a
    /// text. Empty lines are skipped.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, if a line is not a chat, or if there is no prompt.
    pub fn read(path: &Path) -> Result<Vec<Self>, PromptError> {
        let text = fs::read_to_string(path).map_err(|source| PromptError::Read { path: path.to_owned(), source })?;
        let chats = path.extension().is_some_and(|extension| extension == "jsonl" || extension == "json");
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let prompts: Vec<Self> = lines
            .map(|(index, line)| match chats {
                true => {
                    chat(line).map_err(|reason| PromptError::Line { path: path.to_owned(), line: index + 1, reason })
                }
                false => Ok(Self::Text(line.to_owned())),
            })
            .collect::<Result<_, _>>()?;
        if prompts.is_empty() {
            return Err(PromptError::None { path: path.to_owned() });
        }
        Ok(prompts)
    }

    /// Makes sample questions that begin with the same long instructions, for use without given
    /// prompts.
    pub fn samples(count: usize) -> Vec<Self> {
        const INSTRUCTIONS: &str = "You are a librarian. Answer in one sentence, name the shelf, and say when a book is lent out. \
            If you do not know, say so. Never guess an author. Shelves are lettered from A to Q; oversized books stand in R, \
            maps in S, and what is being bound in T. A book may be lent for four weeks and once renewed.";
        const SUBJECTS: [&str; 8] = ["tides", "moss", "bridges", "bells", "paper", "salt", "glass", "rivers"];
        let message = |role: &str, content: String| Message { role: role.to_owned(), content };
        let question = |number: usize| {
            let subject = SUBJECTS[number % SUBJECTS.len()];
            format!("Where do I find number {} on {subject}?", number / SUBJECTS.len() + 1)
        };
        let chat = |number| vec![message("system", INSTRUCTIONS.to_owned()), message("user", question(number))];
        (0..count).map(|number| Self::Chat(chat(number))).collect()
    }

    /// Tokenizes each prompt, in order.
    ///
    /// # Errors
    ///
    /// The first prompt that has no tokens, or that the tokenizer refuses.
    pub fn tokens(prompts: &[Self], tokenizer: &Tokenizer) -> Result<Vec<Vec<Token>>, PromptError> {
        let of = |(index, prompt): (usize, &Self)| {
            let tokens = match prompt {
                Self::Chat(messages) if messages.is_empty() => Ok(Vec::new()),
                Self::Chat(messages) => tokenizer.chat(messages, true),
                Self::Text(text) => tokenizer.text(text),
            };
            let number = index + 1;
            let tokens = tokens.map_err(|source| PromptError::Tokens { number, source })?;
            if tokens.is_empty() { Err(PromptError::Empty { number }) } else { Ok(tokens) }
        };
        prompts.iter().enumerate().map(of).collect()
    }
}

fn chat(line: &str) -> Result<Prompt, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let messages = line.messages.into_iter().map(|message| {
        let content = content(&message.content).ok_or("a message's content is neither text nor parts of text")?;
        Ok(Message { role: message.role, content })
    });
    Ok(Prompt::Chat(messages.collect::<Result<_, &str>>()?))
}

/// A text, or the texts of several parts.
fn content(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts.iter().map(|part| part.get("text")?.as_str()).collect(),
        _ => None,
    }
}
