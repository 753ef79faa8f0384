//! An eviction sink panics inside an insert: the inserted blocks are no longer held, and may be
//! evicted and reserved by others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use radixkv::{EvictedBatch, EvictionSink, PrefixCache, Quota};
use radixkv_scheduler::{Finish, QueueConfig, Scheduler, SequenceId};

use crate::engine::{World, continued, sequence};

/// Panics once when it is armed.
struct Sink(Arc<AtomicBool>);

impl EvictionSink for Sink {
    fn take(&self, _: EvictedBatch) {
        assert!(!self.0.swap(false, SeqCst), "the sink panics");
    }
}

/// A full namespace: each insert evicts a block, and calls the sink.
fn world() -> (World, Arc<AtomicBool>) {
    let armed = Arc::new(AtomicBool::new(false));
    let world =
        World::with(PrefixCache::builder(4, 40).eviction_sink(Sink(Arc::clone(&armed))), QueueConfig::default());
    world.space.set_quota(Quota::default().cached_blocks(6));
    world.submit(&sequence(9, 24), 1);
    world.finish_all(&mut world.scheduler(1, 64));
    (world, armed)
}

/// Runs `insert` with the armed sink. Then others overwrite every block that is not held.
fn panics(world: &World, armed: &AtomicBool, insert: impl FnOnce()) {
    armed.store(true, SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(insert)).is_err());
    assert!(!armed.load(SeqCst), "the sink was called");
    world.cache.settle();
    world.cache.evict(usize::MAX);
    let free = world.cache.session().reserve(world.cache.stats().free_blocks).expect("free");
    free.blocks().iter().for_each(|&block| world.memory.spoil(block));
}

// Holds: SC5.
#[test]
fn a_panic_in_complete_loses_no_token() {
    for before in 0..4 {
        let (world, armed) = world();
        let mut scheduler = world.scheduler(4, 5);
        let prompts = [sequence(1, 18), sequence(2, 7)];
        let ids = prompts.each_ref().map(|prompt| world.submit(prompt, 7));
        world.steps(before, &mut scheduler, &mut Vec::new());
        let step = scheduler.schedule();
        let sampled = world.memory.run(&step);
        panics(&world, &armed, || drop(step.complete(&sampled)));
        let done = world.finish_all(&mut scheduler);
        for (id, prompt) in ids.iter().zip(&prompts) {
            assert_eq!(done[id].tokens, continued(prompt, 7), "after {before} steps");
        }
        world.rest();
    }
}

// Holds: SC5.
#[test]
fn a_sequence_goes_on_after_a_panic_between_two_steps() {
    type Insert = fn(&mut Scheduler, SequenceId);
    let inserts: [Insert; 3] = [
        |scheduler, id| _ = scheduler.preempt(id),
        |scheduler, id| drop(scheduler.fork(id, 20, 1)),
        |scheduler, id| drop(scheduler.finish(id, Finish::keeping(20))),
    ];
    for insert in inserts {
        let (world, armed) = world();
        let mut scheduler = world.scheduler(4, 64);
        let prompt = sequence(1, 18);
        let id = world.submit(&prompt, 9);
        world.steps(3, &mut scheduler, &mut Vec::new());
        assert_eq!(scheduler.sequence(id).expect("served").computed_len(), 20);
        panics(&world, &armed, || insert(&mut scheduler, id));
        assert_eq!(scheduler.sequence(id).expect("served").computed_len(), 16);
        assert_eq!(world.finish_all(&mut scheduler)[&id].tokens, continued(&prompt, 9));
        world.rest();
    }
}

/// The step has made its copies when an insert panics: their destinations may belong to others
/// afterwards.
// Holds: SC5.
#[test]
fn no_copy_is_made_again_after_a_panic() {
    let (world, armed) = world();
    let mut scheduler = world.scheduler(4, 64);
    let id = world.submit(&sequence(1, 18), 9);
    world.step(&mut scheduler, &mut Vec::new());
    let fork = scheduler.fork(id, 18, 1).expect("room for one")[0];
    world.submit(&sequence(2, 8), 9);
    let step = scheduler.schedule();
    assert_eq!(step.batch().copies().len(), 1);
    let sampled = world.memory.run(&step);
    panics(&world, &armed, || drop(step.complete(&sampled)));
    assert!(scheduler.schedule().batch().copies().is_empty());
    assert_eq!(world.finish_all(&mut scheduler)[&fork].tokens, continued(&sequence(1, 18), 9));
    world.rest();
}
