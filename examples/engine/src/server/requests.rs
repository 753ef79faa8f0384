//! Requests that are served: what schedulers need to know of them, and where their tokens go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use radixkv::{Namespace, Token};
use radixkv_scheduler::{Request, SequenceId, WaitingQueue};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use crate::intake::{Intake, Refusal};
use crate::sampling::Sampling;

/// The longest delay that a client is told.
const LONGEST_DELAY: u64 = 60;

/// What becomes of a request, in order. A client that does not read keeps at most as many as it may have tokens.
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
    /// Its logits were not finite.
    Broken,
}

/// A request that is served.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) sampling: Sampling,
    /// Whose random numbers it has; `None`: its own.
    pub(super) stream: Option<u64>,
    pub(super) events: UnboundedSender<Event>,
    pub(super) namespace: Namespace,
    /// How many of the first tokens are retained when it ends, and for how long.
    pub(super) retain: Option<(usize, Duration)>,
    pub(super) began: Instant,
}

/// Why a request is not served.
#[derive(Debug)]
pub(super) enum Refused {
    /// Too many wait: ask again later.
    Full { waiting: usize, retry_after: u64 },
    /// The server is stopping.
    Closed,
    /// It could never be served.
    Request(Refusal),
}

/// A place among the requests that wait, until the request is in the queue. Dropping it gives it up.
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
    /// No request is accepted; those that are served go on.
    Closed,
    /// No handler is left.
    Ended,
}

#[derive(Debug)]
struct State {
    served: HashMap<SequenceId, Arc<Served>>,
    /// Requests that have a [`Place`].
    places: usize,
    phase: Phase,
    /// Seconds that a request took, as a moving average.
    seconds: f64,
}

/// All requests that are served.
#[derive(Debug)]
pub(super) struct Requests {
    state: Mutex<State>,
    failed: Notify,
    waiting: usize,
    slots: usize,
}

impl Requests {
    /// Refuses when `waiting` requests wait for one of `slots`.
    pub(super) fn new(waiting: usize, slots: usize) -> Self {
        let state = State { served: HashMap::new(), places: 0, phase: Phase::Open, seconds: 1.0 };
        Self { state: Mutex::new(state), failed: Notify::new(), waiting, slots: slots.max(1) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that may panic runs under the lock.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Gives a request a place among those that wait, before anything is done for it.
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

    /// Hands a request in. A scheduler that takes it at once waits for the lock, and so finds it here.
    pub(super) fn submit(
        &self,
        place: Place<'_>,
        intake: &Intake,
        request: Request,
        served: Served,
    ) -> Result<SequenceId, Refused> {
        let mut state = self.lock();
        // The request has its place in the queue instead.
        std::mem::forget(place);
        state.places -= 1;
        if state.phase > Phase::Open {
            return Err(Refused::Closed);
        }
        let id = intake.submit(request).map_err(Refused::Request)?;
        state.served.insert(id, Arc::new(served));
        Ok(id)
    }

    /// Requests that wait: those with a place, and those in the queue.
    pub(super) fn waiting(&self, queue: &WaitingQueue) -> usize {
        queue.len() + self.lock().places
    }

    pub(super) fn get(&self, id: SequenceId) -> Option<Arc<Served>> {
        self.lock().served.get(&id).cloned()
    }

    /// The request's handler has ended.
    pub(super) fn remove(&self, id: SequenceId) {
        self.lock().served.remove(&id);
    }

    /// A request has been answered.
    pub(super) fn took(&self, time: Duration) {
        let seconds = &mut self.lock().seconds;
        *seconds += (time.as_secs_f64() - *seconds) / 8.0;
    }

    /// Accepts no more requests.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.phase = state.phase.max(Phase::Closed);
    }

    /// All handlers have ended.
    pub(super) fn end(&self) {
        self.lock().phase = Phase::Ended;
    }

    /// A scheduler cannot go on: every request is answered with an error, and the server stops.
    pub(super) fn fail(&self) {
        self.close();
        for served in self.lock().served.values() {
            // A handler that has ended needs no answer.
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
