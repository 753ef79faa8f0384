//! One thread stops at a point; the others go on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use radixkv::{BlockRequest, PrefixCache, Priority, ReserveError};

use crate::gate::{Gate, arm, as_victim};
use crate::{BLOCK_SIZE, BLOCKS, CAPACITY, KEYS, User, accounts, cache, cache_for, check_nothing_lost, sequence};

/// Operations that each worker does beside a stopped thread.
const OPERATIONS: usize = if cfg!(debug_assertions) { 4_000 } else { 40_000 };
const WORKERS: u64 = 2;
/// A worker that takes longer than this is stuck.
const STUCK: Duration = Duration::from_secs(120);

/// Opens its gate whatever happens, so that a failed test ends.
pub struct Opening<'a>(pub &'a Gate);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Whether the stopped thread is the evictor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    Nothing,
    EvictorsLock,
}

/// What needs the evictor's lock.
const EVICTORS_VERBS: [fn(&PrefixCache); 7] = [
    |cache| assert!(cache.evict(64) <= 64),
    PrefixCache::settle,
    |cache| while cache.run_once() {},
    |cache| cache.validate().unwrap_or_else(|violation| println!("while a change is under way: {violation}")),
    |cache| cache.namespace(&["another"]).clear(),
    |cache| cache.namespace(&["one more"]).remove(),
    |cache| {
        let session = cache.session();
        // More than is free: it has to evict. Where it starts late everything may be free already;
        // the victim may hold as much for a moment once it goes on.
        let more = || (cache.stats().free_blocks + 16).min(CAPACITY);
        while let Err(refused) = session.reserve(more()) {
            assert!(matches!(refused, ReserveError::Exhausted { .. }), "{refused}");
            thread::yield_now();
        }
    },
];

/// Stops `victim` at `point` and sees which threads get on.
fn stall(point: &'static str, holds: Holds, victim: fn(&PrefixCache)) {
    let (cache, empty) = cache_for(point);
    let gate = Gate::default();
    let armed = arm(point, {
        let gate = gate.clone();
        move || gate.stop()
    });
    stall_at(&cache, &gate, holds, victim);
    drop(armed);
    check_nothing_lost(&cache, empty);
}

/// Lets `victim` stop at `gate` and sees which threads get on.
pub fn stall_at(cache: &PrefixCache, gate: &Gate, holds: Holds, victim: fn(&PrefixCache)) {
    let finished = AtomicUsize::new(0);
    thread::scope(|scope| {
        let _opening = Opening(gate);
        scope.spawn(|| victim(cache));
        gate.wait_for_arrival();

        let (done, report) = channel();
        let start_workers = || {
            for seed in 1..=WORKERS {
                let done = done.clone();
                scope.spawn(move || work(cache, seed, &done));
            }
        };
        start_workers();
        expect_all(&report, WORKERS as usize, "lookups, inserts and releases");
        cache.stats();

        // Those that have to wait are on their way before the workers start again; that they do not
        // finish is what a lock that is held guarantees.
        let (evicted, evictions) = channel();
        for verb in EVICTORS_VERBS {
            let (finished, evicted) = (&finished, evicted.clone());
            scope.spawn(move || {
                verb(cache);
                finished.fetch_add(1, SeqCst);
                // Once the gate is open, the receiver may be gone.
                let _ = evicted.send(());
            });
        }
        match holds {
            Holds::Nothing => expect_all(&evictions, EVICTORS_VERBS.len(), "the evictor's verbs"),
            Holds::EvictorsLock => {
                start_workers();
                expect_all(&report, WORKERS as usize, "lookups, inserts and releases beside waiting evictors");
                assert_eq!(finished.load(SeqCst), 0, "the evictor's lock was not held");
            }
        }
    });
    assert_eq!(finished.load(SeqCst), EVICTORS_VERBS.len());
}

fn expect_all(report: &Receiver<()>, count: usize, threads: &str) {
    for i in 0..count {
        report.recv_timeout(STUCK).unwrap_or_else(|_| panic!("{threads}: {i} of {count} got on"));
    }
}

/// Matches, inserts, releases, reserves and gives back; never more than is free.
fn work(cache: &PrefixCache, seed: u64, done: &Sender<()>) {
    let user = User::of(cache);
    let mut held = VecDeque::new();
    let mut dice = Rng::with_seed(seed);
    for _ in 0..OPERATIONS {
        let tokens = sequence(dice.u32(..KEYS), dice.usize(1..=2 * BLOCKS));
        match dice.u8(..4) {
            0 => held.push_back(user.matched(&tokens)),
            1 => held.push_back(user.insert(&tokens)),
            2 => drop(user.session.reserve(tokens.len() / BLOCK_SIZE).expect("enough blocks are free")),
            _ => {
                let at = tokens.len() - 2;
                user.session.peek(&user.space, &tokens[..at]);
                held.pop_front();
            }
        }
        if held.len() > 4 {
            held.pop_front();
        }
    }
    drop(held);
    done.send(()).expect("the test listens");
}

/// A match that ends inside a run where no point is: it makes one.
fn match_inside(cache: &PrefixCache) {
    let user = User::of(cache);
    let lease = as_victim(|| user.matched(&sequence(0, 2)));
    assert_eq!(lease.len_tokens() % BLOCK_SIZE, 0);
}

fn insert_fresh(cache: &PrefixCache) {
    let user = User::of(cache);
    let tokens = sequence(1_000, BLOCKS);
    let lease = user.matched(&tokens);
    let reservation = user.session.reserve(BLOCKS).expect("enough blocks are free");
    let inserted = as_victim(|| user.session.insert(&lease, &tokens, reservation));
    assert_eq!(inserted.expect("it fits").lease.len_tokens(), tokens.len());
}

/// The second part gets room, and the third one is written there.
fn append(cache: &PrefixCache) {
    let user = User::of(cache);
    drop(user.insert(&sequence(1_000, BLOCKS)));
    let lease = user.insert(&sequence(1_000, 2 * BLOCKS));
    let (tokens, reservation) = (sequence(1_000, 3 * BLOCKS), user.session.reserve(BLOCKS).expect("enough are free"));
    let inserted = as_victim(|| user.session.insert(&lease, &tokens, reservation));
    assert_eq!(inserted.expect("it fits").lease.len_tokens(), tokens.len());
}

fn match_idle_end(cache: &PrefixCache) {
    let user = User::of(cache);
    drop(as_victim(|| user.matched(&sequence(0, BLOCKS))));
}

fn release(cache: &PrefixCache) {
    let lease = User::of(cache).matched(&sequence(0, BLOCKS));
    // The match's own step has left the queue: the release makes a new one.
    cache.settle();
    as_victim(|| drop(lease));
}

fn reserve(cache: &PrefixCache) {
    let session = cache.session();
    drop(as_victim(|| session.reserve(8)));
}

fn abort(cache: &PrefixCache) {
    let reservation = cache.session().reserve(8).expect("enough blocks are free");
    as_victim(|| drop(reservation));
}

fn evict_a_part(cache: &PrefixCache) {
    as_victim(|| assert_eq!(cache.evict(1), 1));
}

fn evict_all(cache: &PrefixCache) {
    as_victim(|| assert!(cache.evict(usize::MAX) > 0));
}

fn clear(cache: &PrefixCache) {
    as_victim(|| cache.clear());
}

fn reserve_evicting(cache: &PrefixCache) {
    let session = cache.session();
    let wanted = cache.stats().free_blocks + 8;
    // The first count that it takes off is the one after evicting.
    drop(as_victim(|| session.reserve(wanted)).expect("no other thread reserves yet"));
}

/// More than there is while a lease is held: it takes a place in the line.
fn wait_for_blocks(cache: &PrefixCache) {
    let user = User::of(cache);
    let lease = user.matched(&sequence(1, BLOCKS));
    let soon = Instant::now() + Duration::from_millis(1);
    let refused =
        as_victim(|| user.session.reserve(BlockRequest::new(CAPACITY).until(soon))).expect_err("a lease is held");
    assert!(matches!(refused, ReserveError::TimedOut { .. }), "{refused}");
    drop(lease);
}

fn retain(cache: &PrefixCache) {
    let user = User::of(cache);
    let lease = user.matched(&sequence(0, BLOCKS));
    // The match's own step has left the queue: retaining makes a new one.
    cache.settle();
    as_victim(|| user.session.retain(&lease, Duration::from_nanos(1))).expect("it is cached");
}

fn prioritize(cache: &PrefixCache) {
    let user = User::of(cache);
    let lease = user.matched(&sequence(0, BLOCKS));
    as_victim(|| user.session.prioritize(&lease, Priority::new(80)));
}

fn reserve_in(cache: &PrefixCache) {
    let user = User::of(cache);
    drop(
        as_victim(|| user.session.reserve(BlockRequest::new(8).paid_by(&user.space))).expect("enough blocks are free"),
    );
}

// Holds: WA12.
#[test]
fn a_waiter_that_stops_holds_up_only_waiters_behind_it() {
    stall("wait_list::joined", Holds::Nothing, wait_for_blocks);
}

// Holds: MA13.
#[test]
fn a_mark_that_stops_holds_up_no_thread() {
    for point in ["retain::leased", "marks::made", "retain::noted", "queue::push"] {
        stall(point, Holds::Nothing, retain);
    }
    stall("marks::made", Holds::Nothing, prioritize);
    stall("quota::charged", Holds::Nothing, reserve_in);
}

// Holds: MA13.
#[test]
fn a_match_that_stops_holds_up_no_thread() {
    stall("lease::published", Holds::Nothing, match_inside);
    stall("lease::bumped", Holds::Nothing, match_inside);
    stall("session::leased", Holds::Nothing, match_inside);
    stall("queue::push", Holds::Nothing, match_idle_end);
}

// Holds: MA13.
#[test]
fn an_insert_that_stops_holds_up_no_thread() {
    stall("insert::linked", Holds::Nothing, insert_fresh);
    stall("insert::counted", Holds::Nothing, insert_fresh);
    stall("queue::push", Holds::Nothing, insert_fresh);
    for point in ["growth::claimed", "growth::written", "queue::push"] {
        stall(point, Holds::Nothing, append);
    }
}

// Holds: MA13.
#[test]
fn a_release_that_stops_holds_up_no_thread() {
    stall("queue::push", Holds::Nothing, release);
}

// Holds: RE9.
#[test]
fn a_reservation_that_stops_holds_up_no_thread() {
    stall("pool::counted", Holds::Nothing, reserve);
    stall("pool::set", Holds::Nothing, abort);
}

// Holds: RE9, NU6.
#[test]
fn an_evictor_that_stops_holds_up_only_threads_that_need_it() {
    for point in ["trim::killed", "trim::shortened"] {
        stall(point, Holds::EvictorsLock, evict_a_part);
    }
    for point in ["trim::killed", "trim::shortened", "pool::set"] {
        stall(point, Holds::EvictorsLock, evict_all);
    }
    stall("trim::killed", Holds::EvictorsLock, clear);
    stall("trim::shortened", Holds::EvictorsLock, reserve_evicting);
}

/// What is dead is unlinked after the lock.
#[test]
fn a_thread_that_stops_before_it_unlinks_holds_up_no_thread() {
    for victim in [evict_all, clear, reserve_evicting] {
        stall("trim::unlink", Holds::Nothing, victim);
    }
}

#[test]
fn a_run_that_a_stopped_match_has_a_point_on_is_trimmed_no_further() {
    for point in ["lease::published", "lease::bumped"] {
        let (cache, empty) = cache();
        let gate = Gate::default();
        let armed = arm(point, {
            let gate = gate.clone();
            move || gate.stop()
        });
        thread::scope(|scope| {
            let _opening = Opening(&gate);
            let stopped = scope.spawn(|| {
                let user = User::of(&cache);
                as_victim(|| user.session.match_prefix(&user.space, &sequence(0, 2)))
            });
            gate.wait_for_arrival();
            cache.evict(usize::MAX);
            gate.open();
            let found = stopped.join().expect("it goes on");
            let free = accounts(&cache)[0];
            assert_eq!(cache.capacity_blocks() - free, found.blocks().len(), "exactly what it leased stayed");
            assert_eq!(found.blocks().len(), 2);
        });
        drop(armed);
        check_nothing_lost(&cache, empty);
    }
}

/// A thread that gives a prefix a priority stops before it pushes the point. Another thread retains
/// the prefix, relies on that push, and releases its lease. A waiter learns of the retention's
/// deadline, although the push wakes nobody.
// Holds: WA11.
#[test]
fn a_retention_that_another_thread_passes_on_reaches_a_waiter() {
    let (cache, _) = cache();
    let user = User::of(&cache);
    let held = user.matched(&sequence(1, BLOCKS));
    cache.settle();
    let others = user.session.reserve(CAPACITY - BLOCKS).expect("the others can go");
    let gate = Gate::default();
    let armed = arm("queue::push", {
        let gate = gate.clone();
        move || gate.stop()
    });
    thread::scope(|scope| {
        let opening = Opening(&gate);
        let marking = scope.spawn(|| {
            let user = User::of(&cache);
            let lease = user.matched(&sequence(1, BLOCKS));
            as_victim(|| user.session.prioritize(&lease, Priority::new(50)));
            lease
        });
        gate.wait_for_arrival();
        user.session.retain(&held, Duration::from_millis(200)).expect("it is cached");
        drop(held);
        let waiting = scope.spawn(|| {
            let request = BlockRequest::new(BLOCKS).until(Instant::now() + STUCK);
            cache.session().reserve(request).map(|blocks| blocks.len())
        });
        while cache.stats().waiting_requests == 0 {
            thread::yield_now();
        }
        // It sleeps.
        thread::sleep(Duration::from_millis(20));
        drop(opening);
        drop(marking.join().expect("no panic"));
        assert_eq!(waiting.join().expect("no panic"), Ok(BLOCKS));
    });
    drop((armed, others));
}
