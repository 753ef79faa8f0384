//! A scheduler thread of the server: computes steps until all handlers have ended.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use radixkv::Session;
use radixkv_scheduler::Finished;

use super::Service;
use super::requests::Event;
use crate::model::HostBackend;
use crate::serve::{Chosen, Engine, Row, ServeError, Stepped};

/// How long a thread without work waits before it checks for the end of the server.
const PATIENCE: Duration = Duration::from_millis(20);

/// Fails all requests if this thread panics.
struct Watch<'s>(&'s Service);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.requests.fail();
        }
    }
}

/// Computes until all handlers have ended and no request is left. After an error, fails all
/// requests.
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
                    if let Some(served) = service.requests.remove(id) {
                        // An error means that the handler has ended.
                        _ = served.events.send(Event::Broken);
                    }
                }
                finished.iter().for_each(|finished| end(service, &session, finished, end_tokens));
            }
        }
    }
    Ok(())
}

/// Samples the next token of a request, and sends it to the handler. A request without a handler is
/// being aborted, so it ends here.
fn choose(service: &Service, row: Row<'_>, end_tokens: &[radixkv::Token]) -> Chosen {
    let Some(served) = service.requests.get(row.id) else {
        return Chosen { token: 0, ends: true };
    };
    let stream = served.stream.unwrap_or(row.id.as_u64());
    let token = served.sampling.choose(row.logits, stream, row.position);
    let ends = end_tokens.contains(&token) || served.stopped.load(Relaxed);
    if !ends {
        // An error means that the handler has ended.
        _ = served.events.send(Event::Token { token, cached_tokens: row.cached_len });
    }
    Chosen { token, ends }
}

fn end(service: &Service, session: &Session, finished: &Finished, end_tokens: &[radixkv::Token]) {
    let Some(served) = service.requests.remove(finished.id) else { return };
    let completion_tokens = finished.tokens.len() - finished.prompt_len;
    service.retention.used(session, &served.salt.namespace, &finished.tokens, served.retain);
    service.metrics.finished(finished.prompt_len, completion_tokens);
    service.requests.took(served.began.elapsed());
    let by_end_token = finished.tokens.last().is_some_and(|token| end_tokens.contains(token));
    let cached_tokens = finished.cached_len;
    // An error means that the handler has ended.
    _ = served.events.send(Event::Ended { by_end_token, completion_tokens, cached_tokens });
}
