//! Retaining, demoting and priorities where time is the machine's, and where handles go in odd
//! orders.

use std::thread::sleep;
use std::time::{Duration, Instant};

use radixkv::{BlockRequest, Clock, PolicyKind, PrefixCache, Priority, ReserveError, RetainError};

use crate::{Bench, sequence};

fn priority(level: i64) -> Priority {
    Priority::new(level)
}

// Holds: PR1.
#[test]
fn what_is_retained_is_refused_to_a_reservation_and_given_after_its_deadline() {
    let bench = Bench::new(4, 4);
    let tokens = sequence(1, 12);
    let lease = bench.insert(&tokens);
    assert_eq!(bench.session.retain(&lease, Duration::from_nanos(10)), Ok(()));
    drop(lease);
    assert_eq!(bench.accounts(), [1, 0, 0, 3]);
    let refused = bench.session.reserve(2).map(drop);
    assert_eq!(refused, Err(ReserveError::Exhausted { requested: 2, available: 1 }));
    bench.cache.set_time(9);
    assert_eq!(bench.cache.evict(4), 0);
    bench.cache.set_time(10);
    let reserved = bench.session.reserve(2).expect("the deadline has come");
    assert_eq!((reserved.len(), bench.peek(&tokens)), (2, 8), "one block was missing, one was evicted");
}

// Holds: EV10.
#[test]
fn one_step_of_the_evictor_ends_a_bounded_number_of_priorities() {
    const LEAVES: usize = 3_000;
    let bench = Bench::with_policy(1, LEAVES, PolicyKind::Priority);
    for token in 0..LEAVES as u32 {
        let lease = bench.insert(&[token]);
        bench.session.prioritize(&lease, priority(90).expiring_after(Duration::from_nanos(10)));
    }
    bench.cache.settle();
    assert!(!bench.cache.run_once());
    bench.cache.set_time(10);
    let steps = (1..).find(|_| !bench.cache.run_once()).expect("it ends");
    assert!((3..LEAVES).contains(&steps), "{steps}");
    assert_eq!(bench.cache.validate(), Ok(()));
}

// Holds: PR2.
#[test]
fn retaining_outlives_the_lease_and_ends_with_the_namespace() {
    let bench = Bench::new(4, 8);
    let space = bench.cache.namespace(&["tenant"]);
    let tokens = sequence(1, 8);
    let keep = || {
        let miss = bench.session.match_prefix(&space, &tokens);
        let reservation = bench.session.reserve(2).expect("room");
        let lease = bench.session.insert(miss.lease(), &tokens, reservation).expect("inserted").lease;
        bench.session.retain(&lease, Duration::MAX).expect("the namespace stands");
        lease
    };
    drop(keep());
    assert_eq!(bench.accounts(), [6, 0, 0, 2]);
    space.clear();
    assert_eq!(bench.accounts(), [8, 0, 0, 0]);
    let lease = keep();
    space.remove();
    assert_eq!(bench.accounts(), [6, 0, 0, 2], "the lease is still held");
    assert_eq!(bench.session.retain(&lease, Duration::from_nanos(1)), Err(RetainError::NamespaceDropped));
    bench.session.prioritize(&lease, priority(90));
    bench.session.demote(&lease);
    drop(lease);
    assert_eq!(bench.accounts(), [8, 0, 0, 0]);
}

// Holds: PR4.
#[test]
fn retaining_asks_of_an_empty_prefix_nothing() {
    let bench = Bench::new(4, 8);
    let miss = bench.matched(&sequence(1, 8));
    assert_eq!(bench.session.retain(&miss, Duration::from_secs(1)), Ok(()));
    bench.session.prioritize(&miss, priority(90));
    bench.session.demote(&miss);
    bench.session.release_retained(&miss);
    drop(miss);
    assert_eq!(bench.accounts(), [8, 0, 0, 0]);
}

/// A retention does not keep the cache alive: it goes with the last handle.
// Holds: PR2.
#[test]
fn a_cache_goes_with_what_it_retains() {
    let bench = Bench::new(4, 8);
    let lease = bench.insert(&sequence(1, 8));
    bench.session.retain(&lease, Duration::MAX).expect("the namespace stands");
    bench.session.prioritize(&lease, priority(90));
    drop(lease);
    drop(bench);
}

// Holds: PR12.
#[test]
fn marks_leave_nothing_in_an_empty_index() {
    let bench = Bench::with_policy(4, 64, PolicyKind::Priority);
    drop(bench.insert(&sequence(0, 4)));
    bench.cache.evict(64);
    bench.cache.settle();
    let empty = bench.stats().index_bytes;
    for key in 1..200 {
        let lease = bench.insert(&[sequence(key % 5, 8), sequence(key, 8)].concat());
        bench.session.prioritize(&lease, priority(i64::from(key % 101)).expiring_after(Duration::from_nanos(5)));
        bench.session.demote(&lease);
        bench.session.retain(&lease, Duration::from_nanos(1)).expect("the namespace stands");
        bench.cache.set_time(u64::from(key));
    }
    bench.cache.set_time(1000);
    bench.cache.evict(64);
    let returned = (0..1000).any(|_| {
        bench.cache.settle();
        bench.cache.stats().index_bytes <= empty
    });
    assert!(returned, "{} bytes stay, {empty} at first", bench.cache.stats().index_bytes);
}

/// On the machine's clock durations are durations.
// Holds: PR5.
#[test]
fn deadlines_of_the_monotonic_clock_come() {
    let cache = PrefixCache::builder(4, 4).policy(PolicyKind::Priority).clock(Clock::Monotonic).build();
    let cache = cache.expect("a sound setting");
    let (session, space) = (cache.session(), cache.default_namespace());
    let tokens = [sequence(1, 4), sequence(2, 4)];
    let leases = tokens.each_ref().map(|tokens| {
        let miss = session.match_prefix(&space, tokens);
        session.insert(miss.lease(), tokens, session.reserve(1).expect("room")).expect("inserted").lease
    });
    session.retain(&leases[0], Duration::from_secs(3600)).expect("the namespace stands");
    session.retain(&leases[1], Duration::from_millis(1)).expect("the namespace stands");
    drop(leases);
    sleep(Duration::from_millis(2));
    assert_eq!(cache.evict(4), 1);
    assert_eq!((session.peek(&space, &tokens[0]), session.peek(&space, &tokens[1])), (4, 0));
}

/// A waiter is served when a retention ends, although no other thread does anything then.
// Holds: WA11.
#[test]
fn a_waiter_is_served_when_a_retention_ends() {
    let cache = PrefixCache::builder(4, 2).build().expect("a sound setting");
    let (session, space) = (cache.session(), cache.default_namespace());
    let tokens = sequence(1, 8);
    let miss = session.match_prefix(&space, &tokens);
    let lease = session.insert(miss.lease(), &tokens, session.reserve(2).expect("room")).expect("inserted").lease;
    session.retain(&lease, Duration::from_millis(5)).expect("the namespace stands");
    drop((miss, lease));
    let patience = Instant::now() + Duration::from_secs(60);
    assert_eq!(session.reserve(BlockRequest::new(2).until(patience)).map(|blocks| blocks.len()), Ok(2));
}

/// The retention begins when the thread waits already, and the lease is not the last one.
// Holds: WA11.
#[test]
fn a_waiter_is_served_when_a_retention_ends_that_began_while_it_waited() {
    let cache = PrefixCache::builder(4, 2).build().expect("a sound setting");
    let (session, space) = (cache.session(), cache.default_namespace());
    let tokens = sequence(1, 8);
    let miss = session.match_prefix(&space, &tokens);
    let lease = session.insert(miss.lease(), &tokens, session.reserve(2).expect("room")).expect("inserted").lease;
    drop(miss);
    let waiter = std::thread::spawn({
        let session = cache.session();
        move || {
            let patience = Instant::now() + Duration::from_secs(20);
            session.reserve(BlockRequest::new(2).until(patience)).map(|blocks| blocks.len())
        }
    });
    while cache.stats().waiting_requests == 0 {
        std::thread::yield_now();
    }
    // It has looked, and sleeps. From here on no thread runs the evictor.
    sleep(Duration::from_millis(50));
    session.retain(&lease, Duration::from_millis(20)).expect("the namespace stands");
    drop(lease);
    assert_eq!(waiter.join().expect("no panic"), Ok(2));
}

/// A tenant's short prompts and a long one share a system prompt: it goes last, by the highest
/// priority given through it.
// Holds: PR7.
#[test]
fn priority_flows_to_the_shared_prefix() {
    let bench = Bench::with_policy(4, 16, PolicyKind::Priority);
    let system = sequence(9, 8);
    for (now, (key, level)) in [(1, 20), (2, 70), (3, 20)].into_iter().enumerate() {
        bench.cache.set_time(now as u64 + 1);
        let lease = bench.insert(&[system.clone(), sequence(key, 4)].concat());
        bench.session.prioritize(&lease, priority(level));
    }
    bench.serve_at(9, &sequence(5, 8));
    let cached = || [1, 2, 3].map(|key| bench.peek(&[system.clone(), sequence(key, 4)].concat()));
    assert_eq!(bench.cache.evict(2), 2);
    assert_eq!(cached(), [8, 12, 8], "20 before 35");
    assert_eq!(bench.cache.evict(2), 2);
    assert_eq!((cached(), bench.peek(&sequence(5, 8))), ([8, 12, 8], 0), "35 before 70");
    assert_eq!(bench.cache.evict(1), 1);
    assert_eq!(cached(), [8, 8, 8]);
    bench.serve_at(10, &sequence(6, 4));
    assert_eq!(bench.cache.evict(1), 1);
    assert_eq!((cached(), bench.peek(&sequence(6, 4))), ([8, 8, 8], 0), "the system prompt has 70");
}

#[test]
#[should_panic(expected = "belongs to another cache")]
fn a_lease_of_another_cache_is_refused() {
    let (bench, other) = (Bench::new(4, 4), Bench::new(4, 4));
    let lease = other.insert(&sequence(1, 4));
    bench.session.demote(&lease);
}

/// Two of one place between two looks of the evictor: the longer one counts, in whatever order they
/// came.
#[test]
fn the_longest_of_what_was_asked_for_counts_whichever_came_last() {
    for durations in [[100, 10], [10, 100]] {
        let bench = Bench::new(4, 8);
        let lease = bench.insert(&sequence(1, 8));
        for duration in durations {
            bench.session.retain(&lease, Duration::from_nanos(duration)).expect("the namespace stands");
        }
        drop(lease);
        bench.cache.set_time(50);
        assert_eq!(bench.cache.evict(8), 0, "{durations:?}");
        bench.cache.set_time(100);
        assert_eq!(bench.cache.evict(8), 2, "{durations:?}");
    }
}

/// Deadlines go by the latest time that was set, even if no verb ran at that time.
// Holds: AG7.
#[test]
fn what_is_retained_after_the_clock_went_back_stays_until_its_deadline() {
    for looked in [false, true] {
        let bench = Bench::new(4, 8);
        let first = bench.insert(&sequence(1, 4));
        bench.session.retain(&first, Duration::from_nanos(1)).expect("the namespace stands");
        drop(first);
        bench.cache.set_time(1_000_000);
        let second = bench.insert(&sequence(2, 8));
        if looked {
            _ = bench.cache.stats();
        }
        bench.cache.set_time(0);
        bench.session.retain(&second, Duration::from_nanos(100)).expect("the namespace stands");
        drop(second);
        assert_eq!(bench.cache.evict(8), 1, "looked: {looked}");
        bench.cache.set_time(1_000_099);
        assert_eq!(bench.cache.evict(8), 0, "looked: {looked}");
        bench.cache.set_time(1_000_100);
        assert_eq!(bench.cache.evict(8), 2, "looked: {looked}");
    }
}
