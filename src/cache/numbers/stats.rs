//! The statistics of a cache.

use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::cache::evictor::Shard;
use crate::policy::PolicyKind;
use crate::sync::gauge::{AtomicU64, AtomicUsize, Relaxed};

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

/// The totals of a shard as of its last turn.
#[derive(Debug, Default)]
pub(in crate::cache) struct Gauges {
    evictable: AtomicUsize,
    protected: AtomicUsize,
    inserted: AtomicU64,
    evicted: AtomicU64,
    evicted_for_quota: AtomicU64,
    aged: AtomicU64,
    cleared: AtomicU64,
    invalidated: AtomicU64,
    deflations: AtomicU64,
    runs: AtomicUsize,
    points: AtomicUsize,
    /// The shortest time to idle that a namespace has set for itself, in nanoseconds, plus one;
    /// zero if there is none.
    time_to_idle: AtomicU64,
    /// The policy in force, as a number.
    policy: AtomicU64,
}

impl Gauges {
    pub(in crate::cache) fn publish(&self, shard: &Shard) {
        let totals = &shard.totals;
        // Relaxed: numbers for statistics.
        self.policy.store(shard.ranking.kind.code(), Relaxed);
        let shortest = shard.ranking.aging.shortest();
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_add(1);
        self.time_to_idle.store(shortest.map_or(0, nanoseconds), Relaxed);
        self.evictable.store(totals.evictable, Relaxed);
        self.protected.store(totals.protected, Relaxed);
        self.inserted.store(totals.inserted, Relaxed);
        self.evicted.store(totals.evicted, Relaxed);
        self.evicted_for_quota.store(totals.evicted_for_quota, Relaxed);
        self.aged.store(totals.aged, Relaxed);
        self.cleared.store(totals.cleared, Relaxed);
        self.invalidated.store(totals.invalidated, Relaxed);
        self.deflations.store(totals.deflations, Relaxed);
        self.runs.store(totals.runs, Relaxed);
        self.points.store(totals.points, Relaxed);
    }

    /// The shortest time to idle that a namespace has set for itself.
    pub(in crate::cache) fn shortest_time_to_idle(&self) -> Option<Duration> {
        // Relaxed: a number for statistics.
        self.time_to_idle.load(Relaxed).checked_sub(1).map(Duration::from_nanos)
    }

    /// The policy in force as of the last turn.
    pub(in crate::cache) fn policy(&self) -> PolicyKind {
        // Relaxed: a number for statistics.
        PolicyKind::of_code(self.policy.load(Relaxed))
    }
}

/// Number of cached runs.
pub(in crate::cache) fn runs(gauges: &[CachePadded<Gauges>]) -> usize {
    // Relaxed: a number for statistics.
    gauges.iter().map(|gauge| gauge.runs.load(Relaxed)).sum()
}

/// The statistics of a cache of `capacity` blocks, `free` of which are free, as of the evictor's
/// last turns.
pub(in crate::cache) fn read_gauges(
    gauges: &[CachePadded<Gauges>],
    capacity: usize,
    free: impl FnOnce() -> usize,
) -> Stats {
    // Relaxed: numbers for statistics. While other threads use the cache they may be of different
    // moments, so each is limited to the capacity that the numbers before it leave.
    let count =
        |number: fn(&Gauges) -> &AtomicUsize| gauges.iter().map(|gauge| number(gauge).load(Relaxed)).sum::<usize>();
    let sum = |number: fn(&Gauges) -> &AtomicU64| gauges.iter().map(|gauge| number(gauge).load(Relaxed)).sum::<u64>();
    let (protected, evictable) = (count(|gauge| &gauge.protected), count(|gauge| &gauge.evictable));
    // Read last: a block that is evicted meanwhile is counted twice, and not taken for reserved.
    let free = free().min(capacity);
    let protected = protected.min(capacity - free);
    let evictable = evictable.min(capacity - free - protected);
    Stats {
        capacity_blocks: capacity,
        free_blocks: free,
        reserved_blocks: capacity - free - evictable - protected,
        evictable_blocks: evictable,
        protected_blocks: protected,
        inserted_blocks: sum(|gauge| &gauge.inserted),
        evicted_blocks: sum(|gauge| &gauge.evicted),
        evicted_for_quota_blocks: sum(|gauge| &gauge.evicted_for_quota),
        aged_blocks: sum(|gauge| &gauge.aged),
        cleared_blocks: sum(|gauge| &gauge.cleared),
        invalidated_blocks: sum(|gauge| &gauge.invalidated),
        deflations: sum(|gauge| &gauge.deflations),
        runs: count(|gauge| &gauge.runs),
        points: count(|gauge| &gauge.points),
        ..Stats::default()
    }
}
