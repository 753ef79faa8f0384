//! `wait`: a scheduler sleeps through no change that may give it work, and nothing else wakes it.

use std::thread;
use std::time::Duration;

use radixkv::{BlockRequest, PrefixCache, Quota, Reservation};
use radixkv_scheduler::{Aborted, Finish, ForkError, Order, QueueConfig, Request, SequenceId};

use crate::engine::{World, sequence};

const SHORT: Duration = Duration::from_millis(20);
/// Longer than any thread is delayed.
const LONG: Duration = Duration::from_secs(60);

const ORDERS: [Order; 4] = [Order::Fcfs, Order::LongestPrefix, Order::DfsWeight, Order::Priority];

/// A request waits that needs more blocks than are free beside the held ones.
fn refused(order: Order) -> (World, Reservation) {
    let world = World::with(PrefixCache::builder(4, 8), QueueConfig::default().order(order));
    let held = world.cache.session().reserve(6).expect("free");
    world.submit(&sequence(1, 20), 1);
    (world, held)
}

#[test]
fn a_refused_admission_is_no_change() {
    for order in ORDERS {
        let (world, held) = refused(order);
        let (mut one, mut two) = (world.scheduler(2, 64), world.scheduler(2, 64));
        for scheduler in [&mut one, &mut two] {
            assert!(scheduler.schedule().is_empty());
            assert!(!scheduler.wait(SHORT), "{order:?}: nothing has changed, and it does not sleep");
        }
        assert!(!one.wait(SHORT), "{order:?}: the refusal of another scheduler is no change");
        drop(held);
        world.finish_all(&mut one);
        world.rest();
    }
}

/// Requests after the first one may be admitted when that one is aborted.
// Holds: SC24.
#[test]
fn an_aborted_head_wakes() {
    for order in ORDERS {
        let (world, held) = refused(order);
        let mut scheduler = world.scheduler(2, 64);
        let head = SequenceId::from(0);
        world.submit(&sequence(2, 4), 1);
        assert!(scheduler.schedule().is_empty() || order != Order::Fcfs);
        thread::scope(|scope| {
            let aborts = scope.spawn(|| world.queue.abort(head));
            assert!(scheduler.wait(LONG), "{order:?}");
            assert!(matches!(aborts.join().expect("no panic"), Aborted::Waiting { .. }));
        });
        drop(held);
        world.finish_all(&mut scheduler);
        world.rest();
    }
}

#[test]
fn the_longest_timeout_is_not_too_long() {
    let world = World::new(4, 8);
    let mut scheduler = world.scheduler(1, 64);
    let century = Duration::from_secs(100 * 365 * 86_400);
    for patience in [century, Duration::from_secs(i64::MAX as u64 / 2), Duration::from_secs(u64::MAX), Duration::MAX] {
        assert!(scheduler.schedule().is_empty());
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(SHORT);
                world.submit(&sequence(1, 4), 1)
            });
            assert!(scheduler.wait(patience));
        });
        world.finish_all(&mut scheduler);
        assert!(scheduler.wait(patience), "its own request ended since the last step was scheduled");
        assert!(scheduler.schedule().is_empty());
        assert!(!scheduler.wait(Duration::ZERO));
    }
    world.rest();
}

/// More equal prompts than one pass tries, while another scheduler computes their prefix: after an
/// empty step that has not tried all of them the scheduler does not sleep.
#[test]
fn a_pass_that_was_cut_short_goes_on() {
    for order in ORDERS {
        let world = World::with(PrefixCache::builder(4, 256), QueueConfig::default().order(order));
        let (mut owner, mut other) = (world.scheduler(1, 4), world.scheduler(1, 64));
        let shared = sequence(1, 40);
        let mut request = Request::new(world.space.clone(), shared.clone(), 1);
        request.priority = 1;
        world.queue.submit(request.clone()).expect("sound");
        let mut done = Vec::new();
        world.step(&mut owner, &mut done);
        for _ in 0..1_000 {
            world.queue.submit(request.clone()).expect("sound");
        }
        let stranger = world.submit(&sequence(2, 40), 1);
        let mut empty = 0;
        while other.running().is_empty() {
            let step = other.schedule();
            if step.is_empty() {
                drop(step);
                empty += 1;
                assert!(other.wait(Duration::ZERO), "{order:?}: there is more to try after {empty} empty steps");
            } else {
                assert!(step.sequence(stranger).is_some());
            }
        }
        assert!(empty >= 1_000 / 65, "{order:?}: a step skips more requests than it may, {empty} steps were empty");
        drop(owner);
        world.finish_all(&mut other);
        world.rest();
    }
}

/// Another sequence has published the same tokens first: the sequence's own blocks return to the
/// pool while it continues.
// Holds: SC24.
#[test]
fn blocks_that_another_sequence_has_published_wake() {
    let world = World::new(4, 4);
    let (mut owner, mut other) = (world.scheduler(1, 64), world.scheduler(1, 64));
    let (session, shared) = (world.cache.session(), sequence(1, 8));
    world.submit(&shared, 1);
    let step = owner.schedule();
    let miss = session.match_prefix(&world.space, &shared);
    let first = session.insert(miss.lease(), &shared, session.reserve(2).expect("free")).expect("sound");
    world.submit(&sequence(2, 8), 1);
    assert!(other.schedule().is_empty());
    assert!(!other.wait(Duration::ZERO));
    let sampled = world.memory.run(&step);
    let full = step.complete(&sampled).expect("a token for each row");
    assert!(other.wait(Duration::ZERO), "two blocks are free");
    assert_eq!(other.schedule().batch().len(), 1);
    drop((miss, first));
    full.into_iter().for_each(|id| drop(owner.finish(id, Finish::keeping(0))));
    world.finish_all(&mut other);
    world.rest();
}

/// The owner of a claim leases blocks that others have published: who waits for these goes on.
// Holds: SC24.
#[test]
fn a_claim_is_committed_by_blocks_that_others_publish() {
    let world = World::new(4, 64);
    let (mut owner, mut other) = (world.scheduler(1, 4), world.scheduler(1, 64));
    let (session, shared) = (world.cache.session(), sequence(1, 40));
    let first = world.submit(&shared, 1);
    world.step(&mut owner, &mut Vec::new());
    let second = world.submit(&[&shared[..20], &sequence(2, 20)].concat(), 1);
    assert!(other.schedule().is_empty());
    assert!(!other.wait(Duration::ZERO));
    let hit = session.match_prefix(&world.space, &shared);
    drop(session.insert(hit.lease(), &shared[..36], session.reserve(8).expect("free")).expect("sound"));
    let step = owner.schedule();
    assert_eq!(step.batch().positions(), [36, 37, 38, 39]);
    assert!(other.wait(Duration::ZERO), "its shared blocks are cached");
    drop(step);
    assert_eq!(other.schedule().batch().positions()[0], 20);
    drop(hit);
    owner.abort(first);
    other.abort(second);
    world.rest();
}

/// A released request of a quota line waits for a claim: the next one of its line may go on.
// Holds: SC24.
#[test]
fn a_line_goes_on_while_its_first_request_waits_for_a_claim() {
    for order in ORDERS {
        let world = World::with(PrefixCache::builder(4, 64), QueueConfig::default().order(order));
        let tenant = world.cache.namespace(&["tenant"]);
        tenant.set_quota(Quota::default().pinned_blocks(24));
        let held = world.cache.session().reserve(BlockRequest::new(24).paid_by(&tenant)).expect("within");
        let (mut owner, mut other) = (world.scheduler(1, 4), world.scheduler(1, 64));
        for tokens in [sequence(1, 40), sequence(1, 40), sequence(2, 8)] {
            world.queue.submit(Request::new(tenant.clone(), tokens, 1)).expect("sound");
        }
        assert!(other.schedule().is_empty());
        drop(held);
        world.step(&mut owner, &mut Vec::new());
        assert_eq!(owner.running().len(), 1);
        while other.schedule().is_empty() {
            assert!(other.wait(Duration::ZERO), "{order:?}: another request of the line fits");
        }
        drop(owner);
        world.finish_all(&mut other);
        world.rest();
    }
}

/// A request of a quota line is admitted: another scheduler may admit the next one of its line.
// Holds: SC24.
#[test]
fn a_line_goes_on_in_another_scheduler() {
    for order in ORDERS {
        let world = World::with(PrefixCache::builder(4, 64), QueueConfig::default().order(order));
        let tenant = world.cache.namespace(&["tenant"]);
        tenant.set_quota(Quota::default().pinned_blocks(24));
        let held = world.cache.session().reserve(BlockRequest::new(24).paid_by(&tenant)).expect("within");
        let (mut owner, mut other) = (world.scheduler(1, 64), world.scheduler(1, 64));
        for key in 1..=2 {
            world.queue.submit(Request::new(tenant.clone(), sequence(key, 8), 1)).expect("sound");
        }
        assert!(other.schedule().is_empty());
        drop(held);
        assert_eq!(owner.schedule().batch().len(), 1);
        assert!(other.wait(Duration::ZERO), "{order:?}: the second request of the line is ready");
        assert_eq!(other.schedule().batch().len(), 1);
        drop(owner);
        world.finish_all(&mut other);
        world.rest();
    }
}

/// More quota lines than one step tries: after a change, each of them is tried before the scheduler
/// sleeps.
// Holds: SC24.
#[test]
fn every_line_is_tried_after_a_change() {
    for order in ORDERS {
        let tenants = 100;
        let world = World::with(PrefixCache::builder(4, 512), QueueConfig::default().order(order));
        let mut held = Vec::new();
        for i in 0..tenants {
            let tenant = world.cache.namespace(&[i.to_string().as_str()]);
            tenant.set_quota(Quota::default().pinned_blocks(2));
            let blocks = BlockRequest::new(2).paid_by(&tenant);
            held.push(Some(world.cache.session().reserve(blocks).expect("within")));
            world.queue.submit(Request::new(tenant, sequence(i, 4), 1)).expect("sound");
        }
        let mut scheduler = world.scheduler(1, 64);
        while scheduler.schedule().is_empty() && scheduler.wait(Duration::ZERO) {}
        for i in (0..tenants as usize).rev().step_by(9) {
            held[i] = None;
            world.queue.abort(world.submit(&sequence(999, 4), 1));
            while scheduler.schedule().is_empty() {
                assert!(scheduler.wait(Duration::ZERO), "{order:?}: {i} was not tried");
            }
            let mut done = Vec::new();
            world.step(&mut scheduler, &mut done);
            assert_eq!(done[0].tokens[..4], sequence(i as u32, 4));
        }
        held.clear();
        world.finish_all(&mut scheduler);
        world.rest();
    }
}

/// An engine that tries a fork again in each step may sleep between two tries.
#[test]
fn a_refused_fork_is_no_change() {
    let world = World::new(4, 6);
    let (mut scheduler, mut other) = (world.scheduler(4, 64), world.scheduler(1, 64));
    let id = world.submit(&sequence(1, 18), 2);
    world.step(&mut scheduler, &mut Vec::new());
    assert!(other.schedule().is_empty());
    assert!(matches!(scheduler.fork(id, 18, 3), Err(ForkError::NoBlocks(_))));
    assert!(!other.wait(Duration::ZERO), "no block was released");
    world.finish_all(&mut scheduler);
    world.rest();
}

/// Threads that sleep whenever there is nothing to do: every change that gives one of them work
/// wakes it. There are few blocks, so that most sequences that end are what another thread waits
/// for.
// Holds: SC24.
#[test]
fn no_thread_sleeps_through_what_lets_it_go_on() {
    for seed in 0..if cfg!(debug_assertions) { 40 } else { 200 } {
        let order = ORDERS[seed as usize % ORDERS.len()];
        let world = World::with(PrefixCache::builder(4, 24), QueueConfig::default().order(order));
        let mut dice = fastrand::Rng::with_seed(seed);
        for _ in 0..60 {
            let shared = sequence(dice.u32(1..3), dice.usize(..40));
            let own = sequence(dice.u32(10..20), dice.usize(1..30));
            world.submit(&[shared, own].concat(), dice.usize(1..12));
        }
        thread::scope(|scope| {
            for thread in 0..3 {
                let (world, mut dice) = (&world, fastrand::Rng::with_seed(seed << 8 | thread));
                scope.spawn(move || {
                    let mut scheduler = world.scheduler(1 + thread as u32, 8);
                    while world.queue.unfinished_requests() > 0 {
                        let step = scheduler.schedule();
                        if step.is_empty() {
                            drop(step);
                            // The last request may have ended before this step.
                            let done = world.queue.unfinished_requests() == 0;
                            assert!(done || scheduler.wait(LONG), "seed {seed}, {order:?}: slept through");
                            continue;
                        }
                        let sampled = world.memory.run(&step);
                        for id in step.complete(&sampled).expect("a token for each row") {
                            scheduler.finish(id, Finish::keeping(0)).expect("served");
                        }
                        let Some(id) = dice.choice(scheduler.running()).map(|sequence| sequence.id()) else { continue };
                        match dice.u8(..30) {
                            0 => drop(scheduler.preempt(id)),
                            1 => drop(scheduler.abort(id)),
                            2 => drop(world.queue.abort(SequenceId::from(dice.u64(..60)))),
                            3 => drop(scheduler.fork(id, 1, 1)),
                            4 => scheduler = world.scheduler(1 + thread as u32, 8),
                            _ => {}
                        }
                    }
                });
            }
        });
        world.rest();
    }
}
