//! Threads that stall or panic between two steps of a protocol, at a point marked by
//! `crate::sync::point!`.
//!
//! `stalls`: one thread stops at a point for any time, and the other threads must make progress, as
//! lock-freedom promises. Only operations that need the evictor's lock may wait, and only for a
//! thread that stopped while it holds the lock.
//!
//! `panics`: one thread panics. If the *caller's* code panics, nothing may be lost, whatever the
//! thread holds. A protocol step runs no user code and no allocation that could unwind, so a panic
//! inside it is a bug of this crate. The table says what such a bug would cost, and the tests check
//! it: no block is given to two owners, nothing crashes, and the loss is bounded by the one call
//! that panicked.
//!
//! | point | what a panic there leaves behind |
//! |---|---|
//! | `session::leased` | nothing: the lease has its handle |
//! | `lease::published`, `lease::bumped` | a permanent lease on the prefix that was being leased |
//! | `insert::linked`, `insert::counted` | the blocks of the insert, and permanent leases on its path |
//! | `growth::claimed`, `growth::written` | the blocks of the insert, and the run's room to grow |
//! | `queue::push` | one point whose changes the evictor never gets again, and the lease that was being passed on, if any |
//! | `trim::begun`, `trim::killed` | the run is evictable again only after a match has reached its end |
//! | `trim::shortened` | the blocks that were being trimmed |
//! | `trim::unlink` | the turn's dead runs, but no block |
//! | `hot::enter`, `wait_list::joined`, `quota::charged` | nothing |
//! | `marks::made` | nothing; in `retain` what `retain::leased` leaves |
//! | `hot::closed` | nothing: the next deflation closes it again |
//! | `hot::summed` | the hits that were counted on the stripes, if the panic was between two stripes |
//! | `hot::entered` | a permanent lease on the hot prefix, and its slot |
//! | `hot::taken` | a permanent lease on the prefix that was being inflated, and its slot |
//! | `retain::leased`, `retain::noted` | a permanent lease on the prefix that was being retained |
//! | `publications::published` | nothing: blocks that it was served are given back to the pool, and a waiter is woken |
//! | `pool::counted`, `pool::set` | the blocks that were being taken or given back |
//!
//! A panic in a step of the background evictor costs the same, and the thread continues.
//!
//! Running out of memory does not panic: a failed allocation of the core aborts the process, as in
//! `Vec` and `Box`.
#![cfg(radixkv_failpoints)]

#[path = "faults/gate.rs"]
mod gate;
#[path = "faults/growing.rs"]
mod growing;
#[path = "faults/hot.rs"]
mod hot;
#[path = "faults/invalidation.rs"]
mod invalidation;
#[path = "faults/panics.rs"]
mod panics;
#[path = "faults/publications.rs"]
mod publications;
#[path = "faults/quotas.rs"]
mod quotas;
#[path = "faults/stalls.rs"]
mod stalls;
#[path = "faults/unlinking.rs"]
mod unlinking;

use radixkv::{Lease, Namespace, PolicyKind, PrefixCache, Session, Token};

const BLOCK_SIZE: usize = 4;
const CAPACITY: usize = 4096;
/// Sequences that are cached before anything goes wrong, and their blocks.
const KEYS: u32 = 64;
const BLOCKS: usize = 4;

/// `blocks` blocks of tokens that share none with those of another `key`, but for the first token
/// of every fourth.
fn sequence(key: u32, blocks: usize) -> Vec<Token> {
    (0..(blocks * BLOCK_SIZE) as u32).map(|i| if i < 2 { i } else { key << 8 | i }).collect()
}

/// One thread's view of the cache under test.
struct User {
    session: Session,
    space: Namespace,
}

impl User {
    fn of(cache: &PrefixCache) -> Self {
        Self { session: cache.session(), space: cache.default_namespace() }
    }

    fn matched(&self, tokens: &[Token]) -> Lease {
        self.session.match_prefix(&self.space, tokens).into_lease()
    }

    /// Matches, inserts what is missing from free blocks, and keeps the lease on the whole.
    fn insert(&self, tokens: &[Token]) -> Lease {
        let lease = self.matched(tokens);
        let missing = (tokens.len() - lease.len_tokens()) / BLOCK_SIZE;
        let reservation = self.session.reserve(missing).expect("enough blocks are free");
        self.session.insert(&lease, tokens, reservation).expect("it fits").lease
    }
}

/// A cache with `KEYS` idle sequences, and what its index weighed when it was empty. Leases on them
/// are silent, unless they are told to the evictor at the `point` where a victim is to break or to
/// stop.
fn cache_for(point: &str) -> (PrefixCache, usize) {
    let policy = if point == "queue::push" { PolicyKind::Filo } else { PolicyKind::Lru };
    let cache = PrefixCache::builder(BLOCK_SIZE, CAPACITY).policy(policy).build().expect("a sound setting");
    cache.settle();
    let empty = cache.stats().index_bytes;
    let user = User::of(&cache);
    for key in 0..KEYS {
        drop(user.insert(&sequence(key, BLOCKS)));
    }
    cache.settle();
    (cache, empty)
}

fn cache() -> (PrefixCache, usize) {
    cache_for("")
}

/// Free, reserved, evictable, protected; sound, and adding up.
fn accounts(cache: &PrefixCache) -> [usize; 4] {
    cache.settle();
    cache.validate().expect("sound");
    let stats = cache.stats();
    let accounts = [stats.free_blocks, stats.reserved_blocks, stats.evictable_blocks, stats.protected_blocks];
    assert_eq!(accounts.iter().sum::<usize>(), CAPACITY, "{stats:?}");
    accounts
}

/// Nothing is held any more: everything can be evicted, and nothing stays.
fn check_nothing_lost(cache: &PrefixCache, empty_bytes: usize) {
    let [_, reserved, _, protected] = accounts(cache);
    assert_eq!((reserved, protected), (0, 0), "no block is reserved or leased");
    cache.evict(usize::MAX);
    assert_eq!(accounts(cache), [CAPACITY, 0, 0, 0]);
    let stats = cache.stats();
    assert_eq!((stats.runs, stats.points, stats.index_bytes), (0, 0, empty_bytes));
}
