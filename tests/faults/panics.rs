//! One thread breaks: in its own code while it holds something, or at a point.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use radixkv::{BlockId, BlockRequest, Eviction, Lease, PrefixCache, Priority, Watermarks};

use crate::gate::{Armed, STUCK, arm, arm_for_all, as_victim};
use crate::{BLOCK_SIZE, BLOCKS, CAPACITY, KEYS, User, accounts, cache, cache_for, check_nothing_lost, sequence};

/// A call that comes to the point it is to break at, after what it needs is there.
pub type Victim = fn(&PrefixCache, &User);

/// What a thread panics with at a point.
pub const BROKEN: &str = "broken at a point";

/// Blocks that `reserve` and `abort` deal with.
const RESERVED: usize = 8;

fn match_inside(_: &PrefixCache, user: &User) {
    as_victim(|| drop(user.matched(&sequence(0, 2))));
}

fn match_idle_end(_: &PrefixCache, user: &User) {
    as_victim(|| drop(user.matched(&sequence(0, BLOCKS))));
}

fn insert(cache: &PrefixCache, user: &User) {
    let tokens = sequence(1_000, BLOCKS);
    let lease = user.matched(&tokens);
    let reservation = user.session.reserve(BLOCKS).expect("enough blocks are free");
    cache.settle();
    as_victim(|| drop(user.session.insert(&lease, &tokens, reservation)));
}

/// The second part gets room, and the third one is written there.
fn append(_: &PrefixCache, user: &User) {
    drop(user.insert(&sequence(1_000, BLOCKS)));
    let lease = user.insert(&sequence(1_000, 2 * BLOCKS));
    let reservation = user.session.reserve(BLOCKS).expect("enough blocks are free");
    as_victim(|| drop(user.session.insert(&lease, &sequence(1_000, 3 * BLOCKS), reservation)));
}

fn release(cache: &PrefixCache, user: &User) {
    let lease = user.matched(&sequence(0, BLOCKS));
    cache.settle();
    as_victim(|| drop(lease));
}

fn reserve(_: &PrefixCache, user: &User) {
    as_victim(|| drop(user.session.reserve(RESERVED)));
}

fn abort(_: &PrefixCache, user: &User) {
    let reservation = user.session.reserve(RESERVED).expect("enough blocks are free");
    as_victim(|| drop(reservation));
}

fn evict_a_part(cache: &PrefixCache, _: &User) {
    as_victim(|| assert_eq!(cache.evict(1), 1));
}

fn evict_all(cache: &PrefixCache, _: &User) {
    as_victim(|| assert!(cache.evict(usize::MAX) > 0));
}

fn wait_for_blocks(_: &PrefixCache, user: &User) {
    let lease = user.matched(&sequence(1, BLOCKS));
    let soon = Instant::now() + Duration::from_millis(1);
    as_victim(|| drop(user.session.reserve(BlockRequest::new(CAPACITY).until(soon))));
    drop(lease);
}

fn retain(cache: &PrefixCache, user: &User) {
    let lease = user.matched(&sequence(0, BLOCKS));
    cache.settle();
    as_victim(|| user.session.retain(&lease, Duration::from_nanos(1))).expect("it is cached");
}

fn prioritize(_: &PrefixCache, user: &User) {
    let lease = user.matched(&sequence(0, BLOCKS));
    as_victim(|| user.session.prioritize(&lease, Priority::DEFAULT));
}

fn reserve_in(_: &PrefixCache, user: &User) {
    as_victim(|| drop(user.session.reserve(BlockRequest::new(RESERVED).paid_by(&user.space))));
}

/// Point, victim, and the blocks that are lost for good when it breaks there; a match that comes by
/// has revived ends that were killed.
const INSIDE: [(&str, Victim, usize); 26] = [
    ("session::leased", match_inside, 0),
    ("lease::published", match_inside, 2),
    ("lease::bumped", match_inside, 2),
    ("queue::push", match_idle_end, BLOCKS),
    ("queue::push", release, BLOCKS),
    ("insert::linked", insert, BLOCKS),
    ("insert::counted", insert, BLOCKS),
    ("queue::push", insert, BLOCKS),
    ("growth::claimed", append, BLOCKS),
    ("growth::written", append, BLOCKS),
    ("pool::counted", reserve, RESERVED),
    ("pool::set", abort, 0),
    ("trim::begun", evict_a_part, 0),
    ("trim::killed", evict_a_part, 0),
    ("trim::shortened", evict_a_part, 1),
    ("trim::killed", evict_all, 0),
    ("trim::shortened", evict_all, BLOCKS),
    ("trim::unlink", evict_all, 0),
    ("pool::set", evict_all, 0),
    ("wait_list::joined", wait_for_blocks, 0),
    ("retain::leased", retain, BLOCKS),
    ("marks::made", retain, BLOCKS),
    ("retain::noted", retain, BLOCKS),
    ("queue::push", retain, BLOCKS),
    ("marks::made", prioritize, 0),
    ("quota::charged", reserve_in, 0),
];

#[test]
fn a_panic_inside_a_step_costs_no_more_than_its_call() {
    for (point, victim, lost) in INSIDE {
        let armed = arm(point, || panic!("{BROKEN}"));
        break_at(point, armed, &cache_for(point).0, victim, lost);
    }
}

/// Lets `victim` break at the armed `point`, which costs `lost` blocks.
pub fn break_at(point: &str, armed: Armed, cache: &PrefixCache, victim: Victim, lost: usize) {
    let outcome = catch_unwind(AssertUnwindSafe(|| victim(cache, &User::of(cache))));
    let broken = outcome.expect_err("the panic reached the caller");
    assert_eq!(broken.downcast_ref(), Some(&BROKEN.to_owned()), "{point}: another panic");
    drop(armed);

    check_no_block_twice(cache);
    cache.evict(usize::MAX);
    cache.settle();
    assert_eq!(CAPACITY - cache.stats().free_blocks, lost, "blocks lost at {point}");

    // The cache goes on with what it has.
    let user = User::of(cache);
    for key in 0..KEYS {
        assert_eq!(user.insert(&sequence(key, BLOCKS)).len_tokens(), BLOCKS * BLOCK_SIZE);
    }
    check_no_block_twice(cache);
    cache.evict(usize::MAX);
    cache.settle();
    assert!(CAPACITY - cache.stats().free_blocks <= lost, "more was lost after {point}");
}

/// Below 64 free blocks the thread evicts up to 128.
const WATERMARKS: Watermarks = Watermarks::new(64, 128);

// Holds: BE6.
#[test]
fn the_background_evictor_goes_on_after_a_panic_in_a_step() {
    for point in ["trim::killed", "trim::shortened", "trim::unlink"] {
        let builder = PrefixCache::builder(BLOCK_SIZE, CAPACITY).eviction(Eviction::Background(WATERMARKS));
        let cache = builder.build().expect("a sound setting");
        let broken = Arc::new(AtomicBool::new(false));
        let armed = arm_for_all(point, {
            let broken = Arc::clone(&broken);
            move || {
                if thread::current().name() == Some("radixkv-evictor") && !broken.swap(true, SeqCst) {
                    panic!("{BROKEN}");
                }
            }
        });
        let user = User::of(&cache);
        let end = Instant::now() + STUCK;
        let mut fresh = 0..;
        while !broken.load(SeqCst) {
            assert!(Instant::now() < end, "{point}: the thread did not come there");
            fresh.by_ref().take(16).for_each(|key| drop(user.insert(&sequence(key, BLOCKS))));
        }
        let before = cache.stats().evicted_blocks;
        while cache.stats().evicted_blocks < before + CAPACITY as u64 {
            assert!(Instant::now() < end, "{point}: no thread evicts after the panic");
            // Only the background thread evicts: the blocks that are asked for are free.
            if cache.stats().free_blocks > BLOCKS {
                let key = fresh.next().expect("there are more");
                drop(user.insert(&sequence(key, BLOCKS)));
            } else {
                drop(user.session.reserve(1));
            }
        }
        drop(armed);
    }
}

/// No two sequences, and no sequence and a reservation, share a block: no request reads another
/// one's KV.
fn check_no_block_twice(cache: &PrefixCache) {
    let user = User::of(cache);
    let free = user.session.reserve(cache.stats().free_blocks).expect("what is free can be reserved");
    let mut seen: HashSet<BlockId> = free.blocks().iter().copied().collect();
    assert_eq!(seen.len(), free.len());
    for key in (0..KEYS).chain([1_000]) {
        let found = user.session.match_prefix_untouched(&user.space, &sequence(key, BLOCKS));
        assert!(found.blocks().iter().all(|&block| seen.insert(block)), "a block of sequence {key} is another's too");
    }
}

// Holds: LE10.
#[test]
fn a_panic_in_the_callers_code_loses_nothing() {
    let (cache, empty) = cache();
    let tokens = sequence(2_000, BLOCKS);
    let hold_much = |user: &User, held: &mut Vec<Lease>| {
        held.push(user.matched(&sequence(3, 2)));
        held.push(held[0].try_clone().expect("few leases"));
        held.push(user.insert(&tokens));
        let found = user.session.match_prefix(&user.space, &sequence(4, BLOCKS));
        let mut reservation = user.session.reserve(RESERVED).expect("enough blocks are free");
        let part = reservation.split(3);
        let root = user.session.match_prefix(&user.space, &[]).into_lease();
        let given = user.session.reserve(BLOCKS).expect("enough blocks are free");
        let inserted = user.session.insert(&root, &tokens, given).expect("it fits");
        assert_eq!(inserted.duplicates.len(), BLOCKS);
        let resumed = user.session.resume(root, &sequence(5, 3));
        let refused = user.session.insert(resumed.lease(), &[], part).expect_err("too short");
        // Everything above is held here.
        panic!("broken while holding {:?} {:?} {:?}", found.blocks(), refused.reservation, inserted.blocks);
    };

    let outcome = catch_unwind(AssertUnwindSafe(|| hold_much(&User::of(&cache), &mut Vec::new())));
    assert!(outcome.is_err());
    // A thread that dies takes its session along; its leases may die elsewhere.
    let outcome = thread::scope(|scope| scope.spawn(|| hold_much(&User::of(&cache), &mut Vec::new())).join());
    assert!(outcome.is_err());
    let mut elsewhere = Vec::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| hold_much(&User::of(&cache), &mut elsewhere)));
    assert!(outcome.is_err() && elsewhere.len() == 3);
    assert!(accounts(&cache)[3] > 0, "what outlived the panic is still protected");
    thread::spawn(move || drop(elsewhere)).join().expect("a lease is released anywhere");

    assert_eq!(accounts(&cache)[1..], [0, (KEYS as usize + 1) * BLOCKS, 0]);
    check_nothing_lost(&cache, empty);
}

#[test]
fn a_callers_mistake_panics_and_loses_nothing() {
    let (cache, empty) = cache();
    let (other, _) = crate::cache();
    let user = User::of(&cache);
    let foreign = User::of(&other).matched(&sequence(0, 1));
    let ours = || user.matched(&sequence(0, 2));
    let mistakes: [&dyn Fn(); 3] = [
        &|| drop(user.session.resume(ours(), &[])),
        &|| drop(user.session.resume(foreign.try_clone().expect("few leases"), &sequence(0, 2))),
        &|| drop(user.session.reserve(1).expect("free").split(2)),
    ];
    for mistake in mistakes {
        assert!(catch_unwind(AssertUnwindSafe(mistake)).is_err());
    }
    drop(user);
    check_nothing_lost(&cache, empty);
    drop(foreign);
    assert_eq!(accounts(&other)[3], 0);
}

#[test]
fn a_panic_in_an_eviction_into_a_list_gives_back_what_was_evicted_before() {
    let (cache, _) = cache();
    let before = crate::accounts(&cache)[0];
    let trims = std::sync::atomic::AtomicUsize::new(0);
    let armed = arm("trim::begun", move || {
        if trims.fetch_add(1, SeqCst) == 3 {
            panic!("{BROKEN}");
        }
        crate::gate::stay_victim();
    });
    let mut evicted = Vec::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| as_victim(|| cache.evict_into(usize::MAX, &mut evicted))));
    assert!(outcome.is_err());
    drop(armed);
    assert!(evicted.is_empty());
    cache.settle();
    assert_eq!(cache.stats().free_blocks, before + 3 * BLOCKS);
}
