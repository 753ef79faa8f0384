//! Whether a request that is served was aborted: from then on nothing of it is published.

use crate::sync::{Mutex, MutexGuard};

/// Shared by the desk, where a request is aborted, and the scheduler that serves it.
#[derive(Debug)]
pub(super) struct Fate {
    aborted: Mutex<bool>,
}

/// While it lives the request is not aborted: something of it is being published.
pub(super) struct Publishing<'f> {
    _open: MutexGuard<'f, bool>,
}

impl Fate {
    pub(super) fn new() -> Self {
        Self { aborted: Mutex::new(false) }
    }

    /// Nothing is published any more when this returns; waits for an insert that has begun.
    pub(super) fn abort(&self) {
        *self.aborted.lock() = true;
    }

    pub(super) fn is_aborted(&self) -> bool {
        *self.aborted.lock()
    }

    /// Leave to publish, unless the request was aborted. The desk's lock is not taken while it is held.
    pub(super) fn publishing(&self) -> Option<Publishing<'_>> {
        let aborted = self.aborted.lock();
        (!*aborted).then_some(Publishing { _open: aborted })
    }
}
