use crate::PrefixCache;

// Holds: LE4.
#[test]
fn participants_do_not_follow_the_number_of_sessions() {
    let cache = PrefixCache::builder(1, 1_024).build().expect("valid");
    let space = cache.default_namespace();
    let sessions: Vec<_> = (0..500).map(|_| cache.session()).collect();
    for (session, token) in sessions.iter().zip(0..) {
        let miss = session.match_prefix(&space, &[token]);
        let filled = session.reserve(1).expect("room");
        drop(session.insert(miss.lease(), &[token], filled).expect("it fits"));
    }
    let found = sessions.iter().zip(0..).map(|(session, token)| session.match_prefix(&space, &[token]).len_tokens());
    assert_eq!(found.sum::<usize>(), 500);
    // The sessions' own, the evictor's, and one for each stripe that is lent again and again.
    assert!(cache.inner.domain.registered() <= 64 + 64 + 1, "{}", cache.inner.domain.registered());
    drop(sessions);
    assert_eq!((cache.evict(usize::MAX), cache.validate()), (500, Ok(())));
}
