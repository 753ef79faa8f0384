//! Where what died in a turn of the evictor is unlinked: after the lock, unless another turn may retire a part of it before.

use std::thread;

use radixkv::PrefixCache;

use crate::gate::{Gate, arm, as_victim, stay_victim};

/// Whether the evictor's lock is held when the run of 1 is unlinked; `meanwhile` happens after its eviction has begun.
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
    assert!(is_unlinked_under_the_lock(&cache(), |cache| {
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
