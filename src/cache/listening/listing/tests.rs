use crate::PrefixCache;

/// The namespace's runs were listed when they were removed, and must still be found under it.
#[test]
fn a_namespace_that_is_forgotten_meanwhile_is_listed_as_it_was() {
    let cache = PrefixCache::builder(1, 4).build().expect("valid");
    let (session, space) = (cache.session(), cache.namespace(&["tenant"]));
    let miss = session.match_prefix(&space, &[1, 2]);
    drop(session.insert(miss.lease(), &[1, 2], session.reserve(2).expect("room")).expect("inserted"));
    drop(miss);
    let (inner, participant) = (&cache.inner, cache.inner.participant());
    let guard = participant.pin();
    let id = inner.settled(|evictor, _| evictor.begin_listing());
    assert_eq!(cache.evict(2), 2);
    drop(space);
    cache.settle();
    let spaces = inner.all_spaces_since(id, &guard);
    let listing = inner.in_turn(|evictor, _| evictor.end_listing(id));
    assert_eq!(listing.runs.len(), 1);
    assert!(spaces.contains(&listing.runs[0].run.get(&guard).space()));
}
