//! A request that may wait in line: one state machine, driven by a thread, or by a task that is polled.
//!
//! It looks at once, unless others wait already. From then on it has a place in the line and looks when it is woken. It arms its
//! signal before each look: whoever makes blocks available after a look that finds too few raises it.

#[cfg(feature = "async")]
use std::task::{Context, Poll};
use std::time::Instant;

use super::waiter::Waiter;
use crate::cache::blocks::reservation::ReserveError;
use crate::cache::inner::Inner;
use crate::sync::Signal;

/// What a request does at its steps.
pub(in crate::cache) trait Request {
    type Served;

    fn inner(&self) -> &Inner;

    /// Looks without a place in the line.
    fn look(&self) -> Result<Self::Served, ReserveError>;

    fn join(&self) -> Waiter;

    /// Looks if it is the first of the line; else it has nothing afterwards.
    fn look_in_turn(&self, waiter: &Waiter) -> Result<Self::Served, ReserveError>;
}

/// Where a request stands.
pub(in crate::cache) enum Step<T> {
    Done(Result<T, ReserveError>),
    /// It was refused for now, and is woken when it is time to try again.
    Waits(ReserveError),
}

/// One step of a request; `waiter` is its place, once it has one. `arm` says who is woken.
pub(in crate::cache) fn step<R: Request>(
    request: &R,
    waiter: &mut Option<Waiter>,
    arm: impl FnOnce(&Signal),
) -> Step<R::Served> {
    if waiter.is_none() && !request.inner().wait_list.has_waiters() {
        match request.look() {
            Err(refused) if refused.is_for_now() => {}
            done => return Step::Done(done),
        }
    }
    let waiter = waiter.get_or_insert_with(|| request.join());
    arm(waiter.signal());
    match request.look_in_turn(waiter) {
        Err(refused) if refused.is_for_now() => Step::Waits(refused),
        done => Step::Done(done),
    }
}

/// Drives a request on this thread, which sleeps between its steps, until `deadline`.
pub(in crate::cache) fn serve_by<R: Request>(request: &R, deadline: Instant) -> Result<R::Served, ReserveError> {
    let mut waiter = None;
    loop {
        let refused = match step(request, &mut waiter, |_| ()) {
            Step::Done(done) => return done,
            Step::Waits(refused) => refused,
        };
        let is_woken = waiter.as_ref().is_some_and(|waiter| waiter.sleep(deadline, request.inner()));
        if !is_woken {
            return Err(refused.timed_out());
        }
    }
}

/// A task's answer to a poll that leaves its request waiting. What ran in the poll may have taken a wake-up that was for the task: an
/// eviction sink that parks the thread. So one that came meanwhile is given again.
#[cfg(feature = "async")]
pub(in crate::cache) fn pending<T>(waiter: Option<&Waiter>, context: &Context<'_>) -> Poll<T> {
    if let Some(waiter) = waiter {
        waiter.signal().wake_again(context.waker());
    }
    Poll::Pending
}
