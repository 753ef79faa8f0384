//! The requests in service: the data that scheduler threads need for each, and the channel for its
//! tokens. Handlers add requests; scheduler threads read them.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use radixkv::Token;
use radixkv_scheduler::{Request, SequenceId, WaitingQueue};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use super::salts::Salt;
use crate::intake::{Intake, Refusal};
use crate::sampling::Sampling;

/// Maximum `Retry-After` in seconds.
const LONGEST_DELAY: u64 = 60;

/// Events of a request, in order. If a client does not read, the channel holds at most as many
/// events as the request's tokens.
#[derive(Debug)]
pub(super) enum Event {
    Token {
        token: Token,
        cached_tokens: usize,
    },
    Ended {
        by_end_token: bool,
        completion_tokens: usize,
        cached_tokens: usize,
    },
    /// The request's logits were not finite, or a scheduler thread failed.
    Broken,
}

/// A request in service.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) sampling: Sampling,
    /// The stream of random numbers; `None`: the stream of the request's id.
    pub(super) stream: Option<u64>,
    pub(super) events: UnboundedSender<Event>,
    /// Whether a stop text has ended the answer. The next step ends the sequence.
    pub(super) stopped: Arc<AtomicBool>,
    pub(super) salt: Salt,
    /// The number of first tokens to retain when the request ends, and the time for which to retain
    /// them.
    pub(super) retain: Option<(usize, Duration)>,
    pub(super) began: Instant,
}

/// Why a request is not served.
#[derive(Debug)]
pub(super) enum Refused {
    /// Too many requests wait: the client should retry after `retry_after` seconds.
    Full { waiting: usize, retry_after: u64 },
    /// The server is stopping.
    Closed,
    /// The request could never be served.
    Request(Refusal),
}

/// A place among the waiting requests, for a request that is not in the queue yet. Dropping it
/// frees the place.
#[derive(Debug)]
pub(super) struct Place<'r> {
    requests: &'r Requests,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.requests.lock().places -= 1;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    /// New requests are refused; requests in service continue.
    Closed,
    /// All handlers have ended.
    Ended,
}

#[derive(Debug)]
struct State {
    served: HashMap<SequenceId, Arc<Served>>,
    /// The number of requests with a [`Place`].
    places: usize,
    phase: Phase,
    /// Moving average of the duration of requests in seconds.
    seconds: f64,
}

/// All requests in service.
#[derive(Debug)]
pub(super) struct Requests {
    state: Mutex<State>,
    failed: Notify,
    waiting: usize,
    slots: usize,
}

impl Requests {
    /// Creates an empty set, which refuses new requests while `waiting` requests wait for one of
    /// `slots`.
    pub(super) fn new(waiting: usize, slots: usize) -> Self {
        let state = State { served: HashMap::new(), places: 0, phase: Phase::Open, seconds: 1.0 };
        Self { state: Mutex::new(state), failed: Notify::new(), waiting, slots: slots.max(1) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that may panic runs under the lock.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Gives a new request a place among the waiting requests, before any work is done for it.
    pub(super) fn enter(&self, intake: &Intake) -> Result<Place<'_>, Refused> {
        let mut state = self.lock();
        if state.phase > Phase::Open {
            return Err(Refused::Closed);
        }
        let waiting = intake.queue().len() + state.places;
        if waiting >= self.waiting {
            let rounds = waiting / self.slots + 1;
            let retry_after = ((state.seconds * rounds as f64).ceil() as u64).clamp(1, LONGEST_DELAY);
            return Err(Refused::Full { waiting, retry_after });
        }
        state.places += 1;
        Ok(Place { requests: self })
    }

    /// Submits a request to the queue. This holds the lock, so a scheduler thread that takes the
    /// request immediately waits until it is recorded here.
    pub(super) fn submit(
        &self,
        place: Place<'_>,
        intake: &Intake,
        request: Request,
        served: Served,
    ) -> Result<SequenceId, Refused> {
        let mut state = self.lock();
        // The queue counts the request from here on.
        std::mem::forget(place);
        state.places -= 1;
        if state.phase > Phase::Open {
            return Err(Refused::Closed);
        }
        let id = intake.submit(request).map_err(Refused::Request)?;
        state.served.insert(id, Arc::new(served));
        Ok(id)
    }

    /// The number of waiting requests: those with a place, and those in the queue.
    pub(super) fn waiting(&self, queue: &WaitingQueue) -> usize {
        queue.len() + self.lock().places
    }

    pub(super) fn get(&self, id: SequenceId) -> Option<Arc<Served>> {
        self.lock().served.get(&id).cloned()
    }

    /// Removes a request that has ended, or whose handler has.
    pub(super) fn remove(&self, id: SequenceId) -> Option<Arc<Served>> {
        self.lock().served.remove(&id)
    }

    /// Records the duration of an answered request.
    pub(super) fn took(&self, time: Duration) {
        let seconds = &mut self.lock().seconds;
        *seconds += (time.as_secs_f64() - *seconds) / 8.0;
    }

    /// Refuses new requests from now on.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.phase = state.phase.max(Phase::Closed);
    }

    /// Records that all handlers have ended.
    pub(super) fn end(&self) {
        self.lock().phase = Phase::Ended;
    }

    /// Called when a scheduler thread fails: answers every request with an error, and stops the
    /// server.
    pub(super) fn fail(&self) {
        self.close();
        for served in self.lock().served.values() {
            // An error means that the handler has ended.
            _ = served.events.send(Event::Broken);
        }
        self.failed.notify_one();
    }

    /// Waits for [`fail`](Self::fail).
    pub(super) async fn failed(&self) {
        self.failed.notified().await;
    }

    pub(super) fn is_open(&self) -> bool {
        self.lock().phase == Phase::Open
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().phase == Phase::Ended
    }
}
