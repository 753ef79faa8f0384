//! A block is given to another prefix while a late reader looks up its first prefix.
//!
//! Property: a reader that loses the race for a prefix never returns a block that belongs to
//! another prefix. While a lease exists, its blocks are not overwritten.
//!
//! Edges: E2 (release before kill), E9 (blocks through the pool), E1.
//!
//! Seeded bugs: blocks are returned before the length is swapped; `kill` Relaxed; `claim` Relaxed;
//! the lease is not proved.
#![cfg(radixkv_loom)]

mod common;

use common::{Actor, World, explore, explore_less, spawn};

/// The only block, if not leased, is evicted from one sequence and given to another.
// Holds: LE1.
#[test]
fn one_block_two_sequences() {
    explore("find 1 vs reserve, insert 2 into its block", || {
        let world = World::with(1, 1, &[&[1]]);
        let reader = spawn({
            let world = world.clone();
            move || {
                let found = Actor::new(&world).find(&[1]);
                // The block still belongs to the prefix, whatever happened meanwhile.
                world.check(&[1], 0, found.blocks());
                found.len_tokens()
            }
        });
        let writer = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                let root = actor.find(&[]);
                if let Ok(block) = actor.session.reserve(1) {
                    actor.fill(&[2], 0, &block);
                    let inserted = actor.session.insert(root.lease(), &[2], block).unwrap();
                    world.check(&[2], 0, &inserted.blocks);
                }
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(world.close(), 1);
    });
}

/// The recycled block continues the same path: the reader may find the old or the new sequence, but
/// never a mixture.
#[test]
fn a_block_recycled_on_the_same_path() {
    explore_less("find 1,2 vs evict 1, insert 1,3", || {
        let world = World::with(1, 2, &[&[1, 2]]);
        let reader = spawn({
            let world = world.clone();
            move || Actor::new(&world).find(&[1, 2])
        });
        let writer = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                let parent = actor.find(&[1]);
                assert_eq!(parent.len_tokens(), 1);
                let inserted = actor.session.reserve(1).ok().map(|block| {
                    actor.fill(&[1, 3], 1, &block);
                    actor.session.insert(parent.lease(), &[1, 3], block).unwrap()
                });
                (parent, inserted)
            }
        });
        let (parent, inserted) = writer.join().unwrap();
        let found = reader.join().unwrap();
        world.check(&[1, 2], 0, found.blocks());
        assert_eq!(found.len_tokens() == 2, inserted.is_none());
        world.rest(2, 0);
        drop((parent, inserted, found));
        assert_eq!(world.close(), 2);
    });
}
