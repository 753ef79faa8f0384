//! Where what died in a turn of the evictor is unlinked: after the lock, unless another turn may
//! retire a part of it before.

use std::thread;

use radixkv::{PolicyKind, PrefixCache};

use crate::gate::{Gate, arm, as_victim, stay_victim};

/// Whether the evictor's lock is held when the run of 1 is unlinked; `meanwhile` happens after its
/// eviction has begun.
fn is_unlinked_under_the_lock(cache: &PrefixCache, meanwhile: impl Fn(&PrefixCache)) -> bool {
    let (session, space) = (cache.session(), cache.default_namespace());
    let acquired = session.acquire(&space, &[1], 0).expect("room");
    drop(session.insert(acquired.hit.lease(), &[1], acquired.blocks).expect("fits"));
    drop(acquired.hit);
    cache.settle();
    let (begun, unlinking) = (Gate::default(), Gate::default());
    let stops = (begun.clone(), unlinking.clone());
    let armed = arm("trim::begun", move || {
        stops.0.stop();
        stay_victim();
    });
    armed.and("trim::unlink", move || stops.1.stop());
    let is_held = thread::scope(|scope| {
        let victim = scope.spawn(|| as_victim(|| cache.evict(1)));
        begun.wait_for_arrival();
        meanwhile(cache);
        begun.open();
        unlinking.wait_for_arrival();
        let is_held = !cache.stats().is_settled;
        unlinking.open();
        assert_eq!(victim.join().expect("no panic"), 1);
        is_held
    });
    drop(armed);
    cache.settle();
    assert_eq!((cache.validate(), cache.stats().free_blocks), (Ok(()), 4));
    is_held
}

/// A match creates a point on a run whose end was just killed: the run stays up to that point,
/// which takes over the uses of the end.
#[test]
fn the_uses_of_a_dead_end_flow_to_a_point_that_comes_meanwhile() {
    let cache = cache();
    let (session, space) = (cache.session(), cache.default_namespace());
    let uses = || {
        let mut uses = Vec::new();
        space.walk(|run| uses.push((run.tokens.len(), run.uses)));
        uses
    };
    let acquired = session.acquire(&space, &[1, 2], 0).expect("room");
    drop(session.insert(acquired.hit.lease(), &[1, 2], acquired.blocks).expect("fits"));
    drop(acquired.hit);
    (0..3).for_each(|_| drop(session.match_prefix(&space, &[1, 2])));
    assert_eq!(uses(), [(2, 4)]);
    let killed = Gate::default();
    let stop = killed.clone();
    let armed = arm("trim::killed", move || stop.stop());
    thread::scope(|scope| {
        let victim = scope.spawn(|| as_victim(|| cache.evict(2)));
        killed.wait_for_arrival();
        let first = cache.session().match_prefix(&space, &[1]).into_lease();
        assert_eq!(first.len_tokens(), 1);
        killed.open();
        assert_eq!(victim.join().expect("no panic"), 1, "one block is leased");
        assert_eq!(uses(), [(1, 5)]);
    });
    drop(armed);
    cache.settle();
    assert_eq!((cache.evict(4), cache.validate()), (1, Ok(())));
}

fn cache() -> PrefixCache {
    PrefixCache::builder(1, 4).build().expect("valid")
}

#[test]
fn a_dead_run_is_unlinked_after_the_lock() {
    assert!(!is_unlinked_under_the_lock(&cache(), |_| ()));
}

/// The turn that takes the entry retires the point.
#[test]
fn a_dead_run_with_a_point_in_the_queue_is_unlinked_under_the_lock() {
    // With this policy a lease is told to the evictor.
    let cache = PrefixCache::builder(1, 4).policy(PolicyKind::Filo).build().expect("valid");
    assert!(is_unlinked_under_the_lock(&cache, |cache| {
        drop(cache.session().match_prefix(&cache.default_namespace(), &[1]));
    }));
}

/// The turn that ends the draft retires the arrays.
#[test]
fn a_dead_run_whose_arrays_a_draft_names_is_unlinked_under_the_lock() {
    let cache = cache();
    let unread = cache.subscribe(4);
    assert!(is_unlinked_under_the_lock(&cache, |_| ()));
    drop(unread);
}
