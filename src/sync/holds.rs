//! Measures how long a lock is held (feature `holds`); does nothing without the feature.
//!
//! This is in `sync` because a lock measures it, and the build decides whether.

#[cfg(feature = "holds")]
use std::time::Duration;

#[cfg(feature = "holds")]
use super::OnceLock;
#[cfg(feature = "holds")]
use super::gauge::{AtomicU64, Relaxed};

#[cfg(feature = "holds")]
static CLOCK: OnceLock<fn() -> Duration> = OnceLock::new();

/// Starts to measure how long each cache's eviction lock is held. `clock` gives the time of the
/// calling thread: processor time, or any other.
/// [`PrefixCache::longest_hold`](crate::PrefixCache::longest_hold) returns the longest hold.
///
/// For benches: the clock is read twice for each hold, the first time under the lock. So it must
/// not panic, and must not use a cache. Only the first call in a process counts; later ones do
/// nothing.
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
    // A later clock is refused, because times of two clocks cannot be compared.
    let _ = CLOCK.set(clock);
}

/// The longest time that a lock was held, if that is measured.
#[derive(Debug, Default)]
pub(super) struct LongestHold {
    #[cfg(feature = "holds")]
    is_measured: bool,
    #[cfg(feature = "holds")]
    nanoseconds: AtomicU64,
}

/// The time when a hold began, if that is measured.
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
            // Relaxed, here and below: only a number.
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
