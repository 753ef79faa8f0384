//! The metrics of a cache: names, help texts, and functions that read the values from [`Stats`].
//!
//! A metric has a name of vLLM or SGLang only if the cache knows the value, in the unit that their
//! dashboards expect.

use radixkv::Stats;

use crate::family::{Family, Values::By, one};

/// The share of blocks that leases and reservations hold, from 0 to 1.
fn usage(stats: &Stats) -> f64 {
    (stats.reserved_blocks + stats.protected_blocks) as f64 / (stats.capacity_blocks as f64).max(1.0)
}

fn hit_rate(stats: &Stats) -> f64 {
    stats.hit_tokens as f64 / (stats.query_tokens as f64).max(1.0)
}

/// Counts since the cache was built.
pub(crate) const COUNTERS: &[Family<Stats, u64>] = &[
    one("vllm:prefix_cache_queries", "Tokens looked up in the cache", |stats| stats.query_tokens),
    one("vllm:prefix_cache_hits", "Tokens found in the cache", |stats| stats.hit_tokens),
    one("sglang:cached_tokens", "Tokens found in the cache", |stats| stats.hit_tokens),
    one("radixkv_lookups", "Lookups of prompts", |stats| stats.lookups),
    one("radixkv_query_tokens", "Tokens looked up", |stats| stats.query_tokens),
    one("radixkv_hit_tokens", "Tokens found", |stats| stats.hit_tokens),
    one("radixkv_resumed_tokens", "Tokens found by resuming a lease, beyond the lease", |stats| stats.resumed_tokens),
    one("radixkv_partial_tokens", "Tokens found inside a block by partial matches", |stats| stats.partial_tokens),
    Family {
        name: "radixkv_missed_tokens",
        help: "Tokens of whole blocks that lookups did not find, by likely reason",
        values: By(
            "reason",
            &[
                ("evicted", |stats| stats.missed_evicted_tokens),
                ("diverged", |stats| stats.missed_diverged_tokens),
                ("elsewhere", |stats| stats.missed_elsewhere_tokens),
                ("new", |stats| stats.missed_new_tokens),
            ],
        ),
    },
    one("radixkv_inserts", "Inserts of sequences", |stats| stats.inserts),
    one("radixkv_inserted_blocks", "Blocks that inserts added to the cache", |stats| stats.inserted_blocks),
    one("radixkv_duplicate_blocks", "Blocks of inserts that were already cached", |stats| stats.duplicate_blocks),
    one("radixkv_reservations", "Reservations that were granted", |stats| stats.reservations),
    one("radixkv_taken_blocks", "Blocks taken by reservations", |stats| stats.taken_blocks),
    Family {
        name: "radixkv_refusals",
        help: "Reservations that were refused, by reason",
        values: By(
            "reason",
            &[("exhausted", |stats| stats.exhausted_refusals), ("over_quota", |stats| stats.over_quota_refusals)],
        ),
    },
    one("radixkv_waits", "Requests that waited for blocks", |stats| stats.waits),
    Family {
        name: "radixkv_evicted_blocks",
        help: "Cached blocks that were removed, by reason",
        values: By(
            "reason",
            &[
                ("capacity", |stats| stats.evicted_blocks.saturating_sub(stats.evicted_for_quota_blocks)),
                ("quota", |stats| stats.evicted_for_quota_blocks),
                ("age", |stats| stats.aged_blocks),
                ("cleared", |stats| stats.cleared_blocks),
                ("invalidated", |stats| stats.invalidated_blocks),
            ],
        ),
    },
    one("radixkv_retentions", "Retentions of prefixes", |stats| stats.retentions),
    one("radixkv_retained_blocks", "Blocks of retained prefixes", |stats| stats.retained_blocks),
    one("radixkv_deflations", "Hot points that were turned back into plain ones", |stats| stats.deflations),
];

/// Total times since the cache was built, in seconds.
pub(crate) const SECONDS: &[Family<Stats, f64>] =
    &[one("radixkv_wait_seconds", "Time that requests waited for blocks", |stats| stats.waited_nanos as f64 / 1e9)];

/// Current values.
pub(crate) const GAUGES: &[Family<Stats, f64>] = &[
    one("vllm:kv_cache_usage_perc", "Share of blocks held by leases and reservations, 0 to 1", usage),
    one("sglang:token_usage", "Share of blocks held by leases and reservations, 0 to 1", usage),
    one("sglang:cache_hit_rate", "Share of looked-up tokens that were found, 0 to 1", hit_rate),
    one("radixkv_waiting_requests", "Requests waiting for blocks", |stats| stats.waiting_requests as f64),
    one("radixkv_index_bytes", "Memory of the index, unreclaimed memory included", |stats| stats.index_bytes as f64),
    one("radixkv_garbage_bytes", "Memory of the index that is unlinked but not yet freed", |stats| {
        stats.garbage_bytes as f64
    }),
    one("radixkv_slab_bytes", "Memory that the index has allocated from the system", |stats| stats.slab_bytes as f64),
    one("radixkv_runs", "Runs in the index", |stats| stats.runs as f64),
    one("radixkv_points", "Points in the index", |stats| stats.points as f64),
];

/// Current values, in whole blocks.
pub(crate) const BLOCKS: &[Family<Stats, u64>] = &[
    one("radixkv_capacity_blocks", "Blocks that the cache manages", |stats| stats.capacity_blocks as u64),
    Family {
        name: "radixkv_blocks",
        help: "Blocks by state; they add up to the capacity",
        values: By(
            "state",
            &[
                ("free", |stats| stats.free_blocks as u64),
                ("reserved", |stats| stats.reserved_blocks as u64),
                ("evictable", |stats| stats.evictable_blocks as u64),
                ("protected", |stats| stats.protected_blocks as u64),
            ],
        ),
    },
];
