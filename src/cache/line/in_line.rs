//! A request that may wait in line: one state machine, driven by a thread that sleeps or a task
//! that is polled.
//!
//! `reserve` and `acquire_until` drive it with [`serve_by`], the futures with [`step`]. It relies
//! on `wait_list` for the order and the wake-ups.
//!
//! The request looks for blocks at once, unless it asks for any and other requests wait already.
//! After that it is in the wait list, and looks each time it is woken. There its signal is armed
//! before each look, so a thread that makes blocks available after an unsuccessful look raises the
//! signal.

#[cfg(feature = "async")]
use std::task::{Context, Poll};
use std::time::Instant;

use super::waiter::Waiter;
use crate::cache::blocks::reservation::ReserveError;
use crate::cache::inner::Inner;
use crate::sync::Signal;

/// The operations of a request at its steps.
pub(in crate::cache) trait Request {
    type Served;

    fn inner(&self) -> &Inner;

    /// Whether it asks for no block, and so is served at once.
    fn is_empty(&self) -> bool;

    /// Looks for blocks without being in the line.
    fn look(&self) -> Result<Self::Served, ReserveError>;

    fn join(&self) -> Waiter;

    /// Looks for blocks if it is the first of the line; after a refusal it holds nothing.
    fn look_in_turn(&self, waiter: &Waiter) -> Result<Self::Served, ReserveError>;
}

/// The result of one step.
pub(in crate::cache) enum Step<T> {
    Done(Result<T, ReserveError>),
    /// Refused for now; the waiter is woken when it is time to try again.
    Waits(ReserveError),
}

/// Performs one step of a request. `waiter` is set once the request has joined the line. `arm` sets
/// the thread or task that its signal wakes.
pub(in crate::cache) fn step<R: Request>(
    request: &R,
    waiter: &mut Option<Waiter>,
    arm: impl FnOnce(&Signal),
) -> Step<R::Served> {
    if waiter.is_none() && (request.is_empty() || !request.inner().wait_list.has_waiters()) {
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
        // Checked after each look: work of its own, such as a sink that caches what the look has
        // evicted, may wake the request during every look.
        let is_over = Instant::now() >= deadline;
        if is_over || !waiter.as_ref().is_some_and(|waiter| waiter.sleep(deadline, request.inner())) {
            return Err(refused.timed_out());
        }
    }
}

/// Returns `Pending` for a task whose request keeps waiting. Code that ran in the poll, such as an
/// eviction sink that parks the thread, may have consumed a wake-up meant for the task. So the task
/// is woken again if its signal was raised meanwhile.
#[cfg(feature = "async")]
pub(in crate::cache) fn pending<T>(waiter: Option<&Waiter>, context: &Context<'_>) -> Poll<T> {
    if let Some(waiter) = waiter {
        waiter.signal().wake_again(context.waker());
    }
    Poll::Pending
}
