//! Admission in the scheduler's queue: choosing the next request, aborts, and waking sleeping
//! schedulers.
//!
//! Property: two schedulers together admit requests in the same order as one. An accepted abort is
//! listed once, by the scheduler that served the request, and no more of the request's blocks are
//! published after the abort has returned. A scheduler that sleeps because a request was refused is
//! woken by every change after which a request can be admitted. A lost wake-up is a deadlock, which
//! loom reports.
//!
//! Edges: none; the queue's locks order admission.
//!
//! Seeded bugs: no mutual exclusion of admissions; a request's blocks are given back before its
//! place in the queue is; an aborted request is published; an abort does not wait for an insert in
//! progress; a preempted request is put back although it was aborted; an aborted request is not
//! listed; the end of a request, or an abort of the first one, wakes no scheduler.
#![cfg(radixkv_loom)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{explore, spawn};
use radixkv::{Namespace, PrefixCache, Token};
use radixkv_scheduler::{Aborted, Finish, QueueConfig, Request, Scheduler, SchedulerConfig, SequenceId, WaitingQueue};

/// A cache, a queue over it, and the requests that steps listed as aborted.
struct World {
    cache: PrefixCache,
    space: Namespace,
    queue: WaitingQueue,
    listed: Mutex<Vec<SequenceId>>,
}

impl World {
    fn new(capacity: usize) -> Arc<Self> {
        let cache = PrefixCache::builder(1, capacity).build().unwrap();
        let queue = WaitingQueue::new(&cache, QueueConfig::default());
        Arc::new(Self { space: cache.default_namespace(), queue, cache, listed: Mutex::default() })
    }

    fn submit(&self, tokens: &[Token]) -> SequenceId {
        self.queue.submit(Request::new(self.space.clone(), tokens.to_vec(), 1)).unwrap()
    }

    fn scheduler(&self) -> Scheduler {
        let config = SchedulerConfig::default().max_running(2).max_batch_tokens(2).max_chunk_tokens(1);
        Scheduler::new(&self.queue, config).unwrap()
    }

    /// Runs one step; false if there was nothing to do.
    fn step(&self, scheduler: &mut Scheduler) -> bool {
        let step = scheduler.schedule();
        self.listed.lock().unwrap().extend_from_slice(step.aborted());
        if step.is_empty() {
            return false;
        }
        let sampled: Vec<Token> = step.batch().logits_rows().iter().map(|_| 7).collect();
        for id in step.complete(&sampled).unwrap() {
            scheduler.finish(id, Finish::keeping(0)).unwrap();
        }
        true
    }

    /// Serves until every request has ended; sleeps when there is nothing to do.
    fn serve(&self) {
        let mut scheduler = self.scheduler();
        while self.queue.unfinished_requests() > 0 {
            if !self.step(&mut scheduler) && self.queue.unfinished_requests() > 0 {
                scheduler.wait(Duration::MAX);
            }
        }
    }

    fn close(&self) {
        assert_eq!((self.queue.unfinished_requests(), self.queue.len()), (0, 0));
        self.cache.settle();
        let stats = self.cache.stats();
        assert_eq!(stats.free_blocks + stats.evictable_blocks, stats.capacity_blocks);
        self.cache.validate().unwrap();
    }
}

/// The first request needs both blocks, the second needs one. Whichever scheduler tries first, only
/// the first request is admitted.
#[test]
fn two_schedulers_and_the_head() {
    explore("admission: schedule vs schedule", || {
        let world = World::new(2);
        let head = world.submit(&[1, 2]);
        world.submit(&[5]);
        let first_served = |world: &World| -> Vec<SequenceId> {
            world.scheduler().schedule().batch().sequences().map(|scheduled| scheduled.id).collect()
        };
        let beside = spawn({
            let world = Arc::clone(&world);
            move || first_served(&world)
        });
        let served = [first_served(&world), beside.join().unwrap()].concat();
        assert!(!served.is_empty(), "the first request is not admitted");
        assert!(served.iter().all(|&id| id == head), "admitted past the first request");
        world.serve();
        world.close();
    });
}

/// Aborts a request after its first step, while its scheduler runs `then` on it.
fn aborted_while(then: impl Fn(&World, &mut Scheduler, SequenceId) + Send + Sync + Copy + 'static) {
    let world = World::new(4);
    let prompt = [1, 2, 3];
    let id = world.submit(&prompt);
    let mut scheduler = world.scheduler();
    assert!(world.step(&mut scheduler));
    let aborts = spawn({
        let world = Arc::clone(&world);
        move || {
            let aborted = world.queue.abort(id);
            (aborted, world.cache.session().peek(&world.space, &prompt))
        }
    });
    then(&world, &mut scheduler, id);
    let (aborted, published) = aborts.join().unwrap();
    let accepted = aborted == Aborted::Served;
    while world.step(&mut scheduler) {}
    if accepted {
        assert_eq!(world.cache.session().peek(&world.space, &prompt), published, "published after the abort");
    }
    let expected = if accepted { vec![id] } else { vec![] };
    assert_eq!(*world.listed.lock().unwrap(), expected);
    drop(scheduler);
    world.close();
}

#[test]
fn an_abort_against_a_step() {
    explore("admission: abort vs complete", || {
        aborted_while(|world, scheduler, _| {
            world.step(scheduler);
        });
    });
}

#[test]
fn an_abort_against_a_preemption() {
    explore("admission: abort vs preempt", || {
        aborted_while(|_, scheduler, id| {
            scheduler.preempt(id);
        });
    });
}

#[test]
fn an_abort_against_a_finish() {
    explore("admission: abort vs finish", || {
        aborted_while(|_, scheduler, id| {
            scheduler.finish(id, Finish::keeping(1)).unwrap();
        });
    });
}

/// One scheduler holds all blocks until its request ends; the other scheduler sleeps until then.
#[test]
fn an_end_against_a_sleeper() {
    explore("admission: finish vs wait", || {
        let world = World::new(2);
        world.submit(&[1]);
        let mut owner = world.scheduler();
        let step = owner.schedule();
        world.submit(&[5, 6]);
        let sleeper = spawn({
            let world = Arc::clone(&world);
            move || world.serve()
        });
        let id = step.complete(&[7]).unwrap()[0];
        owner.finish(id, Finish::keeping(0)).unwrap();
        drop(owner);
        sleeper.join().unwrap();
        world.close();
    });
}

/// The first request is refused while a reservation holds a block; the second is admitted when the
/// first is aborted.
#[test]
fn an_abort_of_the_head_against_a_sleeper() {
    explore("admission: abort the head vs wait", || {
        let world = World::new(2);
        let held = world.cache.session().reserve(1).unwrap();
        let head = world.submit(&[1, 2]);
        world.submit(&[5]);
        let sleeper = spawn({
            let world = Arc::clone(&world);
            move || world.serve()
        });
        assert!(matches!(world.queue.abort(head), Aborted::Waiting { .. }));
        sleeper.join().unwrap();
        drop(held);
        world.close();
    });
}
