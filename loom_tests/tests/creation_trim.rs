//! A leased point is created while its run is trimmed, in the middle and at the end; two threads
//! create the same point.
//!
//! Property: while a lease at depth `j` exists, its run is at least `j` long, whatever a parallel
//! trim does. A reader that loses against the trim finds the deepest remaining prefix. No block is
//! both leased and free.
//!
//! Edges: E6 (bump after publishing, before the trimmer's scan), E7 (shorter length), E1 (the map's
//! slot), E2 (release before kill).
//!
//! Seeded bugs: no bump; the version is ignored; no second scan after a bump; a `NEW` point is
//! treated as proved; a bump without Release; the trimmer's load or failed swap without Acquire; no
//! point is published at the target; a point beyond the end is mistaken for the end.
#![cfg(radixkv_loom)]

mod common;

use common::{Actor, World, explore, explore_fewer_loads, explore_less, explore_order, spawn};
use radixkv::Token;

/// Runs a reader of `tokens` in parallel with `evictions` of a run of `cached`, and checks that the
/// results agree.
fn reader_against(cached: &'static [Token], tokens: &'static [Token], evictions: &'static [usize]) {
    let world = World::with(1, 4, &[cached]);
    let reader = spawn({
        let world = world.clone();
        move || Actor::new(&world).find(tokens)
    });
    let freed: usize = world.beside(|world| evictions.iter().map(|&want| world.cache.evict(want)).sum());
    let found = reader.join().unwrap();
    let shared = cached.iter().zip(tokens).take_while(|(a, b)| a == b).count();
    let wanted = evictions.iter().sum::<usize>();
    let left = cached.len() - freed;
    // Only the lease can stop the trim.
    assert!(found.len_tokens() <= left);
    assert!(freed == wanted || left == found.len_tokens(), "{freed} freed beside a lease on {}", found.len_tokens());
    assert!(found.len_tokens() >= shared.min(cached.len() - wanted), "a prefix that was never evicted is missed");
    let stats = world.rest(found.len_tokens(), 0);
    assert_eq!(stats.evictable_blocks, left - found.len_tokens());
    world.check(tokens, 0, found.blocks());
    let again = Actor::new(&world).find(cached);
    assert_eq!(again.len_tokens(), left, "what is left is found");
    drop((found, again));
    assert_eq!(world.close(), left);
}

/// Nothing is trimmed: only the point's proof reports the point to the accounts.
#[test]
fn a_new_point_beside_a_drain() {
    explore("create at 1 of 2 vs drain", || reader_against(&[1, 2], &[1, 9], &[]));
}

/// A new point in the middle of a run, which is being trimmed to a length before the point.
#[test]
fn a_new_point_against_a_trim() {
    explore("create at 2 of 3 vs evict 2", || reader_against(&[1, 2, 3], &[1, 2, 9], &[2]));
}

/// The creator finds the point that the trimmer itself published at the target.
#[test]
fn a_new_point_at_the_target() {
    explore("create at 1 of 2 vs evict 1", || reader_against(&[1, 2], &[1, 9], &[1]));
}

/// The second trim begins where the first ended.
#[test]
fn a_new_point_against_two_trims() {
    explore_less("create at 2 of 3 vs evict 1, evict 1", || reader_against(&[1, 2, 3], &[1, 2, 9], &[1, 1]));
}

/// The point is published beyond the end that a first trim has set. The second trim must not
/// mistake it for the run's end.
#[test]
fn a_new_point_beyond_the_end_against_a_trim() {
    explore_order("create at 2 of 3 vs evict 2, evict 1", || reader_against(&[1, 2, 3], &[1, 2, 9], &[2, 1]));
}

/// The run dies while another thread creates a point on it.
#[test]
fn a_new_point_against_the_end_of_all() {
    explore("create at 1 of 2 vs evict 2", || reader_against(&[1, 2], &[1, 9], &[2]));
}

/// A lease at the end of a run against a partial trim: the reader may create the dead end point
/// again.
#[test]
fn the_end_against_a_partial_trim() {
    explore_fewer_loads("lease the end of 3 vs evict 2", || reader_against(&[1, 2, 3], &[1, 2, 3], &[2]));
}

/// A reader that finds the run shortened continues at the last remaining block boundary, and at no
/// lower one.
#[test]
fn a_new_point_against_a_trim_by_blocks() {
    explore_order("create at 4 of 6 vs evict 2 in blocks of 2", || {
        let world = World::with(2, 4, &[&[1, 2, 3, 4, 5, 6]]);
        let reader = spawn({
            let world = world.clone();
            move || Actor::new(&world).find(&[1, 2, 3, 4, 9])
        });
        let freed = world.beside(|world| world.cache.evict(2));
        let found = reader.join().unwrap();
        assert!((2..=6 - 2 * freed).contains(&found.len_tokens()), "{freed} freed");
        world.rest(found.len_tokens() / 2, 0);
        drop(found);
        assert_eq!(world.close(), 3 - freed);
    });
}

/// Runs two readers, of the same depth or of two depths, in parallel with the eviction of `want`
/// blocks of a run of `cached`.
fn two_readers_against_a_trim(cached: &'static [Token], tokens: [&'static [Token]; 2], want: usize) {
    let all = cached.len();
    let world = World::with(1, 4, &[cached]);
    // Spawned first, so that it is also the first to continue when a reader ends; this is no
    // preemption.
    let evictor = spawn({
        let world = world.clone();
        move || world.cache.evict(want)
    });
    let readers = tokens.map(|tokens| {
        let world = world.clone();
        spawn(move || Actor::new(&world).find(tokens))
    });
    let freed = evictor.join().unwrap();
    let found = readers.map(|reader| reader.join().unwrap());
    let deepest = found.iter().map(|found| found.len_tokens()).max().unwrap();
    assert!(deepest <= all - freed && deepest >= 1.min(all - want));
    assert!(freed == want || deepest == all - freed);
    let stats = world.rest(deepest, 0);
    assert_eq!(stats.evictable_blocks, all - freed - deepest);
    found.iter().zip(tokens).for_each(|(found, tokens)| world.check(tokens, 0, found.blocks()));
    drop(found);
    assert_eq!(world.close(), all - freed);
}

/// The second reader leases the point before the first has proved it.
#[test]
fn two_creators_of_one_point_against_a_trim() {
    explore_order("two create at 2 of 3 vs evict 2", || {
        two_readers_against_a_trim(&[1, 2, 3], [&[1, 2, 8], &[1, 2, 9]], 2);
    });
}

#[test]
fn two_creators_at_two_depths_against_a_trim() {
    explore_order("create at 2 and at 1 of 3 vs evict 3", || {
        two_readers_against_a_trim(&[1, 2, 3], [&[1, 2, 8], &[1, 9]], 3);
    });
}

/// The whole run dies: the smallest model in which a point is treated as proved too early.
#[test]
fn two_creators_of_one_point_against_the_end_of_all() {
    explore_order("two create at 1 of 2 vs evict 2", || {
        two_readers_against_a_trim(&[1, 2], [&[1, 8], &[1, 9]], 2);
    });
}
