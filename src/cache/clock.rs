//! Time: what matches and inserts are stamped with.

use std::time::Instant;

use crate::sync::gauge::{AtomicU64, Relaxed};

/// The source of a cache's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Clock {
    /// The monotonic clock of the machine, in its own fine ticks since the cache was built.
    #[default]
    Monotonic,
    /// What [`PrefixCache::set_time`](crate::PrefixCache::set_time) says, from 0: replays are a function of their trace.
    Logical,
}

#[derive(Debug)]
pub(super) enum Time {
    /// The processor's time stamp counter when the cache was built.
    Ticks(u64),
    /// Where that counter does not run evenly: when the cache was built.
    Instant(Instant),
    Logical(AtomicU64),
}

impl Time {
    pub(super) fn new(clock: Clock) -> Self {
        match clock {
            Clock::Monotonic => ticks::now().map_or_else(|| Self::Instant(Instant::now()), Self::Ticks),
            Clock::Logical => Self::Logical(AtomicU64::new(0)),
        }
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        match self {
            Self::Ticks(start) => ticks::read().saturating_sub(*start),
            Self::Instant(start) => start.elapsed().as_nanos() as u64,
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

/// The time stamp counter: 10 ns to read where the system's clock takes 25 to 40.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod ticks {
    #![allow(unsafe_code)]
    #![allow(unused_unsafe)]

    use core::arch::x86_64::{__cpuid, _rdtsc};

    const POWER_LEAF: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;

    /// The counter, if it runs at one rate whatever the cores do.
    pub(super) fn now() -> Option<u64> {
        // SAFETY: every processor of this architecture has the instruction.
        let highest = unsafe { __cpuid(0x8000_0000) }.eax;
        // SAFETY: as above; the leaf exists.
        let invariant = highest >= POWER_LEAF && unsafe { __cpuid(POWER_LEAF) }.edx & INVARIANT != 0;
        invariant.then(read)
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every processor of this architecture has the instruction.
        unsafe { _rdtsc() }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod ticks {
    pub(super) fn now() -> Option<u64> {
        None
    }

    pub(super) fn read() -> u64 {
        0
    }
}
