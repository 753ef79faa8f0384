//! Measures how long a lock is held (feature `holds`); does nothing without the feature.
//!
//! This is in `sync` because a lock measures it, depending on the build.

#[cfg(feature = "holds")]
use std::time::Duration;

#[cfg(feature = "holds")]
use super::OnceLock;
#[cfg(feature = "holds")]
use super::gauge::{AtomicU64, Relaxed};

#[cfg(feature = "holds")]
static CLOCK: OnceLock<fn() -> Duration> = OnceLock::new();

/// Starts to measure how long each cache's eviction lock is held. `clock` returns the calling
/// thread's time: its processor time, or any other.
/// [`PrefixCache::longest_hold`](crate::PrefixCache::longest_hold) returns the longest hold.
///
/// For benchmarks: the clock is read twice for each hold, the first time under the lock, so it must
/// not panic or use a cache. Only the first call in a process has an effect.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use radixkv::PrefixCache;
///
/// thread_local!(static BEGAN: Instant = Instant::now());
/// radixkv::measure_holds(|| BEGAN.with(Instant::elapsed));
///
/// let cache = PrefixCache::builder(16, 1024).build()?;
/// let session = cache.session();
/// let prompt: Vec<u32> = (0..512).collect();
/// let miss = session.match_prefix(&cache.default_namespace(), &prompt);
/// drop(session.insert(miss.lease(), &prompt, session.reserve(32)?)?);
/// assert_eq!(cache.evict(32), 32);
/// assert!(cache.longest_hold() > Duration::ZERO);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "holds")]
pub fn measure_holds(clock: fn() -> Duration) {
    // Only the first clock is kept, because times of two clocks cannot be compared.
    let _ = CLOCK.set(clock);
}

/// The longest hold of a lock, if holds are measured.
#[derive(Debug, Default)]
pub(super) struct LongestHold {
    #[cfg(feature = "holds")]
    is_measured: bool,
    #[cfg(feature = "holds")]
    nanoseconds: AtomicU64,
}

/// The time when a hold began, if holds are measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beginning(#[cfg(feature = "holds")] Option<Duration>);

impl LongestHold {
    /// For a lock whose holds are measured.
    pub(super) fn measured() -> Self {
        Self {
            #[cfg(feature = "holds")]
            is_measured: true,
            #[cfg(feature = "holds")]
            nanoseconds: AtomicU64::new(0),
        }
    }

    /// Begins a hold.
    #[inline]
    pub(super) fn begin(&self) -> Beginning {
        Beginning(
            #[cfg(feature = "holds")]
            CLOCK.get().filter(|_| self.is_measured).map(|clock| clock()),
        )
    }

    /// Ends a hold.
    #[inline]
    pub(super) fn end(&self, hold: Beginning) {
        #[cfg(feature = "holds")]
        if let Some((began, clock)) = hold.0.zip(CLOCK.get()) {
            let held = clock().saturating_sub(began).as_nanos();
            // Relaxed, here and below: a statistic.
            self.nanoseconds.fetch_max(u64::try_from(held).unwrap_or(u64::MAX), Relaxed);
        }
        #[cfg(not(feature = "holds"))]
        let Beginning() = hold;
    }

    /// Returns the longest hold since the last call.
    #[cfg(feature = "holds")]
    pub(super) fn take(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.swap(0, Relaxed))
    }
}
