//! The prompt of a request: a text, tokens, or a chat, and the part of it that `cache_control`
//! marks for retention.

use std::time::Duration;

use radixkv::Token;
use serde::Deserialize;
use serde_json::Value;

use super::error::ApiError;
use super::fields::Fields;
use super::parameters::{NOTHING_STORED, retained};
use crate::prompts::Message;
use crate::tokenizer::Tokenizer;

/// A prompt as the client sent it.
#[derive(Debug)]
pub(super) enum Prompt {
    Text(String),
    Tokens(Vec<Token>),
    Chat {
        messages: Vec<Message>,
        /// The index of the last message with `cache_control`, and its time to live.
        marked: Option<(usize, Duration)>,
    },
}

/// A prompt's tokens.
#[derive(Debug)]
pub(super) struct Tokenized {
    pub(super) tokens: Vec<Token>,
    /// The number of first tokens to retain by `cache_control` of a message, and the time.
    pub(super) retain: Option<(usize, Duration)>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Texts {
    Text(String),
    Tokens(Vec<Token>),
    Several(Vec<String>),
}

impl Prompt {
    /// The name of the field that has the prompt.
    pub(super) fn field(&self) -> &'static str {
        match self {
            Self::Chat { .. } => "messages",
            _ => "prompt",
        }
    }

    /// Reads `prompt` of a body.
    pub(super) fn text(fields: &mut Fields) -> Result<Self, ApiError> {
        let refused = |message: &str| Err(ApiError::field("prompt", message));
        match fields.take::<Texts>("prompt") {
            Ok(Some(Texts::Text(text))) => Ok(Self::Text(text)),
            Ok(Some(Texts::Tokens(tokens))) => Ok(Self::Tokens(tokens)),
            Ok(Some(Texts::Several(mut texts))) if texts.len() == 1 => Ok(Self::Text(texts.remove(0))),
            Ok(Some(Texts::Several(_))) => refused("prompt has several texts: send a request for each"),
            Ok(None) => refused("prompt is missing"),
            Err(_) => refused("prompt is neither a text nor a list of tokens"),
        }
    }

    /// Reads `messages` of a body.
    pub(super) fn chat(fields: &mut Fields) -> Result<Self, ApiError> {
        let given: Vec<Value> =
            fields.take("messages")?.ok_or_else(|| ApiError::field("messages", "messages is missing"))?;
        if given.is_empty() {
            return Err(ApiError::field("messages", "messages is empty"));
        }
        let (mut messages, mut marked) = (Vec::with_capacity(given.len()), None);
        for (at, message) in given.into_iter().enumerate() {
            let mut fields = Fields::inside(message, &format!("messages[{at}]"))?;
            let role = required(&mut fields, "role")?;
            let (content, part) = content(&mut fields)?;
            if let Some(ttl) = retained(&mut fields)?.or(part) {
                marked = Some((at, ttl));
            }
            fields.finish()?;
            messages.push(Message { role, content });
        }
        Ok(Self::Chat { messages, marked })
    }

    /// Refuses a message with `cache_control` if the request stores nothing.
    pub(super) fn check_marks(&self, store_nothing: bool) -> Result<(), ApiError> {
        match self {
            Self::Chat { marked: Some((message, _)), .. } if store_nothing => {
                Err(ApiError::field(format!("messages[{message}].cache_control"), NOTHING_STORED))
            }
            _ => Ok(()),
        }
    }

    /// The bytes of the prompt's texts.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Tokens(_) => 0,
            Self::Chat { messages, .. } => messages.iter().map(|m| m.role.len() + m.content.len()).sum(),
        }
    }

    /// Tokenizes the prompt. If the client `has_left`, skips the search for the part to retain.
    pub(super) fn tokenize(self, tokenizer: &Tokenizer, has_left: &dyn Fn() -> bool) -> Result<Tokenized, ApiError> {
        let field = self.field();
        let refused = |error| ApiError::tokenizer(field, &error);
        match self {
            Self::Text(text) => Ok(Tokenized { tokens: tokenizer.text(&text).map_err(refused)?, retain: None }),
            Self::Tokens(tokens) => Ok(Tokenized { tokens, retain: None }),
            Self::Chat { messages, marked } => {
                let tokens = tokenizer.chat(&messages, true).map_err(refused)?;
                let retain = marked.filter(|_| !has_left()).map(|(last, ttl)| {
                    // If the template refuses the first messages without the others, everything is
                    // retained.
                    let first = tokenizer.chat(&messages[..=last], false);
                    let len = first.map_or(tokens.len(), |first| common(&first, &tokens));
                    (len, ttl)
                });
                Ok(Tokenized { tokens, retain })
            }
        }
    }
}

fn common(a: &[Token], b: &[Token]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn required(fields: &mut Fields, name: &str) -> Result<String, ApiError> {
    fields.take(name)?.ok_or_else(|| {
        let name = fields.name(name);
        ApiError::field(&name, format!("{name} is missing"))
    })
}

/// The text of a message, in one piece or in parts, and the retention time of a part with
/// `cache_control`.
fn content(fields: &mut Fields) -> Result<(String, Option<Duration>), ApiError> {
    let place = fields.name("content");
    match fields.take::<Value>("content")? {
        Some(Value::String(text)) => Ok((text, None)),
        Some(Value::Array(parts)) => {
            let (mut text, mut marked) = (String::new(), None);
            for (at, part) in parts.into_iter().enumerate() {
                let mut part = Fields::inside(part, &format!("{place}[{at}]"))?;
                part.without("type", |kind| kind == "text")?;
                text += &required(&mut part, "text")?;
                marked = retained(&mut part)?.or(marked);
                part.finish()?;
            }
            Ok((text, marked))
        }
        _ => Err(ApiError::field(&place, format!("{place} is neither a text nor parts of text"))),
    }
}
