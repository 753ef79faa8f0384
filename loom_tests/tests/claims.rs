//! Claims: one sequence computes a prefix, the others wait for it (R13).
//!
//! Property: of a prompt that several ask for, each token but the last is computed once, if its owner lets it be
//! published; whatever becomes of the owner, nobody waits for ever: a scheduler alone always finds something to do
//! until every request has ended.
//!
//! Edges: none of its own; the queue's lock orders whatever claims do, the cache's edges what they are about.
//!
//! Teeth: the cache not looked at again after a claim is granted; a claim committed before its blocks are published; a
//! claim that goes without waking; a claim kept by a request that waits; waiters dropped by a commit that does not
//! reach them; a request that waits although it was aborted; a request put back although it was aborted.
#![cfg(radixkv_loom)]

mod common;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use common::{explore, explore_less, spawn};
use radixkv::scheduler::{
    Aborted, Finish, QueueConfig, Request, Scheduler, SchedulerConfig, SequenceId, Step, WaitingQueue,
};
use radixkv::{Namespace, PrefixCache, Token};

/// A queue, and how often each prefix was computed.
struct Bench {
    cache: PrefixCache,
    space: Namespace,
    queue: WaitingQueue,
    computed: Mutex<HashMap<Vec<Token>, usize>>,
}

impl Bench {
    fn new(capacity: usize) -> Arc<Self> {
        let cache = PrefixCache::builder(1, capacity).build().unwrap();
        let queue = WaitingQueue::new(&cache, QueueConfig::default());
        Arc::new(Self { space: cache.default_namespace(), queue, cache, computed: Mutex::default() })
    }

    fn submit(&self, tokens: &[Token]) -> SequenceId {
        self.queue.submit(Request::new(self.space.clone(), tokens.to_vec(), 1)).unwrap()
    }

    /// One sequence at a time, a token in each step.
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

    /// One step; false if there was nothing to do.
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

    /// Serves what is left, alone, and looks at what was computed: all but the prompt's last token once.
    fn end(&self, prompt: &[Token]) {
        let mut scheduler = self.scheduler();
        while self.queue.unfinished_requests() > 0 {
            assert!(self.step(&mut scheduler), "a request waits for nobody");
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

/// Two schedulers, the first of which does something to what it serves after its first step, the other steps twice.
fn two_schedulers(prompt: &'static [Token], then: impl Fn(&Bench, &mut Scheduler) + Send + Sync + Copy + 'static) {
    let bench = Bench::new(2 * prompt.len());
    for _ in 0..2 {
        bench.submit(prompt);
    }
    let first = spawn({
        let bench = Arc::clone(&bench);
        move || {
            let mut scheduler = bench.scheduler();
            bench.step(&mut scheduler);
            then(&bench, &mut scheduler);
        }
    });
    let second = spawn({
        let bench = Arc::clone(&bench);
        move || {
            let mut scheduler = bench.scheduler();
            let _ = bench.step(&mut scheduler) && bench.step(&mut scheduler);
        }
    });
    first.join().unwrap();
    second.join().unwrap();
    bench.end(prompt);
}

#[test]
fn the_owner_commits() {
    explore_less("claims: commit vs ask", || {
        two_schedulers(&[1, 2], |bench, scheduler| {
            bench.step(scheduler);
        });
    });
}

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

/// As a panic leaves it: the scheduler goes with what it serves.
#[test]
fn the_owners_scheduler_goes() {
    explore_less("claims: drop vs ask", || two_schedulers(&[1, 2, 3], |_, _| {}));
}

/// One waits for the second chunk, one for the third.
#[test]
fn waiters_of_two_depths() {
    explore_less("claims: two commits vs ask", || {
        let bench = Bench::new(8);
        bench.submit(&[1, 2, 3, 4]);
        let mut owner = bench.scheduler();
        assert!(bench.step(&mut owner));
        bench.submit(&[1, 2, 8]);
        bench.submit(&[1, 2, 3, 9]);
        let beside = spawn({
            let bench = Arc::clone(&bench);
            move || {
                bench.step(&mut bench.scheduler());
            }
        });
        // The owner's scheduler belongs to this thread; its steps go on meanwhile.
        while owner.running().len() == 1 {
            assert!(bench.step(&mut owner));
        }
        drop(owner);
        beside.join().unwrap();
        bench.end(&[1, 2, 3, 4]);
    });
}

/// `asks` is aborted while a scheduler has it in its hands, beside another that is served and holds three blocks of
/// `capacity`.
fn an_abort_against_a_scheduler(capacity: usize, asks: &[Token]) {
    let bench = Bench::new(capacity);
    bench.submit(&[1, 2, 3]);
    let mut owner = bench.scheduler();
    assert!(bench.step(&mut owner));
    let asks = bench.submit(asks);
    let beside = spawn({
        let bench = Arc::clone(&bench);
        move || assert!(bench.scheduler().schedule().is_empty())
    });
    let aborts = spawn({
        let bench = Arc::clone(&bench);
        move || bench.queue.abort(asks)
    });
    assert_ne!(aborts.join().unwrap(), Aborted::Unknown);
    beside.join().unwrap();
    while owner.running().len() == 1 {
        assert!(bench.step(&mut owner));
    }
    drop(owner);
    assert_eq!(bench.queue.unfinished_requests(), 0, "an aborted request is still there");
    bench.end(&[1, 2, 3]);
}

#[test]
fn an_abort_against_waiting() {
    explore("claims: abort vs who has to wait", || an_abort_against_a_scheduler(6, &[1, 2, 3]));
}

#[test]
fn an_abort_against_putting_back() {
    explore("claims: abort vs who is refused blocks", || an_abort_against_a_scheduler(3, &[5, 6]));
}
