//! Sleeping until there may be something to do: nothing that may give work is slept through, and nothing else wakes.

use std::thread;
use std::time::Duration;

use radixkv::scheduler::{Aborted, Order, QueueConfig, Request};
use radixkv::{PrefixCache, Reservation};

use crate::engine::{World, sequence};

const SHORT: Duration = Duration::from_millis(20);
/// Longer than any machine is late.
const LONG: Duration = Duration::from_secs(60);

const ORDERS: [Order; 4] = [Order::Fcfs, Order::LongestPrefix, Order::DfsWeight, Order::Priority];

/// A request waits that needs more blocks than are left beside what somebody holds.
fn refused(order: Order) -> (World, Reservation) {
    let world = World::with(PrefixCache::builder(4, 8), QueueConfig { order, ..QueueConfig::default() });
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
        assert!(!one.wait(SHORT), "{order:?}: another one's refusal is no change");
        drop(held);
        world.finish_all(&mut one);
        world.rest();
    }
}

/// What waits behind the head may be admitted when that is gone.
#[test]
fn an_aborted_head_wakes() {
    for order in ORDERS {
        let (world, held) = refused(order);
        let mut scheduler = world.scheduler(2, 64);
        let head = radixkv::scheduler::SequenceId(0);
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
fn the_longest_patience_is_none_too_long() {
    let world = World::new(4, 8);
    let mut scheduler = world.scheduler(1, 64);
    assert!(scheduler.schedule().is_empty());
    thread::scope(|scope| {
        scope.spawn(|| world.submit(&sequence(1, 4), 1));
        assert!(scheduler.wait(Duration::MAX));
    });
    world.finish_all(&mut scheduler);
    assert!(scheduler.wait(Duration::MAX), "its own request ended since the last step was scheduled");
    world.rest();
}

/// More equal prompts than one pass tries, behind one that another scheduler computes: an empty step that has not
/// looked at all of them does not put its scheduler to sleep.
#[test]
fn a_pass_that_was_cut_short_goes_on() {
    for order in ORDERS {
        let world = World::with(PrefixCache::builder(4, 256), QueueConfig { order, ..QueueConfig::default() });
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
        drop(owner);
        world.finish_all(&mut other);
        world.rest();
    }
}
