//! Requests that share a prefix: each token of it is computed once, by one of them, whenever they
//! come.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use radixkv::{PrefixCache, Token};
use radixkv_scheduler::{Finished, QueueConfig, SchedulerConfig};

use crate::engine::{World, continued, sequence};

const REQUESTS: usize = 32;
const SHARED: usize = 2_500;
const NEW_TOKENS: usize = 8;

/// Prompts of 2,500 shared tokens and `tail` of their own.
fn prompts(tail: usize) -> Vec<Vec<Token>> {
    (0..REQUESTS).map(|key| [sequence(1, SHARED), sequence(100 + key as u32, tail)].concat()).collect()
}

/// Shared tokens that were computed, given that each request computed its tail and its output.
fn shared_computed(done: &[Finished], tail: usize) -> usize {
    let own = tail + NEW_TOKENS - 1;
    done.iter().map(|finished| finished.computed_len - own).sum()
}

/// All 32 requests come at one instant and are served by `threads` schedulers; how many shared
/// tokens they computed.
fn at_one_instant(block_size: usize, tail: usize, threads: usize) -> usize {
    let blocks_each = (SHARED % block_size + tail + NEW_TOKENS).div_ceil(block_size);
    let bound = SHARED / block_size + REQUESTS * blocks_each;
    let world = World::with(PrefixCache::builder(block_size, 2 * bound), QueueConfig::default());
    let prompts = prompts(tail);
    let ids: Vec<_> = prompts.iter().map(|prompt| world.submit(prompt, NEW_TOKENS)).collect();
    let serve = |done: &mut Vec<Finished>| {
        let mut scheduler = world.scheduler(32, 512);
        while world.queue.unfinished_requests() > 0 {
            if world.step(&mut scheduler, done) == 0 {
                scheduler.wait(Duration::from_millis(20));
            }
        }
    };
    let done: Vec<Finished> = thread::scope(|scope| {
        let serving = (0..threads).map(|_| {
            scope.spawn(|| {
                let mut done = Vec::new();
                serve(&mut done);
                done
            })
        });
        let serving: Vec<_> = serving.collect();
        serving.into_iter().flat_map(|thread| thread.join().expect("no read was wrong")).collect()
    });
    assert_eq!(done.len(), REQUESTS);
    for finished in &done {
        let at = ids.iter().position(|id| *id == finished.id).expect("submitted");
        assert_eq!(finished.tokens, continued(&prompts[at], NEW_TOKENS));
    }
    let peak = world.memory.peak.load(Relaxed);
    assert!(peak <= bound, "{peak} blocks in use; one shared prefix and the tails are {bound}");
    let computed: usize = done.iter().map(|finished| finished.computed_len).sum();
    assert_eq!(world.memory.computed.load(Relaxed), computed);
    world.rest();
    shared_computed(&done, tail)
}

#[test]
fn one_after_the_other_at_block_16() {
    let world = World::new(16, 1_000);
    let mut scheduler = world.scheduler(32, 512);
    let mut done = Vec::new();
    for prompt in prompts(100) {
        world.submit(&prompt, NEW_TOKENS);
        done.extend(world.finish_all(&mut scheduler).into_values());
    }
    assert_eq!(shared_computed(&done, 100), 2_500 + 31 * 4);
    world.rest();
}

// Holds: SC7.
#[test]
fn at_one_instant_at_block_16() {
    assert_eq!(at_one_instant(16, 100, 1), 2_624);
    assert_eq!(at_one_instant(16, 0, 1), 2_624);
}

#[test]
fn at_one_instant_at_block_1() {
    assert_eq!(at_one_instant(1, 100, 1), 2_500);
    // The last token is always computed.
    assert_eq!(at_one_instant(1, 0, 1), 2_531);
}

// Holds: SC7.
#[test]
fn at_one_instant_from_four_threads() {
    for _ in 0..5 {
        assert_eq!(at_one_instant(16, 100, 4), 2_624);
        assert_eq!(at_one_instant(16, 0, 4), 2_624);
        assert_eq!(at_one_instant(1, 100, 4), 2_500);
        assert_eq!(at_one_instant(1, 0, 4), 2_531);
    }
}

/// A request waits for the blocks that it shares: it goes on when those are published, not when the
/// owner is done.
// Holds: SC8.
#[test]
fn a_waiter_is_woken_by_the_chunk_that_covers_what_it_shares() {
    let world = World::new(4, 256);
    let config = SchedulerConfig::default().max_running(4).max_batch_tokens(64).max_chunk_tokens(16);
    let mut scheduler = world.scheduler_of(config);
    let long = sequence(1, 100);
    let owner = world.submit(&long, 1);
    let waiter = world.submit(&[&long[..22], &sequence(2, 10)].concat(), 1);
    // This one shares less than a block.
    let stranger = world.submit(&[&long[..3], &sequence(3, 2)].concat(), 1);
    let mut done = Vec::new();
    let mut served_at = [usize::MAX; 3];
    for step in 0..8 {
        world.step(&mut scheduler, &mut done);
        for (i, id) in [owner, waiter, stranger].iter().enumerate() {
            if scheduler.sequence(*id).is_some() || done.iter().any(|finished| finished.id == *id) {
                served_at[i] = served_at[i].min(step);
            }
        }
    }
    // Sixteen tokens a step: the 20 shared tokens are published after the second step.
    assert_eq!(served_at, [0, 2, 0]);
    let finished = done.iter().find(|finished| finished.id == waiter).expect("done");
    assert_eq!(finished.computed_len, 32 - 20);
    world.finish_all(&mut scheduler);
    world.rest();
}

// Holds: SC8, SC18.
#[test]
fn waiters_go_on_when_their_owner_does_not() {
    for fate in 0..3 {
        let world = World::new(4, 64);
        let mut scheduler = world.scheduler(4, 8);
        let prompt = sequence(1, 40);
        let owner = world.submit(&prompt, 4);
        let waiters: Vec<_> = (0..3).map(|_| world.submit(&prompt, 4)).collect();
        world.steps(2, &mut scheduler, &mut Vec::new());
        assert_eq!((scheduler.running().len(), world.queue.len()), (1, 3));
        match fate {
            0 => drop(scheduler.abort(owner)),
            1 => assert!(scheduler.preempt(owner)),
            _ => {
                let served = std::panic::AssertUnwindSafe(scheduler);
                let panicking = std::panic::catch_unwind(move || {
                    let _scheduler = served;
                    std::panic::resume_unwind(Box::new("the engine"));
                });
                assert!(panicking.is_err());
                scheduler = world.scheduler(4, 8);
            }
        }
        assert_eq!(scheduler.running().len(), 0);
        let done = world.finish_all(&mut scheduler);
        assert!(waiters.iter().all(|id| done[id].tokens == continued(&prompt, 4)));
        // One of the waiting requests computes what is missing; the others compute its last block.
        let computed: usize = done.values().map(|finished| finished.computed_len - 3).sum();
        let others = done.len() - 1;
        assert_eq!(computed, [40 - 16, 40, 40 - 16 + 16][fate] + 4 * others, "fate {fate}");
        world.rest();
    }
}

/// The acceptance run: 97 shared tokens, 5 tokens of its own, 20 steps.
// Holds: SC25.
#[test]
fn partial_hits_are_copied_if_asked_for() {
    for (block_size, min_copied_tokens, computed) in
        [(16, None, 25), (16, Some(1), 24), (16, Some(2), 25), (64, None, 57), (64, Some(8), 24), (1, Some(1), 24)]
    {
        let world = World::new(block_size, 512);
        let config = SchedulerConfig::default().max_running(2).min_copied_tokens(min_copied_tokens);
        let mut scheduler = world.scheduler_of(config);
        let shared = sequence(1, 97);
        world.submit(&[&shared[..], &sequence(2, 50)].concat(), 1);
        world.finish_all(&mut scheduler);
        let prompt = [&shared[..], &sequence(3, 5)].concat();
        let id = world.submit(&prompt, 20);
        let done = &world.finish_all(&mut scheduler)[&id];
        assert_eq!(done.tokens, continued(&prompt, 20));
        assert_eq!(done.computed_len, computed, "block {block_size}, copies from {min_copied_tokens:?}");
        world.rest();
    }
}
