//! An external pool: the engine's ids go in, evicted ids come out, and no id is in two hands.

use std::sync::Mutex;

use radixkv::{AdoptError, Clock, Eviction, PrefixCache, Reservation, ReserveError, Watermarks};

use crate::{Bench, sequence};

fn bench(block_size: usize, capacity: usize) -> Bench {
    let cache = PrefixCache::builder(block_size, capacity).clock(Clock::Logical).external().build().expect("sound");
    Bench { session: cache.session(), space: cache.default_namespace(), cache }
}

fn taken(bench: &Bench) -> Vec<u32> {
    let mut blocks = Vec::new();
    let count = bench.cache.external().expect("an external pool").take_evicted(&mut blocks);
    assert_eq!(count, blocks.len());
    blocks.sort_unstable();
    blocks
}

// Holds: EP1.
#[test]
fn the_engines_ids_go_in_and_evicted_ones_come_out() {
    let bench = bench(4, 100);
    let tokens = sequence(1, 12);
    let lease = bench.matched(&tokens);
    let ids = bench.cache.external().expect("an external pool").adopt(&[70, 3, 64]).expect("the engine's");
    assert_eq!(bench.accounts(), [97, 3, 0, 0]);
    let inserted = bench.session.insert(&lease, &tokens, ids).expect("fitting");
    assert_eq!(inserted.blocks, [70, 3, 64]);
    drop(inserted);
    assert_eq!((bench.accounts(), taken(&bench)), ([97, 0, 3, 0], vec![]));
    assert_eq!((bench.cache.evict(2), taken(&bench), taken(&bench)), (2, vec![3, 64], vec![]));
    assert_eq!(bench.accounts(), [99, 0, 1, 0]);
    bench.cache.clear();
    assert_eq!((taken(&bench), bench.accounts()), (vec![70], [100, 0, 0, 0]));
}

// Holds: EP1.
#[test]
fn ids_beyond_the_requested_number_stay_in_the_cache() {
    let bench = bench(4, 8);
    let pool = bench.cache.external().expect("an external pool");
    drop(pool.adopt(&[5, 2, 7]).expect("the engine's"));
    let mut blocks = vec![9];
    assert_eq!((pool.take_evicted_at_most(0, &mut blocks), blocks.as_slice()), (0, &[9][..]));
    assert_eq!((pool.take_evicted_at_most(2, &mut blocks), blocks.len()), (2, 3));
    let left: Vec<_> = [5, 2, 7].into_iter().filter(|block| !blocks.contains(block)).collect();
    assert_eq!(pool.adopt(&left).expect_err("not taken yet"), AdoptError::Held { block: left[0] });
    assert_eq!((taken(&bench), pool.take_evicted_at_most(2, &mut blocks)), (left, 0));
}

// Holds: EP3, EP4.
#[test]
fn duplicates_come_back_at_once_or_with_the_evicted() {
    let bench = bench(4, 8);
    let tokens = sequence(1, 8);
    let lease = bench.matched(&tokens);
    let insert = |ids: &[u32]| {
        let ids = bench.cache.external().expect("an external pool").adopt(ids).expect("the engine's");
        bench.session.insert(&lease, &tokens, ids).expect("fitting").duplicates
    };
    assert_eq!(insert(&[0, 1]).into_blocks().len(), 0);
    assert_eq!(insert(&[2, 3]).into_blocks(), [2, 3]);
    assert_eq!(taken(&bench).len(), 0);
    drop(insert(&[3, 2]));
    // On their way: not the engine's yet, and free in the cache's books.
    assert_eq!(
        bench.cache.external().expect("an external pool").adopt(&[4, 2]).expect_err("not taken yet"),
        AdoptError::Held { block: 2 }
    );
    assert_eq!((bench.accounts(), taken(&bench)), ([6, 0, 2, 0], vec![2, 3]));
    assert!(bench.cache.external().expect("an external pool").adopt(&[4, 2]).is_ok());
}

// Holds: EP2.
#[test]
fn what_is_not_the_engines_is_refused_and_nothing_changes() {
    let bench = bench(4, 70);
    let held = bench.cache.external().expect("an external pool").adopt(&[5, 69]).expect("the engine's");
    let refused = |ids: &[u32]| bench.cache.external().expect("an external pool").adopt(ids).expect_err("refused");
    assert_eq!(refused(&[6, 70]), AdoptError::OutOfRange { block: 70, capacity: 70 });
    assert_eq!(refused(&[6, 7, 69, 8]), AdoptError::Held { block: 69 });
    assert_eq!(refused(&[6, 7, 6]), AdoptError::Held { block: 6 });
    assert_eq!(refused(&[6, 7, 69]).to_string(), "the cache already holds block 69");
    assert_eq!(
        refused(&[u32::MAX]).to_string(),
        "block 4294967295 does not exist in a cache of 70 blocks: let the cache grow first"
    );
    assert_eq!(bench.accounts(), [68, 2, 0, 0]);
    assert_eq!(held.into_blocks(), [5, 69]);
    drop(bench.cache.external().expect("an external pool").adopt(&[6, 7, 5, 69]).expect("all the engine's again"));
    assert_eq!((taken(&bench), bench.accounts()), (vec![5, 6, 7, 69], [70, 0, 0, 0]));
}

// Holds: EP5.
#[test]
fn each_pool_has_its_own_way_in() {
    let (external, own) = (bench(4, 8), Bench::new(4, 8));
    assert_eq!(external.session.reserve(1).expect_err("the engine's"), ReserveError::External);
    assert_eq!(external.session.reserve(0).map(|none| none.len()), Ok(0));
    assert!(own.cache.external().is_none() && external.cache.external().is_some());
}

// Holds: EP5.
#[test]
#[should_panic(expected = "the cache owns its pool")]
fn blocks_of_the_caches_own_stay_with_it() {
    let bench = Bench::new(4, 8);
    bench.session.reserve(1).expect("free blocks").into_blocks();
}

// Holds: EP4.
#[test]
fn a_forked_block_goes_back_to_the_engine_with_its_last_holder() {
    let bench = bench(4, 8);
    let mut one = bench.cache.external().expect("an external pool").adopt(&[1, 2, 3]).expect("the engine's");
    let mut two = one.fork();
    let mut fresh = bench.cache.external().expect("an external pool").adopt(&[4]).expect("the engine's");
    drop(two.make_unique(1, &mut fresh));
    assert_eq!(one.into_blocks(), [2]);
    assert_eq!(two.into_blocks(), [1, 4, 3]);
    assert_eq!((taken(&bench), bench.accounts()), (vec![], [8, 0, 0, 0]));
}

// Holds: BE4.
#[test]
fn the_background_evictor_keeps_a_stock_of_evicted_ids() {
    let watermarks = Watermarks::new(2, 5);
    let builder = PrefixCache::builder(4, 32).external().eviction(Eviction::Background(watermarks));
    let cache = builder.build().expect("sound");
    let bench = Bench { session: cache.session(), space: cache.default_namespace(), cache };
    let tokens = sequence(1, 80);
    let lease = bench.matched(&[]);
    let ids: Vec<u32> = (0..20).collect();
    let ids = bench.cache.external().expect("an external pool").adopt(&ids).expect("the engine's");
    drop(bench.session.insert(&lease, &tokens, ids).expect("fitting"));
    let mut engine: Vec<u32> = (20..32).collect();
    // Taking rings for more, down to the last cached block.
    while engine.len() < 32 {
        bench.cache.external().expect("an external pool").take_evicted(&mut engine);
        std::thread::yield_now();
    }
    engine.sort_unstable();
    assert!(engine.iter().copied().eq(0..32));
    assert_eq!(bench.accounts(), [32, 0, 0, 0]);
}

/// An engine's allocator, which notices an id that it has already.
struct Engine {
    free: Mutex<Vec<u32>>,
}

impl Engine {
    fn put(&self, ids: Vec<u32>) {
        let mut free = self.free.lock().expect("no panic");
        assert!(ids.iter().all(|id| !free.contains(id)), "an id came back twice");
        free.extend(ids);
    }

    /// As many ids as asked for, after the cache has been asked for what is missing; or none.
    fn get(&self, cache: &PrefixCache, n: usize) -> Option<Vec<u32>> {
        let missing = n.saturating_sub(self.free.lock().expect("no panic").len());
        cache.evict(missing);
        let mut back = Vec::new();
        cache.external().expect("an external pool").take_evicted(&mut back);
        self.put(back);
        let mut free = self.free.lock().expect("no panic");
        let left = free.len().checked_sub(n)?;
        Some(free.split_off(left))
    }
}

// Holds: EP1.
#[test]
fn engine_threads_and_a_cache_share_the_ids_and_lose_none() {
    const CAPACITY: usize = 48;
    let cache = PrefixCache::builder(4, CAPACITY).external().build().expect("sound");
    let engine = Engine { free: Mutex::new((0..CAPACITY as u32).collect()) };
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (cache, engine) = (&cache, &engine);
            scope.spawn(move || {
                let (session, space) = (cache.session(), cache.default_namespace());
                for round in 0..2_000_u32 {
                    let tokens = sequence((round * 7 + thread) % 13, 4 + (round as usize * 5 + thread as usize) % 40);
                    let hit = session.match_prefix(&space, &tokens);
                    let needed = tokens.len() / 4 - hit.blocks().len();
                    let Some(ids) = engine.get(cache, needed) else { continue };
                    let mut ids = cache.external().expect("an external pool").adopt(&ids).expect("the engine's own");
                    let fork: Option<Reservation> = (round % 5 == 0).then(|| ids.fork());
                    if round % 11 == 0 {
                        drop((ids, fork));
                        continue;
                    }
                    drop(fork);
                    engine.put(match session.insert(hit.lease(), &tokens, ids) {
                        Ok(inserted) => inserted.duplicates.into_blocks(),
                        // Cleared by another thread since the match.
                        Err(refused) => refused.reservation.into_blocks(),
                    });
                    if round % 100 == 0 {
                        cache.clear();
                    }
                }
            });
        }
    });
    cache.validate().expect("sound");
    cache.clear();
    let mut back = Vec::new();
    cache.external().expect("an external pool").take_evicted(&mut back);
    engine.put(back);
    let mut all = engine.free.into_inner().expect("no panic");
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..CAPACITY as u32), "{all:?}");
}

/// Without settling, evicting or asking for numbers in between.
// Holds: EP3.
#[test]
fn what_was_cleared_under_a_lease_is_taken_when_the_lease_has_gone() {
    let bench = bench(4, 16);
    let lease = bench.matched(&sequence(1, 8));
    let inserted = bench.session.insert(
        &lease,
        &sequence(1, 8),
        bench.cache.external().expect("an external pool").adopt(&[3, 4]).expect("ours"),
    );
    let inserted = inserted.expect("fitting");
    bench.cache.clear();
    assert!(taken(&bench).is_empty());
    drop((inserted, lease));
    assert_eq!(taken(&bench), [3, 4]);
}
