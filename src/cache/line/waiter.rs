//! A waiter: a thread or task in the wait list of its cache.

use std::time::Instant;

use super::wait_list::{Place, Standing};
use crate::cache::blocks::block_request::Ask;
use crate::cache::inner::Inner;
use crate::cache::leases::strong_ref::StrongRef;
use crate::cache::spans::WaitSpan;
use crate::sync::{Arc, Signal};

/// One that waits. Dropping it, served or not, wakes the first of those that are left.
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

    pub(in crate::cache) fn standing(&self) -> Standing {
        self.cache.wait_list.standing(self.place)
    }

    /// Lets others pass until its namespace's quota allows what it asks for.
    pub(in crate::cache) fn hold_back(&self) {
        self.cache.wait_list.hold_back(self.place);
    }

    /// Its quota allows it now: it stands where it stood before.
    pub(in crate::cache) fn pass(&self) -> Standing {
        self.cache.wait_list.let_pass(self.place);
        self.standing()
    }

    /// It is served, and leaves.
    pub(in crate::cache) fn count_served(&self) {
        self.cache.wait_list.count_served(self.place);
    }

    /// It has looked and found too few blocks: wakes the first waiter, unless it is this one.
    pub(in crate::cache) fn wake_another(&self) {
        self.cache.wait_list.wake_another(self.place);
    }

    /// Raised when it is time to try again.
    pub(in crate::cache) fn signal(&self) -> &Signal {
        &self.signal
    }

    /// Sleeps until it is time to try again; false if the deadline has passed.
    pub(in crate::cache) fn sleep(&self, deadline: Instant, inner: &Inner) -> bool {
        // The end of a retention wakes no thread: a waiter that others do not wait for wakes up by itself then.
        let retained_until = if self.standing() == Standing::Behind { None } else { inner.retained_until() };
        let until = retained_until.map_or(deadline, |moment| moment.min(deadline));
        self.signal.wait_until(until) || Instant::now() < deadline
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.cache.participant().count_wait(self.since.elapsed());
        self.cache.wait_list.leave(self.place);
    }
}
