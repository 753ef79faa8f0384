//! The cache's clock: time stamps for matches and inserts, and the time of deadlines.

use std::time::{Duration, Instant};

use crate::sync::gauge::{AtomicBool, AtomicU64, Relaxed};

/// The source of a cache's time.
///
/// # Examples
///
/// ```
/// # use radixkv::{Clock, PrefixCache};
/// let cache = PrefixCache::builder(2, 2).clock(Clock::Logical).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// for (time, prompt) in [(9, [1, 2]), (5, [3, 4])] {
///     cache.set_time(time); // the time of the request in its trace
///     drop(session.insert(session.match_prefix(&space, &prompt).lease(), &prompt, session.reserve(1)?)?);
/// }
/// cache.evict(1); // the prompt of time 5, though it came last
/// assert_eq!((session.peek(&space, &[1, 2]), session.peek(&space, &[3, 4])), (2, 0));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Clock {
    /// The machine's monotonic clock, in its own ticks since the cache was built.
    ///
    /// Setting the machine's date changes nothing. Time in which the machine is suspended may count
    /// for the order of uses but not for deadlines, or the reverse.
    #[default]
    Monotonic,
    /// The time that [`PrefixCache::set_time`](crate::PrefixCache::set_time) sets, any `u64`, at
    /// first 0: a replay then depends only on its trace. If a method takes a duration, a nanosecond
    /// is one unit of this clock.
    Logical,
}

#[derive(Debug)]
enum Source {
    /// The processor's time stamp counter and the `Instant` when the cache was built.
    Ticks(u64, Instant),
    /// The `Instant` when the cache was built, on a processor whose counter has no constant rate.
    Instant(Instant),
    /// The last time that was set, and the latest one.
    Logical(AtomicU64, AtomicU64),
}

/// A cache's time.
#[derive(Debug)]
pub(super) struct Time {
    source: Source,
    /// Whether a deadline was ever made; if not, the time of deadlines need not be read.
    has_deadlines: AtomicBool,
}

impl Time {
    pub(super) fn new(clock: Clock) -> Self {
        let source = match clock {
            Clock::Monotonic => {
                let now = Instant::now();
                ticks::now().map_or(Source::Instant(now), |ticks| Source::Ticks(ticks, now))
            }
            Clock::Logical => Source::Logical(AtomicU64::new(0), AtomicU64::new(0)),
        };
        Self { source, has_deadlines: AtomicBool::new(false) }
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        match &self.source {
            Source::Ticks(start, _) => ticks::read().saturating_sub(*start),
            Source::Instant(start) => start.elapsed().as_nanos() as u64,
            // Relaxed: the caller orders its own calls.
            Source::Logical(now, _) => now.load(Relaxed),
        }
    }

    /// The present moment as a stamp.
    pub(super) fn present(&self) -> Present {
        let now = self.now();
        let nanoseconds = match &self.source {
            Source::Ticks(_, start) => nanoseconds(start.elapsed()).max(1),
            Source::Instant(_) | Source::Logical(..) => now,
        };
        Present { now, nanoseconds }
    }

    /// The time of deadlines: nanoseconds since the cache was built, or the latest time that a
    /// logical clock was set to. It never goes back; otherwise the end of a retention would depend
    /// on when other threads looked at the time.
    ///
    /// It differs from the time of stamps, whose unit is a tick of unknown length.
    fn elapsed(&self) -> u64 {
        match &self.source {
            Source::Ticks(_, start) | Source::Instant(start) => nanoseconds(start.elapsed()),
            // Relaxed: as above.
            Source::Logical(_, latest) => latest.load(Relaxed),
        }
    }

    /// [`elapsed`](Self::elapsed), or zero if no deadline was ever made.
    pub(super) fn elapsed_for_deadlines(&self) -> u64 {
        if self.has_deadlines() { self.elapsed() } else { 0 }
    }

    /// Whether a deadline was ever made.
    pub(super) fn has_deadlines(&self) -> bool {
        // Relaxed: a thread that makes a deadline sets this before it releases the point, so before
        // the evictor sees the deadline.
        self.has_deadlines.load(Relaxed)
    }

    /// The deadline in `duration` from now, to be compared with [`elapsed`](Self::elapsed).
    pub(super) fn after(&self, duration: Duration) -> u64 {
        // Relaxed: as above.
        self.has_deadlines.store(true, Relaxed);
        self.elapsed().saturating_add(nanoseconds(duration))
    }

    /// The `Instant` at which [`elapsed`](Self::elapsed) reaches `deadline`; `None` for a logical
    /// clock, which advances only when it is set.
    pub(super) fn moment(&self, deadline: u64) -> Option<Instant> {
        match &self.source {
            Source::Ticks(_, start) | Source::Instant(start) => start.checked_add(Duration::from_nanos(deadline)),
            Source::Logical(..) => None,
        }
    }

    /// Whether it is a logical clock, which advances only when it is set.
    pub(super) fn is_logical(&self) -> bool {
        matches!(self.source, Source::Logical(..))
    }

    pub(super) fn set(&self, time: u64) {
        if let Source::Logical(now, latest) = &self.source {
            // Relaxed: as above.
            now.store(time, Relaxed);
            latest.fetch_max(time, Relaxed);
        }
    }
}

/// A moment, as a stamp and in nanoseconds since stamp 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Present {
    now: u64,
    nanoseconds: u64,
}

impl Present {
    /// The stamp of the moment `duration` ago; `None` if the cache is younger.
    pub(super) fn before(self, duration: Duration) -> Option<u64> {
        let duration = nanoseconds(duration);
        if self.now == self.nanoseconds {
            return self.now.checked_sub(duration);
        }
        // The length of a tick is derived from the number of ticks since the cache was built.
        let ticks = u128::from(self.now) * u128::from(duration) / u128::from(self.nanoseconds);
        u64::try_from(ticks).ok().and_then(|ticks| self.now.checked_sub(ticks))
    }
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The time stamp counter: 10 ns to read where the system's clock takes 25 to 40.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod ticks {
    #![allow(unsafe_code)]
    #![allow(unused_unsafe)]

    use core::arch::x86_64::{__cpuid, _rdtsc};

    const POWER_LEAF: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;

    /// Reads the counter, if it runs at a constant rate whatever the cores do.
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

#[cfg(test)]
mod tests;
