//! Hot points: a thread stops or breaks while a prefix becomes hot, is leased on its stripes, or
//! cools down.

use std::panic::resume_unwind;
use std::thread;

use radixkv::{Lease, PrefixCache};

use crate::gate::{Armed, Gate, arm, as_victim, stay_victim};
use crate::panics::{BROKEN, break_at};
use crate::stalls::{Holds, Opening, stall_at};
use crate::{BLOCKS, User, cache, check_nothing_lost, sequence};

fn lease(cache: &PrefixCache) -> Lease {
    User::of(cache).matched(&sequence(0, BLOCKS))
}

/// Leases sequence 0 and finds its word changed under its hands, so that it becomes hot. The victim
/// stops at `word::lease` for that.
fn contend(cache: &PrefixCache, between: &Gate) {
    thread::scope(|scope| {
        let _opening = Opening(between);
        let leaser = scope.spawn(|| as_victim(|| drop(lease(cache))));
        between.wait_for_arrival();
        let held = lease(cache);
        between.open();
        let outcome = leaser.join();
        drop(held);
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

fn arm_contention(between: &Gate, then: fn()) -> Armed {
    let between = between.clone();
    arm("word::lease", move || {
        between.stop();
        then();
    })
}

/// A cache in which sequence 0 is hot, and what its index weighed when it was empty.
fn hot_cache() -> (PrefixCache, usize) {
    let (cache, empty) = cache();
    let between = Gate::default();
    let armed = arm_contention(&between, || ());
    contend(&cache, &between);
    drop(armed);
    (cache, empty)
}

/// A gate that a victim stops at when it comes to `point`.
fn gate_at(point: &'static str) -> (Gate, Armed) {
    let gate = Gate::default();
    let armed = arm(point, {
        let gate = gate.clone();
        move || gate.stop()
    });
    (gate, armed)
}

fn lease_hot(cache: &PrefixCache) {
    drop(as_victim(|| lease(cache)));
}

fn settle(cache: &PrefixCache) {
    as_victim(|| cache.settle());
}

// Holds: MA13.
#[test]
fn a_lease_on_a_stripe_that_stops_holds_up_no_thread() {
    for point in ["hot::enter", "hot::entered"] {
        let (cache, empty) = hot_cache();
        let (gate, armed) = gate_at(point);
        stall_at(&cache, &gate, Holds::Nothing, lease_hot);
        drop(armed);
        check_nothing_lost(&cache, empty);
    }
}

#[test]
fn a_deflation_that_stops_holds_up_only_threads_that_need_the_evictor() {
    for point in ["hot::closed", "hot::summed"] {
        let (cache, empty) = hot_cache();
        let (gate, armed) = gate_at(point);
        stall_at(&cache, &gate, Holds::EvictorsLock, settle);
        drop(armed);
        check_nothing_lost(&cache, empty);
    }
}

/// It stops with the slot taken and not attached yet.
#[test]
fn an_inflation_that_stops_holds_up_no_thread() {
    let (cache, empty) = cache();
    let (between, gate) = (Gate::default(), Gate::default());
    let armed = arm_contention(&between, stay_victim);
    armed.and("hot::taken", {
        let gate = gate.clone();
        move || gate.stop()
    });
    thread::scope(|scope| {
        let _opening = Opening(&gate);
        scope.spawn(|| contend(&cache, &between));
        gate.wait_for_arrival();
        for _ in 0..1_000 {
            drop(lease(&cache));
            cache.settle();
        }
        assert_eq!(cache.evict(BLOCKS), BLOCKS, "of the others");
        cache.validate().expect("sound but for a slot that is not attached");
    });
    drop(armed);
    check_nothing_lost(&cache, empty);
}

/// The slot that it saw open has gone to the evictor, the point with it, when it goes on.
#[test]
fn a_lease_that_comes_too_late_for_its_stripe_starts_again() {
    let (cache, empty) = hot_cache();
    let (gate, armed) = gate_at("hot::enter");
    thread::scope(|scope| {
        let _opening = Opening(&gate);
        let late = scope.spawn(|| as_victim(|| lease(&cache).len_tokens()));
        gate.wait_for_arrival();
        assert!(cache.evict(usize::MAX) > 0);
        assert_eq!(cache.stats().evictable_blocks, 0);
        gate.open();
        assert_eq!(late.join().expect("it goes on"), 0, "nothing is cached any more");
    });
    drop(armed);
    check_nothing_lost(&cache, empty);
}

#[test]
fn a_panic_at_a_hot_point_costs_no_more_than_its_call() {
    for (point, victim, lost) in [
        ("hot::enter", (|cache, _| lease_hot(cache)) as fn(&PrefixCache, &User), 0),
        ("hot::entered", |cache, _| lease_hot(cache), BLOCKS),
        ("hot::closed", |cache, _| settle(cache), 0),
        ("hot::summed", |cache, _| settle(cache), 0),
    ] {
        let (cache, _) = hot_cache();
        let armed = arm(point, || panic!("{BROKEN}"));
        break_at(point, armed, &cache, victim, lost);
    }

    let between = Gate::default();
    let armed = arm_contention(&between, stay_victim);
    armed.and("hot::taken", || panic!("{BROKEN}"));
    let (cache, _) = cache();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| contend(&cache, &between)));
    assert!(outcome.is_err());
    drop(armed);
    cache.evict(usize::MAX);
    assert_eq!(cache.capacity_blocks() - cache.stats().free_blocks, BLOCKS, "the lease that was being taken");
}
