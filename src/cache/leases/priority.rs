//! Priorities: how much a prefix is worth keeping.

use std::time::Duration;

/// The priority of a prefix, any `i64`, and how long it counts; [`PolicyKind::Priority`] evicts the
/// lowest priority first.
///
/// [`PolicyKind::Priority`]: crate::PolicyKind::Priority
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use radixkv::Priority;
///
/// let interactive = Priority::new(80).expiring_after(Duration::from_secs(60));
/// assert_eq!((interactive.level(), interactive.ttl()), (80, Some(Duration::from_secs(60))));
/// let batch = Priority::new(-1_000_000);
/// assert!(batch.level() < Priority::DEFAULT.level());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Priority {
    level: i64,
    ttl: Option<Duration>,
}

impl Priority {
    /// The default priority, also of a prefix whose priorities have all expired: level 35, as in
    /// TensorRT-LLM, where levels are 0 to 100.
    pub const DEFAULT: Self = Self::new(35);

    /// Creates a priority that does not expire.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::Priority;
    ///
    /// assert!(Priority::new(80).level() > Priority::DEFAULT.level());
    /// ```
    pub const fn new(level: i64) -> Self {
        Self { level, ttl: None }
    }

    /// Lets the priority expire: it counts from the moment it is given until `ttl` has passed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// use radixkv::Priority;
    ///
    /// let for_an_hour = Priority::new(80).expiring_after(Duration::from_secs(3600));
    /// assert_eq!(for_an_hour.ttl(), Some(Duration::from_secs(3600)));
    /// ```
    #[must_use]
    pub const fn expiring_after(self, ttl: Duration) -> Self {
        Self { level: self.level, ttl: Some(ttl) }
    }

    /// The level; the lowest is evicted first.
    pub const fn level(self) -> i64 {
        self.level
    }

    /// How long it counts after it is given; `None` if it does not expire.
    pub const fn ttl(self) -> Option<Duration> {
        self.ttl
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::DEFAULT
    }
}
