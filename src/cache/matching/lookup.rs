//! Lookups: matching, extending a lease, and peeking without taking a lease.
//!
//! Lock-free operations of [`Session`]. They walk the tree (`tree::walk`), lease the last block
//! boundary that agrees (`tree::lease`), and count the result (`lookups`).

use super::lookups::{Query, count_resumed};
use crate::block::{BlockId, BlockLayout};
use crate::cache::leases::lease::Lease;
use crate::cache::namespaces::namespace::Namespace;
use crate::cache::session::Session;
use crate::key::Token;
use crate::reclaim::Guard;
use crate::tree::lease::{Refused, lease_deepest, release};
use crate::tree::path::append_blocks;
use crate::tree::{HeldLease, Position, walk};

/// Whether a lookup counts as a use of the prefix that it finds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::cache) enum Use {
    Counted,
    Uncounted,
}

impl Session {
    /// Leases the longest cached prefix, and replaces the contents of `blocks` by its blocks.
    pub(in crate::cache) fn look_up(
        &self,
        namespace: &Namespace,
        tokens: &[Token],
        use_: Use,
        blocks: &mut Vec<BlockId>,
    ) -> Lease {
        let inner = &**self.strong_refs.inner();
        inner.namespaces.check(namespace);
        blocks.clear();
        // Read before the walk, so that comparing tokens hides the latency of the counter.
        let now = if use_ == Use::Counted { inner.time.now() } else { 0 };
        let participant = self.participant();
        let guard = participant.pin();
        let Some((held, reached)) = self.lease_longest(namespace, tokens, &guard) else {
            return self.find_nothing(namespace, tokens, use_, &guard);
        };
        let counted = use_ == Use::Counted && held.point.depth() > 0;
        let mut lease = Lease::new(held, counted, namespace.0.layout, self.strong_refs.take());
        crate::sync::failpoint!("session::leased");
        if use_ == Use::Counted {
            lease.queried = true;
            inner.count_lookup(namespace.query(tokens), &lease, reached, &guard);
        }
        if counted {
            inner.hot.statistics(&held).touch(now);
            inner.undo_demotions(held.point, now, &guard);
        }
        append_blocks(held.point, 0, namespace.0.layout, blocks, &guard);
        drop(guard);
        lease
    }

    /// The result of a lookup in a namespace that was removed, or that can count no more leases.
    #[cold]
    fn find_nothing(&self, namespace: &Namespace, tokens: &[Token], use_: Use, guard: &Guard<'_>) -> Lease {
        let lease = Lease::of_nothing(namespace.0.layout, self.strong_refs.take());
        if use_ == Use::Counted {
            self.inner().count_lookup(namespace.query(tokens), &lease, 0, guard);
        }
        lease
    }

    /// Leases the deepest block boundary up to which `tokens` are cached; also returns where they
    /// diverge. `None` if the namespace was removed, or can count no more leases.
    fn lease_longest<'g>(
        &self,
        namespace: &Namespace,
        tokens: &[Token],
        guard: &'g Guard<'g>,
    ) -> Option<(HeldLease<'g>, usize)> {
        let layout = namespace.0.layout;
        loop {
            let root = namespace.0.root(guard)?;
            let reached = walk(root, tokens, guard);
            match lease_deepest(reached.boundary(layout), layout, self.context(), guard) {
                Ok(held) => return Some((held, reached.end)),
                Err(Refused::Full) => return None,
                // The root belongs to a space that was detached after it was loaded: the next round
                // loads the new root.
                Err(_) => {}
            }
        }
    }

    pub(in crate::cache) fn extend_lease(
        &self,
        lease: Lease,
        tokens: &[Token],
        first: usize,
        blocks: &mut Vec<BlockId>,
    ) -> Lease {
        self.check_sequence(&lease, tokens);
        blocks.clear();
        let inner = &**self.strong_refs.inner();
        let layout = lease.layout(inner);
        let leased = layout.depth_of(lease.len_tokens());
        let participant = self.participant();
        let guard = participant.pin();
        let Some(from) = lease.held() else {
            return lease;
        };
        let reached = walk(from.point, tokens, &guard);
        let (boundary, reached) = (reached.boundary(layout), reached.end);
        let goes_on = boundary.end() > leased && !from.point.is_invalidated(&guard);
        let deeper = if goes_on { self.lease_beyond(boundary, from, layout, &guard) } else { None };
        let now = inner.time.now();
        let tip = deeper.unwrap_or(from);
        let counted = tip.point.end() > 0;
        let resumed = deeper.map(|deeper| Lease::new(deeper, counted, layout, self.strong_refs.take()));
        match (lease.counted, deeper.is_some()) {
            (true, true) => {
                inner.hot.statistics(&from).move_on();
                inner.hot.statistics(&tip).touch(now);
            }
            (true, false) => inner.hot.statistics(&tip).stamp(now),
            (false, _) if counted => inner.hot.statistics(&tip).touch(now),
            (false, _) => {}
        }
        inner.undo_demotions(tip.point, now, &guard);
        append_blocks(tip.point, first, layout, blocks, &guard);
        let row = tip.point.run().space().account.row.id();
        let (was_queried, known) = (lease.queried, lease.len_tokens());
        let mut lease = resumed.unwrap_or(lease);
        if was_queried {
            count_resumed(row, lease.len_tokens() - known, &guard);
        } else {
            inner.count_lookup(Query { row, layout, tokens }, &lease, reached, &guard);
        }
        drop(guard);
        // Written only if it changes: a store would delay the copy of the whole lease that follows.
        if !lease.queried || lease.counted != counted {
            (lease.queried, lease.counted) = (true, counted);
        }
        lease
    }

    /// Leases the deepest boundary up to `reached`, if it is beyond `from`, which the caller holds.
    fn lease_beyond<'g>(
        &self,
        reached: Position<'g>,
        from: HeldLease<'g>,
        layout: BlockLayout,
        guard: &'g Guard<'g>,
    ) -> Option<HeldLease<'g>> {
        // While a lease is held, the root of its tree is not dead.
        let found = lease_deepest(reached, layout, self.context(), guard).ok()?;
        if found.point.end() > from.point.end() {
            return Some(found);
        }
        _ = release(found, self.context());
        self.strong_refs.inner().ring();
        None
    }
}

pub(in crate::cache) fn peek(session: &Session, namespace: &Namespace, tokens: &[Token]) -> usize {
    session.strong_refs.inner().namespaces.check(namespace);
    let participant = session.participant();
    let guard = participant.pin();
    let layout = namespace.0.layout;
    let root = namespace.0.root(&guard);
    root.map_or(0, |root| layout.filled(walk(root, tokens, &guard).boundary(layout).end()))
}
