//! Steps of a reader put between those of the trimmer.

use crate::PrefixCache;
use crate::tree::lease::{Refused, lease_at, lease_deepest};
use crate::tree::{Place, Point, Statistics, Word, walk};

/// A reader saw the run before a trim, and publishes its point after it, beyond the new end. Until it has looked at the
/// length again the point is held; a second trim must not take it for the end of the run.
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
    let point = Point::new(run.link(), 8, Word::unproven(), Statistics::stamped(0), &guard);
    let Ok(point) = run.as_ref().points.insert(None, point, &guard) else {
        panic!("nothing stands there");
    };

    assert_eq!(cache.evict(1), 1);
    assert_eq!(run.bump().len(), 0, "the reader sees that its point lies beyond the end");
    assert_eq!(point.word.abandon(), crate::tree::Abandoned::Dead);
    assert!(run.as_ref().points.remove(point, &guard));
    guard.retire(point);
    assert_eq!(cache.validate(), Ok(()));
}

/// A lookup loaded a space before it was cleared, and leases its root after the root has gone: it must start anew, not
/// make another root on a trunk that was retired.
#[test]
fn a_root_that_has_gone_is_not_made_again() {
    let cache = PrefixCache::builder(4, 2).build().expect("valid");
    let space = cache.default_namespace();
    let reader = cache.inner.domain.register();
    let guard = reader.pin();
    let root = space.0.root(&guard).expect("planted");
    let reached = walk(root, &[1, 2, 3], &guard);
    cache.clear_namespace(&space);
    let leased =
        lease_deepest(reached.boundary(cache.inner.block_size), cache.inner.block_size, &cache.inner.queue, &guard);
    assert!(matches!(leased, Err(Refused::Gone)), "{leased:?}");
}

/// An insert's walk found a child run that died before its tokens were compared, and stops at depth zero of it: no run
/// is hung there.
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
    let leased = lease_at(Place { run, depth: 0 }, &cache.inner.queue, &guard);
    assert!(matches!(leased, Err(Refused::Shorter(0))), "{leased:?}");
    assert_eq!(cache.validate(), Ok(()));
}
