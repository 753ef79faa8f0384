//! Aborting at every point, from inside and outside.

use radixkv::scheduler::{Aborted, Scheduler, SequenceId};

use crate::engine::{World, continued, sequence};

const PROMPT: usize = 18;

/// A world with one sequence that is served, after `steps` steps, and one that shares its prompt and waits.
fn world_after(steps: usize) -> (World, Scheduler, [SequenceId; 2]) {
    let world = World::new(4, 32);
    let mut scheduler = world.scheduler(4, 5);
    let ids = [world.submit(&sequence(1, PROMPT), 6), world.submit(&[&sequence(1, PROMPT)[..], &[7, 8]].concat(), 6)];
    let mut done = Vec::new();
    world.steps(steps, &mut scheduler, &mut done);
    assert!(done.is_empty());
    (world, scheduler, ids)
}

/// What is left goes on as if nothing had been.
fn the_other_is_served(world: &World, mut scheduler: Scheduler, other: SequenceId) {
    let done = world.finish_all(&mut scheduler);
    assert_eq!(done.keys().collect::<Vec<_>>(), [&other]);
    let shared = [&sequence(1, PROMPT)[..], &[7, 8]].concat();
    let prompt = if done[&other].prompt_len == PROMPT { &shared[..PROMPT] } else { &shared };
    assert_eq!(done[&other].tokens, continued(prompt, 6));
    world.rest();
}

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

#[test]
fn what_waits_is_handed_back() {
    let (world, mut scheduler, ids) = world_after(1);
    // The second waits for the first one's claim; a third waits for its turn.
    let third = world.submit(&sequence(3, 9), 1);
    assert_eq!(world.queue.len(), 2);
    let tokens = [&sequence(1, PROMPT)[..], &[7, 8]].concat();
    assert_eq!(world.queue.abort(ids[1]), Aborted::Waiting { tokens });
    assert_eq!(world.queue.abort(third), Aborted::Waiting { tokens: sequence(3, 9) });
    assert_eq!(world.queue.abort(SequenceId(99)), Aborted::Unknown);
    assert!(world.queue.is_empty());
    world.finish_all(&mut scheduler);
    world.rest();
}
