//! The progress of a fetch: `fetching` reports it to the threads that wait for a `Fetch`.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::host_match::HostMatch;

/// Means no limit: `Instant` cannot represent arbitrarily late times.
pub(crate) const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// Shared by the remote tiers' thread and the requester.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_done: bool,
    /// Blocks that the remote tiers reported to have.
    found: usize,
    /// Blocks that arrived, pinned until the requester drops its `Fetch`.
    held: Vec<HostMatch>,
    /// Whether the requester has dropped its `Fetch`.
    is_released: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn found(&self, blocks: usize) {
        self.lock().found += blocks;
    }

    /// Keeps arrived blocks pinned, unless the requester has dropped its `Fetch`.
    pub(super) fn hold(&self, arrived: HostMatch) {
        let mut state = self.lock();
        if !state.is_released {
            state.held.push(arrived);
        }
    }

    /// The requester drops its `Fetch`: unpins the arrived blocks.
    pub(crate) fn release(&self) {
        let mut state = self.lock();
        state.is_released = true;
        let held = std::mem::take(&mut state.held);
        // Unpinning takes the tier's lock.
        drop(state);
        drop(held);
    }

    pub(super) fn end(&self) {
        self.lock().is_done = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_done(&self) -> bool {
        self.lock().is_done
    }

    pub(crate) fn found_blocks(&self) -> usize {
        self.lock().found
    }

    pub(crate) fn arrived_blocks(&self) -> usize {
        self.lock().held.iter().map(|held| held.blocks().len()).sum()
    }

    /// Waits until the fetch is done, or until `until`. Returns whether it is done.
    pub(crate) fn wait_until(&self, until: Instant) -> bool {
        let mut state = self.lock();
        while !state.is_done {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_done
    }

    /// The end of a wait of this length that began with the fetch.
    pub(crate) fn due(&self, wait: Duration) -> Instant {
        self.began + wait.min(FOREVER)
    }
}
