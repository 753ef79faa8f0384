//! Settings changed while the cache runs.

use std::fmt;
use std::time::Duration;

use super::background::Watermarks;
use super::prefix_cache::PrefixCache;

/// Why a setting was not changed.
///
/// # Examples
///
/// ```
/// use radixkv::{PrefixCache, SettingError, Watermarks};
///
/// let cache = PrefixCache::builder(16, 1024).build()?;
/// assert_eq!(cache.set_watermarks(Watermarks::new(8, 16)), Err(SettingError::NotBackground));
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingError {
    /// The cache evicts inline: build it with [`Eviction::Background`](crate::Eviction::Background).
    NotBackground,
    /// The low watermark exceeds the high one, or the high one the capacity.
    Watermarks {
        /// The low one, in blocks.
        low: usize,
        /// The high one.
        high: usize,
        /// Blocks of the cache.
        capacity: usize,
    },
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBackground => f.write_str("the cache has no background evictor: build it with one"),
            Self::Watermarks { low, high, capacity } => write!(
                f,
                "watermarks: low ({low} blocks) must not exceed high ({high}), nor high the capacity ({capacity})"
            ),
        }
    }
}

impl std::error::Error for SettingError {}

impl PrefixCache {
    /// The watermarks of the background evictor; `None` if the cache evicts inline.
    pub fn watermarks(&self) -> Option<Watermarks> {
        self.inner.background.get().map(|_| self.inner.settings.watermarks())
    }

    /// Other watermarks for the background evictor, from its next look on, which comes at once.
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
    /// cache.set_watermarks(Watermarks::new(64, 128))?;
    /// assert_eq!(cache.watermarks(), Some(Watermarks::new(64, 128)));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_watermarks(&self, watermarks: Watermarks) -> Result<(), SettingError> {
        let Some(background) = self.inner.background.get() else {
            return Err(SettingError::NotBackground);
        };
        let (Watermarks { low, high }, capacity) = (watermarks, self.capacity_blocks());
        if low > high || high > capacity {
            return Err(SettingError::Watermarks { low, high, capacity });
        }
        self.inner.settings.set_watermarks(watermarks);
        background.changes_pending();
        Ok(())
    }

    /// After how long without a use a prefix is dropped; `None` if nothing is dropped for its age.
    pub fn time_to_idle(&self) -> Option<Duration> {
        self.inner.settings.time_to_idle()
    }

    /// Another such time, or none, from the evictor's next look on. A background evictor looks at once.
    ///
    /// Waits its turn if another thread is evicting. The first time sorts all candidates for eviction anew, in slices, as
    /// [`set_policy`](Self::set_policy) does; nothing is dropped before that is done.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let cache = radixkv::PrefixCache::builder(16, 1024).build()?;
    /// cache.set_time_to_idle(Some(Duration::from_secs(60)));
    /// assert_eq!(cache.time_to_idle(), Some(Duration::from_secs(60)));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn set_time_to_idle(&self, duration: Option<Duration>) {
        self.inner.settings.set_time_to_idle(duration);
        if duration.is_some() {
            self.inner.evicting(|evictor, resources| evictor.begin_aging(resources));
        }
        if let Some(background) = self.inner.background.get() {
            background.changes_pending();
        }
    }
}
