//! A scheduler thread of the server: steps until no handler is left.

use std::thread;
use std::time::Duration;

use radixkv::Session;
use radixkv_scheduler::Finished;

use super::Service;
use super::requests::Event;
use crate::model::HostBackend;
use crate::serve::{Chosen, Engine, Row, ServeError, Stepped};

/// How long a thread without work sleeps before it looks again by itself.
const PATIENCE: Duration = Duration::from_millis(20);

/// Tells the other threads when this one cannot go on.
struct Watch<'s>(&'s Service);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.requests.fail();
        }
    }
}

/// Serves until all handlers have ended and no request is left.
pub(super) fn run<B: HostBackend>(engine: &Engine<'_, B>, service: &Service) -> Result<(), ServeError> {
    let watch = Watch(service);
    let served = steps(engine, service);
    if served.is_err() {
        service.requests.fail();
    }
    drop(watch);
    served
}

fn steps<B: HostBackend>(engine: &Engine<'_, B>, service: &Service) -> Result<(), ServeError> {
    let mut scheduler = engine.scheduler()?;
    let session = service.cache.session();
    let end_tokens = &engine.config().end_tokens;
    while !service.requests.has_ended() || engine.queue().unfinished_requests() > 0 {
        let choose = |row: Row<'_>| choose(service, row, end_tokens);
        match engine.step_choosing(&mut scheduler, &choose)? {
            Stepped::Idle => drop(scheduler.wait(PATIENCE)),
            Stepped::Computed { finished, broken, .. } => {
                for id in broken {
                    if let Some(served) = service.requests.get(id) {
                        // A handler that has ended needs no answer.
                        _ = served.events.send(Event::Broken);
                    }
                }
                finished.iter().for_each(|finished| end(service, &session, finished, end_tokens));
            }
        }
    }
    Ok(())
}

/// The next token of a request, sent to its handler. A request whose handler has ended is being aborted: it ends.
fn choose(service: &Service, row: Row<'_>, end_tokens: &[radixkv::Token]) -> Chosen {
    let Some(served) = service.requests.get(row.id) else {
        return Chosen { token: 0, ends: true };
    };
    let stream = served.stream.unwrap_or(row.id.as_u64());
    let token = served.sampling.choose(row.logits, stream, row.position);
    let ends = end_tokens.contains(&token);
    if !ends {
        // A handler that has ended needs no token.
        _ = served.events.send(Event::Token { token, cached_tokens: row.cached_len });
    }
    Chosen { token, ends }
}

fn end(service: &Service, session: &Session, finished: &Finished, end_tokens: &[radixkv::Token]) {
    let Some(served) = service.requests.get(finished.id) else { return };
    let completion_tokens = finished.tokens.len() - finished.prompt_len;
    service.metrics.finished(finished.prompt_len, completion_tokens);
    service.retention.used(session, &served.namespace, &finished.tokens, served.retain);
    service.requests.took(served.began.elapsed());
    let by_end_token = finished.tokens.last().is_some_and(|token| end_tokens.contains(token));
    let cached_tokens = finished.cached_len;
    // A handler that has ended needs no answer.
    _ = served.events.send(Event::Ended { by_end_token, completion_tokens, cached_tokens });
}
