use super::super::FEW;
use super::*;
use crate::cache::inner::STEP;

#[test]
fn handles_are_equal_that_lead_into_the_same_trees() {
    let cache = PrefixCache::builder(1, 1).build().expect("valid");
    let first = cache.namespace(&["a"]);
    assert_eq!((first == cache.namespace(&["a"]), first == cache.namespace(&["b"])), (true, false));
    first.remove();
    assert!(first != cache.namespace(&["a"]), "made again");
}

/// A pass looks at every namespace, so the next one begins when their number has doubled.
#[test]
fn the_next_pass_waits_until_there_are_twice_as_many() {
    let cache = PrefixCache::builder(1, 1).build().expect("valid");
    let next_pass = || cache.inner.namespaces.names.lock().next_pass;
    let name = |i: usize| cache.namespace(&[i.to_string().as_str()]);
    let mut held: Vec<_> = (0..FEW - 1).map(name).collect();
    for next in [FEW, 2 * FEW] {
        held.extend((held.len()..next - 1).map(name));
        assert_eq!(next_pass(), next);
        // Looks at all of them, because they fit in a slice.
        held.push(name(next - 1));
        assert_eq!(next_pass(), 2 * next);
        assert!(!cache.inner.namespaces.is_behind());
    }
}

/// Changes that were queued after the clear has settled are left to later turns.
// Holds: EV8.
#[test]
fn the_turn_that_detaches_a_tree_takes_in_a_bounded_number_of_changes() {
    let keys = 20 * STEP as u32;
    let cache = PrefixCache::builder(1, keys as usize + 1).build().expect("sound");
    let (session, space, tenant) = (cache.session(), cache.default_namespace(), cache.namespace(&["tenant"]));
    let insert = |space, key| {
        let miss = session.match_prefix(space, &[key]);
        drop(session.insert(miss.lease(), &[key], session.reserve(1).expect("room")).expect("it fits"));
    };
    insert(&tenant, 0);
    cache.settle();
    (0..keys).for_each(|key| insert(&space, key));
    let (all, evictable) = cache.inner.evicting(|evictor, resources| {
        let state = &tenant.0;
        let next = Space::plant(state.layout.offset(), Arc::clone(&state.account), resources.guard).as_ptr();
        let detached = state.detach(next, resources.guard).expect("it has a tree");
        (evictor.begin_sweep(detached, resources), evictor.evictable())
    });
    assert!(all && evictable <= 2 * STEP, "{evictable} runs were taken in");
    assert_eq!((cache.validate(), cache.stats().free_blocks), (Ok(()), 1));
}
