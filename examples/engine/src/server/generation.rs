//! One request from its submission to its last text: the handler's side of a request in the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use radixkv_scheduler::SequenceId;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::Service;
use super::error::ApiError;
use super::open::InUse;
use super::parameters::Parameters;
use super::prepare::Prepared;
use super::requests::{Event, Place, Served};
use crate::tokenizer::TextStream;
use axum::http::StatusCode;

/// The token counts that an answer reports.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) prompt_tokens: usize,
    pub(super) completion_tokens: usize,
    pub(super) cached_tokens: usize,
}

/// A piece of an answer.
#[derive(Debug)]
pub(super) enum Piece {
    Text(String),
    /// The last text, and the finish reason: `stop` or `length`.
    Last {
        text: String,
        reason: &'static str,
    },
}

/// A request in service. Dropping it before its end aborts the request, unless a stop text has
/// ended the answer: then a scheduler thread ends the request.
pub(super) struct Generation {
    service: Arc<Service>,
    id: SequenceId,
    events: UnboundedReceiver<Event>,
    text: TextStream,
    stop: Stop,
    stopped: Arc<AtomicBool>,
    pub(super) usage: Usage,
    _in_use: InUse,
}

impl Generation {
    /// Submits a prepared request.
    pub(super) fn start(
        service: Arc<Service>,
        place: Place<'_>,
        prepared: Prepared,
        parameters: &Parameters,
        in_use: InUse,
    ) -> Result<Self, ApiError> {
        let Prepared { mut request, retain, salt, field } = prepared;
        let usage = Usage { prompt_tokens: request.tokens.len(), ..Usage::default() };
        request.publish = service.publish && !parameters.store_nothing;
        let (sender, events) = unbounded_channel();
        let stopped = Arc::new(AtomicBool::new(false));
        let served = Served {
            sampling: parameters.sampling,
            stream: parameters.seeded.then_some(0),
            events: sender,
            stopped: Arc::clone(&stopped),
            salt,
            retain,
            began: Instant::now(),
        };
        let id = service
            .requests
            .submit(place, &service.intake, request, served)
            .map_err(|refused| ApiError::refused(field, refused))?;
        let stop = Stop { texts: parameters.stop.clone(), held: String::new() };
        Ok(Self { service, id, events, text: TextStream::default(), stop, stopped, usage, _in_use: in_use })
    }

    pub(super) fn id(&self) -> u64 {
        self.id.as_u64()
    }

    /// Waits for the next piece. Do not call it after [`Piece::Last`].
    pub(super) async fn next(&mut self) -> Result<Piece, ApiError> {
        let tokenizer = Arc::clone(&self.service.tokenizer);
        loop {
            match self.events.recv().await {
                Some(Event::Token { token, cached_tokens }) => {
                    self.usage.completion_tokens += 1;
                    self.usage.cached_tokens = cached_tokens;
                    let text = self.text.push(&tokenizer, token);
                    match self.stop.pass(&text) {
                        (text, true) => {
                            // The next step ends the sequence, and keeps it in the cache.
                            self.stopped.store(true, Relaxed);
                            return Ok(Piece::Last { text, reason: "stop" });
                        }
                        (text, false) if !text.is_empty() => return Ok(Piece::Text(text)),
                        _ => {}
                    }
                }
                Some(Event::Ended { by_end_token, completion_tokens, cached_tokens }) => {
                    self.usage = Usage { completion_tokens, cached_tokens, ..self.usage };
                    let left = self.text.finish(&tokenizer);
                    let (text, stopped) = self.stop.pass(&left);
                    let text = if stopped { text } else { text + &self.stop.held };
                    let reason = if by_end_token || stopped { "stop" } else { "length" };
                    return Ok(Piece::Last { text, reason });
                }
                Some(Event::Broken) | None => {
                    let message = "the model gave no finite numbers, or a scheduler has failed";
                    return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message));
                }
            }
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.stopped.load(Relaxed) {
            return;
        }
        // The queue ignores requests that have ended.
        self.service.intake.queue().abort(self.id);
        self.service.requests.remove(self.id);
    }
}

/// Stop texts, which end an answer. Text that may be the beginning of a stop text is held back.
struct Stop {
    texts: Vec<String>,
    held: String,
}

impl Stop {
    /// Adds text. Returns the text that can be sent, and whether the answer ends with it.
    fn pass(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        if let Some(at) = self.texts.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let begins = |at: &usize| self.texts.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        let keep = self.held.char_indices().map(|(at, _)| at).find(begins).unwrap_or(self.held.len());
        let rest = self.held.split_off(keep);
        (std::mem::replace(&mut self.held, rest), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_before_the_first_stop_text() {
        let texts = vec!["END".to_owned(), "\n\n".to_owned()];
        let mut stop = Stop { texts, held: String::new() };
        assert_eq!(stop.pass("ab\n"), ("ab".to_owned(), false));
        assert_eq!(stop.pass("cEN"), ("\nc".to_owned(), false));
        assert_eq!(stop.pass("EN"), ("EN".to_owned(), false));
        assert_eq!(stop.pass("Dxyz"), (String::new(), true));
        let mut none = Stop { texts: Vec::new(), held: String::new() };
        assert_eq!(none.pass("ab\n"), ("ab\n".to_owned(), false));
    }
}
