//! The metrics of a cache: their names, what they say, and how they are read.
//!
//! A name of vLLM or SGLang stands here only if the cache alone can answer it, in the unit that their dashboards expect.

use radixkv::Stats;

use crate::family::{Family, Values::By, one};

/// Share of blocks that leases and reservations hold.
fn usage(stats: &Stats) -> f64 {
    (stats.reserved_blocks + stats.protected_blocks) as f64 / (stats.capacity_blocks as f64).max(1.0)
}

fn hit_rate(stats: &Stats) -> f64 {
    stats.hit_tokens as f64 / (stats.query_tokens as f64).max(1.0)
}

/// What was counted since the cache was built.
pub(crate) const COUNTERS: &[Family<Stats, u64>] = &[
    one("vllm:prefix_cache_queries", "Tokens that were looked up in the cache", |stats| stats.query_tokens),
    one("vllm:prefix_cache_hits", "Tokens that were found in the cache", |stats| stats.hit_tokens),
    one("sglang:cached_tokens", "Tokens that were found in the cache", |stats| stats.hit_tokens),
    one("radixkv_lookups", "Lookups", |stats| stats.lookups),
    one("radixkv_query_tokens", "Tokens that were looked up", |stats| stats.query_tokens),
    one("radixkv_hit_tokens", "Tokens that were found", |stats| stats.hit_tokens),
    one("radixkv_resumed_tokens", "Tokens that were found beyond a lease after its lookup", |stats| {
        stats.resumed_tokens
    }),
    one("radixkv_partial_tokens", "Tokens that agreed inside a block", |stats| stats.partial_tokens),
    Family {
        name: "radixkv_missed_tokens",
        help: "Tokens of whole blocks that were not found, by the likely reason",
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
    one("radixkv_inserts", "Inserts", |stats| stats.inserts),
    one("radixkv_inserted_blocks", "Blocks that were cached", |stats| stats.inserted_blocks),
    one("radixkv_duplicate_blocks", "Blocks that were not needed by an insert", |stats| stats.duplicate_blocks),
    one("radixkv_reservations", "Requests for blocks that were served", |stats| stats.reservations),
    one("radixkv_taken_blocks", "Blocks that they took", |stats| stats.taken_blocks),
    Family {
        name: "radixkv_refusals",
        help: "Requests for blocks that were refused",
        values: By(
            "reason",
            &[("exhausted", |stats| stats.exhausted_refusals), ("over_quota", |stats| stats.over_quota_refusals)],
        ),
    },
    one("radixkv_waits", "Requests that have waited for blocks", |stats| stats.waits),
    Family {
        name: "radixkv_evicted_blocks",
        help: "Cached blocks that went",
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
    one("radixkv_retentions", "Prefixes that were retained", |stats| stats.retentions),
    one("radixkv_retained_blocks", "Blocks of those prefixes", |stats| stats.retained_blocks),
    one("radixkv_deflations", "Hot points that were hot no more", |stats| stats.deflations),
];

/// Times, summed up since the cache was built, in seconds.
pub(crate) const SECONDS: &[Family<Stats, f64>] =
    &[one("radixkv_wait_seconds", "Time that requests have waited for blocks", |stats| {
        stats.waited_nanos as f64 / 1e9
    })];

/// What there is now.
pub(crate) const GAUGES: &[Family<Stats, f64>] = &[
    one("vllm:kv_cache_usage_perc", "Share of blocks that leases and reservations hold, 0 to 1", usage),
    one("sglang:token_usage", "Share of blocks that leases and reservations hold, 0 to 1", usage),
    one("sglang:cache_hit_rate", "Share of the tokens looked up that were found, 0 to 1", hit_rate),
    one("radixkv_waiting_requests", "Requests that wait for blocks", |stats| stats.waiting_requests as f64),
    one("radixkv_index_bytes", "Index memory, garbage included", |stats| stats.index_bytes as f64),
    one("radixkv_garbage_bytes", "Index memory that was unlinked and is not freed", |stats| stats.garbage_bytes as f64),
    one("radixkv_slab_bytes", "Memory that the index has from the system", |stats| stats.slab_bytes as f64),
    one("radixkv_runs", "Runs of the index", |stats| stats.runs as f64),
    one("radixkv_points", "Points of the index", |stats| stats.points as f64),
];

/// What there is now, in whole blocks.
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
