//! A waiter: a thread or task in the wait list of its cache.

use super::block_request::Ask;
use super::inner::Inner;
use super::strong_ref::StrongRef;
use super::wait_list::{Place, Standing};
use crate::sync::{Arc, Signal};

/// One that waits. Dropping it, served or not, wakes the first of those that are left.
#[derive(Debug)]
pub(super) struct Waiter {
    cache: StrongRef<Inner>,
    place: Place,
    signal: Arc<Signal>,
}

impl Waiter {
    /// Joins the cache's list as the last of its lane.
    pub(super) fn join(cache: &StrongRef<Inner>, ask: &Ask) -> Self {
        let (place, signal) = cache.wait_list.append(ask.lane, ask.line(cache));
        let waiter = Self { cache: cache.clone(), place, signal };
        crate::sync::failpoint!("wait_list::joined");
        waiter
    }

    pub(super) fn standing(&self) -> Standing {
        self.cache.wait_list.standing(self.place)
    }

    /// Lets others pass until its namespace's quota allows what it asks for.
    pub(super) fn hold_back(&self) {
        self.cache.wait_list.hold_back(self.place);
    }

    /// Its quota allows it now: it stands where it stood before.
    pub(super) fn pass(&self) {
        self.cache.wait_list.let_pass(self.place);
    }

    /// Raised when it is time to try again.
    pub(super) fn signal(&self) -> &Signal {
        &self.signal
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.cache.wait_list.leave(self.place);
    }
}
