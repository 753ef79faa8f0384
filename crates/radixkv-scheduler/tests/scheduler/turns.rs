//! Several schedulers and one queue: requests are admitted in the order in which one scheduler
//! alone would admit them.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use radixkv::{Lease, PrefixCache, Token};
use radixkv_scheduler::{Finish, Order, QueueConfig, Request, SequenceId, Step};

use crate::engine::{World, sequence};

/// Blocks that are cached and leased by the test, so that a lookup of a prompt takes a while.
const CACHED: usize = 20_000;
/// Blocks that requests share.
const ROOM: usize = 64;

/// A cache of blocks of one token, with [`CACHED`] of them in place.
fn world_with_cached(order: Order) -> (World, Vec<Token>, Lease) {
    let config = QueueConfig::default().order(order).age_bound(u64::MAX);
    let world = World::with(PrefixCache::builder(1, CACHED + ROOM), config);
    let (session, cached) = (world.cache.session(), sequence(1, CACHED));
    let blocks = session.reserve(CACHED).expect("free");
    let inserted = session.insert(session.match_prefix(&world.space, &cached).lease(), &cached, blocks);
    let lease = inserted.expect("sound").lease;
    (world, cached, lease)
}

/// Serves until no request is left, and shows `each` what every step computes.
fn serve(world: &World, each: impl Fn(&Step<'_>)) {
    let mut scheduler = world.scheduler(8, 256);
    while world.queue.unfinished_requests() > 0 {
        let step = scheduler.schedule();
        if step.is_empty() {
            drop(step);
            thread::yield_now();
            continue;
        }
        each(&step);
        let sampled: Vec<_> = step.batch().logits_rows().iter().map(|_| 7).collect();
        for id in step.complete(&sampled).expect("a token for each row") {
            scheduler.finish(id, Finish::keeping(0)).expect("served");
        }
    }
}

fn on_threads(threads: usize, body: impl Fn() + Sync) {
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(&body))));
}

/// A request that needs all blocks, among small ones; whether a request that the order puts after
/// it was admitted first.
fn is_overtaken(order: Order, threads: usize) -> bool {
    let (world, cached, lease) = world_with_cached(order);
    let submit = |tokens: Vec<Token>, priority: i32| {
        let mut request = Request::new(world.space.clone(), tokens, 3);
        (request.priority, request.publish) = (priority, false);
        world.queue.submit(request).expect("sound")
    };
    for key in 0..24 {
        submit(sequence(10 + key, 8), 2);
    }
    let large = submit([&cached[..], &sequence(2, ROOM - 2)].concat(), 1);
    let behind: HashSet<SequenceId> = (0..60).map(|key| submit(sequence(200 + key, 8), 0)).collect();
    let (served, overtaken) = (AtomicBool::new(false), AtomicBool::new(false));
    on_threads(threads, || {
        serve(&world, |step| {
            let mut ids = step.batch().sequences().map(|scheduled| scheduled.id);
            // While the large request is served there is no block for another.
            if ids.any(|id| behind.contains(&id)) && !served.load(Relaxed) {
                overtaken.store(true, Relaxed);
            }
            if step.batch().sampling().any(|id| id == large) {
                served.store(true, Relaxed);
            }
        });
    });
    drop(lease);
    world.rest();
    overtaken.load(Relaxed)
}

// Holds: SC23.
#[test]
fn nothing_overtakes_what_another_scheduler_tries() {
    for order in [Order::Fcfs, Order::Priority] {
        for threads in 2..=4 {
            let overtaken = (0..40).filter(|_| is_overtaken(order, threads)).count();
            assert_eq!(overtaken, 0, "{order:?}, {threads} schedulers: overtaken in {overtaken} of 40 runs");
        }
    }
}

/// The order in which requests are admitted to a pool that has room for one at a time: each shares
/// some of what is cached, and has a priority.
fn admitted(order: Order, threads: usize, requests: &[(usize, i32)]) -> Vec<SequenceId> {
    let (world, cached, lease) = world_with_cached(order);
    for (i, &(shared, priority)) in requests.iter().enumerate() {
        let own = sequence(2 + i as u32 % 3, ROOM / 2 + 1 + i % 7);
        let mut request = Request::new(world.space.clone(), [&cached[..shared], &own].concat(), 2);
        (request.priority, request.publish) = (priority, false);
        world.queue.submit(request).expect("sound");
    }
    let log = Mutex::new(Vec::new());
    on_threads(threads, || {
        serve(&world, |step| {
            assert_eq!(step.batch().len(), 1, "there is room for one");
            let scheduled = step.batch().sequence(0);
            if scheduled.tokens.len() > 1 {
                log.lock().expect("no panic").push(scheduled.id);
            }
        });
    });
    drop(lease);
    world.rest();
    log.into_inner().expect("no panic")
}

/// Property: the order of admission does not depend on how many schedulers there are.
// Holds: SC23.
#[test]
fn several_schedulers_admit_in_the_order_of_one() {
    for seed in 0..if cfg!(debug_assertions) { 12 } else { 40 } {
        let mut dice = fastrand::Rng::with_seed(seed);
        let requests: Vec<_> = (0..24).map(|_| (dice.usize(..8) * CACHED / 8, dice.i32(-3..4))).collect();
        for order in [Order::Fcfs, Order::LongestPrefix, Order::DfsWeight, Order::Priority] {
            let alone = admitted(order, 1, &requests);
            assert_eq!(alone.len(), requests.len());
            for threads in 2..=4 {
                assert_eq!(admitted(order, threads, &requests), alone, "seed {seed}, {order:?}, {threads} schedulers");
            }
        }
    }
}
