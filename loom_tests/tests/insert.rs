//! Inserts in parallel with the kill of the parent point, an insert of the same sequence, and
//! inserts that branch off elsewhere.
//!
//! Property: a run is never attached to a dead point, where it would be lost. One of two equal
//! sequences is published, and the other's blocks are returned once. Runs that branch off at
//! different or equal depths are all found afterwards.
//!
//! Edges: E1 (a run's publication), E2 (a child keeps its point), E6 (the branch point's proof).
//!
//! Seeded bugs: the child is counted after the lease on its parent is released; a branch is
//! attached to a point that is not proved; the loser's blocks are given back twice or not at all; a
//! run ends inside a block.
#![cfg(radixkv_loom)]

mod common;

use common::{Actor, World, explore, explore_less, explore_order, spawn};
use radixkv::Token;

/// Inserts in parallel with `evict(want)`. The inserted sequences stay leased until they are
/// checked; then everything is evicted.
fn inserts_against_an_eviction(
    size: usize,
    capacity: usize,
    cached: &[&[Token]],
    inserted: &'static [&'static [Token]],
    want: usize,
) {
    let world = World::with(size, capacity, cached);
    let writers: Vec<_> = inserted
        .iter()
        .map(|&tokens| {
            let world = world.clone();
            spawn(move || Actor::new(&world).insert(tokens))
        })
        .collect();
    world.beside(move |world| world.cache.evict(want));
    let held: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let actor = Actor::new(&world);
    for (&tokens, held) in inserted.iter().zip(&held) {
        let found = actor.find(tokens);
        assert_eq!(found.len_tokens(), tokens.len());
        assert!(found.blocks().ends_with(&held.blocks));
    }
    let returned: usize = held.iter().map(|held| held.duplicates.len()).sum();
    let distinct: std::collections::BTreeSet<_> =
        inserted.iter().flat_map(|tokens| (1..=tokens.len() / size).map(|n| &tokens[..n * size])).collect();
    world.rest(distinct.len(), returned);
    drop((held, actor));
    world.close();
}

#[test]
fn a_run_against_the_kill_of_its_point() {
    explore("insert 1,2 vs evict 1", || inserts_against_an_eviction(1, 4, &[&[1]], &[&[1, 2]], 1));
}

/// The parent's lease is released immediately, so only the child keeps the parent.
#[test]
fn a_run_and_its_lease_against_kills() {
    explore("insert 1,2 from a lease, release both vs evict 2", || {
        let world = World::with(1, 4, &[&[1]]);
        let lease = Actor::new(&world).find(&[1]).into_lease();
        let writer = spawn({
            let world = world.clone();
            move || {
                let inserted = Actor::new(&world).insert_from(&lease, &[1, 2]);
                drop(lease);
                drop(inserted);
            }
        });
        let freed = world.beside(move |world| world.cache.evict(2));
        writer.join().unwrap();
        assert!(freed <= 2);
        world.rest(0, 0);
        assert_eq!(world.close(), 2 - freed);
    });
}

// Holds: IN2.
#[test]
fn the_same_sequence_twice() {
    explore("insert 1,2 vs insert 1,2", || {
        let world = World::new(1, 4);
        let writers = [0; 2].map(|_| {
            let world = world.clone();
            spawn(move || Actor::new(&world).insert(&[1, 2]))
        });
        let [a, b] = writers.map(|writer| writer.join().unwrap());
        // One insert may have run after the other and found everything cached.
        let (winner, loser) = if a.duplicates.is_empty() && a.blocks.len() == 2 { (&a, &b) } else { (&b, &a) };
        assert!(winner.duplicates.is_empty());
        assert!(loser.duplicates.len() == loser.blocks.len());
        assert!(winner.blocks.ends_with(&loser.blocks));
        world.rest(2, loser.duplicates.len());
        drop((a, b));
        assert_eq!(world.close(), 2);
    });
}

// Holds: IN5.
#[test]
fn runs_that_part_at_different_depths() {
    explore_less("insert 1,5 vs insert 1,2,6", || {
        inserts_against_an_eviction(1, 6, &[&[1, 2, 3]], &[&[1, 5], &[1, 2, 6]], 0);
    });
}

#[test]
fn two_points_created_at_one_depth() {
    explore_order("insert 1,5 vs insert 1,6", || {
        inserts_against_an_eviction(1, 5, &[&[1, 2]], &[&[1, 5], &[1, 6]], 0);
    });
}

/// Both branches need the same point inside a block.
// Holds: IN5.
#[test]
fn two_branches_inside_a_block() {
    explore_order("insert 1,5 vs insert 1,6 in blocks of 2", || {
        inserts_against_an_eviction(2, 4, &[&[1, 2]], &[&[1, 5], &[1, 6]], 0);
    });
}

/// The point inside a block is created on a run that is being trimmed.
#[test]
fn a_branch_inside_a_block_against_a_trim() {
    explore_less("insert 1,2,3,5 in blocks of 2 vs evict 1", || {
        inserts_against_an_eviction(2, 5, &[&[1, 2, 3, 4]], &[&[1, 2, 3, 5]], 1);
    });
}

/// A walk enters a run that dies before its tokens are read: no branch may be attached at its
/// start.
#[test]
fn a_branch_inside_a_block_against_the_death_of_its_child() {
    explore_order("insert 1,2,3,4,7,9 in blocks of 3 vs evict 2", || {
        inserts_against_an_eviction(3, 4, &[&[1, 2, 3, 4, 5, 6], &[1, 2, 3, 4, 7, 8]], &[&[1, 2, 3, 4, 7, 9]], 2);
    });
}

/// The block boundary below a branch has no statistics, so a trim may mistake it for its own point
/// and remove it. The run must not end inside a block afterwards.
#[test]
fn a_branch_above_a_new_boundary_against_a_trim() {
    explore_order("insert 1,2,3,5 from the root in blocks of 2 vs evict 1", || {
        let world = World::with(2, 5, &[&[1, 2, 3, 4]]);
        let root = Actor::new(&world).find(&[]).into_lease();
        let writer = spawn({
            let world = world.clone();
            move || drop(Actor::new(&world).insert_from(&root, &[1, 2, 3, 5]))
        });
        let mut left = 3 - world.beside(move |world| world.cache.evict(1));
        writer.join().unwrap();
        while left > 0 {
            assert_eq!(world.rest(0, 0).evictable_blocks, left);
            left -= world.cache.evict(1);
        }
        assert_eq!(world.close(), 0);
    });
}
