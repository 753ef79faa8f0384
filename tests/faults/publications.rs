//! Threads that stop or break while they wait for the evictor's lock with a request published, and
//! holders that break while they serve one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use radixkv::{BlockRequest, Reservation};

use crate::gate::{Gate, arm, as_victim, stay_victim};
use crate::{BLOCKS, CAPACITY, User, accounts, cache, check_nothing_lost, sequence};

/// A waiter that is not woken gives up.
const LATE: Duration = Duration::from_secs(10);

/// A cache without a free block, in which everything is evictable but what the reservation has;
/// what its index weighed empty.
fn full() -> (radixkv::PrefixCache, Reservation, usize) {
    let (cache, empty) = cache();
    let user = User::of(&cache);
    let rest = user.session.reserve(CAPACITY - crate::KEYS as usize * BLOCKS).expect("free blocks");
    (cache, rest, empty)
}

// Holds: LE9.
#[test]
fn a_thread_that_stopped_after_it_asked_is_served_and_holds_up_nobody() {
    let (cache, rest, empty) = full();
    let asked = Gate::default();
    let stop = asked.clone();
    let armed = arm("publications::published", move || stop.stop());
    thread::scope(|scope| {
        let asking = scope.spawn(|| as_victim(|| cache.session().reserve(2).expect("all are evictable")));
        asked.wait_for_arrival();
        let mine = cache.session().reserve(1).expect("all are evictable");
        let stats = {
            cache.settle();
            cache.stats()
        };
        assert_eq!(stats.evicted_blocks, 3, "the holder of the lock has evicted for both");
        asked.open();
        let theirs = asking.join().expect("no panic");
        assert!(theirs.len() == 2 && theirs.blocks().iter().all(|block| !mine.blocks().contains(block)));
        assert_eq!(accounts(&cache)[1], rest.len() + 3);
    });
    drop((armed, rest));
    check_nothing_lost(&cache, empty);
}

// Holds: LE9.
#[test]
fn a_thread_that_breaks_after_it_asked_gives_back_what_it_got() {
    for is_served in [false, true] {
        let (cache, rest, empty) = full();
        let asked = Gate::default();
        let stop = asked.clone();
        let armed = arm("publications::published", move || {
            stop.stop();
            panic!("broken after it asked");
        });
        thread::scope(|scope| {
            let asking = scope.spawn(|| as_victim(|| cache.session().reserve(2)));
            asked.wait_for_arrival();
            let mine = is_served.then(|| cache.session().reserve(1).expect("all are evictable"));
            asked.open();
            assert!(asking.join().is_err());
            drop(mine);
        });
        drop((armed, rest));
        assert_eq!(accounts(&cache)[1], 0, "served: {is_served}");
        check_nothing_lost(&cache, empty);
    }
}

/// What it was served is all that can become free.
// Holds: LE9.
#[test]
fn a_thread_that_breaks_after_it_was_served_wakes_who_waits_for_blocks() {
    let (cache, rest, empty) = full();
    let asked = Gate::default();
    let stop = asked.clone();
    let armed = arm("publications::published", move || {
        stop.stop();
        panic!("broken after it asked");
    });
    thread::scope(|scope| {
        let asking = scope.spawn(|| as_victim(|| cache.session().reserve(2)));
        asked.wait_for_arrival();
        let session = cache.session();
        let mine = session.reserve(1).expect("all are evictable");
        cache.settle();
        let others = session.reserve(cache.stats().evictable_blocks).expect("all are evictable");
        let waiting = scope.spawn(|| {
            cache.session().reserve(BlockRequest::new(2).until(Instant::now() + LATE)).map(|served| served.len())
        });
        while cache.stats().waiting_requests == 0 {
            thread::yield_now();
        }
        // It has joined the list, and falls asleep soon.
        thread::sleep(Duration::from_millis(100));
        asked.open();
        assert!(asking.join().is_err());
        assert_eq!(waiting.join().expect("no panic"), Ok(2));
        drop((mine, others));
    });
    drop((armed, rest));
    check_nothing_lost(&cache, empty);
}

// Holds: LE9.
#[test]
fn a_holder_that_breaks_while_it_serves_leaves_the_other_thread_its_turn() {
    let (cache, rest, _) = full();
    let asked = Gate::default();
    let stop = asked.clone();
    let asks = AtomicUsize::new(0);
    let armed = arm("publications::published", move || match asks.fetch_add(1, Relaxed) {
        0 => stop.stop(),
        // The holder, before it has the lock.
        _ => stay_victim(),
    });
    let begun = AtomicUsize::new(0);
    armed.and("trim::begun", move || match begun.fetch_add(1, Relaxed) {
        0 => stay_victim(),
        _ => panic!("broken while it serves"),
    });
    thread::scope(|scope| {
        let asking = scope.spawn(|| as_victim(|| cache.session().reserve(1).expect("most are evictable")));
        asked.wait_for_arrival();
        let broken = catch_unwind(AssertUnwindSafe(|| as_victim(|| cache.session().reserve(BLOCKS))));
        assert!(broken.is_err());
        asked.open();
        assert_eq!(asking.join().expect("no panic").len(), 1);
    });
    drop((armed, rest));
    let user = User::of(&cache);
    (0..crate::KEYS).for_each(|key| drop(user.matched(&sequence(key, BLOCKS))));
    cache.evict(usize::MAX);
    cache.settle();
    assert_eq!(cache.stats().free_blocks, CAPACITY, "nothing is lost");
}
