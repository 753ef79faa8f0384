//! Forks: whole blocks are shared; of the last block, the tokens in use are copied.

use radixkv_scheduler::{Finish, Request};

use crate::engine::{World, continued, sequence};

// Holds: SC15.
#[test]
fn forks_share_whole_blocks_and_copy_the_rest() {
    let world = World::new(4, 64);
    let mut scheduler = world.scheduler(8, 64);
    let prompt = sequence(1, 18);
    let id = world.submit(&prompt, 9);
    let mut done = Vec::new();
    world.steps(2, &mut scheduler, &mut done);
    // 19 tokens are computed, a twentieth is sampled: four whole blocks, and three tokens to copy.
    let forks = scheduler.fork(id, 20, 3).expect("room for three");
    let step = scheduler.schedule();
    let copies = step.batch().copies().to_vec();
    assert_eq!(copies.iter().map(|copy| copy.tokens).collect::<Vec<_>>(), [3; 3]);
    assert!(copies.iter().all(|copy| copy.source == copies[0].source));
    assert_eq!((step.batch().len(), step.batch().tokens().len()), (4, 4));
    let tables: Vec<_> = step.batch().sequences().map(|scheduled| scheduled.block_table.to_vec()).collect();
    assert!(tables.iter().all(|table| table[..4] == tables[0][..4]));
    let stats = world.cache.stats();
    assert_eq!(stats.capacity_blocks - stats.free_blocks, 4 + 4);
    let sampled = world.memory.run(&step);
    step.complete(&sampled).expect("a token for each row");
    let done = world.finish_all(&mut scheduler);
    for id in forks.iter().chain([&id]) {
        assert_eq!(done[id].tokens, continued(&prompt, 9));
    }
    assert_eq!(done[&forks[0]].cached_len, 19);
    world.rest();
}

#[test]
fn a_fork_at_the_prompts_end_samples_from_the_same_logits() {
    for (block_size, len) in [(4, 18), (4, 16), (1, 5), (16, 7)] {
        let world = World::new(block_size, 64);
        let mut scheduler = world.scheduler(4, 64);
        let prompt = sequence(1, len);
        let id = world.submit(&prompt, 5);
        world.step(&mut scheduler, &mut Vec::new());
        let forks = scheduler.fork(id, len, 2).expect("room for two");
        let done = world.finish_all(&mut scheduler);
        assert_eq!(done[&id].computed_len, len + 4);
        for fork in &forks {
            assert_eq!((&done[fork].tokens, done[fork].computed_len), (&continued(&prompt, 5), 5));
        }
        world.rest();
    }
}

/// A fork of any length, at any time, whatever happens to the parent before the copies are made.
// Holds: SC15.
#[test]
fn a_parent_may_go_before_its_blocks_are_copied() {
    for steps in 1..9 {
        for len in 1..20 {
            for fate in 0..4 {
                let world = World::new(4, 24);
                let mut scheduler = world.scheduler(4, 5);
                let prompt = sequence(1, 18);
                let mut request = Request::new(world.space.clone(), prompt.clone(), 8);
                request.publish = fate != 3;
                let id = world.queue.submit(request).expect("sound");
                let mut done = Vec::new();
                world.steps(steps, &mut scheduler, &mut done);
                if len > scheduler.sequence(id).expect("not done yet").tokens().len() {
                    continue;
                }
                let fork = scheduler.fork(id, len, 1).expect("room for one")[0];
                let again = scheduler.fork(fork, len, 1).expect("room for one more")[0];
                match fate {
                    0 => drop(scheduler.abort(id)),
                    1 => drop(scheduler.finish(id, Finish::keeping(0))),
                    2 => assert!(scheduler.preempt(id)),
                    _ => drop(scheduler.abort(fork)),
                }
                // All free blocks are taken at once and written to.
                world.cache.evict(99);
                let free = world.cache.stats().free_blocks;
                let taken = world.cache.session().reserve(free).expect("free");
                taken.blocks().iter().for_each(|&block| world.memory.spoil(block));
                let step = scheduler.schedule();
                let sampled = world.memory.run(&step);
                step.complete(&sampled).expect("a token for each row");
                drop(taken);
                let expected = if len <= 18 { continued(&prompt[..len], 26 - len) } else { continued(&prompt, 8) };
                let done = world.finish_all(&mut scheduler);
                assert_eq!(done[&again].tokens, expected, "{steps} steps, {len} tokens, fate {fate}");
                world.rest();
            }
        }
    }
}

/// Spoils all free blocks, as if other requests had taken them and written to them.
fn spoil_free(world: &World) {
    world.cache.settle();
    let taken = world.cache.session().reserve(world.cache.stats().free_blocks).expect("free");
    taken.blocks().iter().for_each(|&block| world.memory.spoil(block));
}

/// The cache is cleared while the parent runs, and another request publishes the same tokens in
/// other blocks. A fork that leased those would still read the parent's blocks, which its lease
/// does not protect.
#[test]
fn a_fork_after_a_clear_has_the_parents_tokens_in_the_parents_blocks() {
    for again in [false, true] {
        for len in 1..=19 {
            let world = World::new(4, 64);
            let mut scheduler = world.scheduler(4, 64);
            let prompt = sequence(1, 18);
            let id = world.submit(&prompt, 9);
            let mut done = Vec::new();
            world.step(&mut scheduler, &mut done);
            world.cache.clear();
            if again {
                world.submit(&[&prompt[..], &[7]].concat(), 1);
                world.step(&mut scheduler, &mut done);
                assert_eq!(done.len(), 1);
            }
            let fork = scheduler.fork(id, len, 1).expect("room for one")[0];
            scheduler.finish(id, Finish::keeping(0)).expect("served");
            for _ in 0..3 {
                spoil_free(&world);
                world.step(&mut scheduler, &mut done);
            }
            done.extend(world.finish_all(&mut scheduler).into_values());
            let tokens = &done.iter().find(|finished| finished.id == fork).expect("served").tokens;
            let expected = continued(&continued(&prompt, 1)[..len], 27 - len);
            assert_eq!(tokens, &expected, "{len} tokens, published again: {again}");
            world.rest();
        }
    }
}

/// Tokens that were computed before a clear are not published after it, however few a fork copies.
#[test]
fn a_fork_after_a_clear_publishes_nothing_that_was_computed_before() {
    for len in 2..=18 {
        let world = World::new(4, 64);
        let mut scheduler = world.scheduler(4, 64);
        let prompt = sequence(1, 18);
        let id = world.submit(&prompt, 9);
        world.step(&mut scheduler, &mut Vec::new());
        world.cache.clear();
        scheduler.fork(id, len, 1).expect("room for one");
        world.finish_all(&mut scheduler);
        assert_eq!(world.cache.session().peek(&world.space, &prompt), 0, "{len} tokens");
        world.rest();
    }
}

/// Blocks that a fork copies have no content before a step has copied them: none of them is
/// published until then.
#[test]
fn a_fork_that_ends_before_its_first_step_publishes_nothing_that_was_not_copied() {
    for publish in [false, true] {
        for fate in 0..4 {
            for len in 1..=18 {
                let world = World::new(4, 64);
                let mut scheduler = world.scheduler(4, 64);
                let prompt = sequence(1, 18);
                let mut request = Request::new(world.space.clone(), prompt.clone(), 9);
                request.publish = publish;
                let id = world.queue.submit(request).expect("sound");
                world.step(&mut scheduler, &mut Vec::new());
                world.cache.clear();
                let fork = scheduler.fork(id, len, 1).expect("room for one")[0];
                spoil_free(&world);
                match fate {
                    0 => assert!(scheduler.preempt(fork)),
                    1 => drop(scheduler.finish(fork, Finish::keeping(len - 1)).expect("computed")),
                    2 => drop(scheduler.fork(fork, len, 1).expect("room for one more")),
                    _ => {
                        drop(scheduler.fork(fork, len, 1).expect("room for one more"));
                        assert!(scheduler.preempt(fork));
                    }
                }
                let peeked = world.cache.session().peek(&world.space, &prompt);
                assert_eq!(peeked, 0, "fate {fate}, {len} tokens: published before it was copied");
                world.finish_all(&mut scheduler);
                let beside = world.submit(&prompt, 2);
                assert_eq!(world.finish_all(&mut scheduler)[&beside].tokens, continued(&prompt, 2));
                world.rest();
            }
        }
    }
}

/// A cached block of the parent is withdrawn, because its content is wrong. Forks neither share nor
/// copy it, nor what the parent computed after it.
// Holds: IV3.
#[test]
fn a_fork_computes_from_the_first_invalidated_block_on() {
    for steps in [1, 4] {
        for wrong in 0..4 {
            for len in 1..=19 {
                let world = World::new(4, 64);
                let mut scheduler = world.scheduler(4, 64);
                let prompt = sequence(1, 18);
                let id = world.submit(&prompt, 9);
                let mut done = Vec::new();
                world.steps(steps, &mut scheduler, &mut done);
                let blocks = world.cache.session().match_prefix_untouched(&world.space, &prompt).blocks().to_vec();
                assert!(world.cache.invalidate_blocks(&blocks[wrong..=wrong]) > 0);
                blocks[wrong..].iter().for_each(|&block| world.memory.spoil(block));
                let fork = scheduler.fork(id, len, 1).expect("room for one")[0];
                assert!(!scheduler.is_invalidated(fork), "{len} tokens, block {wrong}");
                assert!(scheduler.sequence(fork).expect("served").computed_len() <= 4 * wrong);
                scheduler.abort(id);
                done.extend(world.finish_all(&mut scheduler).into_values());
                let tokens = &done.iter().find(|finished| finished.id == fork).expect("served").tokens;
                assert_eq!(tokens, &continued(&continued(&prompt, 1)[..len], 27 - len), "{len} tokens, block {wrong}");
                world.rest();
            }
        }
    }
}

#[test]
fn zero_forks_hold_nothing() {
    let world = World::new(4, 8);
    let mut scheduler = world.scheduler(2, 64);
    let id = world.submit(&sequence(1, 18), 4);
    world.step(&mut scheduler, &mut Vec::new());
    for len in 1..=19 {
        assert_eq!(scheduler.fork(id, len, 0), Ok(Vec::new()));
    }
    scheduler.finish(id, Finish::keeping(0)).expect("served");
    world.rest();
}
