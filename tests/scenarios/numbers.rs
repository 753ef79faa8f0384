//! Numbers read while others are at work.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use radixkv::PrefixCache;

use crate::{Bench, sequence};

const BLOCKS: usize = 64;
const THREADS: u32 = 2;

// Holds: NU1.
#[test]
fn the_four_numbers_of_blocks_add_up_whatever_is_under_way() {
    let cache = PrefixCache::builder(4, BLOCKS).build().expect("sound");
    let over = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cache, over) = (cache.clone(), &over);
            scope.spawn(move || {
                let bench = Bench { session: cache.session(), space: cache.default_namespace(), cache };
                for round in 0..2_000 {
                    let held = bench.insert(&sequence(10 * thread + round % 7, 4 * (1 + round as usize % 20)));
                    drop(bench.session.reserve(3));
                    drop(held);
                }
                over.fetch_add(1, Relaxed);
            });
        }
        while over.load(Relaxed) < THREADS as usize {
            let stats = cache.stats();
            let sum = stats.free_blocks + stats.reserved_blocks + stats.evictable_blocks + stats.protected_blocks;
            assert_eq!(sum, BLOCKS, "{stats:?}");
        }
    });
    assert_eq!(cache.validate(), Ok(()));
}
