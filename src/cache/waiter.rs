//! A waiter: a thread or task in the wait list of its cache.

use super::inner::Inner;
use super::strong_ref::StrongRef;
use crate::sync::{Arc, Signal};

/// One that waits. Dropping it, served or not, wakes the first of those that are left.
#[derive(Debug)]
pub(super) struct Waiter {
    cache: StrongRef<Inner>,
    ticket: u64,
    signal: Arc<Signal>,
}

impl Waiter {
    /// Joins the cache's list as the last.
    pub(super) fn join(cache: &StrongRef<Inner>) -> Self {
        let (ticket, signal) = cache.wait_list.append();
        let waiter = Self { cache: cache.clone(), ticket, signal };
        crate::sync::failpoint!("wait_list::joined");
        waiter
    }

    pub(super) fn is_first(&self) -> bool {
        self.cache.wait_list.is_first(self.ticket)
    }

    /// Raised when it is time to try again.
    pub(super) fn signal(&self) -> &Signal {
        &self.signal
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.cache.wait_list.leave(self.ticket);
    }
}
