//! What must be true of a cache that every thread has left.

use radixkv::{PrefixCache, Stats};

use crate::world::WATERMARKS;

/// Times that the last garbage may need to be collected: each pass frees a bounded part of it.
const PASSES: usize = 10_000;

/// A cache without leases and reservations: settled, sound, and all of it can be freed.
pub fn check(cache: &PrefixCache, empty: Stats) {
    let capacity = cache.capacity_blocks();
    // So that the cache's own thread has nothing to evict.
    cache.evict(WATERMARKS.high);
    cache.settle();
    sound(cache);
    let stats = cache.stats();
    assert_eq!((stats.protected_blocks, stats.reserved_blocks), (0, 0), "nothing is held: {stats:?}");
    assert_eq!(stats.free_blocks + stats.evictable_blocks, capacity, "a block was lost: {stats:?}");
    // What went with its namespace is not counted as evicted.
    assert!(stats.inserted_blocks >= stats.evicted_blocks + stats.evictable_blocks as u64, "{stats:?}");
    assert_eq!(cache.evict(capacity), stats.evictable_blocks, "evictable is what evicting everything frees");
    sound(cache);
    let stats = cache.stats();
    assert_eq!((stats.free_blocks, stats.runs, stats.points), (capacity, 0, 0), "{stats:?}");
    let returned = (0..PASSES).any(|_| {
        cache.settle();
        cache.stats().index_bytes <= empty.index_bytes
    });
    assert!(returned, "{} bytes of index stay, {} at first", cache.stats().index_bytes, empty.index_bytes);
}

pub fn sound(cache: &PrefixCache) {
    if let Err(violation) = cache.validate() {
        panic!("{violation:?}: {violation}");
    }
}
