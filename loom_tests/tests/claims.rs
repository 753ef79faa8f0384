//! Claims in the scheduler's queue: one sequence computes a prefix, and other requests with the
//! prefix wait for it.
//!
//! Property: if several requests have the same prompt, each token except the last is computed once,
//! provided the claim's owner publishes it. Whatever happens to the owner, no request waits
//! forever: a single scheduler always finds work until every request has ended.
//!
//! Edges: none; the queue's lock orders claims, and the cache's edges order the blocks.
//!
//! Seeded bugs: the cache is not checked again after a claim is granted; a claim is committed
//! before its blocks are published; a claim is given up without waking the waiting requests; a
//! waiting request keeps a claim; a commit drops waiting requests whose depth it does not reach; an
//! aborted request waits; an aborted request is put back.
#![cfg(radixkv_loom)]

mod common;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use common::{explore, explore_less, spawn};
use radixkv::{Namespace, PrefixCache, Token};
use radixkv_scheduler::{
    Aborted, Finish, QueueConfig, Request, Scheduler, SchedulerConfig, SequenceId, Step, WaitingQueue,
};

/// A queue, and the number of computations of each prefix.
struct World {
    cache: PrefixCache,
    space: Namespace,
    queue: WaitingQueue,
    computed: Mutex<HashMap<Vec<Token>, usize>>,
}

impl World {
    fn new(capacity: usize) -> Arc<Self> {
        let cache = PrefixCache::builder(1, capacity).build().unwrap();
        let queue = WaitingQueue::new(&cache, QueueConfig::default());
        Arc::new(Self { space: cache.default_namespace(), queue, cache, computed: Mutex::default() })
    }

    fn submit(&self, tokens: &[Token]) -> SequenceId {
        self.queue.submit(Request::new(self.space.clone(), tokens.to_vec(), 1)).unwrap()
    }

    /// A scheduler that runs one sequence at a time and computes one token in each step.
    fn scheduler(&self) -> Scheduler {
        let config = SchedulerConfig::default().max_running(1).max_batch_tokens(1);
        Scheduler::new(&self.queue, config).unwrap()
    }

    fn compute(&self, step: &Step<'_>) -> Vec<Token> {
        for scheduled in step.batch().sequences() {
            let tokens = step.sequence(scheduled.id).unwrap().tokens();
            for end in scheduled.start + 1..=scheduled.context_len() {
                *self.computed.lock().unwrap().entry(tokens[..end].to_vec()).or_default() += 1;
            }
        }
        step.batch().logits_rows().iter().map(|_| 7).collect()
    }

    /// Runs one step; false if there was nothing to do.
    fn step(&self, scheduler: &mut Scheduler) -> bool {
        let step = scheduler.schedule();
        if step.is_empty() {
            return false;
        }
        let sampled = self.compute(&step);
        for id in step.complete(&sampled).unwrap() {
            scheduler.finish(id, Finish::keeping(0)).unwrap();
        }
        true
    }

    /// Serves the remaining requests on one scheduler, and checks that each token was computed
    /// once, except the prompt's last.
    fn end(&self, prompt: &[Token]) {
        let mut scheduler = self.scheduler();
        while self.queue.unfinished_requests() > 0 {
            assert!(self.step(&mut scheduler), "requests are left, and none can be served");
        }
        drop(scheduler);
        for (prefix, &times) in self.computed.lock().unwrap().iter() {
            assert!(times == 1 || prefix == prompt, "{prefix:?} was computed {times} times");
        }
        self.cache.settle();
        let stats = self.cache.stats();
        assert_eq!(stats.free_blocks + stats.evictable_blocks, stats.capacity_blocks);
        self.cache.validate().unwrap();
    }
}

/// Runs two schedulers. After its first step, the first runs `then` on its sequence; the second
/// runs two steps.
fn two_schedulers(prompt: &'static [Token], then: impl Fn(&World, &mut Scheduler) + Send + Sync + Copy + 'static) {
    let world = World::new(2 * prompt.len());
    for _ in 0..2 {
        world.submit(prompt);
    }
    let first = spawn({
        let world = Arc::clone(&world);
        move || {
            let mut scheduler = world.scheduler();
            world.step(&mut scheduler);
            then(&world, &mut scheduler);
        }
    });
    let second = spawn({
        let world = Arc::clone(&world);
        move || {
            let mut scheduler = world.scheduler();
            let _ = world.step(&mut scheduler) && world.step(&mut scheduler);
        }
    });
    first.join().unwrap();
    second.join().unwrap();
    world.end(prompt);
}

#[test]
fn the_owner_commits() {
    explore_less("claims: commit vs ask", || {
        two_schedulers(&[1, 2], |world, scheduler| {
            world.step(scheduler);
        });
    });
}

// Holds: SC8.
#[test]
fn the_owner_is_aborted() {
    explore_less("claims: abort vs ask", || {
        two_schedulers(&[1, 2, 3], |_, scheduler| {
            if let Some(id) = scheduler.running().first().map(|sequence| sequence.id()) {
                assert_eq!(scheduler.abort(id), Aborted::Served);
            }
        });
    });
}

#[test]
fn the_owner_is_preempted() {
    explore_less("claims: preempt vs ask", || {
        two_schedulers(&[1, 2, 3], |_, scheduler| {
            if let Some(id) = scheduler.running().first().map(|sequence| sequence.id()) {
                assert!(scheduler.preempt(id));
            }
        });
    });
}

/// The scheduler is dropped together with its sequence, as after a panic.
#[test]
fn the_owners_scheduler_is_dropped() {
    explore_less("claims: drop vs ask", || two_schedulers(&[1, 2, 3], |_, _| {}));
}

/// One request waits for the second chunk, another for the third.
#[test]
fn waiters_of_two_depths() {
    explore_less("claims: two commits vs ask", || {
        let world = World::new(8);
        world.submit(&[1, 2, 3, 4]);
        let mut owner = world.scheduler();
        assert!(world.step(&mut owner));
        world.submit(&[1, 2, 8]);
        world.submit(&[1, 2, 3, 9]);
        let beside = spawn({
            let world = Arc::clone(&world);
            move || {
                world.step(&mut world.scheduler());
            }
        });
        // This thread owns the owner's scheduler, and continues its steps.
        while owner.running().len() == 1 {
            assert!(world.step(&mut owner));
        }
        drop(owner);
        beside.join().unwrap();
        world.end(&[1, 2, 3, 4]);
    });
}

/// Aborts a request with the prompt `asks` while a scheduler tries it. Another request is being
/// served and holds three of `capacity` blocks.
fn an_abort_against_a_scheduler(capacity: usize, asks: &[Token]) {
    let world = World::new(capacity);
    world.submit(&[1, 2, 3]);
    let mut owner = world.scheduler();
    assert!(world.step(&mut owner));
    let asks = world.submit(asks);
    let beside = spawn({
        let world = Arc::clone(&world);
        move || assert!(world.scheduler().schedule().is_empty())
    });
    let aborts = spawn({
        let world = Arc::clone(&world);
        move || world.queue.abort(asks)
    });
    assert_ne!(aborts.join().unwrap(), Aborted::Unknown);
    beside.join().unwrap();
    while owner.running().len() == 1 {
        assert!(world.step(&mut owner));
    }
    drop(owner);
    assert_eq!(world.queue.unfinished_requests(), 0, "an aborted request is still there");
    world.end(&[1, 2, 3]);
}

#[test]
fn an_abort_against_waiting() {
    explore("claims: abort vs waiting", || an_abort_against_a_scheduler(6, &[1, 2, 3]));
}

#[test]
fn an_abort_against_putting_back() {
    explore("claims: abort vs refused blocks", || an_abort_against_a_scheduler(3, &[5, 6]));
}
