//! The schedulers' admission: which request is tried, which is aborted, which thread is woken (R13).
//!
//! Property: two schedulers admit what one would, in its order; an abort that is accepted is listed once, by the
//! scheduler in whose hands the request was, and nothing of it is published after the abort has returned; who sleeps
//! because a request was refused is woken by whatever lets one be admitted. A wake-up that is lost is a deadlock, which
//! the checker reports.
//!
//! Edges: none of its own; the queue's locks order whatever admission does.
//!
//! Teeth: no turn; blocks given back before the request has its place; publishing although the request was aborted; an
//! insert behind the abort's back; a preempted request put back although it was aborted; an aborted request that nobody
//! lists; an end, or an abort of the head, that wakes nobody.
#![cfg(radixkv_loom)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{explore, spawn};
use radixkv::scheduler::{Aborted, Finish, QueueConfig, Request, Scheduler, SchedulerConfig, SequenceId, WaitingQueue};
use radixkv::{Namespace, PrefixCache, Token};

struct Office {
    cache: PrefixCache,
    space: Namespace,
    queue: WaitingQueue,
    listed: Mutex<Vec<SequenceId>>,
}

impl Office {
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

    /// One step; false if there was nothing to do.
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

    /// Serves until every request has ended, and sleeps in between.
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

/// Two blocks, which the head needs, and a request behind it that one block would do for: whichever scheduler tries
/// first, the head is admitted and the other one is not.
#[test]
fn two_schedulers_and_the_head() {
    explore("admission: schedule vs schedule", || {
        let office = Office::new(2);
        let head = office.submit(&[1, 2]);
        office.submit(&[5]);
        let first_served = |office: &Office| -> Vec<SequenceId> {
            office.scheduler().schedule().batch().sequences().map(|scheduled| scheduled.id).collect()
        };
        let beside = spawn({
            let office = Arc::clone(&office);
            move || first_served(&office)
        });
        let served = [first_served(&office), beside.join().unwrap()].concat();
        assert!(!served.is_empty(), "the head is not admitted");
        assert!(served.iter().all(|&id| id == head), "admitted past the head");
        office.serve();
        office.close();
    });
}

/// A request is aborted while `then` happens to it in its scheduler's hands, after its first step.
fn aborted_while(then: impl Fn(&Office, &mut Scheduler, SequenceId) + Send + Sync + Copy + 'static) {
    let office = Office::new(4);
    let prompt = [1, 2, 3];
    let id = office.submit(&prompt);
    let mut scheduler = office.scheduler();
    assert!(office.step(&mut scheduler));
    let aborts = spawn({
        let office = Arc::clone(&office);
        move || {
            let aborted = office.queue.abort(id);
            (aborted, office.cache.session().peek(&office.space, &prompt))
        }
    });
    then(&office, &mut scheduler, id);
    let (aborted, published) = aborts.join().unwrap();
    let accepted = aborted == Aborted::Served;
    while office.step(&mut scheduler) {}
    if accepted {
        assert_eq!(office.cache.session().peek(&office.space, &prompt), published, "published after the abort");
    }
    let expected = if accepted { vec![id] } else { vec![] };
    assert_eq!(*office.listed.lock().unwrap(), expected);
    drop(scheduler);
    office.close();
}

#[test]
fn an_abort_against_a_step() {
    explore("admission: abort vs complete", || {
        aborted_while(|office, scheduler, _| {
            office.step(scheduler);
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

/// One scheduler holds all blocks until it is done, the other one sleeps until then.
#[test]
fn an_end_against_a_sleeper() {
    explore("admission: finish vs wait", || {
        let office = Office::new(2);
        office.submit(&[1]);
        let mut owner = office.scheduler();
        let step = owner.schedule();
        office.submit(&[5, 6]);
        let sleeper = spawn({
            let office = Arc::clone(&office);
            move || office.serve()
        });
        let id = step.complete(&[7]).unwrap()[0];
        owner.finish(id, Finish::keeping(0)).unwrap();
        drop(owner);
        sleeper.join().unwrap();
        office.close();
    });
}

/// The head is refused for as long as a block is held elsewhere; what waits behind it is admitted when it is aborted.
#[test]
fn an_abort_of_the_head_against_a_sleeper() {
    explore("admission: abort the head vs wait", || {
        let office = Office::new(2);
        let held = office.cache.session().reserve(1).unwrap();
        let head = office.submit(&[1, 2]);
        office.submit(&[5]);
        let sleeper = spawn({
            let office = Arc::clone(&office);
            move || office.serve()
        });
        assert!(matches!(office.queue.abort(head), Aborted::Waiting { .. }));
        sleeper.join().unwrap();
        drop(held);
        office.close();
    });
}
