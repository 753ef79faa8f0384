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
    /// The cache drops nothing for its age: build it with [`Builder::time_to_idle`](crate::Builder::time_to_idle).
    NotAging,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBackground => f.write_str("the cache has no background evictor: build it with one"),
            Self::Watermarks { low, high, capacity } => write!(
                f,
                "watermarks: low ({low} blocks) must not exceed high ({high}), nor high the capacity ({capacity})"
            ),
            Self::NotAging => f.write_str("the cache was built without a time to idle"),
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

    /// Another such time, from the evictor's next look on. A background evictor looks at once.
    ///
    /// # Errors
    ///
    /// [`SettingError::NotAging`] if the cache was built without one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let cache = radixkv::PrefixCache::builder(16, 1024).time_to_idle(Duration::from_secs(3600)).build()?;
    /// cache.set_time_to_idle(Duration::from_secs(60))?;
    /// assert_eq!(cache.time_to_idle(), Some(Duration::from_secs(60)));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_time_to_idle(&self, duration: Duration) -> Result<(), SettingError> {
        let settings = &self.inner.settings;
        if settings.time_to_idle().is_none() {
            return Err(SettingError::NotAging);
        }
        settings.set_time_to_idle(duration);
        if let Some(background) = self.inner.background.get() {
            background.changes_pending();
        }
        Ok(())
    }
}
