use super::*;

/// Invalidates all blocks of a path of several runs: each run beyond the first cut must be listed
/// once.
#[test]
fn each_run_is_cut_once() {
    let cache = PrefixCache::builder(1, 400).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    let tokens: Vec<_> = (0..300).collect();
    for len in 1..=tokens.len() {
        let start = session.acquire(&space, &tokens[..len], 0).expect("room");
        drop(session.insert(start.hit.lease(), &tokens[..len], start.blocks).expect("fits"));
    }
    let wrong: HashSet<BlockId> = session.match_prefix(&space, &tokens).blocks().iter().copied().collect();
    let participant = cache.inner.participant();
    assert_eq!(cache.inner.cuts(&wrong, &participant.pin()).len(), cache.stats().runs);
    drop(participant);
    assert_eq!(cache.invalidate_blocks(&wrong.into_iter().collect::<Vec<_>>()), 300);
    assert_eq!((cache.stats().free_blocks, cache.validate()), (400, Ok(())));
}
