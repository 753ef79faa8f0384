//! From text to tokens and back: a directory's `tokenizer.json`, or bytes.

use std::path::{Path, PathBuf};

use radixkv::Token;

use crate::prompts::Message;

/// Ends a text of bytes.
pub const END_OF_BYTES: Token = 256;

/// Begins a message of bytes.
const MESSAGE_OF_BYTES: Token = 257;

/// A tokenizer.
#[derive(Debug)]
pub enum Tokenizer {
    /// Each byte is a token; two more begin a message and end a text.
    Bytes,
    /// The tokenizer of a model's directory.
    Model(Box<tokenizers::Tokenizer>),
}

/// Why a tokenizer cannot be read, or a text not be tokenized.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file cannot be read, or is not a tokenizer.
    #[error("{}: {reason}", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The tokenizer knows tokens that the model does not.
    #[error("{}: token {token} does not fit a vocabulary of {vocab_size}", .path.display())]
    Vocabulary {
        /// Which file.
        path: PathBuf,
        /// Its largest token.
        token: Token,
        /// Tokens of the model.
        vocab_size: usize,
    },
    /// The tokenizer cannot split the text.
    #[error("the text was not tokenized: {reason}")]
    Text {
        /// Why.
        reason: String,
    },
}

impl Tokenizer {
    /// Reads a directory's `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// If the file is missing, is not a tokenizer, or is of another model.
    pub fn read(directory: &Path, vocab_size: usize) -> Result<Self, TokenizerError> {
        let path = directory.join("tokenizer.json");
        let tokenizer = tokenizers::Tokenizer::from_file(&path)
            .map_err(|error| TokenizerError::Read { path: path.clone(), reason: error.to_string() })?;
        match tokenizer.get_vocab(true).into_values().max() {
            Some(token) if token as usize >= vocab_size => Err(TokenizerError::Vocabulary { path, token, vocab_size }),
            _ => Ok(Self::Model(Box::new(tokenizer))),
        }
    }

    /// Tokens of a plain text.
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot split it.
    pub fn text(&self, text: &str) -> Result<Vec<Token>, TokenizerError> {
        match self {
            Self::Bytes => Ok(text.bytes().map(Token::from).collect()),
            Self::Model(tokenizer) => encode(tokenizer, text, true),
        }
    }

    /// Tokens of a chat, up to where the assistant is to answer. The template is the one whose marks are in the
    /// vocabulary: ChatML, or Llama 3's, or else plain lines.
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot split it.
    pub fn chat(&self, messages: &[Message]) -> Result<Vec<Token>, TokenizerError> {
        let tokenizer = match self {
            Self::Bytes => return Ok(chat_of_bytes(messages)),
            Self::Model(tokenizer) => tokenizer,
        };
        let knows = |mark| tokenizer.token_to_id(mark).is_some();
        if knows("<|im_start|>") {
            let message = |m: &Message| format!("<|im_start|>{}\n{}<|im_end|>\n", m.role, m.content);
            let text: String = messages.iter().map(message).collect();
            encode(tokenizer, &(text + "<|im_start|>assistant\n"), false)
        } else if knows("<|start_header_id|>") {
            let begin = |role: &str| format!("<|start_header_id|>{role}<|end_header_id|>\n\n");
            let message = |m: &Message| format!("{}{}<|eot_id|>", begin(&m.role), m.content);
            let text: String = messages.iter().map(message).collect();
            encode(tokenizer, &format!("<|begin_of_text|>{text}{}", begin("assistant")), false)
        } else {
            let text: String = messages.iter().map(|m| format!("{}: {}\n", m.role, m.content)).collect();
            encode(tokenizer, &(text + "assistant:"), true)
        }
    }

    /// The text of tokens; bytes that are not UTF-8 are replaced by a mark.
    pub fn decode(&self, tokens: &[Token]) -> String {
        match self {
            Self::Bytes => {
                let bytes: Vec<u8> = tokens.iter().filter_map(|token| u8::try_from(*token).ok()).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Self::Model(tokenizer) => tokenizer.decode(tokens, true).unwrap_or_default(),
        }
    }
}

fn encode(tokenizer: &tokenizers::Tokenizer, text: &str, add_special: bool) -> Result<Vec<Token>, TokenizerError> {
    let encoding = tokenizer.encode(text, add_special);
    let encoding = encoding.map_err(|error| TokenizerError::Text { reason: error.to_string() })?;
    Ok(encoding.get_ids().to_vec())
}

fn chat_of_bytes(messages: &[Message]) -> Vec<Token> {
    let line = |role: &str, content: &str| -> Vec<Token> {
        let bytes = role.bytes().chain(*b": ").chain(content.bytes());
        [MESSAGE_OF_BYTES].into_iter().chain(bytes.map(Token::from)).collect()
    };
    let mut tokens: Vec<Token> = messages.iter().flat_map(|m| line(&m.role, &m.content)).collect();
    tokens.extend(line("assistant", ""));
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let text = "Grüße";
        assert_eq!(Tokenizer::Bytes.decode(&Tokenizer::Bytes.text(text).expect("bytes")), text);
    }

    #[test]
    fn chats_that_begin_alike_have_tokens_that_begin_alike() {
        let message = |role: &str, content: &str| Message { role: role.to_owned(), content: content.to_owned() };
        let chat = |question: &str| {
            Tokenizer::Bytes.chat(&[message("system", "Be brief."), message("user", question)]).expect("bytes")
        };
        let (a, b) = (chat("one"), chat("two"));
        let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        assert_eq!(common, 1 + "system: Be brief.".len() + 1 + "user: ".len());
    }
}
