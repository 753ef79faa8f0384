//! Statistics.
#![allow(unsafe_code)]

use radixkv::LookupStats;

use crate::boundary::{given, run, write_known};
use crate::cache::Cache;
use crate::namespace::Namespace;
use crate::status::Status;

/// Converts a struct of the core to its C struct; fields that are not named stay 0.
macro_rules! counts {
    ($name:ident of $core:ty { $($field:ident,)* }) => {
        impl From<&$core> for $name {
            fn from(core: &$core) -> Self {
                let mut counts = Self::default();
                $(counts.$field = core.$field as u64;)*
                counts
            }
        }
    };
}

/// The statistics of a cache. `free + reserved + evictable + protected` blocks add up to the
/// capacity. Counts start at 0 when the cache is built. Later versions of the library may add
/// fields at the end.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Stats {
    /// Blocks that the cache manages.
    pub capacity_blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Blocks that are being filled: in reservations, or inserted since the last settling.
    pub reserved_blocks: u64,
    /// Cached blocks that no lease protects.
    pub evictable_blocks: u64,
    /// Cached blocks that a lease protects, directly or through a longer prefix.
    pub protected_blocks: u64,
    /// Blocks cached.
    pub inserted_blocks: u64,
    /// Blocks evicted.
    pub evicted_blocks: u64,
    /// Of those, blocks of a namespace that exceeded its quota.
    pub evicted_for_quota_blocks: u64,
    /// Blocks removed because they were not used for too long.
    pub aged_blocks: u64,
    /// Blocks of namespaces that were cleared or removed, freed by now.
    pub cleared_blocks: u64,
    /// Invalidated blocks, freed by now.
    pub invalidated_blocks: u64,
    /// Requests that wait for blocks at this moment.
    pub waiting_requests: u64,
    /// Bytes of index memory.
    pub index_bytes: u64,
    /// Of those, garbage that is freed once no thread can access it.
    pub garbage_bytes: u64,
    /// Bytes of the slabs for the index's small nodes.
    pub slab_bytes: u64,
    /// Segments of sequences in the index.
    pub runs: u64,
    /// Positions on these segments that have leases, branches or statistics.
    pub points: u64,
    /// Lookups that counted as a use.
    pub lookups: u64,
    /// Tokens that were looked up.
    pub query_tokens: u64,
    /// Of those, tokens that were found.
    pub hit_tokens: u64,
    /// Tokens that a resume found beyond a lease whose lookup was counted already.
    pub resumed_tokens: u64,
    /// Tokens of whole blocks that were missed because the first of them was cached once and is
    /// gone.
    pub missed_evicted_tokens: u64,
    /// Tokens of whole blocks that were missed because a cached block agrees only with the first
    /// tokens of the first of them.
    pub missed_diverged_tokens: u64,
    /// Tokens of whole blocks that were missed because the first of them was seen only in another
    /// namespace.
    pub missed_elsewhere_tokens: u64,
    /// Tokens of whole blocks that were missed because the first of them had not been seen.
    pub missed_new_tokens: u64,
    /// Tokens of partial hits.
    pub partial_tokens: u64,
    /// Inserts that were not refused.
    pub inserts: u64,
    /// Blocks that inserts gave back because their tokens were cached already.
    pub duplicate_blocks: u64,
    /// Reservations that were granted, and lists of blocks that were adopted.
    pub reservations: u64,
    /// Blocks of these reservations and lists.
    pub taken_blocks: u64,
    /// Reservations that were refused, or timed out, because too few blocks were available.
    pub exhausted_refusals: u64,
    /// Requests for blocks, and inserts, that were refused because of a quota.
    pub over_quota_refusals: u64,
    /// Requests that waited.
    pub waits: u64,
    /// Total nanoseconds of these waits.
    pub waited_nanos: u64,
    /// Retentions of prefixes; a prefix that is retained twice counts twice.
    pub retentions: u64,
    /// Blocks of these retentions.
    pub retained_blocks: u64,
    /// 1 if every change made before the call is in these numbers; 0 if another thread was
    /// evicting.
    pub is_settled: u64,
}

counts! {
    Stats of radixkv::Stats {
        capacity_blocks, free_blocks, reserved_blocks, evictable_blocks, protected_blocks, inserted_blocks,
        evicted_blocks, evicted_for_quota_blocks, aged_blocks, cleared_blocks, invalidated_blocks, waiting_requests,
        index_bytes, garbage_bytes, slab_bytes, runs, points, lookups, query_tokens, hit_tokens, resumed_tokens,
        missed_evicted_tokens, missed_diverged_tokens, missed_elsewhere_tokens, missed_new_tokens, partial_tokens,
        inserts, duplicate_blocks, reservations, taken_blocks, exhausted_refusals, over_quota_refusals, waits,
        waited_nanos, retentions, retained_blocks, is_settled,
    }
}

/// The statistics of a namespace. Later versions of the library may add fields at the end.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct NamespaceStats {
    /// Blocks cached, as of the last settling.
    pub cached_blocks: u64,
    /// Of those, blocks that a lease protects.
    pub protected_blocks: u64,
    /// Blocks of reservations that count against its quota.
    pub reserved_blocks: u64,
    /// 1 if the lookup counts below are its own; 0 if there were too many namespaces, and these
    /// counts are 0.
    pub has_lookups: u64,
    /// Lookups that counted as a use.
    pub lookups: u64,
    /// Tokens that were looked up.
    pub query_tokens: u64,
    /// Of those, tokens that were found.
    pub hit_tokens: u64,
    /// Tokens that a resume found beyond a lease whose lookup was counted already.
    pub resumed_tokens: u64,
    /// Tokens of whole blocks that were missed because the first of them was cached once and is
    /// gone.
    pub missed_evicted_tokens: u64,
    /// Tokens of whole blocks that were missed because a cached block agrees only with the first
    /// tokens of the first of them.
    pub missed_diverged_tokens: u64,
    /// Tokens of whole blocks that were missed because the first of them was seen only in another
    /// namespace.
    pub missed_elsewhere_tokens: u64,
    /// Tokens of whole blocks that were missed because the first of them had not been seen.
    pub missed_new_tokens: u64,
}

counts! {
    NamespaceStats of LookupStats {
        lookups, query_tokens, hit_tokens, resumed_tokens, missed_evicted_tokens, missed_diverged_tokens,
        missed_elsewhere_tokens, missed_new_tokens,
    }
}

/// Writes the statistics of a cache to `stats`, a struct of `size` bytes: pass
/// `sizeof(radixkv_stats)`.
///
/// Threads: any; never waits.
///
/// Pointers: `stats` is NULL, or points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_cache_read_stats(cache: Option<&Cache>, stats: *mut Stats, size: usize) -> Status {
    run(|| {
        let now = Stats::from(&given(cache, "cache")?.core.stats());
        // SAFETY: as the caller promised.
        unsafe { write_known(stats, size, now, "stats") }
    })
}

/// Writes the statistics of a namespace to `stats`, a struct of `size` bytes: pass
/// `sizeof(radixkv_namespace_stats)`.
///
/// Threads: any; never waits.
///
/// Pointers: `stats` is NULL, or points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_namespace_read_stats(
    space: Option<&Namespace>,
    stats: *mut NamespaceStats,
    size: usize,
) -> Status {
    run(|| {
        let core = given(space, "space")?.core.stats();
        let now = NamespaceStats {
            cached_blocks: core.cached_blocks as u64,
            protected_blocks: core.protected_blocks as u64,
            reserved_blocks: core.reserved_blocks as u64,
            has_lookups: core.lookups.is_some().into(),
            ..core.lookups.as_ref().map(NamespaceStats::from).unwrap_or_default()
        };
        // SAFETY: as the caller promised.
        unsafe { write_known(stats, size, now, "stats") }
    })
}
