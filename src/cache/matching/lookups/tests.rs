use crate::PrefixCache;

/// The reason follows from where the lookup's walk ended: before the first missing block, in it, or
/// beyond it. The walk found a whole block if that was evicted before it could be leased.
// Holds: NU4.
#[test]
fn a_block_that_is_evicted_during_a_lookup_is_missed_as_evicted() {
    let cache = PrefixCache::builder(4, 8).build().expect("valid");
    let (session, space, tokens) = (cache.session(), cache.default_namespace(), [1; 12]);
    let lease = session.match_prefix_untouched(&space, &tokens).into_lease();
    let participant = session.participant();
    let guard = participant.pin();
    let missed = [0, 3, 4, 12].map(|reached| {
        let before = cache.stats();
        cache.inner.count_lookup(space.query(&tokens), &lease, reached, &guard);
        let counted = cache.stats().delta(&before);
        [counted.missed_new_tokens, counted.missed_diverged_tokens, counted.missed_evicted_tokens]
    });
    assert_eq!(missed, [[12, 0, 0], [0, 12, 0], [0, 0, 12], [0, 0, 12]]);
}
