//! What must be true of a cache that every thread has left.

use std::thread::yield_now;
use std::time::Instant;

use radixkv::{PrefixCache, Stats};

use crate::PATIENCE;
use crate::world::WATERMARKS;

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
    // Garbage stays while the cache's own thread is stopped in a turn.
    let end = Instant::now() + PATIENCE;
    cache.settle();
    while cache.stats().index_bytes > empty.index_bytes {
        let bytes = (cache.stats().index_bytes, empty.index_bytes);
        assert!(Instant::now() < end, "{} bytes of index stay, {} at first", bytes.0, bytes.1);
        yield_now();
        cache.settle();
    }
}

pub fn sound(cache: &PrefixCache) {
    if let Err(violation) = cache.validate() {
        panic!("{violation}");
    }
}
