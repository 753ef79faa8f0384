//! The text says what `Stats` says, whatever was done before, and has each name once.

use std::collections::BTreeMap;

use radixkv::{PrefixCache, Stats};
use radixkv_metrics::prometheus_client::registry::Registry;
use radixkv_metrics::{CacheCollector, NamespaceCollector, text};

/// The samples of a text, with their labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        let before = samples.insert(name.to_owned(), value.parse().expect("a number"));
        assert_eq!(before, None, "{name} stands twice");
    }
    samples
}

/// A cache after some hundred requests of all kinds.
fn used() -> PrefixCache {
    let cache = PrefixCache::builder(4, 64).build().expect("valid");
    let (session, space, mut rng) = (cache.session(), cache.default_namespace(), fastrand::Rng::with_seed(7));
    let held = session.reserve(10).expect("free");
    for _ in 0..300 {
        let (group, len) = (rng.u32(..6), rng.usize(1..100));
        let prompt: Vec<u32> =
            (0..len as u32).map(|i| if i < 12 { group } else { 1_000 * group + rng.u32(..3) }).collect();
        if let Ok(start) = session.acquire(&space, &prompt, rng.usize(..200)) {
            let mut own = start.blocks;
            let whole = own.split(prompt.len() / 4 - start.hit.blocks().len());
            let inserted = session.insert(start.hit.lease(), &prompt, whole).expect("it fits");
            drop(session.match_partial(&inserted.lease, &prompt, 1));
        }
    }
    drop(held);
    cache
}

#[test]
fn the_text_is_that_of_the_stats() {
    let cache = used();
    let mut registry = Registry::default();
    CacheCollector::register(&cache, &mut registry);
    let (samples, stats) = (samples(&text(&registry)), cache.stats());
    assert!(stats.evicted_blocks > 0 && stats.hit_tokens > 0 && stats.exhausted_refusals > 0, "{stats:?}");
    let value = |name: &str| *samples.get(name).unwrap_or_else(|| panic!("{name} is missing in {samples:?}"));
    for (name, expected) in [
        ("vllm:prefix_cache_queries_total", stats.query_tokens as f64),
        ("vllm:prefix_cache_hits_total", stats.hit_tokens as f64),
        ("sglang:cache_hit_rate", stats.hit_tokens as f64 / stats.query_tokens as f64),
        ("radixkv_lookups_total", stats.lookups as f64),
        ("radixkv_inserts_total", stats.inserts as f64),
        ("radixkv_inserted_blocks_total", stats.inserted_blocks as f64),
        ("radixkv_evicted_blocks_total{reason=\"capacity\"}", stats.evicted_blocks as f64),
        ("radixkv_refusals_total{reason=\"exhausted\"}", stats.exhausted_refusals as f64),
        ("radixkv_blocks{state=\"free\"}", stats.free_blocks as f64),
        ("radixkv_blocks{state=\"evictable\"}", stats.evictable_blocks as f64),
        ("vllm:cache_config_info{block_size=\"4\",num_gpu_blocks=\"64\"}", 1.0),
    ] {
        assert!((value(name) - expected).abs() < 1e-9, "{name} is {} and not {expected}", value(name));
    }
    let blocks = ["free", "reserved", "evictable", "protected"]
        .map(|state| value(&format!("radixkv_blocks{{state=\"{state}\"}}")));
    assert_eq!(blocks.iter().sum::<f64>(), 64.0);
}

/// Each number of `Stats` that is counted changes something in the text.
// Holds: ME1.
#[test]
fn no_count_is_left_out() {
    let counted = |stats: Stats| {
        let mut registry = Registry::default();
        CacheCollector::register_with(4, move || Some(stats), &mut registry);
        text(&registry)
    };
    let nothing = counted(Stats::default());
    let set: [fn(&mut Stats) -> &mut u64; 26] = [
        |stats| &mut stats.inserted_blocks,
        |stats| &mut stats.evicted_blocks,
        |stats| {
            stats.evicted_blocks = 7;
            &mut stats.evicted_for_quota_blocks
        },
        |stats| &mut stats.aged_blocks,
        |stats| &mut stats.cleared_blocks,
        |stats| &mut stats.invalidated_blocks,
        |stats| &mut stats.lookups,
        |stats| &mut stats.query_tokens,
        |stats| &mut stats.hit_tokens,
        |stats| &mut stats.resumed_tokens,
        |stats| &mut stats.missed_evicted_tokens,
        |stats| &mut stats.missed_diverged_tokens,
        |stats| &mut stats.missed_elsewhere_tokens,
        |stats| &mut stats.missed_new_tokens,
        |stats| &mut stats.partial_tokens,
        |stats| &mut stats.inserts,
        |stats| &mut stats.duplicate_blocks,
        |stats| &mut stats.reservations,
        |stats| &mut stats.taken_blocks,
        |stats| &mut stats.exhausted_refusals,
        |stats| &mut stats.over_quota_refusals,
        |stats| &mut stats.waits,
        |stats| &mut stats.waited_nanos,
        |stats| &mut stats.retentions,
        |stats| &mut stats.retained_blocks,
        |stats| &mut stats.deflations,
    ];
    for (i, field) in set.into_iter().enumerate() {
        let mut stats = Stats::default();
        *field(&mut stats) = 7;
        assert_ne!(counted(stats), nothing, "the {i}-th number");
    }
}

/// However many namespaces there are, the text has 64 of them at most, and what it says adds up.
#[test]
fn namespaces_are_few_in_the_text_and_add_up() {
    let cache = used();
    let session = cache.session();
    let mut registry = Registry::default();
    NamespaceCollector::register(&cache, &mut registry);
    for tenant in 0..10_000 {
        let space = cache.namespace(&[tenant.to_string().as_str()]);
        drop(session.match_prefix(&space, &[1, 2, 3, 4, 5]));
    }
    let (samples, stats) = (samples(&text(&registry)), cache.stats());
    let of = |name: &str| -> Vec<f64> {
        samples.iter().filter(|(sample, _)| sample.starts_with(name)).map(|(_, value)| *value).collect()
    };
    assert!(of("radixkv_namespace_lookups_total").len() <= 64 && samples.len() <= 64 * 7);
    for (name, expected) in [
        ("radixkv_namespace_lookups_total", stats.lookups),
        ("radixkv_namespace_query_tokens_total", stats.query_tokens),
        ("radixkv_namespace_hit_tokens_total", stats.hit_tokens),
        (
            "radixkv_namespace_missed_tokens_total",
            stats.missed_new_tokens
                + stats.missed_evicted_tokens
                + stats.missed_diverged_tokens
                + stats.missed_elsewhere_tokens,
        ),
    ] {
        assert_eq!(of(name).iter().sum::<f64>(), expected as f64, "{name}");
    }
}

/// What is made of several numbers, or told in another unit.
#[test]
fn sums_shares_and_seconds_are_right() {
    let mut stats = Stats::default();
    (stats.evicted_blocks, stats.evicted_for_quota_blocks, stats.aged_blocks) = (7, 3, 2);
    (stats.capacity_blocks, stats.reserved_blocks, stats.protected_blocks) = (10, 1, 4);
    stats.waited_nanos = 2_500_000_000;
    let mut registry = Registry::default();
    CacheCollector::register_with(4, move || Some(stats), &mut registry);
    let samples = samples(&text(&registry));
    for (name, value) in [
        ("radixkv_evicted_blocks_total{reason=\"capacity\"}", 4.0),
        ("radixkv_evicted_blocks_total{reason=\"quota\"}", 3.0),
        ("radixkv_evicted_blocks_total{reason=\"age\"}", 2.0),
        ("vllm:kv_cache_usage_perc", 0.5),
        ("sglang:token_usage", 0.5),
        ("sglang:num_used_tokens", 20.0),
        ("radixkv_wait_seconds_total", 2.5),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
}

#[test]
fn a_cache_that_is_not_there_yet_has_zeros() {
    let mut registry = Registry::default();
    CacheCollector::register_with(4, || None, &mut registry);
    let samples = samples(&text(&registry));
    let others = samples.iter().filter(|(name, value)| **value != 0.0 && !name.contains("block_size"));
    assert_eq!(others.collect::<Vec<_>>(), []);
}
