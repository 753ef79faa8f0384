//! Aborts at every point, by the scheduler and by the queue.

use radixkv::Token;
use radixkv_scheduler::{Aborted, Finish, Request, Scheduler, SequenceId};

use crate::engine::{World, continued, sequence};

const PROMPT: usize = 18;

/// A world with one sequence that is served, after `steps` steps, and one that shares its prompt
/// and waits.
fn world_after(steps: usize) -> (World, Scheduler, [SequenceId; 2]) {
    let world = World::new(4, 32);
    let mut scheduler = world.scheduler(4, 5);
    let ids = [world.submit(&sequence(1, PROMPT), 6), world.submit(&[&sequence(1, PROMPT)[..], &[7, 8]].concat(), 6)];
    let mut done = Vec::new();
    world.steps(steps, &mut scheduler, &mut done);
    assert!(done.is_empty());
    (world, scheduler, ids)
}

/// The other request is served as if there had been no abort.
fn the_other_is_served(world: &World, mut scheduler: Scheduler, other: SequenceId) {
    let done = world.finish_all(&mut scheduler);
    assert_eq!(done.keys().collect::<Vec<_>>(), [&other]);
    let shared = [&sequence(1, PROMPT)[..], &[7, 8]].concat();
    let prompt = if done[&other].prompt_len == PROMPT { &shared[..PROMPT] } else { &shared };
    assert_eq!(done[&other].tokens, continued(prompt, 6));
    world.rest();
}

// Holds: SC12.
#[test]
fn between_any_two_steps() {
    for steps in 0..9 {
        for which in [0, 1] {
            let (world, mut scheduler, ids) = world_after(steps);
            assert_ne!(scheduler.abort(ids[which]), Aborted::Unknown, "after {steps} steps");
            assert!(scheduler.sequence(ids[which]).is_none());
            assert_eq!(scheduler.abort(ids[which]), Aborted::Unknown);
            the_other_is_served(&world, scheduler, ids[1 - which]);
        }
    }
}

// Holds: SC12.
#[test]
fn during_any_step_blocks_stay_until_it_is_done() {
    for steps in 0..9 {
        let (world, mut scheduler, ids) = world_after(steps);
        let step = scheduler.schedule();
        let held = step.sequence(ids[0]).is_some();
        let before = world.cache.stats().free_blocks;
        let aborted = world.queue.abort(ids[0]);
        assert_eq!(aborted == Aborted::Served, held, "after {steps} steps");
        assert_eq!(world.queue.abort(ids[0]) == Aborted::Served, held);
        assert_eq!((world.cache.stats().free_blocks, step.sequence(ids[0]).is_some()), (before, held));
        let sampled = world.memory.run(&step);
        step.complete(&sampled).expect("a token for each row");
        let next = scheduler.schedule();
        assert_eq!(next.aborted(), if held { &ids[..1] } else { &[] });
        assert!(next.sequence(ids[0]).is_none());
        drop(next);
        assert!(scheduler.schedule().aborted().is_empty());
        the_other_is_served(&world, scheduler, ids[1]);
    }
}

// Holds: SC12.
#[test]
fn what_waits_is_handed_back() {
    let (world, mut scheduler, ids) = world_after(1);
    // The second request waits for the claim of the first; a third one waits to be admitted.
    let third = world.submit(&sequence(3, 9), 1);
    assert_eq!(world.queue.len(), 2);
    let tokens = [&sequence(1, PROMPT)[..], &[7, 8]].concat();
    assert_eq!(world.queue.abort(ids[1]), Aborted::Waiting { tokens });
    assert_eq!(world.queue.abort(third), Aborted::Waiting { tokens: sequence(3, 9) });
    assert_eq!(world.queue.abort(SequenceId::from(99)), Aborted::Unknown);
    assert!(world.queue.is_empty());
    world.finish_all(&mut scheduler);
    world.rest();
}

/// How many of a request's tokens are published.
fn published(world: &World, tokens: &[Token]) -> usize {
    world.cache.session().peek(&world.space, tokens)
}

/// How often the next steps of a scheduler list a request as aborted.
fn listed(world: &World, scheduler: &mut Scheduler, id: SequenceId) -> usize {
    let mut times = 0;
    for _ in 0..4 {
        let step = scheduler.schedule();
        times += step.aborted().iter().filter(|&&listed| listed == id).count();
        let sampled = world.memory.run(&step);
        step.complete(&sampled).expect("a token for each row");
    }
    times
}

/// An abort of a request that is served is accepted, and again until its scheduler has dropped it.
fn abort_twice(world: &World, id: SequenceId) {
    assert_eq!([world.queue.abort(id), world.queue.abort(id)], [Aborted::Served, Aborted::Served]);
}

/// After an accepted abort no verb publishes anything of the request, and one step lists it.
// Holds: SC13.
#[test]
fn an_accepted_abort_publishes_nothing_and_is_listed_once() {
    for publish in [true, false] {
        for steps in 1..9 {
            for verb in 0..7 {
                let world = World::new(4, 64);
                let mut scheduler = world.scheduler(4, 5);
                let mut request = Request::new(world.space.clone(), sequence(1, PROMPT), 6);
                request.publish = publish;
                let id = world.queue.submit(request).expect("sound");
                world.steps(steps, &mut scheduler, &mut Vec::new());
                let tokens = continued(&sequence(1, PROMPT), 6);
                let before = published(&world, &tokens);
                if verb < 2 {
                    let step = scheduler.schedule();
                    abort_twice(&world, id);
                    let sampled = world.memory.run(&step);
                    let full = step.complete(&sampled).expect("a token for each row");
                    assert_eq!(full, [], "an aborted request is not to be finished");
                } else {
                    abort_twice(&world, id);
                }
                let computed = scheduler.sequence(id).expect("served").computed_len();
                match verb {
                    0 => {}
                    1 | 2 => assert_eq!(scheduler.preempt(id), computed + 1 < PROMPT + 6),
                    3 => drop(scheduler.finish(id, Finish::keeping(computed)).expect("computed")),
                    4 => {
                        let finish = Finish::keeping(computed).demote_output(true);
                        drop(scheduler.finish(id, finish).expect("computed"));
                    }
                    5 => {
                        let fork = scheduler.fork(id, 3, 1).expect("room for one")[0];
                        scheduler.abort(fork);
                    }
                    _ => {
                        drop(scheduler);
                        scheduler = world.scheduler(4, 5);
                    }
                }
                assert_eq!(published(&world, &tokens), before, "verb {verb} after {steps} steps");
                assert_eq!(listed(&world, &mut scheduler, id), 1, "verb {verb} after {steps} steps");
                assert_eq!(published(&world, &tokens), before, "verb {verb} after {steps} steps");
                assert_eq!(world.queue.abort(id), Aborted::Unknown);
                world.rest();
            }
        }
    }
}

/// A sequence is aborted just before its scheduler preempts it for lack of blocks.
// Holds: SC13.
#[test]
fn an_abort_before_a_forced_preemption_is_listed_once() {
    let world = World::new(4, 10);
    let mut scheduler = world.scheduler(2, 64);
    let ids = [1, 2].map(|key| world.submit(&sequence(key, 16), 20));
    for _ in 0..4 {
        let step = scheduler.schedule();
        let sampled = world.memory.run(&step);
        step.complete(&sampled).expect("a token for each row");
    }
    assert_eq!(world.queue.abort(ids[1]), Aborted::Served);
    assert!(scheduler.preempt(ids[1]));
    assert_eq!(world.queue.len(), 0, "it does not wait again");
    assert_eq!(listed(&world, &mut scheduler, ids[1]), 1);
    scheduler.abort(ids[0]);
    world.rest();
}

// Holds: SC16.
#[test]
fn a_forgotten_step_lists_what_it_listed() {
    let (world, mut scheduler, ids) = world_after(2);
    scheduler.abort(ids[0]);
    let step = scheduler.schedule();
    assert_eq!(step.aborted(), &ids[..1]);
    std::mem::forget(step);
    assert!(scheduler.schedule().aborted().is_empty());
    the_other_is_served(&world, scheduler, ids[1]);
}
