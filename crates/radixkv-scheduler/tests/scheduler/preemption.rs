//! Preemption, by a call and for lack of blocks, and resuming.

use radixkv_scheduler::Finished;

use crate::engine::{World, continued, sequence};

// Holds: SC4, SC14.
#[test]
fn at_every_step_it_goes_on_where_it_was() {
    let prompt = sequence(1, 18);
    for steps in 1..10 {
        let world = World::new(4, 32);
        let mut scheduler = world.scheduler(2, 5);
        let id = world.submit(&prompt, 7);
        let mut done = Vec::new();
        world.steps(steps, &mut scheduler, &mut done);
        let computed = scheduler.sequence(id).expect("not done yet").computed_len();
        assert!(scheduler.preempt(id));
        assert!(!scheduler.preempt(id));
        assert_eq!((scheduler.free_slots(), world.queue.len()), (2, 1));
        // Nothing is held while it waits; its whole blocks are cached.
        world.cache.settle();
        let stats = world.cache.stats();
        assert_eq!((stats.reserved_blocks, stats.protected_blocks, stats.evictable_blocks), (0, 0, computed / 4));
        let finished = &world.finish_all(&mut scheduler)[&id];
        assert_eq!(finished.tokens, continued(&prompt, 7), "after {steps} steps");
        assert_eq!((finished.cached_len, finished.computed_len), (0, 24 + computed % 4), "after {steps} steps");
        world.rest();
    }
}

// Holds: SC14.
#[test]
fn it_resumes_from_what_is_left_after_an_eviction() {
    let world = World::new(4, 32);
    let mut scheduler = world.scheduler(2, 32);
    let prompt = sequence(1, 18);
    let id = world.submit(&prompt, 7);
    world.step(&mut scheduler, &mut Vec::new());
    scheduler.preempt(id);
    assert_eq!(world.cache.evict(3), 3);
    let finished = &world.finish_all(&mut scheduler)[&id];
    assert_eq!(finished.tokens, continued(&prompt, 7));
    assert_eq!(finished.computed_len, 18 + (24 - 4));
    world.rest();
}

// Holds: IV3.
#[test]
fn a_sequence_says_that_its_blocks_were_invalidated() {
    let world = World::new(4, 32);
    let mut scheduler = world.scheduler(2, 32);
    let prompt = sequence(1, 18);
    world.submit(&prompt, 7);
    world.finish_all(&mut scheduler);
    let id = world.submit(&prompt, 7);
    world.step(&mut scheduler, &mut Vec::new());
    assert!(!scheduler.is_invalidated(id));
    let session = world.cache.session();
    let wrong = session.match_prefix(&world.cache.default_namespace(), &prompt).blocks()[1];
    assert!(world.cache.invalidate_blocks(&[wrong]) > 0);
    assert!(scheduler.is_invalidated(id));
    scheduler.abort(id);
    assert!(!scheduler.is_invalidated(id), "it is served no more");
    world.rest();
}

/// Each request fits alone, all together do not: the youngest is preempted, and all are served.
// Holds: SC14.
#[test]
fn a_pool_too_small_for_all_serves_all() {
    for (block_size, capacity, chunk) in [(4, 16, 8), (4, 13, 64), (1, 52, 7), (16, 5, 16)] {
        let world = World::new(block_size, capacity);
        let mut scheduler = world.scheduler(6, chunk);
        let prompts: Vec<_> = (0..12).map(|key| sequence(key % 7, 11 + key as usize)).collect();
        let ids: Vec<_> = prompts.iter().map(|prompt| world.submit(prompt, 30)).collect();
        let done = world.finish_all(&mut scheduler);
        let computed: usize = done.values().map(|finished: &Finished| finished.computed_len).sum();
        let needed: usize = prompts.iter().map(|prompt| prompt.len() + 29).sum();
        println!("block size {block_size}: {computed} tokens computed, {needed} needed");
        assert!(computed < 2 * needed, "{computed} of {needed} tokens: sequences preempt each other again and again");
        for (prompt, id) in prompts.iter().zip(ids) {
            assert_eq!(done[&id].tokens, continued(prompt, 30));
        }
        world.rest();
    }
}

/// A match protects the blocks that its own reservation would have to evict: both are given back,
/// and the request waits.
// Holds: SC4.
#[test]
fn a_refused_admission_holds_nothing() {
    let world = World::new(4, 8);
    let mut scheduler = world.scheduler(2, 64);
    world.submit(&sequence(1, 16), 1);
    world.finish_all(&mut scheduler);
    assert_eq!(world.rest(), 4);
    let held = world.cache.session().reserve(4).expect("four are free");
    let prompt = [&sequence(1, 16)[..], &sequence(2, 8)].concat();
    let id = world.submit(&prompt, 1);
    for _ in 0..3 {
        assert!(scheduler.schedule().is_empty());
        world.cache.settle();
        let stats = world.cache.stats();
        assert_eq!((stats.evictable_blocks, stats.reserved_blocks, world.queue.len()), (4, 4, 1));
    }
    drop(held);
    assert_eq!(world.finish_all(&mut scheduler)[&id].cached_len, 16);
    world.rest();
}

/// The cache refuses a chunk, because it was cleared meanwhile. The request is served again from a
/// lease in the cleared cache, and publishes there.
#[test]
fn a_request_publishes_again_after_a_refused_insert() {
    let world = World::new(4, 64);
    let mut scheduler = world.scheduler(4, 4);
    let prompt = sequence(1, 24);
    let id = world.submit(&prompt, 4);
    let mut done = Vec::new();
    let peek = || world.cache.session().peek(&world.space, &prompt);
    world.step(&mut scheduler, &mut done);
    assert_eq!(peek(), 4);
    world.cache.clear();
    world.step(&mut scheduler, &mut done);
    assert_eq!(peek(), 0, "its lease protects nothing that is cached");
    assert!(scheduler.preempt(id));
    assert_eq!(world.finish_all(&mut scheduler)[&id].tokens, continued(&prompt, 4));
    assert_eq!(peek(), 24);
    world.rest();
}
