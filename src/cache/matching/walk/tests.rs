use crate::{Clock, Lease, PrefixCache};

/// Caches the missing part of `tokens`, even if a lookup would find it: as a request that computed
/// them at the same time as another.
fn insert_from_nothing(cache: &PrefixCache, tokens: &[u32]) -> Lease {
    let (session, space) = (cache.session(), cache.default_namespace());
    let miss = session.match_prefix(&space, &[]);
    session.insert(miss.lease(), tokens, session.reserve(tokens.len()).expect("room")).expect("inserted").lease
}

/// The leases, the last use and the uses of each run.
fn numbers(cache: &PrefixCache) -> Vec<(u64, u64, u64)> {
    let mut seen = Vec::new();
    cache.default_namespace().walk(|run| seen.push((run.leases, run.last_used, run.uses)));
    seen
}

// Holds: LE12.
#[test]
fn leases_and_uses_on_stripes_are_counted() {
    let cache = PrefixCache::builder(1, 8).clock(Clock::Logical).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    let lease = insert_from_nothing(&cache, &[1, 2]);
    assert!(lease.inflate());
    cache.set_time(7);
    let held = [session.match_prefix(&space, &[1, 2]), cache.session().match_prefix(&space, &[1, 2])];
    assert_eq!(numbers(&cache), [(3, 7, 3)]);
    drop((lease, held));
    assert_eq!(numbers(&cache), [(0, 7, 3)]);
}

/// An insert that finds its tokens cached counts no use, but a resume of its lease moves one on.
#[test]
fn a_run_has_no_fewer_than_zero_uses() {
    let cache = PrefixCache::builder(1, 16).build().expect("valid");
    let session = cache.session();
    drop(insert_from_nothing(&cache, &[1, 2]));
    let leases = [0; 3].map(|_| insert_from_nothing(&cache, &[1, 2]));
    drop(insert_from_nothing(&cache, &[1, 2, 3]));
    leases.into_iter().for_each(|lease| assert_eq!(session.resume(lease, &[1, 2, 3]).len_tokens(), 3));
    assert_eq!(numbers(&cache).iter().map(|numbers| numbers.2).collect::<Vec<_>>(), [0, 4]);
}
