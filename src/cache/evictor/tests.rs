//! Tests of the evictor: steps of a reader between those of a trim, hot points, detached roots.

mod bounds;
mod exchange;

use crate::cache::evictor::{Evictor, Resources};
use crate::cache::namespaces::namespace::Pass;
use crate::cache::session::Near;
use crate::cache::turn::LockMode;
use crate::reclaim::Ref;
use crate::sync::UnmapsLater;
use crate::tree::lease::{Refused, lease_at, lease_deepest, release};
use crate::tree::{Point, Position, ShardId, Word, walk};
use crate::{Clock, Keys, Namespace, PolicyKind, PrefixCache, Quota};

/// A reader saw the run before a trim, and publishes its point after the trim, beyond the new end.
/// The point is held until the reader has read the length again; a second trim must not take it for
/// the end of the run.
#[test]
fn a_point_published_beyond_the_end_does_not_lengthen_the_run() {
    let cache = PrefixCache::builder(4, 2).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    let tokens = [1, 2, 3, 4, 5, 6, 7, 8];
    let miss = session.match_prefix(&space, &tokens);
    drop(session.insert(miss.lease(), &tokens, session.reserve(2).expect("room")).expect("inserted"));
    drop(miss);
    assert_eq!(cache.evict(1), 1);

    let reader = cache.inner.domain.register();
    let guard = reader.pin();
    let root = space.0.root(&guard).expect("planted");
    let run = root.as_ref().children.get(1, &guard).expect("hung");
    let point = Point::new(run.link(), 8, Word::unproven(), 0, &guard);
    let Ok(point) = run.as_ref().points.insert(None, point, &guard) else {
        panic!("the depth has a point");
    };

    assert_eq!(cache.evict(1), 1);
    assert_eq!(run.bump().len(), 0, "the reader sees that its point is beyond the end");
    assert_eq!(point.word.abandon(), crate::tree::Abandoned::Dead);
    assert!(run.as_ref().points.remove(point, &guard));
    guard.retire(point);
    assert_eq!(cache.validate(), Ok(()));
}

/// A lookup loaded a space before it was cleared, and leases its root after the root has died: it
/// must start again, not make another root on a trunk that was retired.
#[test]
fn a_root_that_has_gone_is_not_made_again() {
    let cache = PrefixCache::builder(4, 2).build().expect("valid");
    let space = cache.default_namespace();
    let reader = cache.inner.domain.register();
    let guard = reader.pin();
    let root = space.0.root(&guard).expect("planted");
    let reached = walk(root, &[1, 2, 3], &guard);
    space.clear();
    let leased =
        lease_deepest(reached.boundary(cache.inner.layout), cache.inner.layout, cache.inner.context(0), &guard);
    assert!(matches!(leased, Err(Refused::Gone)), "{leased:?}");
}

/// Unmapping a page takes several microseconds, during which other threads would wait for the lock.
// Holds: NU11.
#[test]
fn a_turn_unmaps_nothing_under_the_lock() {
    let cache = PrefixCache::builder(4, 2).build().expect("valid");
    assert!(cache.inner.evicting(|_, _| UnmapsLater::begin().is_none()), "the turn has begun one");
    assert!(UnmapsLater::begin().is_some(), "and ended it");
}

/// An insert's walk found a child run that died before its tokens were compared, and stops at depth
/// zero of it: no run may be attached there.
#[test]
fn no_point_is_made_at_the_beginning_of_a_dead_run() {
    let cache = PrefixCache::builder(4, 2).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    let tokens = [1, 2, 3, 4];
    let miss = session.match_prefix(&space, &tokens);
    drop(session.insert(miss.lease(), &tokens, session.reserve(1).expect("room")).expect("inserted"));
    let reader = cache.inner.domain.register();
    let guard = reader.pin();
    let root = space.0.root(&guard).expect("planted");
    let run = root.as_ref().children.get(1, &guard).expect("hung");
    assert_eq!(cache.evict(1), 1);
    let leased = lease_at(Position { run, depth: 0 }, cache.inner.context(0), &guard);
    assert!(matches!(leased, Err(Refused::Shorter(0))), "{leased:?}");
    assert_eq!(cache.validate(), Ok(()));
}

/// A lookup of bigrams walked to the end of a run that is trimmed before it leases there: it falls
/// back to the boundary that is left, which is one token beyond a whole number of blocks.
#[test]
fn a_lookup_of_bigrams_falls_back_to_a_boundary_of_theirs() {
    let cache = PrefixCache::builder(4, 2).build().expect("valid");
    let (session, space) =
        (cache.session(), cache.namespace(crate::NamespaceName::new(&["draft"]).with_keys(Keys::Bigrams)));
    let tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    let miss = session.match_prefix(&space, &tokens);
    drop(session.insert(miss.lease(), &tokens, session.reserve(2).expect("room")).expect("inserted"));

    let reader = cache.inner.domain.register();
    let guard = reader.pin();
    let reached = walk(space.0.root(&guard).expect("planted"), &tokens, &guard).boundary(space.0.layout);
    assert_eq!((reached.end(), cache.evict(1)), (9, 1));
    let held = lease_deepest(reached, space.0.layout, cache.inner.context(0), &guard).expect("not gone");
    assert_eq!(held.point.end(), 5);
    release(held, cache.inner.context(0));
    assert_eq!(cache.validate(), Ok(()));
}

/// A namespace without handles is not empty if something was inserted since the queue was drained.
#[test]
fn a_namespace_that_the_evictor_knows_no_run_of_is_not_forgotten() {
    let cache = PrefixCache::builder(4, 2).build().expect("valid");
    let (session, space) = (cache.session(), cache.namespace(&["tenant"]));
    let tokens = [1, 2, 3, 4];
    let lease = cache.inner.evicting(|evictor, resources| {
        evictor.settle(resources);
        let miss = session.match_prefix(&space, &tokens);
        let inserted = session.insert(miss.lease(), &tokens, session.reserve(1).expect("room")).expect("inserted");
        drop((miss, space));
        cache.inner.namespaces.forget_empty(&mut Pass::default(), evictor, resources);
        inserted.lease
    });
    assert_eq!(session.peek(&cache.namespace(&["tenant"]), &tokens), lease.len_tokens());
    assert_eq!(cache.validate(), Ok(()));
}

/// A prefix that was made hot: leases on stripes protect it, hits on them count, and it is evicted
/// when it has no lease.
// Holds: LE12.
#[test]
fn a_hot_point_is_a_point_like_any_other() {
    let cache = PrefixCache::builder(4, 4).policy(PolicyKind::Lfu).clock(Clock::Logical).build().expect("valid");
    let (session, other, space) = (cache.session(), cache.session(), cache.default_namespace());
    let tokens = [[1, 2, 3, 4], [5, 6, 7, 8]];
    for tokens in &tokens {
        let miss = session.match_prefix(&space, tokens);
        drop(session.insert(miss.lease(), tokens, session.reserve(1).expect("room")).expect("inserted"));
    }
    let held = session.match_prefix(&space, &tokens[0]);
    assert!(held.lease().inflate() && held.lease().inflate());
    let leases = [&session, &other].map(|session| session.match_prefix(&space, &tokens[0]).into_lease());
    let clone = leases[1].try_clone().expect("few leases");
    drop(held);
    assert_eq!((cache.validate(), cache.stats().protected_blocks), (Ok(()), 1));
    assert_eq!(cache.evict(2), 1, "only the other one is evictable");
    drop(leases);
    assert_eq!((cache.validate(), cache.stats().protected_blocks), (Ok(()), 1));
    let resumed = other.resume(clone, &tokens[0]);
    drop(resumed);
    assert_eq!((cache.stats().protected_blocks, cache.stats().evictable_blocks), (0, 1), "settled, so deflated");
    assert_eq!(cache.stats().deflations, 1);
    // The hot prefix has four hits and the insert's, most of them counted on stripes; the three
    // hits of the other one are fewer.
    let miss = session.match_prefix(&space, &tokens[1]);
    drop(session.insert(miss.lease(), &tokens[1], session.reserve(1).expect("room")).expect("inserted"));
    (0..3).for_each(|_| drop(session.match_prefix(&space, &tokens[1])));
    assert_eq!(cache.evict(1), 1);
    assert_eq!([0, 1].map(|i| session.peek(&space, &tokens[i])), [4, 0]);
    assert_eq!(cache.validate(), Ok(()));
}

/// Caches the missing part of `tokens`; returns a lease on all of them.
fn cached(cache: &PrefixCache, tokens: &[u32]) -> crate::Lease {
    let (session, space) = (cache.session(), cache.default_namespace());
    let found = session.match_prefix(&space, tokens);
    let missing = tokens.len() - found.len_tokens();
    session.insert(found.lease(), tokens, session.reserve(missing).expect("room")).expect("inserted").lease
}

/// A hot point keeps its slot while another lease holds it, and is protected no longer than that.
// Holds: LE12.
#[test]
fn a_hot_point_keeps_its_slot_while_it_is_leased() {
    let cache = PrefixCache::builder(1, 8).clock(Clock::Logical).build().expect("valid");
    let session = cache.session();
    let numbers = || (cache.validate(), cache.stats().protected_blocks, cache.stats().deflations);
    let held = cached(&cache, &[1, 2]);
    assert!(held.inflate());
    assert_eq!([numbers(), numbers()], [(Ok(()), 2, 0), (Ok(()), 2, 0)]);
    drop(held);
    assert_eq!(numbers(), (Ok(()), 0, 1));
    // A retained point stays hot until the evictor releases its lease, at the deadline or before.
    for round in 1..=2 {
        let retained = cached(&cache, &[1, 2]);
        session.retain(&retained, std::time::Duration::from_secs(round)).expect("a lease of this cache");
        assert!(retained.inflate());
        cache.settle();
        if round == 2 {
            session.release_retained(&retained);
        }
        drop(retained);
        assert_eq!(numbers(), if round == 1 { (Ok(()), 2, 1) } else { (Ok(()), 0, 3) });
        cache.set_time(10_000_000_000);
        assert_eq!(numbers(), (Ok(()), 0, round + 1));
    }
    assert_eq!((cache.evict(8), cache.validate()), (2, Ok(())));
}

/// A chain of hot prefixes, each with another run beside it: all of them can be evicted at once
/// after their leases are released.
// Holds: LE12.
#[test]
fn hot_points_above_each_other_are_deflated_together() {
    for depth in 1..=7_u32 {
        let hot = || {
            let cache = PrefixCache::builder(1, 64).build().expect("valid");
            let path: Vec<u32> = (1..=depth).collect();
            for end in 1..=depth as usize {
                drop(cached(&cache, &path[..end]));
                drop(cached(&cache, &[&path[..end], &[1_000 + end as u32]].concat()));
            }
            cache.settle();
            let leases: Vec<_> = (1..=depth as usize).map(|end| cached(&cache, &path[..end])).collect();
            assert!(leases.iter().all(|lease| lease.inflate()));
            drop(leases);
            cache
        };
        assert_eq!(hot().validate(), Ok(()), "{depth}");
        let blocks = 2 * depth as usize;
        let (all, none) = (hot(), hot());
        assert_eq!(all.evict(usize::MAX), blocks, "{depth}");
        assert_eq!((none.stats().evictable_blocks, none.stats().protected_blocks), (blocks, 0), "{depth}");
        assert!(hot().session().reserve(64).is_ok(), "{depth}");
    }
}

/// A namespace with a limit of 2^32 - 1 blocks or more counts as one without a limit, so a shard
/// still evicts under its own lock alone.
#[test]
fn a_limit_that_no_cache_reaches_does_not_count() {
    let cache = PrefixCache::builder(1, 4).shards(2).build().expect("valid");
    let are_alone = || cache.inner.evicting(|evictor, _| evictor.common.listeners.quotas.have_no_limits());
    let tenant = cache.namespace(&["tenant"]);
    tenant.set_quota(Quota::default().cached_blocks(usize::MAX));
    assert!(are_alone(), "it has no limit");
    tenant.set_quota(Quota::default().cached_blocks(2));
    assert!(!are_alone());
    tenant.set_quota(Quota::default().cached_blocks(usize::MAX));
    assert!(are_alone());
    tenant.set_quota(Quota::default().cached_blocks(2));
    tenant.remove();
    assert!(are_alone(), "its quota has ended with it");
}

/// In steps of any size, settling takes in deflated points before it ends.
// Holds: LE12.
#[test]
fn a_hot_point_is_settled_in_steps_of_any_size() {
    for step in 1..=23 {
        let cache = PrefixCache::builder(1, 64).build().expect("valid");
        drop(cached(&cache, &[1, 2]));
        drop(cached(&cache, &[1, 2, 9]));
        let child = cached(&cache, &[1, 2, 3, 4]);
        cache.settle();
        assert!(cached(&cache, &[1, 2]).inflate());
        cache.settle();
        (0..10).for_each(|token| drop(cached(&cache, &[100 + token])));
        drop(child);
        let mut goal = None;
        while !cache.inner.evicting(|evictor, resources| evictor.settle_towards(&mut goal, step, resources)) {}
        let is_settled = |evictor: &mut Evictor<'_>, resources: Resources<'_>| {
            (resources.queues.are_empty() && evictor.backlog.is_empty(), evictor.protected)
        };
        assert_eq!(cache.inner.evicting(is_settled), (true, 0), "{step} entries");
    }
}

/// More points than slots, from two threads at once: some points do not become hot, and nothing is
/// lost.
#[test]
fn there_may_be_more_hot_points_than_slots() {
    let cache = PrefixCache::builder(1, 100).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    for token in 0..100 {
        let miss = session.match_prefix(&space, &[token]);
        drop(session.insert(miss.lease(), &[token], session.reserve(1).expect("room")).expect("inserted"));
    }
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let session = cache.session();
                for token in 0..100 {
                    let found = session.match_prefix(&space, &[token]);
                    found.lease().inflate();
                    drop(session.match_prefix(&space, &[token]));
                }
            });
        }
    });
    assert_eq!(cache.validate(), Ok(()));
    assert_eq!((cache.stats().evictable_blocks, cache.evict(100)), (100, 100));
}

/// A cache, a namespace of it with two sequences and a hot root, and the bytes of the cache without
/// that namespace.
fn hot_root() -> (PrefixCache, Namespace, usize) {
    let cache = PrefixCache::builder(1, 4).build().expect("valid");
    let bytes = cache.stats().index_bytes;
    let (session, space) = (cache.session(), cache.namespace(&["tenant"]));
    for token in [1, 2] {
        let miss = session.match_prefix(&space, &[token]);
        drop(session.insert(miss.lease(), &[token], session.reserve(1).expect("room")).expect("inserted"));
    }
    assert!(session.match_prefix(&space, &[]).lease().inflate());
    (cache, space, bytes)
}

/// Settles a few more times, to forget namespaces in slices; then the index has this many bytes.
fn ends_with(cache: &PrefixCache, bytes: usize) {
    (0..100).for_each(|_| cache.settle());
    assert_eq!(cache.stats().index_bytes, bytes);
    assert_eq!(cache.validate(), Ok(()));
}

#[test]
fn a_root_stays_hot_as_long_as_runs_hang_on_it() {
    let (cache, space, bytes) = hot_root();
    cache.settle();
    assert_eq!((cache.validate(), cache.stats().deflations), (Ok(()), 0));
    assert_eq!(cache.evict(1), 1);
    cache.settle();
    assert_eq!((cache.validate(), cache.stats().deflations), (Ok(()), 0));
    assert_eq!(cache.evict(1), 1);
    cache.settle();
    assert_eq!((cache.validate(), cache.stats().deflations), (Ok(()), 1));
    drop(space);
    ends_with(&cache, bytes);
}

#[test]
fn a_root_that_was_detached_is_hot_no_longer() {
    let (cache, space, bytes) = hot_root();
    let leases = [1, 2].map(|token| cache.session().match_prefix(&space, &[token]).into_lease());
    space.remove();
    cache.settle();
    assert_eq!((cache.validate(), cache.stats().deflations, cache.stats().runs), (Ok(()), 1, 2));
    drop((leases, space));
    ends_with(&cache, bytes);
}

/// More roots than slots: some idle ones lose their slots, and all blocks can still be evicted.
#[test]
fn roots_stay_hot_while_there_are_few() {
    let cache = PrefixCache::builder(1, 200).build().expect("valid");
    let bytes = cache.stats().index_bytes;
    let session = cache.session();
    let spaces: Vec<_> = (0..100).map(|i| cache.namespace(&[&i.to_string()])).collect();
    for space in &spaces {
        for token in [1, 2] {
            let miss = session.match_prefix(space, &[token]);
            drop(session.insert(miss.lease(), &[token], session.reserve(1).expect("room")).expect("inserted"));
        }
    }
    let held: Vec<_> = spaces.iter().map(|space| session.match_prefix(space, &[])).collect();
    assert!(held.iter().filter(|root| root.lease().inflate()).count() > 50);
    drop(held);
    cache.settle();
    assert_eq!(cache.validate(), Ok(()));
    assert!(cache.stats().deflations > 0);
    assert_eq!(session.reserve(200).map(|blocks| blocks.len()), Ok(200));
    drop((session, spaces));
    ends_with(&cache, bytes);
}

/// Two points of a run die in one trim, and the evictor does not know one of them.
#[test]
fn what_two_points_were_used_flows_down_together() {
    let cache = PrefixCache::builder(1, 8).clock(Clock::Logical).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    let serve = |tokens: &[u32]| {
        let hit = session.match_prefix(&space, tokens);
        let blocks = session.reserve(tokens.len() - hit.len_tokens()).expect("room");
        drop(session.insert(hit.lease(), tokens, blocks).expect("inserted"));
    };
    cache.set_time(1);
    serve(&[1, 9]);
    serve(&[1, 2, 3]);
    (0..3).for_each(|_| drop(session.match_prefix(&space, &[1, 2, 3])));
    cache.settle();
    let participant = cache.inner.participant();
    let guard = participant.pin();
    let root = space.0.root(&guard).expect("planted");
    let below = root.as_ref().children.get(1, &guard).expect("hung").as_ref().points.get(1, &guard).expect("a branch");
    let run = below.as_ref().children.get(2, &guard).expect("hung");
    let last = run.as_ref().points.get(2, &guard).expect("its end");
    let used = |point: Ref<'_, Point>| point.tally(&guard);
    let before = used(below);
    let mut between = None;
    cache.inner.evicting(|evictor, resources| {
        for time in [5, 7] {
            cache.set_time(time);
            drop(session.match_prefix(&space, &[1, 2]));
        }
        between = run.as_ref().points.get(1, &guard).map(used);
        assert_eq!(evictor.trim(last, usize::MAX, resources), 2);
        evictor.visit_again(resources);
    });
    let all = before.joined(used(last)).joined(between.expect("made by the lookups"));
    assert_eq!(used(below), all);
    // Three matches of one point, two of the other.
    assert_eq!((all.last, all.hits - before.hits), (7, 5));
    drop(guard);
    cache.settle();
    assert_eq!(cache.validate(), Ok(()));
}

/// If a turn of one shard panics, the next turn of all gives back the blocks that it had freed.
#[test]
fn blocks_of_a_turn_of_one_that_panicked_are_given_back() {
    let cache = PrefixCache::builder(1, 4).shards(3).build().expect("valid");
    let mut blocks = Vec::new();
    assert!(cache.inner.pool.try_take(1, &mut blocks));
    let turn = || {
        let work = |evictor: &mut Evictor<'_>, _: Resources<'_>| {
            evictor.freed.append(&mut blocks);
            panic!("a turn that panics");
        };
        cache.inner.turn(Near::default(), LockMode::One(ShardId::at(2)), work, |_: &()| false)
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(turn)).is_err());
    assert_eq!(cache.validate(), Ok(()));
    assert_eq!(cache.stats().free_blocks, 4);
}
