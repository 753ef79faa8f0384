//! Statistics of lookups, by namespace and by the reason of a miss.

use crate::name::NamespaceName;
use crate::reclaim::ROW_COUNTS;

/// The hits and misses of a namespace's lookups since it was created, or of a whole cache since it
/// was built.
///
/// The missed tokens of a lookup are those of the whole blocks beyond its match; all of them are
/// counted under the reason for the first such block. Tokens after the last whole block count only
/// as `query_tokens`.
///
/// The reasons are estimates. The cache keeps marks of blocks that were recently cached or evicted:
/// at least four for each of its blocks, up to 65,536 in total. It marks the first block of each
/// insert, and the first block that each eviction takes. So a block in the middle of an insert that
/// was evicted whole counts as new.
///
/// # Examples
///
/// ```
/// let cache = radixkv::PrefixCache::builder(2, 4).build()?;
/// let (session, tenant) = (cache.session(), cache.namespace(&["tenant-7"]));
/// let miss = session.match_prefix(&tenant, &[1, 2, 3, 4, 5]);
/// drop(session.insert(miss.lease(), &[1, 2, 3, 4], session.reserve(2)?)?);
/// drop(miss);
/// cache.evict(1);
/// drop(session.match_prefix(&tenant, &[1, 2, 3, 4]));
///
/// let lookups = tenant.stats().lookups.expect("there are few namespaces");
/// assert_eq!((lookups.lookups, lookups.query_tokens, lookups.hit_tokens), (2, 9, 2));
/// assert_eq!((lookups.missed_new_tokens, lookups.missed_evicted_tokens), (4, 2));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LookupStats {
    /// Number of lookups: each match that counts as a use, each
    /// [`acquire`](crate::Session::acquire) that was served, and each
    /// [`resume`](crate::Session::resume) of a lease whose lookup was not counted, unless the
    /// namespace was removed.
    pub lookups: u64,
    /// Tokens of the sequences that were looked up.
    pub query_tokens: u64,
    /// Tokens of those sequences that were found. Divided by `query_tokens`, the hit rate.
    pub hit_tokens: u64,
    /// Tokens that resumes found beyond leases whose lookup was counted; not in `hit_tokens`.
    pub resumed_tokens: u64,
    /// Missed tokens whose first block was cached in this namespace earlier and was evicted,
    /// invalidated or cleared. A larger cache, a quota or another policy may help.
    pub missed_evicted_tokens: u64,
    /// Missed tokens whose first block agrees with a cached one only in its first tokens. Smaller
    /// blocks or [partial hits](crate::PartialHit) may help.
    pub missed_diverged_tokens: u64,
    /// Missed tokens whose first block was seen only in another namespace.
    pub missed_elsewhere_tokens: u64,
    /// Missed tokens whose first block was never seen, or too long ago.
    pub missed_new_tokens: u64,
}

/// The counters of a row, in the order of [`LookupStats`].
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) enum Found {
    Lookups,
    QueryTokens,
    HitTokens,
    ResumedTokens,
    MissedEvicted,
    MissedDiverged,
    MissedElsewhere,
    MissedNew,
}

const _: () = assert!((Found::MissedNew as usize) < ROW_COUNTS);

impl LookupStats {
    pub(in crate::cache) fn of(row: [u64; ROW_COUNTS]) -> Self {
        let count = |found: Found| row[found as usize];
        Self {
            lookups: count(Found::Lookups),
            query_tokens: count(Found::QueryTokens),
            hit_tokens: count(Found::HitTokens),
            resumed_tokens: count(Found::ResumedTokens),
            missed_evicted_tokens: count(Found::MissedEvicted),
            missed_diverged_tokens: count(Found::MissedDiverged),
            missed_elsewhere_tokens: count(Found::MissedElsewhere),
            missed_new_tokens: count(Found::MissedNew),
        }
    }

    pub(in crate::cache) fn combine(&self, other: &Self, by: fn(u64, u64) -> u64) -> Self {
        let both = |count: fn(&Self) -> u64| by(count(self), count(other));
        Self {
            lookups: both(|stats| stats.lookups),
            query_tokens: both(|stats| stats.query_tokens),
            hit_tokens: both(|stats| stats.hit_tokens),
            resumed_tokens: both(|stats| stats.resumed_tokens),
            missed_evicted_tokens: both(|stats| stats.missed_evicted_tokens),
            missed_diverged_tokens: both(|stats| stats.missed_diverged_tokens),
            missed_elsewhere_tokens: both(|stats| stats.missed_elsewhere_tokens),
            missed_new_tokens: both(|stats| stats.missed_new_tokens),
        }
    }
}

/// The lookups of one namespace; made by
/// [`PrefixCache::lookups_by_namespace`](crate::PrefixCache::lookups_by_namespace).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamespaceLookups {
    /// The name; `None` for the sum of all namespaces without their own counters and of those that
    /// were removed.
    pub namespace: Option<NamespaceName>,
    /// The hits and misses of these lookups.
    pub lookups: LookupStats,
}
