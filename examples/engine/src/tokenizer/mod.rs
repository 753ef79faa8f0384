//! Converts text to tokens and back: by the `tokenizer.json` and the chat template of a model
//! directory, or byte by byte.

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

/// The end token of the byte tokenizer.
pub const END_OF_BYTES: Token = 256;

/// The token that begins a message in the byte tokenizer.
const MESSAGE_OF_BYTES: Token = 257;

/// Maximum bytes of a text.
const LONGEST_TEXT: usize = 16 << 20;

/// A tokenizer.
#[derive(Debug)]
pub enum Tokenizer {
    /// Each byte is a token; two more tokens begin a message and end a text.
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
    /// Whether the tokenizer normalizes text before it searches for special tokens, so that other
    /// spellings also match.
    marks_are_normalized: bool,
    /// Maximum bytes of a text.
    longest_text: usize,
    /// Bytes of the longest token.
    longest_token: usize,
}

/// Why a tokenizer cannot be read, or why a text cannot be tokenized.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file cannot be read, or is not a tokenizer.
    #[error("{}: {reason}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The tokenizer has tokens that are not in the model's vocabulary.
    #[error("{}: token {token} does not fit a vocabulary of {vocab_size}", .path.display())]
    Vocabulary {
        /// The file.
        path: PathBuf,
        /// Its largest token.
        token: Token,
        /// Size of the model's vocabulary.
        vocab_size: usize,
    },
    /// The text is too long for the model's positions, or to be tokenized at all: use a shorter
    /// text.
    #[error("the text has {bytes} bytes, {most} are the most that the model takes")]
    TooLong {
        /// Bytes of the text.
        bytes: usize,
        /// Maximum bytes that are tokenized.
        most: usize,
    },
    /// A message contains the text of a special token, and this tokenizer cannot distinguish it
    /// from the template's own special tokens.
    #[error("messages[{message}].{field} has the text of the special token {mark}")]
    Mark {
        /// The index of the message, from 0 on.
        message: usize,
        /// `role` or `content`.
        field: &'static str,
        /// The text of the special token.
        mark: String,
    },
    /// The chat template cannot render the chat.
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
    /// Reads a directory's `tokenizer.json` and its chat template, for a model of `vocab_size`
    /// tokens and `max_positions` positions.
    ///
    /// # Errors
    ///
    /// If the file is missing, is not a tokenizer, or belongs to another model. A missing or broken
    /// chat template is only an error in [`chat`](Self::chat).
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

    /// Maximum bytes of a text that can fit into `tokens` tokens; longer texts need not be
    /// tokenized. No limit for the byte tokenizer, where tokenizing is cheap.
    pub fn longest_text(&self, tokens: usize) -> usize {
        match self {
            Self::Bytes => usize::MAX,
            Self::Model(model) => tokens.saturating_mul(model.longest_token).min(model.longest_text),
        }
    }

    /// Checks that the directory's chat template is usable. A directory without one is not an
    /// error.
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

    /// Tokenizes a plain text.
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

    /// Tokenizes a chat, rendered by the directory's template. With `answer`, it ends where the
    /// assistant's answer begins.
    ///
    /// # Errors
    ///
    /// If there is no template, if it refuses the messages, if a message has the text of a special
    /// token, or as [`text`](Self::text).
    pub fn chat(&self, messages: &[Message], answer: bool) -> Result<Vec<Token>, TokenizerError> {
        match self {
            Self::Bytes => Ok(chat_of_bytes(messages, answer)),
            Self::Model(model) => model.chat(messages, answer),
        }
    }

    /// Decodes tokens. Bytes that are not UTF-8 are replaced by U+FFFD.
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

    /// Tokenizes a chat whose messages contain the texts of special tokens, which count as plain
    /// text. `None` if they cannot be distinguished from the template's special tokens.
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

    /// A special token that the tokenizer makes of a part of this text with another spelling.
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
