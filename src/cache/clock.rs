//! Time: what matches and inserts are stamped with.

use std::time::Instant;

use crate::sync::gauge::{AtomicU64, Relaxed};

/// The source of a cache's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Clock {
    /// Nanoseconds of the system's monotonic clock since the cache was built.
    #[default]
    Monotonic,
    /// What [`PrefixCache::set_time`](crate::PrefixCache::set_time) says, from 0: replays are a function of their trace.
    Logical,
}

#[derive(Debug)]
pub(super) enum Time {
    Monotonic(Instant),
    Logical(AtomicU64),
}

impl Time {
    pub(super) fn new(clock: Clock) -> Self {
        match clock {
            Clock::Monotonic => Self::Monotonic(Instant::now()),
            Clock::Logical => Self::Logical(AtomicU64::new(0)),
        }
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        match self {
            Self::Monotonic(start) => start.elapsed().as_nanos() as u64,
            // Relaxed: the caller orders its own calls.
            Self::Logical(now) => now.load(Relaxed),
        }
    }

    pub(super) fn set(&self, time: u64) {
        if let Self::Logical(now) = self {
            // Relaxed: as above.
            now.store(time, Relaxed);
        }
    }
}
