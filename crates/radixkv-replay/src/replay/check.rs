//! Checks a cache while no lease and no reservation is held.

use std::fmt;

use radixkv::{PrefixCache, Stats, Violation};

/// A fault that a check found in the cache.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, ReplayError, replay, replay::CheckFault, workload::CLASSES};
///
/// match replay(&CLASSES[2].trace(0), &ReplayConfig::default().checks(10), &|| {}) {
///     Err(ReplayError::Check { served, fault: CheckFault::Invalid(violation) }) => panic!("{served}: {violation}"),
///     Err(error) => panic!("{error}"),
///     Ok(replayed) => assert_eq!(replayed.report.requests, 1000),
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckFault {
    /// An invariant of the cache does not hold.
    Invalid(Violation),
    /// Blocks were lost or counted twice: free, reserved, evictable and protected do not add up to
    /// the capacity.
    NotConserved(Box<Stats>),
    /// Blocks are reserved or protected, though no reservation and no lease exists.
    StillHeld(Box<Stats>),
}

impl fmt::Display for CheckFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, stats) = match self {
            Self::Invalid(violation) => return violation.fmt(f),
            Self::NotConserved(stats) => ("blocks were lost or counted twice", stats),
            Self::StillHeld(stats) => {
                ("blocks are reserved or protected though no reservation and no lease exists", stats)
            }
        };
        let Stats { free_blocks, reserved_blocks, evictable_blocks, protected_blocks, capacity_blocks, .. } = &**stats;
        write!(
            f,
            "{what}: {free_blocks} free, {reserved_blocks} reserved, {evictable_blocks} evictable and \
             {protected_blocks} protected of {capacity_blocks}"
        )
    }
}

impl std::error::Error for CheckFault {}

/// Checks the invariants of a cache while nothing is reserved or leased.
pub(super) fn check(cache: &PrefixCache) -> Result<(), CheckFault> {
    cache.settle();
    cache.validate().map_err(CheckFault::Invalid)?;
    let stats = cache.stats();
    let blocks = stats.free_blocks + stats.reserved_blocks + stats.evictable_blocks + stats.protected_blocks;
    if blocks != stats.capacity_blocks {
        return Err(CheckFault::NotConserved(Box::new(stats)));
    }
    if stats.reserved_blocks + stats.protected_blocks > 0 {
        return Err(CheckFault::StillHeld(Box::new(stats)));
    }
    Ok(())
}
