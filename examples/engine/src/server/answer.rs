//! The bodies of answers: one JSON body, or a stream of server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};

use super::error::{ApiError, json_response};
use super::generation::{Generation, Piece, Usage};

/// The interface that an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Completion,
    Chat,
}

/// The fields that all bodies of an answer have in common.
#[derive(Debug, Clone)]
pub(super) struct Head {
    kind: Kind,
    id: String,
    created: u64,
    model: Arc<str>,
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl Usage {
    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": { "cached_tokens": self.cached_tokens },
        })
    }
}

impl Head {
    pub(super) fn new(kind: Kind, generation: &Generation, model: &str) -> Self {
        let prefix = if kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
        Self { kind, id: format!("{prefix}-{}", generation.id()), created: now(), model: model.into() }
    }

    fn body(&self, object: &str, choices: Value, usage: Value) -> Value {
        let Self { id, created, model, .. } = self;
        json!({ "id": id, "object": object, "created": created, "model": &**model, "choices": choices, "usage": usage })
    }

    /// An answer in one body.
    pub(super) async fn whole(&self, mut generation: Generation) -> Result<Response, ApiError> {
        let mut all = String::new();
        let reason = loop {
            match generation.next().await? {
                Piece::Text(text) => all += &text,
                Piece::Last { text, reason } => {
                    all += &text;
                    break reason;
                }
            }
        };
        let (object, choice) = match self.kind {
            Kind::Completion => {
                let choice = json!({ "index": 0, "text": all, "logprobs": null, "finish_reason": reason });
                ("text_completion", choice)
            }
            Kind::Chat => {
                let message = json!({ "role": "assistant", "content": all, "refusal": null });
                let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": reason });
                ("chat.completion", choice)
            }
        };
        Ok(json_response(&self.body(object, json!([choice]), generation.usage.json())))
    }

    /// An answer as a stream of events. Each event is made when the client has read the one before.
    pub(super) fn stream(self, generation: Generation, include_usage: bool) -> Response {
        let first = if self.kind == Kind::Chat { State::First } else { State::Text };
        let state = Stream { head: self, generation, include_usage, state: first };
        let events = stream::unfold(state, |mut state| async move {
            let event = state.event().await?;
            Some((Ok::<_, Infallible>(event), state))
        });
        let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
        (headers, Body::from_stream(events)).into_response()
    }

    fn piece(&self, text: Option<&str>, reason: Option<&str>) -> Value {
        let (object, choice) = match self.kind {
            Kind::Completion => {
                let text = text.unwrap_or_default();
                ("text_completion", json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": reason }))
            }
            Kind::Chat => {
                let delta = text.map_or_else(|| json!({}), |text| json!({ "content": text }));
                let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason });
                ("chat.completion.chunk", choice)
            }
        };
        self.body(object, json!([choice]), Value::Null)
    }
}

/// The next event of a stream.
#[derive(Debug, Clone, Copy)]
enum State {
    /// The role, with which a chat begins.
    First,
    Text,
    Usage,
    Done,
    Ended,
}

struct Stream {
    head: Head,
    generation: Generation,
    include_usage: bool,
    state: State,
}

impl Stream {
    /// The next event; `None` after the last one.
    async fn event(&mut self) -> Option<Bytes> {
        let body = match self.state {
            State::First => {
                self.state = State::Text;
                let delta = json!({ "role": "assistant", "content": "" });
                let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": null });
                self.head.body("chat.completion.chunk", json!([choice]), Value::Null)
            }
            State::Text => match self.generation.next().await {
                Ok(Piece::Text(text)) => self.head.piece(Some(&text), None),
                Ok(Piece::Last { text, reason }) => {
                    self.state = if self.include_usage { State::Usage } else { State::Done };
                    self.head.piece(Some(&text).filter(|text| !text.is_empty()).map(String::as_str), Some(reason))
                }
                Err(error) => {
                    self.state = State::Done;
                    error.json()
                }
            },
            State::Usage => {
                self.state = State::Done;
                let object = if self.head.kind == Kind::Chat { "chat.completion.chunk" } else { "text_completion" };
                self.head.body(object, json!([]), self.generation.usage.json())
            }
            State::Done => {
                self.state = State::Ended;
                return Some(Bytes::from_static(b"data: [DONE]\n\n"));
            }
            State::Ended => return None,
        };
        Some(format!("data: {body}\n\n").into())
    }
}
