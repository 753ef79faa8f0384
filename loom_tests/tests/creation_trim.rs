//! Creating a leased point against a trim of its run (R5, R6).
//!
//! Property: a lease that was granted at depth `j` stands on a run that is at least `j` long, however a trim ran
//! beside it, and whoever lost finds the deepest prefix that is left; no block is both leased and free.
//!
//! Edges: E6 (bump after publishing, before the trimmer's scan), E7 (shorter length), E1 (the slot), E2 (release
//! before kill).
//!
//! Teeth: no bump; the version ignored; no second scan after a bump; a `NEW` point believed; bump without Release; the
//! trimmer's load or failed swap without Acquire; no point published at the target.
#![cfg(radixkv_loom)]

mod common;

use common::{Actor, World, explore, explore_less, spawn};

/// A new point in the middle of the run that is being trimmed below it, or at the target.
#[test]
fn a_new_point_against_a_trim() {
    explore("create at 2 of 3 vs evict 2", || {
        let world = World::with(1, 4, &[&[1, 2, 3]]);
        let reader = spawn({
            let world = world.clone();
            move || Actor::new(&world).find(&[1, 2, 9])
        });
        let freed = world.cache.evict(2);
        let found = reader.join().unwrap();
        match found.len_tokens() {
            2 => assert!(freed <= 1, "freed {freed} beside a lease on 2 of 3"),
            len => assert_eq!((len, freed), (1, 2)),
        }
        let stats = world.rest(found.len_tokens(), 0);
        assert_eq!(stats.free_blocks, 1 + freed);
        drop(found);
        assert_eq!(world.close(), 3 - freed);
    });
}
