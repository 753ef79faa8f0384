//! Weak leases: a matched prefix that can be leased later without another walk. It keeps an anchor
//! of the prefix's point (`tree::Anchor`), which is cleared when the point dies.

use std::fmt;

use super::lease::Lease;
use crate::block::BlockLayout;
use crate::cache::namespaces::namespace::Family;
use crate::cache::prefix_cache::PrefixCache;
use crate::cache::session::Session;
use crate::sync::Arc;
use crate::tree::Anchor;
use crate::tree::lease::lease_again_if_alive;

/// A reference to a prefix that does not protect it: the prefix may be evicted at any moment, and
/// [`Session::upgrade`] says whether it was.
///
/// For requests that wait: match them on arrival, lease when they run. It keeps no block and no
/// cache alive; it costs a few words of memory. Clones refer to the same prefix. `Send` and `Sync`.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// # drop(session.insert(session.match_prefix(&space, &[1, 2]).lease(), &[1, 2], session.reserve(1)?)?);
/// let hit = session.match_prefix(&space, &[1, 2, 3]);
/// let waiting = hit.lease().downgrade();
/// drop(hit);
/// let lease = session.upgrade(&waiting).expect("nothing was evicted");
/// assert_eq!(lease.len_tokens(), 2);
/// drop(lease);
/// cache.evict(1);
/// assert!(session.upgrade(&waiting).is_none());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct WeakLease {
    /// `None` if the prefix is empty.
    anchor: Option<Arc<Anchor>>,
    layout: BlockLayout,
    len_tokens: usize,
    family: Arc<Family>,
}

impl WeakLease {
    /// Tokens of the prefix.
    pub fn len_tokens(&self) -> usize {
        self.len_tokens
    }

    /// Whether this cache owns the weak lease; using another cache's is
    /// [misuse](PrefixCache#misuse).
    pub fn is_of(&self, cache: &PrefixCache) -> bool {
        cache.inner.namespaces.is_family(&self.family)
    }
}

impl fmt::Debug for WeakLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakLease").field("len_tokens", &self.len_tokens).finish_non_exhaustive()
    }
}

pub(in crate::cache) fn upgrade(session: &Session, weak: &WeakLease) -> Option<Lease> {
    let inner = session.inner();
    assert!(inner.namespaces.is_family(&weak.family), "the weak lease belongs to another cache");
    let participant = session.participant();
    let guard = participant.pin();
    let point = weak.anchor.as_ref()?.point(&guard)?;
    let held = lease_again_if_alive(point, session.context())?;
    let lease = Lease::new(held, false, weak.layout, session.strong_refs.take());
    // A lease on a prefix that lookups no longer find is given back.
    let found = !point.is_cut_off(&guard);
    drop(guard);
    found.then_some(lease)
}

pub(in crate::cache) fn downgrade(lease: &Lease) -> WeakLease {
    let inner = &*lease.cache;
    let held = lease.held().filter(|held| held.point.depth() > 0);
    let anchor = held.map(|held| {
        let participant = inner.lend(held.counted_on.stripe().into());
        let guard = participant.pin();
        let anchor = held.point.marks.anchor(|| Arc::new(Anchor::on(held.point)), &guard);
        guard.hand_over();
        anchor
    });
    let family = Arc::clone(&inner.namespaces.family);
    WeakLease { anchor, layout: lease.layout(inner), len_tokens: lease.len_tokens(), family }
}
