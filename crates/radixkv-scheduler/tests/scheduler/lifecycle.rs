//! One scheduler, from submission to the end of a request.

use radixkv::{Clock, PrefixCache, Token};
use radixkv_scheduler::{Finish, QueueConfig, Request};

use crate::engine::{World, continued, sequence};

// Holds: SC6.
#[test]
fn a_prompt_is_computed_in_chunks_then_decoded_and_published() {
    let world = World::new(4, 32);
    let mut scheduler = world.scheduler(2, 7);
    let prompt = sequence(1, 18);
    let id = world.submit(&prompt, 5);
    let mut done = Vec::new();
    let computed: Vec<usize> = (0..7).map(|_| world.step(&mut scheduler, &mut done)).collect();
    assert_eq!(computed, [7, 7, 4, 1, 1, 1, 1]);
    assert_eq!(done[0].tokens, continued(&prompt, 5));
    assert_eq!((done[0].id, done[0].prompt_len, done[0].cached_len, done[0].computed_len), (id, 18, 0, 22));
    // 18 of the prompt and 4 of 5: the last one was sampled and never computed.
    assert_eq!(world.rest(), 5);
    assert_eq!(scheduler.free_slots(), 2);
}

#[test]
fn a_second_request_computes_what_the_first_did_not() {
    let world = World::new(4, 32);
    let mut scheduler = world.scheduler(2, 64);
    let prompt = sequence(1, 16);
    for expected in [(0, 16 + 2), (12, 4 + 2)] {
        let id = world.submit(&prompt, 3);
        let done = &world.finish_all(&mut scheduler)[&id];
        assert_eq!(done.tokens, continued(&prompt, 3));
        assert_eq!((done.cached_len, done.computed_len), expected);
    }
    world.rest();
}

// Holds: SC5.
#[test]
fn every_token_of_a_batch_has_a_slot_of_its_own() {
    let world = World::new(4, 64);
    let mut scheduler = world.scheduler(4, 10);
    for key in 0..4 {
        world.submit(&sequence(key, 9 + key as usize), 6);
    }
    while world.queue.unfinished_requests() > 0 {
        let step = scheduler.schedule();
        let batch = step.batch();
        assert_eq!(batch.slot_mapping().len(), batch.tokens().len());
        let mut slots = batch.slot_mapping().to_vec();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), batch.tokens().len(), "two tokens are written to one slot");
        assert_eq!(*batch.token_offsets().last().expect("one more than sequences") as usize, batch.tokens().len());
        let sampled = world.memory.run(&step);
        for id in step.complete(&sampled).expect("a token for each row") {
            scheduler.finish(id, Finish::keeping(0)).expect("full");
        }
    }
    world.rest();
}

// Holds: SC6.
#[test]
fn a_prompt_of_whole_blocks_leaves_one_token_to_compute() {
    for (block_size, recomputed) in [(1, 1), (4, 4), (16, 16)] {
        let world = World::new(block_size, 64);
        let mut scheduler = world.scheduler(1, 64);
        for expected in [32, recomputed] {
            let id = world.submit(&sequence(1, 32), 1);
            assert_eq!(world.finish_all(&mut scheduler)[&id].computed_len, expected);
        }
        world.rest();
    }
}

// Holds: SC9.
#[test]
fn finishing_without_inserting_leaves_the_prompt_alone() {
    let world = World::new(4, 32);
    let mut scheduler = world.scheduler(1, 64);
    let id = world.submit(&sequence(1, 8), 9);
    let mut done = Vec::new();
    world.steps(8, &mut scheduler, &mut done);
    let finish = Finish::keeping(15).insert(false);
    assert_eq!(scheduler.finish(id, finish).expect("computed").tokens, continued(&sequence(1, 8), 8));
    assert_eq!(world.rest(), 2);
}

// Holds: SC9.
#[test]
fn only_committed_tokens_are_published() {
    let world = World::new(4, 32);
    let mut scheduler = world.scheduler(1, 64);
    let id = world.submit(&sequence(1, 6), 20);
    let mut done = Vec::new();
    world.steps(11, &mut scheduler, &mut done);
    assert_eq!(scheduler.sequence(id).map(|sequence| sequence.computed_len()), Some(16));
    scheduler.finish(id, Finish::keeping(13)).expect("computed");
    assert_eq!(world.rest(), 3);
}

// Holds: SC9.
#[test]
fn reasoning_is_cut() {
    let world = World::new(4, 32);
    let mut scheduler = world.scheduler(1, 64);
    let id = world.submit(&sequence(1, 8), 20);
    let mut done = Vec::new();
    world.steps(17, &mut scheduler, &mut done);
    let finish = Finish::keeping(24).reasoning_from(13);
    scheduler.finish(id, finish).expect("computed");
    assert_eq!(world.rest(), 3);
}

/// Output is evicted before its own prompt in any case, and before all other prompts if it is
/// demoted.
// Holds: SC11.
#[test]
fn output_is_evicted_before_prompts() {
    // A logical clock that is not set stands still: a use after the demotion undoes it at the same
    // time too.
    let clocks = [Clock::Monotonic, Clock::Logical];
    for (demote_output, clock) in clocks.into_iter().flat_map(|clock| [(false, clock), (true, clock)]) {
        let cache = PrefixCache::builder(4, 32).clock(clock).build().expect("sound");
        let world = World::over(cache, QueueConfig::default());
        let mut scheduler = world.scheduler(1, 64);
        let mut done = Vec::new();
        let (older, prompt) = (sequence(2, 9), sequence(1, 8));
        world.submit(&older, 1);
        world.finish_all(&mut scheduler);
        let id = world.submit(&prompt, 9);
        world.steps(8, &mut scheduler, &mut done);
        let finish = Finish::keeping(15).demote_output(demote_output);
        let tokens = scheduler.finish(id, finish).expect("computed").tokens;
        let cached = |tokens: &[Token]| world.cache.session().peek(&world.space, tokens);
        assert_eq!((cached(&older), cached(&tokens), world.rest()), (8, 12, 5));
        assert_eq!(world.cache.evict(1), 1);
        assert_eq!((cached(&older), cached(&tokens)), if demote_output { (8, 8) } else { (4, 12) });
        assert_eq!(world.cache.evict(2), 2);
        assert_eq!((cached(&older), cached(&tokens)), (0, 8));
        assert_eq!(world.cache.evict(2), 2);
        world.rest();
    }
}

/// Output is demoted even if an earlier preemption has published it.
// Holds: SC11.
#[test]
fn output_that_a_preemption_published_is_demoted() {
    for insert in [false, true] {
        let world = World::new(4, 32);
        let mut scheduler = world.scheduler(1, 64);
        let mut done = Vec::new();
        let (older, prompt) = (sequence(2, 9), sequence(1, 8));
        world.submit(&older, 1);
        world.finish_all(&mut scheduler);
        let id = world.submit(&prompt, 12);
        world.steps(8, &mut scheduler, &mut done);
        assert!(scheduler.preempt(id));
        world.step(&mut scheduler, &mut done);
        let finish = Finish::keeping(16).insert(insert).demote_output(true);
        let tokens = scheduler.finish(id, finish).expect("computed").tokens;
        let cached = |tokens: &[Token]| world.cache.session().peek(&world.space, tokens);
        assert_eq!((cached(&older), cached(&tokens)), (8, 16));
        assert_eq!(world.cache.evict(2), 2);
        assert_eq!((cached(&older), cached(&tokens)), (8, 8));
        assert_eq!(world.cache.evict(2), 2);
        assert_eq!((cached(&older), cached(&tokens)), (0, 8));
        world.rest();
    }
}

// Holds: SC9.
#[test]
fn a_request_may_opt_out_of_being_published() {
    let world = World::new(4, 32);
    let mut scheduler = world.scheduler(2, 5);
    let prompt = sequence(1, 18);
    for _ in 0..2 {
        let mut request = Request::new(world.space.clone(), prompt.clone(), 3);
        request.publish = false;
        let id = world.queue.submit(request).expect("sound");
        let done = &world.finish_all(&mut scheduler)[&id];
        assert_eq!((&done.tokens, done.cached_len, done.computed_len), (&continued(&prompt, 3), 0, 20));
        assert_eq!(world.rest(), 0);
    }
}

// Holds: SC20.
#[test]
fn slots_are_a_bound_and_requests_wait_for_them() {
    let world = World::new(4, 256);
    let mut scheduler = world.scheduler(3, 64);
    let ids: Vec<_> = (0..10).map(|key| world.submit(&sequence(key, 8), 2 + key as usize % 3)).collect();
    let mut done = Vec::new();
    while world.queue.unfinished_requests() > 0 {
        world.step(&mut scheduler, &mut done);
        assert!(scheduler.running().len() <= 3);
        assert_eq!(scheduler.free_slots() + scheduler.running().len(), 3);
    }
    assert_eq!(done.len(), 10);
    for finished in done {
        let key = ids.iter().position(|&id| id == finished.id).expect("submitted");
        assert_eq!(finished.tokens, continued(&sequence(key as u32, 8), 2 + key % 3));
    }
    world.rest();
}

// Holds: SC16.
#[test]
fn a_step_that_was_not_computed_is_scheduled_again() {
    let world = World::new(4, 32);
    let mut scheduler = world.scheduler(2, 7);
    let prompt = sequence(1, 18);
    let id = world.submit(&prompt, 4);
    let mut done = Vec::new();
    for step in 0.. {
        if world.queue.unfinished_requests() == 0 {
            break;
        }
        let batch = scheduler.schedule().batch().clone();
        assert_eq!(scheduler.schedule().batch(), &batch, "step {step}");
        let step = scheduler.schedule();
        let few = step.complete(&[1, 2, 3, 4, 5]).expect_err("more tokens than rows");
        assert_eq!(few.to_string(), format!("5 tokens given for {} rows of logits", batch.logits_rows().len()));
        world.step(&mut scheduler, &mut done);
    }
    assert_eq!((done[0].id, &done[0].tokens, done[0].computed_len), (id, &continued(&prompt, 4), 21));
    world.rest();
}

// Holds: SC18.
#[test]
fn a_scheduler_that_goes_leaves_its_sequences_to_the_next() {
    let world = World::new(4, 64);
    let prompts: Vec<_> = (0..3).map(|key| sequence(key, 10 + key as usize)).collect();
    let ids: Vec<_> = prompts.iter().map(|prompt| world.submit(prompt, 12)).collect();
    let mut done = Vec::new();
    for steps in 1..5 {
        let mut scheduler = world.scheduler(2, 8);
        world.steps(steps, &mut scheduler, &mut done);
    }
    done.extend(world.finish_all(&mut world.scheduler(2, 8)).into_values());
    for (prompt, id) in prompts.iter().zip(ids) {
        let finished = done.iter().find(|finished| finished.id == id).expect("served");
        assert_eq!(finished.tokens, continued(prompt, 12));
    }
    world.rest();
}

// Holds: SC19.
#[test]
fn a_namespace_dropped_under_a_sequence_stops_nothing_but_publishing() {
    let world = World::new(4, 64);
    let mut scheduler = world.scheduler(2, 6);
    let space = world.cache.namespace(&["adapter"]);
    let prompt = sequence(1, 20);
    let id = world.queue.submit(Request::new(space.clone(), prompt.clone(), 8)).expect("sound");
    let mut done = Vec::new();
    world.steps(2, &mut scheduler, &mut done);
    space.remove();
    let done = &world.finish_all(&mut scheduler)[&id];
    assert_eq!(done.tokens, continued(&prompt, 8));
    assert_eq!(world.rest(), 0);
}
