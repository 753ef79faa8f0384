//! The row `emptied`: the memory of a cache after everything in it was evicted.

use std::fs;

use radixkv::PrefixCache;

use super::{
    Plan,
    common::{insert, sequence},
    figure::{
        Asked::{AtMost, Nothing},
        Figure,
    },
};

/// Bytes of this process, and of the index as the cache reports them.
#[derive(Clone, Copy)]
struct Memory {
    resident: f64,
    mapped: f64,
    index: f64,
}

impl Memory {
    fn now(cache: &PrefixCache) -> Self {
        let field = |file: &str, name: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let kibibytes = line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok());
            kibibytes.map_or(f64::NAN, |kibibytes: f64| kibibytes * 1_024.0)
        };
        Self {
            resident: field("/proc/self/smaps_rollup", "Rss:"),
            mapped: field("/proc/self/status", "VmSize:"),
            index: cache.stats().index_bytes as f64,
        }
    }
}

/// Compares the memory of the whole process: index, tables, the allocator's free memory, and a
/// program of some megabytes. Nothing else in it grows, and the allocator is not asked to return
/// memory.
pub(crate) fn emptied(plan: &Plan) -> Vec<Figure> {
    let leaves = plan.size(1_000_000);
    let cache = PrefixCache::builder(1, leaves).build().expect("a sound setting");
    let fill = |count: usize| {
        let (session, space) = (cache.session(), cache.default_namespace());
        (0..count as u32).for_each(|seed| drop(insert(&session, &space, &cache, &sequence(seed, 1))));
        assert_eq!(cache.evict(usize::MAX), count);
        cache.settle();
        while cache.run_once() {}
        assert_eq!(cache.stats().free_blocks, leaves);
    };
    // Memory that is allocated at the first use counts as part of an empty cache.
    fill(100);
    let empty = Memory::now(&cache);
    fill(leaves);
    let after = Memory::now(&cache);
    let what = |of: &str| format!("after {leaves} leaves were evicted, over an empty cache: {of}");
    let mebibytes = |bytes: f64| bytes / (1 << 20) as f64;
    vec![
        Figure::counted(what("resident memory"), AtMost(1.10, 1.05), after.resident / empty.resident),
        Figure::counted("  resident memory more, MiB", Nothing, mebibytes(after.resident - empty.resident)),
        Figure::counted("  resident memory of an empty cache's process, MiB", Nothing, mebibytes(empty.resident)),
        Figure::counted("  mapped memory more, MiB", Nothing, mebibytes(after.mapped - empty.mapped)),
        Figure::counted("  `Stats::index_bytes`, over an empty cache's", Nothing, after.index / empty.index),
    ]
}
