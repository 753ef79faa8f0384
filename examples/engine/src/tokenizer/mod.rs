//! From text to tokens and back: a directory's `tokenizer.json` and chat template, or bytes.

mod bounded;
mod hostile;
mod marks;
mod python_json;
mod special;
mod template;
mod text_stream;

use std::path::{Path, PathBuf};

use radixkv::Token;

use crate::prompts::Message;
use hostile::caught;
use marks::Marks;
use special::Special;
pub use template::{Template, TemplateError};
pub use text_stream::TextStream;

/// Ends a text of bytes.
pub const END_OF_BYTES: Token = 256;

/// Begins a message of bytes.
const MESSAGE_OF_BYTES: Token = 257;

/// No text is longer, in bytes.
const LONGEST_TEXT: usize = 16 << 20;

/// A tokenizer.
#[derive(Debug)]
pub enum Tokenizer {
    /// Each byte is a token; two more begin a message and end a text.
    Bytes,
    /// The tokenizer of a model's directory.
    Model(Box<ModelTokenizer>),
}

/// The tokenizer of a model's directory, with its chat template.
#[derive(Debug)]
pub struct ModelTokenizer {
    inner: tokenizers::Tokenizer,
    /// The template, or why a chat cannot be tokenized.
    chat: Result<Template, TemplateError>,
    marks: Marks,
    /// Whether the text of a mark may be written in several ways, all of which the tokenizer takes for it.
    marks_are_normalized: bool,
    /// Bytes of the longest text.
    longest_text: usize,
    /// Bytes of the longest token.
    longest_token: usize,
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
    /// The text is too long to fit the model's positions, or to be tokenized at all: ask for less.
    #[error("the text has {bytes} bytes, {most} are the most that the model takes")]
    TooLong {
        /// Its bytes.
        bytes: usize,
        /// The most that are tokenized.
        most: usize,
    },
    /// A message has the text of a special token, and this tokenizer cannot keep it apart from the template's own.
    #[error("messages[{message}].{field} has the text of the special token {mark}")]
    Mark {
        /// Which message, from 0 on.
        message: usize,
        /// `role` or `content`.
        field: &'static str,
        /// The text.
        mark: String,
    },
    /// The chat has no text.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The tokenizer cannot split the text.
    #[error("the text was not tokenized: {reason}")]
    Text {
        /// Why.
        reason: String,
    },
}

impl Tokenizer {
    /// Reads a directory's `tokenizer.json` and its chat template, for a model of `vocab_size` tokens and
    /// `max_positions` positions.
    ///
    /// # Errors
    ///
    /// If the file is missing, is not a tokenizer, or is of another model. A chat template that is missing or broken is
    /// an error of [`chat`](Self::chat) alone.
    pub fn read(directory: &Path, vocab_size: usize, max_positions: usize) -> Result<Self, TokenizerError> {
        let path = directory.join("tokenizer.json");
        let unread = |reason| TokenizerError::Read { path: path.clone(), reason };
        let inner = hostile::read(&path).map_err(unread)?;
        let vocab = inner.get_vocab(true);
        let longest_token = vocab.keys().map(String::len).max().unwrap_or(0);
        match vocab.into_values().max() {
            Some(token) if token as usize >= vocab_size => {
                return Err(TokenizerError::Vocabulary { path, token, vocab_size });
            }
            _ => {}
        }
        let named = Special::read(directory)?;
        let empty_text = caught(|| inner.encode_fast("", true).map_err(|error| error.to_string())).map_err(unread)?;
        named.check(&inner, empty_text.get_ids())?;
        let special = inner.get_added_tokens_decoder().into_iter().filter(|(_, token)| token.special);
        let special: Vec<_> = special.filter(|(_, token)| !token.content.is_empty()).collect();
        Ok(Self::Model(Box::new(ModelTokenizer {
            chat: Template::read(directory, &named),
            marks_are_normalized: inner.get_normalizer().is_some() && special.iter().any(|(_, token)| token.normalized),
            marks: Marks::new(special.into_iter().map(|(token, added)| (token, added.content)).collect())
                .map_err(unread)?,
            longest_text: max_positions.saturating_mul(longest_token).min(LONGEST_TEXT),
            longest_token,
            inner,
        })))
    }

    /// Bytes of the longest text that is worth tokenizing where so many tokens fit. Of bytes any text is: its length is the check.
    pub fn longest_text(&self, tokens: usize) -> usize {
        match self {
            Self::Bytes => usize::MAX,
            Self::Model(model) => tokens.saturating_mul(model.longest_token).min(model.longest_text),
        }
    }

    /// Whether the folder's chat template can be used; a folder without one is no error.
    ///
    /// # Errors
    ///
    /// If there is one that cannot be read or parsed.
    pub fn check_chat_template(&self) -> Result<(), TokenizerError> {
        match self {
            Self::Model(model) => match &model.chat {
                Err(error @ TemplateError::Invalid { .. }) => Err(error.clone().into()),
                _ => Ok(()),
            },
            Self::Bytes => Ok(()),
        }
    }

    /// Tokens of a plain text.
    ///
    /// # Errors
    ///
    /// If the text is too long, or the tokenizer cannot split it.
    pub fn text(&self, text: &str) -> Result<Vec<Token>, TokenizerError> {
        match self {
            Self::Bytes => Ok(text.bytes().map(Token::from).collect()),
            Self::Model(model) => model.encode(text, true),
        }
    }

    /// Tokens of a chat, as the folder's template writes it; up to where the assistant is to answer if `answer`.
    ///
    /// # Errors
    ///
    /// If there is no template, if it refuses the messages, if a message has the text of a special token, or as
    /// [`text`](Self::text).
    pub fn chat(&self, messages: &[Message], answer: bool) -> Result<Vec<Token>, TokenizerError> {
        match self {
            Self::Bytes => Ok(chat_of_bytes(messages, answer)),
            Self::Model(model) => model.chat(messages, answer),
        }
    }

    /// The text of tokens; bytes that are not UTF-8 are replaced by a mark.
    pub fn decode(&self, tokens: &[Token]) -> String {
        match self {
            Self::Bytes => {
                let bytes: Vec<u8> = tokens.iter().filter_map(|token| u8::try_from(*token).ok()).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Self::Model(model) => {
                caught(|| model.inner.decode(tokens, true).map_err(|error| error.to_string())).unwrap_or_default()
            }
        }
    }
}

impl ModelTokenizer {
    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<Token>, TokenizerError> {
        if text.len() > self.longest_text {
            return Err(TokenizerError::TooLong { bytes: text.len(), most: self.longest_text });
        }
        let encoding = caught(|| self.inner.encode_fast(text, add_special).map_err(|error| error.to_string()));
        Ok(encoding.map_err(|reason| TokenizerError::Text { reason })?.get_ids().to_vec())
    }

    fn chat(&self, messages: &[Message], answer: bool) -> Result<Vec<Token>, TokenizerError> {
        let template = self.chat.as_ref().map_err(Clone::clone)?;
        let bytes = messages.iter().map(|m| m.role.len() + m.content.len()).sum();
        if bytes > self.longest_text {
            return Err(TokenizerError::TooLong { bytes, most: self.longest_text });
        }
        let mut marked = None;
        for (message, Message { role, content }) in messages.iter().enumerate() {
            for (field, text) in [("role", role), ("content", content)] {
                let written = self.marks.within(text);
                if let Some(mark) = written {
                    marked = Some(TokenizerError::Mark { message, field, mark: mark.to_owned() });
                }
                if let Some(mark) = self.disguised(text)? {
                    return Err(TokenizerError::Mark { message, field, mark });
                }
            }
        }
        match marked {
            None => self.encode(&template.render(messages, answer)?, false),
            Some(refusal) => self.chat_with_marks(template, messages, answer)?.ok_or(refusal),
        }
    }

    /// Tokens of a chat whose messages have the texts of special tokens, as text; `None` if they cannot be kept apart.
    fn chat_with_marks(
        &self,
        template: &Template,
        messages: &[Message],
        answer: bool,
    ) -> Result<Option<Vec<Token>>, TokenizerError> {
        if messages.iter().any(|m| self.marks.has_stand_in(&m.role) || self.marks.has_stand_in(&m.content)) {
            return Ok(None);
        }
        let hide = |text: &str| self.marks.hide(text);
        let hidden: Vec<Message> =
            messages.iter().map(|m| Message { role: hide(&m.role), content: hide(&m.content) }).collect();
        let text = template.render(&hidden, answer)?;
        let apart = |reveal| {
            let tokens = self.marks.encode_apart(&self.inner, &text, reveal);
            tokens.map_err(|reason| TokenizerError::Text { reason })
        };
        let same = apart(false)? == self.encode(&text, false)?;
        if same { apart(true).map(Some) } else { Ok(None) }
    }

    /// The special token that a part of this text becomes although it is written otherwise.
    fn disguised(&self, text: &str) -> Result<Option<String>, TokenizerError> {
        if !self.marks_are_normalized {
            return Ok(None);
        }
        let tokens = self.encode(&self.marks.hide(text), false)?;
        Ok(self.marks.among(&tokens).map(str::to_owned))
    }
}

fn chat_of_bytes(messages: &[Message], answer: bool) -> Vec<Token> {
    let line = |role: &str, content: &str| -> Vec<Token> {
        let bytes = role.bytes().chain(*b": ").chain(content.bytes());
        [MESSAGE_OF_BYTES].into_iter().chain(bytes.map(Token::from)).collect()
    };
    let mut tokens: Vec<Token> = messages.iter().flat_map(|m| line(&m.role, &m.content)).collect();
    if answer {
        tokens.extend(line("assistant", ""));
    }
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
            Tokenizer::Bytes.chat(&[message("system", "Be brief."), message("user", question)], true).expect("bytes")
        };
        let (a, b) = (chat("one"), chat("two"));
        let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        assert_eq!(common, 1 + "system: Be brief.".len() + 1 + "user: ".len());
    }
}
