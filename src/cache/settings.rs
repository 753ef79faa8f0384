//! `Settings`: the settings that can change while the cache runs.

use std::fmt;
use std::time::Duration;

use super::eviction::background::Watermarks;
use super::eviction::eviction_sink::{EvictionSink, Sink};
use super::eviction::outlet;
use super::evictor::{FEW_SLICES, SLICE};
use super::numbers::stats::Total;
use super::prefix_cache::PrefixCache;
use crate::policy::PolicyKind;

/// Why a setting was not changed.
///
/// # Examples
///
/// ```
/// use radixkv::{PrefixCache, SettingError, Watermarks};
///
/// let cache = PrefixCache::builder(16, 1024).build()?;
/// assert_eq!(cache.settings().set_watermarks(Watermarks::new(8, 16)), Err(SettingError::NotBackground));
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingError {
    /// The cache evicts inline: build it with
    /// [`Eviction::Background`](crate::Eviction::Background).
    NotBackground,
    /// The cache has an eviction sink: [remove](Settings::remove_eviction_sink) it first.
    HasSink,
    /// The low watermark exceeds the high one, or the high one the capacity.
    Watermarks {
        /// The low watermark, in blocks.
        low: usize,
        /// The high watermark.
        high: usize,
        /// Blocks of the cache.
        capacity: usize,
    },
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBackground => {
                f.write_str("the cache evicts inline: build it with Eviction::Background to set watermarks")
            }
            Self::HasSink => f.write_str("the cache has an eviction sink: remove it before another one is set"),
            Self::Watermarks { low, high, capacity } => write!(
                f,
                "watermarks: low ({low} blocks) must not exceed high ({high}), nor high the capacity ({capacity})"
            ),
        }
    }
}

impl std::error::Error for SettingError {}

/// The settings of a cache that can change while it runs; made by [`PrefixCache::settings`].
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    pub(super) cache: &'a PrefixCache,
}

impl Settings<'_> {
    /// Replaces the policy without a pause: evictions follow the old policy until the order of the
    /// new one is complete.
    ///
    /// The new order is built in slices of a fraction of a millisecond. This call takes the
    /// evictor's lock and does the first slice, or all if there were never more than 256 candidates
    /// (idle ends of runs). The background evictor, [`run_once`](PrefixCache::run_once) and
    /// reservations that evict do the others; [`settle`](PrefixCache::settle) completes the
    /// exchange. The complete order is exactly that of a cache that had the policy from the start.
    /// A call before then abandons the exchange and begins another.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{PolicyKind, PrefixCache};
    ///
    /// let cache = PrefixCache::builder(16, 1024).build()?;
    /// cache.settings().set_policy(PolicyKind::Lfu);
    /// cache.settle(); // complete now, whatever was cached
    /// assert_eq!(cache.settings().policy(), PolicyKind::Lfu);
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn set_policy(&self, policy: PolicyKind) {
        let mut more = false;
        for slice in 0..FEW_SLICES {
            let few;
            (more, few) = self.cache.inner.in_turn(|evictor, resources| {
                if slice == 0 {
                    evictor.begin_exchange(policy);
                }
                (
                    evictor.advance_exchange(SLICE, resources),
                    evictor.shards().map(|shard| shard.ranking.slots().len()).sum::<usize>() <= FEW_SLICES * SLICE,
                )
            });
            if !(more && few) {
                break;
            }
        }
        if let Some(background) = self.cache.inner.background.get().filter(|_| more) {
            background.changes_pending();
        }
    }

    /// The current policy; after [`set_policy`](Self::set_policy) the old one, until the exchange
    /// is complete. Never waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{PolicyKind, PrefixCache};
    ///
    /// let cache = PrefixCache::builder(16, 1024).build()?;
    /// assert_eq!(cache.settings().policy(), PolicyKind::Lru);
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn policy(&self) -> PolicyKind {
        PolicyKind::of_code(self.cache.inner.evictor.totals[0].get(Total::Policy))
    }

    /// The watermarks of the background evictor; `None` if the cache evicts inline.
    pub fn watermarks(&self) -> Option<Watermarks> {
        self.cache.inner.background.get().map(|_| self.cache.inner.settings.watermarks())
    }

    /// Changes the watermarks of the background evictor, effective at once. Takes the evictor's
    /// lock.
    ///
    /// # Errors
    ///
    /// [`SettingError`]; nothing has changed.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{Eviction, PrefixCache, Watermarks};
    ///
    /// let cache = PrefixCache::builder(16, 1024).eviction(Eviction::Background(Watermarks::new(8, 16))).build()?;
    /// cache.settings().set_watermarks(Watermarks::new(64, 128))?;
    /// assert_eq!(cache.settings().watermarks(), Some(Watermarks::new(64, 128)));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_watermarks(&self, watermarks: Watermarks) -> Result<(), SettingError> {
        let Some(background) = self.cache.inner.background.get() else {
            return Err(SettingError::NotBackground);
        };
        let (Watermarks { low, high }, capacity) = (watermarks, self.cache.capacity_blocks());
        if low > high || high > capacity {
            return Err(SettingError::Watermarks { low, high, capacity });
        }
        self.cache.inner.change(|live| live.watermarks = Some(watermarks));
        background.changes_pending();
        Ok(())
    }

    /// The time without a use after which a prefix is removed; `None` if there is none.
    pub fn time_to_idle(&self) -> Option<Duration> {
        self.cache.inner.settings.time_to_idle()
    }

    /// Changes or removes the time to idle, effective at the evictor's next step. A background
    /// evictor checks at once.
    ///
    /// Takes the evictor's lock. The first time, all candidates for eviction are sorted again, in
    /// slices, as [`set_policy`](Self::set_policy) does; nothing is removed before that is
    /// complete.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let cache = radixkv::PrefixCache::builder(16, 1024).build()?;
    /// cache.settings().set_time_to_idle(Some(Duration::from_secs(60)));
    /// assert_eq!(cache.settings().time_to_idle(), Some(Duration::from_secs(60)));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn set_time_to_idle(&self, duration: Option<Duration>) {
        self.cache.inner.change(|live| live.time_to_idle = duration);
        if duration.is_some() {
            self.cache.inner.evicting(|evictor, resources| evictor.begin_aging(resources));
        }
        if let Some(background) = self.cache.inner.background.get() {
            background.changes_pending();
        }
    }

    /// Sets the sink that receives blocks evicted from now on, as
    /// [`Builder::eviction_sink`](super::Builder::eviction_sink) does.
    ///
    /// Takes the evictor's lock.
    ///
    /// # Errors
    ///
    /// [`SettingError::HasSink`]; nothing has changed, and `sink` is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{EvictedBatch, PrefixCache, SettingError};
    ///
    /// let cache = PrefixCache::builder(16, 1024).build()?;
    /// cache.settings().set_eviction_sink(|_: EvictedBatch| {})?;
    /// assert_eq!(cache.settings().set_eviction_sink(|_: EvictedBatch| {}), Err(SettingError::HasSink));
    /// cache.settings().remove_eviction_sink();
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_eviction_sink(&self, sink: impl EvictionSink + 'static) -> Result<(), SettingError> {
        let outlet = outlet::to_sink(&self.cache.inner, Sink::new(sink));
        self.cache.inner.try_change(|live| match &live.outlet {
            Some(_) => Err(SettingError::HasSink),
            // A clone is stored, so that a sink that is refused is dropped without the lock.
            None => {
                live.outlet = Some(outlet.clone());
                Ok(())
            }
        })
    }

    /// Removes the eviction sink, if there is one; from now on evicted blocks are free at once.
    ///
    /// A thread that has already evicted may still call the sink after this returns. Takes the
    /// evictor's lock.
    pub fn remove_eviction_sink(&self) {
        self.cache.inner.change(|live| live.outlet = None);
    }
}
