//! A waiter: a thread or task in the wait list of its cache.

use std::time::Instant;

use super::wait_list::{Place, QueuePosition};
use crate::cache::blocks::block_request::Ask;
use crate::cache::inner::Inner;
use crate::cache::leases::strong_ref::StrongRef;
use crate::cache::spans::WaitSpan;
use crate::sync::{Arc, Signal};

/// A waiting request. Dropping it, served or not, wakes the first of the remaining waiters.
#[derive(Debug)]
pub(in crate::cache) struct Waiter {
    cache: StrongRef<Inner>,
    place: Place,
    signal: Arc<Signal>,
    since: Instant,
    _span: WaitSpan,
}

impl Waiter {
    /// Joins the cache's list as the last of its lane.
    pub(in crate::cache) fn join(cache: &StrongRef<Inner>, ask: Ask<'_>) -> Self {
        let (place, signal) = cache.wait_list.append(ask.lane, ask.line(cache));
        let (since, _span) = (Instant::now(), WaitSpan::open());
        let waiter = Self { cache: cache.clone(), place, signal, since, _span };
        crate::sync::failpoint!("wait_list::joined");
        waiter
    }

    pub(in crate::cache) fn position(&self) -> QueuePosition {
        self.cache.wait_list.position(self.place)
    }

    /// Lets other requests pass until its namespace's quota allows this request.
    pub(in crate::cache) fn hold_back(&self) {
        self.cache.wait_list.hold_back(self.place);
    }

    /// Ends `hold_back`, once the quota allows the request: the waiter returns to its position in
    /// its lane.
    pub(in crate::cache) fn pass(&self) -> QueuePosition {
        self.cache.wait_list.let_pass(self.place);
        self.position()
    }

    /// Counts the waiter as served; it leaves the list when it is dropped.
    pub(in crate::cache) fn count_served(&self) {
        self.cache.wait_list.count_served(self.place);
    }

    /// Calls `WaitList::wake_another` after a look that found too few blocks.
    pub(in crate::cache) fn wake_another(&self) {
        self.cache.wait_list.wake_another(self.place);
    }

    /// The signal that is raised when it is time to try again.
    pub(in crate::cache) fn signal(&self) -> &Signal {
        &self.signal
    }

    /// Sleeps until it is time to try again; false if the deadline has passed.
    pub(in crate::cache) fn sleep(&self, deadline: Instant, inner: &Inner) -> bool {
        // No thread is woken when a retention reaches its deadline. So a waiter that is not behind
        // others also wakes at that time.
        let next_look = || inner.evicting(|evictor, _| inner.next_look(evictor));
        let next_look = if self.position() == QueuePosition::Behind { None } else { next_look() };
        let until = next_look.map_or(deadline, |moment| moment.min(deadline));
        self.signal.wait_until(until) || Instant::now() < deadline
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.cache.participant().count_wait(self.since.elapsed());
        self.cache.wait_list.leave(self.place);
    }
}
