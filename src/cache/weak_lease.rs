//! Weak leases: a prefix that was matched now, to be leased later without walking again.

use std::fmt;

use super::lease::Lease;
use super::session::Session;
use crate::block::Grid;
use crate::sync::Arc;
use crate::tree::Anchor;
use crate::tree::lease::lease_again_if_alive;

/// A prefix without a promise: it may be evicted at any moment, and [`Session::upgrade`] says whether it was.
///
/// For requests that wait: matched when they come, leased when they run. It keeps no block and no cache; a few words of memory
/// stay for as long as it lives. Clones are of the same prefix. `Send` and `Sync`.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// # drop(session.insert(session.match_prefix(&space, &[1, 2]).lease(), &[1, 2], session.reserve(1)?)?);
/// let hit = session.match_prefix(&space, &[1, 2, 3]);
/// let waiting = session.downgrade(hit.lease());
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
    grid: Grid,
    len_tokens: usize,
    cache: Arc<()>,
}

impl WeakLease {
    /// Tokens of the prefix.
    pub fn len_tokens(&self) -> usize {
        self.len_tokens
    }

    pub(super) fn family(&self) -> &Arc<()> {
        &self.cache
    }
}

impl fmt::Debug for WeakLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakLease").field("len_tokens", &self.len_tokens).finish_non_exhaustive()
    }
}

impl Session {
    /// A weak lease on the prefix of `lease`. Lock-free; allocates the first time for a prefix.
    ///
    /// # Panics
    ///
    /// If the lease is of another cache.
    pub fn downgrade(&self, lease: &Lease) -> WeakLease {
        let inner = self.inner();
        assert!(self.is_ours(lease.cache()), "the lease is of another cache");
        let held = lease.held().filter(|held| held.point.depth() > 0);
        let anchor = held.map(|held| {
            let participant = self.participant();
            let guard = participant.pin();
            let anchor = held.point.marks.anchor(|| Arc::new(Anchor::on(held.point)), &guard);
            guard.hand_over();
            anchor
        });
        let cache = inner.namespaces.family();
        WeakLease { anchor, grid: lease.grid(inner), len_tokens: lease.len_tokens(), cache }
    }

    /// A lease on the prefix of `weak`, all of it; `None` if any of its blocks was evicted since or was about to be, or
    /// invalidated, its namespace was cleared or dropped, or it holds 2^28 leases. Its blocks are those that were matched.
    ///
    /// Does not count as a use: [`renew`](Self::renew) and [`count_use`](Self::count_use) do, and [`resume`](Self::resume),
    /// which also looks for what was cached beyond it meanwhile. Lock-free, at the cost of a lease: nothing is compared. An empty
    /// prefix gives `None`.
    ///
    /// # Panics
    ///
    /// If `weak` is of another cache.
    pub fn upgrade(&self, weak: &WeakLease) -> Option<Lease> {
        let inner = self.inner();
        assert!(inner.namespaces.is_family(&weak.cache), "the weak lease is of another cache");
        let participant = self.participant();
        let guard = participant.pin();
        let point = weak.anchor.as_ref()?.point(&guard)?;
        let held = lease_again_if_alive(point, self.ledger())?;
        let lease = Lease::new(held, false, weak.grid, self.strong_refs.take());
        // A lease on what lookups do not find is given back.
        let found = !point.is_cut_off(&guard);
        drop(guard);
        self.help();
        found.then_some(lease)
    }
}
