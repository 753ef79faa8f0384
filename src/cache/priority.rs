//! Priorities: how much a prefix is worth keeping.

use std::fmt;
use std::time::Duration;

/// How much a prefix is worth keeping, from 0 to 100, and for how long; [`PolicyKind::Priority`] evicts in this order.
///
/// [`PolicyKind::Priority`]: crate::PolicyKind::Priority
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use radixkv::{Priority, PriorityError};
///
/// let interactive = Priority::new(80)?.expiring_after(Duration::from_secs(60));
/// assert_eq!((interactive.level(), interactive.ttl()), (80, Some(Duration::from_secs(60))));
/// assert_eq!(Priority::new(101).unwrap_err().level, 101);
/// # Ok::<_, PriorityError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Priority {
    level: u8,
    ttl: Option<Duration>,
}

/// A priority above [`Priority::MAX`].
///
/// # Examples
///
/// ```
/// use radixkv::Priority;
///
/// let error = Priority::new(101).unwrap_err();
/// assert_eq!(error.to_string(), "a priority of 101 is not from 0 to 100");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PriorityError {
    /// The level asked for.
    pub level: u64,
}

impl fmt::Display for PriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a priority of {} is not from 0 to {}", self.level, Priority::MAX)
    }
}

impl std::error::Error for PriorityError {}

impl Priority {
    /// The highest level.
    pub const MAX: u8 = 100;

    /// The priority of a prefix that was given none, or whose priorities have all expired: level 35, so that there is
    /// room below it.
    pub const DEFAULT: Self = Self { level: 35, ttl: None };

    /// A priority that does not expire.
    ///
    /// # Errors
    ///
    /// [`PriorityError`] for a level above 100.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::Priority;
    ///
    /// let interactive = Priority::new(80)?;
    /// assert!(interactive.level() > Priority::DEFAULT.level());
    /// # Ok::<_, radixkv::PriorityError>(())
    /// ```
    pub const fn new(level: u8) -> Result<Self, PriorityError> {
        if level > Self::MAX {
            return Err(PriorityError { level: level as u64 });
        }
        Ok(Self { level, ttl: None })
    }

    /// The same level, from the moment it is given until `ttl` has passed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// use radixkv::Priority;
    ///
    /// let for_an_hour = Priority::new(80)?.expiring_after(Duration::from_secs(3600));
    /// assert_eq!(for_an_hour.ttl(), Some(Duration::from_secs(3600)));
    /// # Ok::<_, radixkv::PriorityError>(())
    /// ```
    #[must_use]
    pub const fn expiring_after(self, ttl: Duration) -> Self {
        Self { level: self.level, ttl: Some(ttl) }
    }

    /// The level, from 0 (evicted first) to 100.
    pub const fn level(self) -> u8 {
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
