use crate::PrefixCache;

/// As if another thread were clearing the namespace and had not reached this run yet.
#[test]
fn blocks_of_a_namespace_that_is_being_cleared_are_in_no_entry_and_not_counted() {
    // Its two blocks are evicted first. If a turn frees no other blocks, another turn follows.
    for (asked, blocks) in [(3, 1), (2, 2)] {
        evict_beside_a_clear(asked, blocks);
    }
}

fn evict_beside_a_clear(asked: usize, blocks: usize) {
    let cache = PrefixCache::builder(1, 4).build().expect("valid");
    let (session, space) = (cache.session(), cache.namespace(&["tenant"]));
    for space in [&space, &cache.default_namespace()] {
        let miss = session.match_prefix(space, &[1, 2]);
        drop(session.insert(miss.lease(), &[1, 2], session.reserve(2).expect("room")).expect("inserted"));
    }
    cache.settle();
    let participant = cache.inner.participant();
    let guard = participant.pin();
    space.0.root(&guard).expect("it stands").run().space().detach();
    drop(guard);
    let mut evicted = Vec::new();
    assert_eq!((cache.evict_into(asked, &mut evicted), evicted.len()), (blocks, 1));
    assert_eq!((evicted[0].blocks.len(), cache.stats().cleared_blocks, cache.stats().free_blocks), (blocks, 2, 2));
}
