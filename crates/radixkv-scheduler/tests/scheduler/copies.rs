//! Copies that are not made: their sources are given back, and nothing is copied into blocks that
//! have new owners.

use std::mem;

use radixkv_scheduler::{Finish, Scheduler, SchedulerConfig, SequenceId};

use crate::engine::{World, continued, sequence};

const CAPACITY: usize = 12;

/// A parent that has computed a block in part, and a fork that is to copy it with the next step.
fn parent_and_fork() -> (World, Scheduler, [SequenceId; 2]) {
    let world = World::new(4, CAPACITY);
    let mut scheduler = world.scheduler(4, 64);
    let id = world.submit(&sequence(1, 18), 9);
    world.step(&mut scheduler, &mut Vec::new());
    let fork = scheduler.fork(id, 18, 1).expect("room for one")[0];
    (world, scheduler, [id, fork])
}

/// A request that needs the whole pool is admitted, though no step has been computed since.
fn the_whole_pool_is_to_be_had(world: &World, scheduler: &mut Scheduler) {
    let id = world.submit(&sequence(9, 4 * CAPACITY), 1);
    let step = scheduler.schedule();
    assert!(step.sequence(id).is_some(), "blocks are held for copies that are not made");
    drop(step);
    let done = world.finish_all(scheduler);
    assert_eq!(done[&id].tokens, continued(&sequence(9, 4 * CAPACITY), 1));
    world.rest();
}

#[test]
fn sources_go_with_the_last_destination() {
    for fate in 0..5 {
        for parent_first in [false, true] {
            let (world, mut scheduler, [parent, fork]) = parent_and_fork();
            for id in if parent_first { [parent, fork] } else { [fork, parent] } {
                match fate {
                    0 => drop(scheduler.abort(id)),
                    1 => drop(scheduler.finish(id, Finish::keeping(0)).expect("served")),
                    2 => drop(scheduler.finish(id, Finish::keeping(17)).expect("served")),
                    3 => {
                        assert!(scheduler.preempt(id));
                        world.queue.abort(id);
                    }
                    _ => drop(world.queue.abort(id)),
                }
            }
            assert!(scheduler.schedule().is_empty(), "fate {fate}");
            the_whole_pool_is_to_be_had(&world, &mut scheduler);
        }
    }
}

/// The same, where the step that would have copied was dropped or forgotten.
#[test]
fn sources_go_with_the_last_destination_of_a_step_that_was_not_computed() {
    for forgotten in [false, true] {
        let (world, mut scheduler, ids) = parent_and_fork();
        let step = scheduler.schedule();
        assert_eq!(step.batch().copies().len(), 1);
        if forgotten {
            mem::forget(step)
        } else {
            drop(step)
        }
        ids.iter().for_each(|&id| drop(scheduler.abort(id)));
        the_whole_pool_is_to_be_had(&world, &mut scheduler);
    }
}

#[test]
fn a_partial_hit_goes_with_the_sequence_that_was_to_copy_it() {
    let world = World::new(4, CAPACITY);
    let config = SchedulerConfig::default().max_running(2).min_copied_tokens(1);
    let mut scheduler = world.scheduler_of(config);
    world.submit(&sequence(1, 16), 1);
    world.finish_all(&mut scheduler);
    let id = world.submit(&[&sequence(1, 14)[..], &[7, 8, 9]].concat(), 2);
    let step = scheduler.schedule();
    assert_eq!(step.batch().copies().len(), 1);
    drop(step);
    scheduler.abort(id);
    the_whole_pool_is_to_be_had(&world, &mut scheduler);
}

/// A forgotten step was not computed: when a sequence ends after it, its pending copies end before
/// its blocks are given back.
// Holds: SC16.
#[test]
fn a_forgotten_step_leaves_no_copy_into_blocks_that_were_given_back() {
    for fate in 0..4 {
        let (world, mut scheduler, [parent, fork]) = parent_and_fork();
        mem::forget(scheduler.schedule());
        match fate {
            0 => drop(scheduler.abort(fork)),
            1 => drop(scheduler.finish(fork, Finish::keeping(0)).expect("served")),
            2 => assert!(scheduler.preempt(fork)),
            _ => drop(scheduler.fork(fork, 18, 1).map(|_| scheduler.abort(fork)).expect("room for one more")),
        }
        let step = scheduler.schedule();
        for copy in step.batch().copies() {
            let written = |id: SequenceId| {
                let scheduled = step.batch().sequences().find(|scheduled| scheduled.id == id);
                scheduled.is_some_and(|scheduled| scheduled.block_table.contains(&copy.destination))
            };
            assert!(!written(parent), "fate {fate}");
            assert!(step.batch().sequences().any(|scheduled| written(scheduled.id)), "fate {fate}: {copy:?}");
        }
        assert_eq!(step.batch().copies().len(), usize::from(fate == 3), "fate {fate}");
        drop(step);
        let done = world.finish_all(&mut scheduler);
        assert!(done.values().all(|finished| finished.tokens == continued(&sequence(1, 18), 9)));
        world.rest();
    }
}

/// Sources that only the parent had stay for the forks that copy them, whichever other sequences
/// have ended.
#[test]
fn a_source_stays_for_those_that_are_left() {
    for forgotten in [false, true] {
        let (world, mut scheduler, [parent, fork]) = parent_and_fork();
        let second = scheduler.fork(parent, 18, 1).expect("room for one more")[0];
        if forgotten {
            mem::forget(scheduler.schedule());
        }
        scheduler.abort(fork);
        scheduler.finish(parent, Finish::keeping(0)).expect("served");
        world.cache.evict(CAPACITY);
        let free = world.cache.stats().free_blocks;
        let taken = world.cache.session().reserve(free).expect("free");
        taken.blocks().iter().for_each(|&block| world.memory.spoil(block));
        world.step(&mut scheduler, &mut Vec::new());
        drop(taken);
        assert_eq!(world.finish_all(&mut scheduler)[&second].tokens, continued(&sequence(1, 18), 9));
        world.rest();
    }
}
