//! Counts changes, so that an idle thread can sleep until the next one.

use std::time::{Duration, Instant};

use super::{Condvar, Mutex};

/// A counter of changes. A thread that has seen all of them can sleep until the next one and misses
/// none.
#[derive(Debug)]
pub(crate) struct Changes {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Changes {
    pub(crate) fn new() -> Self {
        Self { count: Mutex::new(0), changed: Condvar::new() }
    }

    pub(crate) fn count(&self) -> u64 {
        *self.count.lock()
    }

    /// Counts a change, and wakes the sleeping threads.
    pub(crate) fn announce(&self) {
        *self.count.lock() += 1;
        self.changed.notify_all();
    }

    /// Sleeps until more than `seen` changes are counted; returns false after `timeout`. A timeout
    /// beyond the range of the clock never ends.
    pub(crate) fn wait_beyond(&self, seen: u64, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        let mut count = self.count.lock();
        while *count <= seen {
            let late;
            (count, late) = self.changed.wait(count, deadline);
            if late {
                return *count > seen;
            }
        }
        true
    }
}
