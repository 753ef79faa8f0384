//! Retention, priorities and demotions: marks that a session puts on the prefix of a lease.
//!
//! Each request applies to the prefix of a lease, from the root of its namespace to the lease's
//! end, and stays with those blocks. It does not apply to cached continuations; they protect the
//! prefix anyway, because no block is evicted before its continuations.

use std::fmt;
use std::time::Duration;

use super::lease::Lease;
use crate::cache::inner::Inner;
use crate::cache::numbers::counters::Count;
use crate::cache::session::Session;
use crate::reclaim::Ref;
use crate::sync::gauge::Relaxed;
use crate::tree::{Marked, Point};

/// Why a prefix was not retained.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// # use std::time::Duration;
/// use radixkv::RetainError;
///
/// let hit = session.match_prefix(&space, &[1, 2]);
/// cache.clear();
/// assert_eq!(session.retain(hit.lease(), Duration::from_secs(60)), Err(RetainError::NamespaceDropped));
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetainError {
    /// The lease's namespace was removed or cleared: no lookup finds the prefix any more.
    NamespaceDropped,
    /// Blocks of the lease were [invalidated](crate::PrefixCache::invalidate_blocks).
    Invalidated,
    /// The prefix has the maximum number of leases, 2^28: retry once some are dropped.
    TooManyLeases,
}

impl fmt::Display for RetainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NamespaceDropped => "the namespace of the lease was removed or cleared: match again",
            Self::Invalidated => "blocks of the lease were invalidated: match again",
            Self::TooManyLeases => "the prefix holds 2^28 leases: retry once some are dropped",
        })
    }
}

impl std::error::Error for RetainError {}

impl Session {
    /// Puts marks on the point of a lease, and tells the evictor.
    pub(in crate::cache) fn mark(&self, lease: &Lease, marked: Marked) {
        self.check_lease(lease);
        if let Some(held) = lease.held().filter(|held| held.point.depth() > 0) {
            let participant = self.participant();
            let guard = participant.pin();
            held.point.marks.join(marked, &guard);
            // A replaced record is handed over at once, so that it need not wait for more garbage.
            guard.hand_over();
            self.inner().announce(held.point);
        }
    }
}

impl Inner {
    /// Tells the evictor that `point` has new marks; the caller holds a lease on it.
    fn announce(&self, point: Ref<'_, Point>) {
        if point.word.announce() {
            self.queues.push(point);
        }
    }
}

pub(in crate::cache) fn retain(session: &Session, lease: &Lease, duration: Duration) -> Result<(), RetainError> {
    session.check_lease(lease);
    let (inner, participant) = (session.inner(), session.participant());
    let guard = participant.pin();
    let point = match lease.held() {
        None => return Err(RetainError::NamespaceDropped),
        Some(held) if held.point.run().space().is_detached() => return Err(RetainError::NamespaceDropped),
        Some(held) if held.point.is_invalidated(&guard) => return Err(RetainError::Invalidated),
        Some(held) => held.point,
    };
    if point.depth() == 0 {
        return Ok(());
    }
    if !point.word.lease_more() {
        return Err(RetainError::TooManyLeases);
    }
    crate::sync::failpoint!("retain::leased");
    let until = inner.time.after(duration);
    point.marks.ask(inner.demotions.undone(), until, &guard);
    guard.hand_over();
    drop(guard);
    let blocks = inner.layout.blocks(lease.len_tokens());
    participant.count([(Count::Retentions, 1), (Count::RetainedBlocks, blocks)]);
    // Relaxed: the count of free blocks publishes it below.
    inner.retentions.fetch_add(1, Relaxed);
    crate::sync::failpoint!("retain::noted");
    inner.announce(point);
    // The releaser's side of E16 and E21: another thread may have to push the point, and wakes
    // nobody then. So a waiter that looks later counts this request, and any other waiter is woken.
    inner.sink().free_for_waiter();
    if let Some(background) = inner.background.get() {
        background.changes_pending();
    }
    // A thread that waits already must learn of this deadline before it sleeps again.
    inner.ring();
    Ok(())
}
