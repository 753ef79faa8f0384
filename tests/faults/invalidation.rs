//! Invalidating blocks while an insert stops between its steps.

use std::collections::HashSet;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use radixkv::{CacheEvent, InsertErrorKind, Lease, PrefixCache, RetainError, Session};

use crate::gate::{Gate, STUCK, arm, as_victim, stay_victim};

/// 8,8,1,2,3,9 is cached in blocks of two. An insert of 8,8,1,2,3,4,5,6 from a lease on 8,8,1,2
/// stops when it has made its branch point inside the third block; the block of 1,2 is invalidated;
/// the insert hangs its run and stops again before it tells of it, and `then` runs with the
/// insert's own blocks. Whether the leases that the insert has, and comes from, are invalidated.
fn hung_beyond(then: impl Fn(&PrefixCache, &[u32])) -> [bool; 2] {
    let cache = PrefixCache::builder(2, 64).build().expect("valid");
    let (session, space, mut events) = (cache.session(), cache.default_namespace(), cache.subscribe(64));
    let start = session.acquire(&space, &[8, 8, 1, 2, 3, 9], 0).expect("room");
    let first = session.insert(start.hit.lease(), &[8, 8, 1, 2, 3, 9], start.blocks).expect("fits");
    let wrong = first.blocks[1];
    drop((first, start.hit));
    let hit = session.match_prefix(&space, &[8, 8, 1, 2, 7, 7]);
    assert_eq!(hit.len_tokens(), 4);
    cache.settle();
    let (branched, hung) = (Gate::default(), Gate::default());
    let stops = (branched.clone(), hung.clone());
    let armed = arm("lease::published", move || {
        stops.0.stop();
        stay_victim();
    });
    armed.and("insert::counted", move || stops.1.stop());
    let blocks = session.reserve(2).expect("room");
    let ids = blocks.blocks().to_vec();
    let told = thread::scope(|scope| {
        let (inserting, lease) = (cache.clone(), hit.lease().try_clone().expect("few leases"));
        let worker = scope.spawn(move || {
            let session = inserting.session();
            let inserted = as_victim(|| session.insert(&lease, &[8, 8, 1, 2, 3, 4, 5, 6], blocks).expect("on its way"));
            nothing_uses(&session, &inserted.lease, &lease);
            [&inserted.lease, &lease].map(|lease| lease.is_invalidated())
        });
        branched.wait_for_arrival();
        assert_eq!(cache.invalidate_blocks(&[wrong]), 2);
        branched.open();
        hung.wait_for_arrival();
        then(&cache, &ids);
        hung.open();
        worker.join().expect("no panic")
    });
    drop(hit);
    cache.settle();
    assert_eq!((cache.validate(), cache.stats().evictable_blocks), (Ok(()), 1));
    // What was hung where no lookup comes was never told of.
    let mut known = HashSet::new();
    while let Some(batch) = events.try_next() {
        for event in batch.events() {
            match event {
                CacheEvent::Stored { blocks, .. } => blocks.iter().for_each(|block| assert!(known.insert(*block))),
                CacheEvent::Removed { blocks, .. } => blocks.iter().for_each(|block| assert!(known.remove(block))),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(known.len(), 1);
    told
}

/// Nothing continues from the run that an insert hung beyond an invalidated block, or reaches it,
/// though no turn of the evictor has seen the run.
fn nothing_uses(session: &Session, hung: &Lease, below: &Lease) {
    let longer = [8, 8, 1, 2, 3, 4, 5, 6, 7, 7];
    let refused = session.insert(hung, &longer, session.reserve(1).expect("room"));
    assert_eq!(refused.expect_err("it is built on a wrong block").kind, InsertErrorKind::Invalidated);
    assert_eq!(session.retain(hung, Duration::from_nanos(1)), Err(RetainError::Invalidated));
    assert!(session.upgrade(&hung.downgrade()).is_none());
    assert_eq!(session.resume(below.try_clone().expect("few leases"), &longer).len_tokens(), 4);
    assert!(session.match_partial(below, &[8, 8, 1, 2, 3, 4], 1).is_none());
}

// Holds: IV1, IV2, IV7.
#[test]
fn a_lease_of_an_insert_on_its_way_is_known_to_be_wrong() {
    assert_eq!(hung_beyond(|_, _| ()), [true, true]);
}

#[test]
fn what_was_hung_meanwhile_is_invalidated_a_second_time() {
    assert_eq!(hung_beyond(|cache, ids| _ = cache.invalidate_blocks(&ids[1..])), [true, true]);
}

/// 1,2 and 1,9 are cached. An eviction of the blocks of 2 and 9 stops before it unlinks the run of
/// 9; then the block of 1 is invalidated, on which that run hung.
#[test]
fn a_dead_run_that_is_not_unlinked_yet_holds_up_no_invalidation() {
    let cache = PrefixCache::builder(1, 8).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    let insert = |tokens: &[u32]| {
        let acquired = session.acquire(&space, tokens, 0).expect("room");
        session.insert(acquired.hit.lease(), tokens, acquired.blocks).expect("fits").blocks
    };
    let wrong = insert(&[1, 2])[0];
    insert(&[1, 9]);
    let gate = Gate::default();
    let _armed = arm("trim::unlink", {
        let gate = gate.clone();
        move || gate.stop()
    });
    let (done, report) = channel();
    thread::scope(|scope| {
        let victim = scope.spawn(|| as_victim(|| cache.evict(2)));
        gate.wait_for_arrival();
        let other = cache.clone();
        thread::spawn(move || done.send(other.invalidate_blocks(&[wrong])));
        let hidden = report.recv_timeout(STUCK);
        gate.open();
        assert_eq!((victim.join().expect("no panic"), hidden), (2, Ok(1)));
    });
    cache.settle();
    assert_eq!((cache.validate(), cache.stats().free_blocks, session.peek(&space, &[1])), (Ok(()), 8, 0));
}
