//! The statistics of a cache.

use crossbeam_utils::CachePadded;

use crate::cache::listening::events::EvictionReason;
use crate::sync::Arc;
use crate::sync::gauge::{AtomicU64, Relaxed};

/// The statistics of a cache at one moment.
///
/// Blocks by state, memory, and counts since the cache was built. Counting costs a thread a few
/// stores to its own cache line. For rates, take the [`delta`](Self::delta) of two moments.
///
/// `free + reserved + evictable + protected` is the capacity. `evictable` and `protected` are exact
/// as of the last [`settle`](crate::PrefixCache::settle): evicting everything would free exactly
/// the evictable blocks. Leases, releases and inserts since then are not in them yet; blocks
/// inserted since then count as reserved. Made by
/// [`PrefixCache::stats`](crate::PrefixCache::stats), which has an example.
///
/// # Examples
///
/// ```
/// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
/// let stats = cache.stats();
/// println!("{} of {} blocks are cached", stats.evictable_blocks + stats.protected_blocks, stats.capacity_blocks);
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Blocks that the cache manages.
    pub capacity_blocks: usize,
    /// Blocks that hold nothing. With an external pool: blocks that the engine has, or that wait to
    /// be taken back.
    pub free_blocks: usize,
    /// Blocks that are being filled: in reservations, or inserted since the last settling.
    pub reserved_blocks: usize,
    /// Cached blocks that no lease protects.
    pub evictable_blocks: usize,
    /// Cached blocks that a lease protects, directly or through a longer prefix.
    pub protected_blocks: usize,
    /// Blocks that were cached.
    pub inserted_blocks: u64,
    /// Blocks that were evicted.
    pub evicted_blocks: u64,
    /// Of these, blocks that were evicted because their namespace exceeded its quota.
    pub evicted_for_quota_blocks: u64,
    /// Blocks that were removed because they were not used for the time to idle
    /// ([`Builder::time_to_idle`](crate::Builder::time_to_idle)); not among those evicted.
    pub aged_blocks: u64,
    /// Blocks of namespaces that were cleared or removed, freed by now; not among those evicted.
    pub cleared_blocks: u64,
    /// Blocks that were [invalidated](crate::PrefixCache::invalidate_blocks), freed by now; not
    /// among those evicted.
    pub invalidated_blocks: u64,
    /// Number of requests that wait for blocks.
    pub waiting_requests: usize,
    /// Bytes of index memory: tokens, block ids and nodes, including garbage.
    ///
    /// If nothing is cached, it is a few hundred bytes for each namespace: the default one, and
    /// those with a handle or a quota. It includes the tokens and ids that were stored while a
    /// [subscriber](crate::PrefixCache::subscribe) listened, even if their blocks were evicted:
    /// until all subscribers have read them or are gone, and a few more turns of the evictor have
    /// passed.
    pub index_bytes: usize,
    /// Bytes of that memory that are garbage: unlinked, and freed once no thread can access them.
    pub garbage_bytes: usize,
    /// Bytes that the index has allocated from the system for nodes of up to 4 KiB, in whole slabs
    /// and segments: more than it uses, and a few MiB in reserve. Larger nodes come from the global
    /// allocator.
    pub slab_bytes: usize,
    /// The number of runs: segments of sequences in the index. Tokens that were appended in place
    /// are part of the run before them.
    pub runs: usize,
    /// Whether these numbers include every change that was made before the call. If not, another
    /// thread was evicting: [`settle`](crate::PrefixCache::settle) waits for it.
    pub is_settled: bool,
    /// The number of points: places on runs that hold leases, branches and statistics. A point
    /// stays until its run is shortened to before it, because it keeps the statistics of blocks
    /// evicted beyond it: a prefix with a thousand past continuations keeps a few hundred bytes for
    /// each place where one was attached, for as long as the prefix is cached.
    pub points: usize,
    /// Number of lookups ([`LookupStats::lookups`](crate::LookupStats::lookups)).
    pub lookups: u64,
    /// Tokens of the sequences that were looked up.
    pub query_tokens: u64,
    /// Tokens of those sequences that were found. Divided by `query_tokens`, the hit rate.
    pub hit_tokens: u64,
    /// Tokens that resumes found beyond leases whose lookup was counted; not in `hit_tokens`.
    pub resumed_tokens: u64,
    /// Tokens of whole blocks that lookups missed, by the [reason](crate::LookupStats) for the
    /// first such block: it had been cached and was removed.
    pub missed_evicted_tokens: u64,
    /// As above: a cached block agrees only in its first tokens.
    pub missed_diverged_tokens: u64,
    /// As above: it was seen only in another namespace.
    pub missed_elsewhere_tokens: u64,
    /// As above: it had not been seen.
    pub missed_new_tokens: u64,
    /// Tokens of [partial hits](crate::PartialHit); not included in `hit_tokens`.
    pub partial_tokens: u64,
    /// Number of inserts that were not refused.
    pub inserts: u64,
    /// Blocks that inserts gave back because their tokens were cached already.
    pub duplicate_blocks: u64,
    /// Reservations that were granted, and lists of blocks that were
    /// [adopted](crate::ExternalPool::adopt).
    pub reservations: u64,
    /// Blocks of those reservations.
    pub taken_blocks: u64,
    /// Reservations that were refused, or whose deadline passed, because leases and reservations
    /// held too many blocks.
    pub exhausted_refusals: u64,
    /// Requests for blocks, and inserts, that were refused because of a namespace's quota.
    pub over_quota_refusals: u64,
    /// Requests that entered the wait list, whatever their result: those that found too few blocks,
    /// and those that found other requests waiting, even if they were served at once. A future that
    /// was dropped while it waited counts here but in no refusal.
    pub waits: u64,
    /// Nanoseconds from entering the wait list to leaving it, summed over these requests.
    pub waited_nanos: u64,
    /// Number of times that a prefix was [retained](crate::Session::retain).
    pub retentions: u64,
    /// Blocks of those prefixes, counted each time.
    pub retained_blocks: u64,
    /// Number of times that a hot point (one that several threads lease at once) became normal
    /// again.
    pub deflations: u64,
}

impl Stats {
    /// The difference to the counts at an `earlier` moment. Numbers that are not counts keep the
    /// values of `self`.
    ///
    /// A count that is lower than before, because the two are of different caches, becomes zero.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let before = cache.stats();
    /// let miss = session.match_prefix(&space, &[7; 40]);
    /// let minute = cache.stats().delta(&before);
    /// assert_eq!((minute.lookups, minute.query_tokens, minute.hit_tokens), (1, 40, 0));
    /// # drop(miss);
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    #[must_use]
    pub fn delta(&self, earlier: &Self) -> Self {
        let since = |count: fn(&Self) -> u64| count(self).saturating_sub(count(earlier));
        Self {
            inserted_blocks: since(|stats| stats.inserted_blocks),
            evicted_blocks: since(|stats| stats.evicted_blocks),
            evicted_for_quota_blocks: since(|stats| stats.evicted_for_quota_blocks),
            aged_blocks: since(|stats| stats.aged_blocks),
            cleared_blocks: since(|stats| stats.cleared_blocks),
            invalidated_blocks: since(|stats| stats.invalidated_blocks),
            lookups: since(|stats| stats.lookups),
            query_tokens: since(|stats| stats.query_tokens),
            hit_tokens: since(|stats| stats.hit_tokens),
            resumed_tokens: since(|stats| stats.resumed_tokens),
            missed_evicted_tokens: since(|stats| stats.missed_evicted_tokens),
            missed_diverged_tokens: since(|stats| stats.missed_diverged_tokens),
            missed_elsewhere_tokens: since(|stats| stats.missed_elsewhere_tokens),
            missed_new_tokens: since(|stats| stats.missed_new_tokens),
            partial_tokens: since(|stats| stats.partial_tokens),
            inserts: since(|stats| stats.inserts),
            duplicate_blocks: since(|stats| stats.duplicate_blocks),
            reservations: since(|stats| stats.reservations),
            taken_blocks: since(|stats| stats.taken_blocks),
            exhausted_refusals: since(|stats| stats.exhausted_refusals),
            over_quota_refusals: since(|stats| stats.over_quota_refusals),
            waits: since(|stats| stats.waits),
            waited_nanos: since(|stats| stats.waited_nanos),
            retentions: since(|stats| stats.retentions),
            retained_blocks: since(|stats| stats.retained_blocks),
            deflations: since(|stats| stats.deflations),
            ..*self
        }
    }
}

/// A number of a shard, named as in [`Stats`].
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) enum Total {
    /// As of the end of the last turn, so that an evicted block counts until it is in the pool.
    Evictable,
    /// As of the end of the last turn.
    Protected,
    Inserted,
    Evicted,
    EvictedForQuota,
    Aged,
    Cleared,
    Invalidated,
    Deflations,
    Runs,
    Points,
    /// The shortest time to idle that a namespace has set for itself, in nanoseconds, plus one;
    /// zero if there is none.
    TimeToIdle,
    /// The policy in force, as a number.
    Policy,
}

/// The numbers of a shard. Only the holder of the shard's lock changes them; all threads read them.
#[derive(Debug, Default)]
pub(in crate::cache) struct Totals([AtomicU64; Total::Policy as usize + 1]);

/// The totals of a shard, on cache lines apart from what lookups read.
pub(in crate::cache) type SharedTotals = Arc<CachePadded<Totals>>;

// Relaxed, all: numbers for statistics.
impl Totals {
    #[inline]
    pub(in crate::cache) fn get(&self, total: Total) -> u64 {
        self.0[total as usize].load(Relaxed)
    }

    #[inline]
    pub(in crate::cache) fn set(&self, total: Total, number: u64) {
        self.0[total as usize].store(number, Relaxed);
    }

    #[inline]
    pub(in crate::cache) fn add(&self, total: Total, more: usize) {
        self.set(total, self.get(total) + more as u64);
    }

    #[inline]
    pub(in crate::cache) fn subtract(&self, total: Total, less: usize) {
        self.set(total, self.get(total) - less as u64);
    }

    #[inline]
    pub(in crate::cache) fn count_evicted(&self, blocks: usize, reason: EvictionReason) {
        let total = match reason {
            EvictionReason::Capacity | EvictionReason::Quota => Total::Evicted,
            EvictionReason::Age => Total::Aged,
            EvictionReason::Invalidated => Total::Invalidated,
        };
        self.add(total, blocks);
        if reason == EvictionReason::Quota {
            self.add(Total::EvictedForQuota, blocks);
        }
    }
}

/// The statistics of a cache with `capacity` blocks. `free` counts the free ones.
pub(in crate::cache) fn read_totals(totals: &[SharedTotals], capacity: usize, free: impl FnOnce() -> usize) -> Stats {
    let sum = |total| totals.iter().map(|totals| totals.get(total)).sum::<u64>();
    // While other threads use the cache the numbers may be of different moments, so each is limited
    // to the capacity that the numbers before it leave.
    let (protected, evictable) = (sum(Total::Protected), sum(Total::Evictable));
    // Read last: a block that is evicted meanwhile is counted twice, and not taken for reserved.
    let free = free().min(capacity);
    let protected = (protected as usize).min(capacity - free);
    let evictable = (evictable as usize).min(capacity - free - protected);
    Stats {
        capacity_blocks: capacity,
        free_blocks: free,
        reserved_blocks: capacity - free - evictable - protected,
        evictable_blocks: evictable,
        protected_blocks: protected,
        inserted_blocks: sum(Total::Inserted),
        evicted_blocks: sum(Total::Evicted),
        evicted_for_quota_blocks: sum(Total::EvictedForQuota),
        aged_blocks: sum(Total::Aged),
        cleared_blocks: sum(Total::Cleared),
        invalidated_blocks: sum(Total::Invalidated),
        deflations: sum(Total::Deflations),
        runs: sum(Total::Runs) as usize,
        points: sum(Total::Points) as usize,
        ..Stats::default()
    }
}
