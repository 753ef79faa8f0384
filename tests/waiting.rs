//! Threads that wait for blocks: order, all-or-nothing, deadlines, a mostly pinned pool, and
//! panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use radixkv::{BlockRequest, Lease, PrefixCache, ReserveError};

const FAR: Duration = Duration::from_secs(120);

fn cache(blocks: usize) -> PrefixCache {
    PrefixCache::builder(4, blocks).build().expect("valid")
}

/// Caches a sequence of `blocks` blocks that begins with `first`, and keeps it leased.
fn pin(cache: &PrefixCache, first: u32, blocks: usize) -> Lease {
    let (session, space) = (cache.session(), cache.default_namespace());
    let tokens: Vec<u32> = (0..blocks as u32 * 4).map(|i| first * 1000 + i).collect();
    let miss = session.match_prefix(&space, &tokens);
    session.insert(miss.lease(), &tokens, session.reserve(blocks).expect("room")).expect("inserted").lease
}

/// Waits until `n` requests are in the wait list.
fn line_of(cache: &PrefixCache, n: usize) {
    while cache.stats().waiting_requests != n {
        std::thread::yield_now();
    }
}

// Holds: WA1.
#[test]
fn waiters_are_served_in_order() {
    let cache = cache(4);
    let held = cache.session().reserve(4).expect("free");
    let served = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (i, blocks) in [3, 1, 4, 2, 1].into_iter().enumerate() {
            let (cache, served) = (&cache, &served);
            scope.spawn(move || {
                let blocks =
                    cache.session().reserve(BlockRequest::new(blocks).until(Instant::now() + FAR)).expect("served");
                served.lock().expect("no panic").push(i);
                drop(blocks);
            });
            line_of(cache, i + 1);
        }
        drop(held);
    });
    // The first two fit beside each other, and so do the last two: between those the order is the
    // scheduler's.
    let mut served = served.into_inner().expect("no panic");
    served[..2].sort_unstable();
    served[3..].sort_unstable();
    assert_eq!(served, [0, 1, 2, 3, 4]);
    assert_eq!((cache.stats().free_blocks, cache.stats().waiting_requests), (4, 0));
}

// Holds: WA4.
#[test]
fn the_deadline_comes_with_the_numbers_and_takes_nothing() {
    let cache = cache(8);
    let pinned = pin(&cache, 1, 5);
    let refused =
        cache.session().reserve(BlockRequest::new(4).until(Instant::now() + Duration::from_millis(3))).unwrap_err();
    assert_eq!(refused, ReserveError::TimedOut { requested: 4, available: 3 });
    assert_eq!(refused.to_string(), "4 blocks requested, 3 free or evictable at the deadline");
    let late = cache.session().reserve(BlockRequest::new(4).until(Instant::now())).unwrap_err();
    assert_eq!(late, ReserveError::TimedOut { requested: 4, available: 3 });
    assert_eq!(
        cache.session().reserve(BlockRequest::new(9).until(Instant::now())).unwrap_err(),
        ReserveError::TooLarge { requested: 9, capacity: 8 }
    );
    assert_eq!((cache.stats().free_blocks, cache.stats().waiting_requests), (3, 0));
    drop(pinned);
    assert_eq!(cache.session().reserve(BlockRequest::new(4).until(Instant::now())).map(|blocks| blocks.len()), Ok(4));
}

// Holds: WA4.
#[test]
fn a_deadline_in_the_middle_of_the_line_lets_the_others_on() {
    let cache = cache(2);
    let held = cache.session().reserve(2).expect("free");
    let soon = Instant::now() + Duration::from_millis(20);
    std::thread::scope(|scope| {
        let far =
            |n| cache.session().reserve(BlockRequest::new(n).until(Instant::now() + FAR)).map(|blocks| blocks.len());
        let first = scope.spawn(move || far(1));
        line_of(&cache, 1);
        let middle =
            scope.spawn(|| cache.session().reserve(BlockRequest::new(2).until(soon)).map(|blocks| blocks.len()));
        while cache.stats().waiting_requests < 2 && !middle.is_finished() {
            std::thread::yield_now();
        }
        let last = scope.spawn(move || far(1));
        assert!(middle.join().expect("no panic").is_err());
        drop(held);
        assert_eq!((first.join().expect("no panic"), last.join().expect("no panic")), (Ok(1), Ok(1)));
    });
}

/// A plain reservation takes the free blocks, although another request waits for more.
// Holds: WA2.
#[test]
fn a_plain_reservation_does_not_join_the_wait_list() {
    let cache = cache(4);
    let held = cache.session().reserve(3).expect("free");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            cache.session().reserve(BlockRequest::new(4).until(Instant::now() + FAR)).map(|blocks| blocks.len())
        });
        line_of(&cache, 1);
        let one = cache.session().reserve(1).expect("there is one");
        assert_eq!(cache.session().reserve(1).unwrap_err(), ReserveError::Exhausted { requested: 1, available: 0 });
        drop((one, held));
        assert_eq!(waiting.join().expect("no panic"), Ok(4));
    });
}

// Holds: RE10.
#[test]
fn a_request_for_no_block_waits_behind_nobody() {
    let cache = cache(4);
    let (session, space) = (cache.session(), cache.default_namespace());
    let held = session.reserve(3).expect("free");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            cache.session().reserve(BlockRequest::new(4).until(Instant::now() + FAR)).map(|blocks| blocks.len())
        });
        line_of(&cache, 1);
        let none = session.reserve(BlockRequest::new(0).until(Instant::now()));
        let empty = session.acquire_until(&space, &[], 0, Instant::now());
        drop(held);
        assert_eq!(none.map(|none| none.len()), Ok(0));
        assert_eq!(empty.map(|empty| (empty.hit.len_tokens(), empty.blocks.len())), Ok((0, 0)));
        assert_eq!(waiting.join().expect("no panic"), Ok(4));
    });
}

/// Enough is free for the later waiter, but an earlier one waits for more.
// Holds: WA2.
#[test]
fn a_later_waiter_does_not_overtake() {
    let cache = cache(4);
    let held = cache.session().reserve(2).expect("free");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            cache.session().reserve(BlockRequest::new(3).until(Instant::now() + FAR)).map(|blocks| blocks.len())
        });
        line_of(&cache, 1);
        let soon = Instant::now() + Duration::from_millis(3);
        let refused = cache.session().reserve(BlockRequest::new(1).until(soon)).unwrap_err();
        assert_eq!(refused, ReserveError::TimedOut { requested: 1, available: 2 });
        drop(held);
        assert_eq!(waiting.join().expect("no panic"), Ok(3));
    });
}

/// The last lease on a prefix goes, on whatever thread and however: the waiter evicts it.
// Holds: LE10.
#[test]
fn a_release_wakes_also_in_a_panic() {
    let cache = cache(6);
    let pinned = pin(&cache, 1, 6);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            cache.session().reserve(BlockRequest::new(6).until(Instant::now() + FAR)).map(|blocks| blocks.len())
        });
        line_of(&cache, 1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = pinned;
            panic!("a holder breaks");
        }));
        assert!(panicked.is_err());
        assert_eq!(waiting.join().expect("no panic"), Ok(6));
    });
    cache.settle();
    assert_eq!((cache.stats().free_blocks, cache.validate()), (6, Ok(())));
}

/// Nine tenths of the pool are pinned; four threads share the rest and wait for more than there is;
/// none starves once the pins are dropped.
#[test]
fn four_threads_on_a_pool_that_is_pinned() {
    let cache = cache(100);
    let pins: Vec<Lease> = (0..9).map(|i| pin(&cache, i, 10)).collect();
    let rounds = 300;
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let cache = &cache;
            scope.spawn(move || {
                let session = cache.session();
                for round in 0..rounds {
                    let n = 1 + (round * 7 + thread * 3) % 10;
                    let blocks =
                        session.reserve(BlockRequest::new(n).until(Instant::now() + FAR)).expect("served in turn");
                    assert_eq!(blocks.len(), n, "all or nothing");
                    if round % 3 == 0 {
                        std::thread::yield_now();
                    }
                }
                // More than the pins leave: only served when some have gone.
                session.reserve(BlockRequest::new(20).until(Instant::now() + FAR)).expect("the pins go").len()
            });
        }
        let refused = cache.session().reserve(11).expect_err("pinned blocks are not given away");
        assert!(matches!(refused, ReserveError::Exhausted { requested: 11, available: ..=10 }), "{refused}");
        line_of(&cache, 4);
        for pin in pins {
            drop(pin);
            std::thread::yield_now();
        }
    });
    cache.settle();
    let stats = cache.stats();
    assert_eq!(
        (stats.free_blocks + stats.evictable_blocks, stats.protected_blocks, stats.waiting_requests),
        (100, 0, 0)
    );
    assert_eq!(cache.validate(), Ok(()));
}

/// How late a deadline is noticed on this machine: a figure, no promise.
#[test]
#[ignore = "prints a time; run by ci/nightly.sh"]
fn how_late_deadlines_are() {
    let cache = cache(1);
    let _held = cache.session().reserve(1).expect("free");
    let mut late: Vec<Duration> = (0..500)
        .map(|i| {
            let deadline = Instant::now() + Duration::from_micros(200 + i * 10);
            cache.session().reserve(BlockRequest::new(1).until(deadline)).expect_err("held");
            deadline.elapsed()
        })
        .collect();
    late.sort_unstable();
    println!("late by {:?} in the median, {:?} at most, of 500", late[250], late[499]);
}
