//! A small cache in a known state, and its nodes.

use std::time::Duration;

use super::super::validate;
use crate::cache::checks::violation::Violation;
use crate::cache::evictor::{Evictor, LeasePass, Resources};
use crate::key::Token;
use crate::reclaim::Ref;
use crate::tree::{Point, Run, Space};
use crate::{Clock, Lease, Namespace, PrefixCache, Quota, Reservation, Session};

pub(super) const BLOCK_SIZE: usize = 4;
pub(super) const CAPACITY: usize = 60;

/// Tokens from 1 on; `salt` is added to those after the first `keep`.
pub(super) fn sequence(len: usize, keep: usize, salt: Token) -> Vec<Token> {
    (1..=len as Token).map(|token| if token as usize > keep { token + salt } else { token }).collect()
}

/// Inserts the uncached part of `tokens`; `None` if there is no room.
pub(super) fn put(session: &Session, space: &Namespace, tokens: &[Token], block_size: usize) -> Option<Lease> {
    let hit = session.match_prefix(space, tokens);
    let missing = tokens.len() / block_size - hit.len_tokens() / block_size;
    let reservation = session.reserve(missing).ok()?;
    Some(session.insert(hit.lease(), tokens, reservation).expect("a lease of this namespace").lease)
}

/// Three runs, a branch inside a block, a lease and a reservation.
///
/// ```text
/// root -1-> run 1..=12: depths 4 (mark), 6 (branch), 8 (leased), 12 (filed)
///           6 -107-> branch 107..=112 (filed)
/// root -1001-> other 1001..=1004 (filed)
/// ```
pub(super) struct Bed {
    cache: PrefixCache,
    space: Namespace,
    _held: (Session, Lease, Reservation),
}

impl Bed {
    fn new() -> Self {
        let cache =
            PrefixCache::builder(BLOCK_SIZE, CAPACITY).clock(Clock::Logical).time_to_idle(Duration::MAX).shards(1);
        let cache = cache.build().expect("valid");
        let (session, space) = (cache.session(), cache.default_namespace());
        space.set_quota(Quota::default().cached_blocks(CAPACITY));
        for (at, tokens) in [sequence(12, 12, 0), sequence(12, 6, 100), sequence(4, 0, 1000)].iter().enumerate() {
            cache.set_time(at as u64 + 1);
            drop(put(&session, &space, tokens, BLOCK_SIZE));
        }
        let lease = session.match_prefix(&space, &sequence(8, 8, 0)).into_lease();
        let reservation = session.reserve(3).expect("room");
        Self { cache, space, _held: (session, lease, reservation) }
    }

    fn scene<'g>(&self, resources: Resources<'g>) -> Scene<'g> {
        let space = self.space.0.root(resources.guard).expect("not dropped").run().space();
        let root = space.root(resources.guard).expect("planted");
        let child = |point: Ref<'g, Point>, token| point.as_ref().children.get(token, resources.guard).expect("hung");
        let point = |run: Ref<'g, Run>, depth| run.as_ref().points.get(depth, resources.guard).expect("stands");
        let run = child(root, 1);
        let (mark, fork, leased, end) = (point(run, 4), point(run, 6), point(run, 8), point(run, 12));
        let branch = child(fork, 107);
        Scene { resources, space, root, run, mark, fork, leased, end, branch, other: child(root, 1001) }
    }
}

/// The nodes of a [`Bed`].
#[derive(Clone, Copy)]
pub(super) struct Scene<'g> {
    pub(super) resources: Resources<'g>,
    pub(super) space: Ref<'g, Space>,
    pub(super) root: Ref<'g, Point>,
    pub(super) run: Ref<'g, Run>,
    pub(super) mark: Ref<'g, Point>,
    pub(super) fork: Ref<'g, Point>,
    pub(super) leased: Ref<'g, Point>,
    pub(super) end: Ref<'g, Point>,
    pub(super) branch: Ref<'g, Run>,
    pub(super) other: Ref<'g, Run>,
}

impl<'g> Scene<'g> {
    /// The end of a run.
    pub(super) fn end_of(&self, run: Ref<'g, Run>) -> Ref<'g, Point> {
        run.as_ref().points.get(run.word().len(), self.resources.guard).expect("runs end in points")
    }
}

/// Returns the violation that `validate` finds in a healthy cache after `plant`. The cache is
/// leaked, because a corrupt one cannot be dropped.
pub(super) fn found(plant: impl FnOnce(&mut Evictor<'_>, Scene<'_>)) -> Violation {
    let bed = Bed::new();
    let violation = bed.cache.inner.evicting(|evictor, resources| {
        evictor.settle(resources);
        evictor.account_leases(&mut LeasePass::default(), usize::MAX, resources);
        assert_eq!(validate(&bed.cache.inner, evictor, resources), Ok(()));
        plant(evictor, bed.scene(resources));
        validate(&bed.cache.inner, evictor, resources).expect_err("planted")
    });
    std::mem::forget(bed);
    let text = violation.to_string();
    assert!(text.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit()), "{text}");
    assert!(!text.ends_with('.') && !text.is_empty(), "{text}");
    violation
}
