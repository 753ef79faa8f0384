//! Time: what matches and inserts are stamped with.

use std::time::{Duration, Instant};

use crate::sync::gauge::{AtomicBool, AtomicU64, Relaxed};

/// The source of a cache's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Clock {
    /// The monotonic clock of the machine, in its own fine ticks since the cache was built.
    ///
    /// Setting the machine's date changes nothing. Time that the machine sleeps may count for the order of uses and not
    /// for deadlines, or the other way round.
    #[default]
    Monotonic,
    /// What [`PrefixCache::set_time`](crate::PrefixCache::set_time) says, from 0, any 64 bits: replays are a function
    /// of their trace. Where a verb takes a duration, a nanosecond of it is one unit of this clock.
    Logical,
}

#[derive(Debug)]
enum Source {
    /// The processor's time stamp counter when the cache was built, and when that was.
    Ticks(u64, Instant),
    /// Where that counter does not run evenly: when the cache was built.
    Instant(Instant),
    /// What was set last, and the latest that ever was.
    Logical(AtomicU64, AtomicU64),
}

/// A cache's time.
#[derive(Debug)]
pub(super) struct Time {
    source: Source,
    /// Whether a deadline was ever made: without one nobody need ask how late it is.
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

    /// What was stamped so long ago; nothing if the cache is younger.
    pub(super) fn before(&self, duration: Duration) -> Option<u64> {
        let (now, nanoseconds) = (self.now(), nanoseconds(duration));
        let Source::Ticks(_, start) = &self.source else {
            return now.checked_sub(nanoseconds);
        };
        // How long a tick is shows in how many there have been.
        let elapsed = start.elapsed().as_nanos().max(1);
        let ticks = u128::from(now) * u128::from(nanoseconds) / elapsed;
        u64::try_from(ticks).ok().and_then(|ticks| now.checked_sub(ticks))
    }

    /// What deadlines go by: nanoseconds since the cache was built, or the latest that a logical clock was set to. It
    /// never goes back: else what is retained would depend on who looked in between.
    ///
    /// Not what touches are stamped with: nobody knows how long a tick of the counter is.
    fn elapsed(&self) -> u64 {
        match &self.source {
            Source::Ticks(_, start) | Source::Instant(start) => nanoseconds(start.elapsed()),
            // Relaxed: as above.
            Source::Logical(_, latest) => latest.load(Relaxed),
        }
    }

    /// [`elapsed`](Self::elapsed), or zero where there is no deadline to compare it with.
    pub(super) fn elapsed_for_deadlines(&self) -> u64 {
        if self.has_deadlines() { self.elapsed() } else { 0 }
    }

    /// Whether a deadline was ever made.
    pub(super) fn has_deadlines(&self) -> bool {
        // Relaxed: who makes a deadline says so before its point is let go, and so before the evictor sees either.
        self.has_deadlines.load(Relaxed)
    }

    /// The moment that lies so far ahead, for [`elapsed`](Self::elapsed) to be compared with.
    pub(super) fn after(&self, duration: Duration) -> u64 {
        // Relaxed: as above.
        self.has_deadlines.store(true, Relaxed);
        self.elapsed().saturating_add(nanoseconds(duration))
    }

    /// The machine's moment at which [`elapsed`](Self::elapsed) says `deadline`; a logical clock does not go by itself.
    pub(super) fn moment(&self, deadline: u64) -> Option<Instant> {
        match &self.source {
            Source::Ticks(_, start) | Source::Instant(start) => start.checked_add(Duration::from_nanos(deadline)),
            Source::Logical(..) => None,
        }
    }

    pub(super) fn set(&self, time: u64) {
        if let Source::Logical(now, latest) = &self.source {
            // Relaxed: as above.
            now.store(time, Relaxed);
            latest.fetch_max(time, Relaxed);
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_ago_lies_before_now_and_after_the_beginning() {
        for clock in [Clock::Monotonic, Clock::Logical] {
            let time = Time::new(clock);
            assert_eq!(time.before(Duration::from_secs(1 << 40)), None, "{clock:?}");
            time.set(50);
            let (first, then) = (time.now(), Instant::now());
            while then.elapsed() < Duration::from_millis(5) {
                std::hint::spin_loop();
            }
            time.set(5_000_050);
            let ago = time.before(Duration::from_millis(4)).expect("the cache is older");
            assert!(first < ago && ago < time.now(), "{clock:?}: {first} {ago} {}", time.now());
        }
    }
}
