//! Invalidating blocks by their ids.

use std::collections::HashSet;

use super::evictor::{Cut, runs_below};
use super::inner::{Inner, Patience};
use super::lease::Lease;
use super::prefix_cache::PrefixCache;
use super::session::Session;
use crate::block::BlockId;
use crate::reclaim::Guard;

impl PrefixCache {
    /// Makes lookups find none of these blocks and nothing beyond them any more, because they hold wrong keys and values: after a
    /// fault of the hardware, or of a kernel. Returns how many cached blocks that were.
    ///
    /// What no lease and no retention holds is free when this returns. Leases stay, so what reads the blocks is not disturbed: ask
    /// [`Session::is_invalidated`] which requests to abort. Their blocks are free once they are dropped; retentions end at once.
    /// An insert from such a lease is refused. Leases of namespaces that were cleared or dropped are looked at too. The same
    /// tokens can be computed and inserted again at once.
    ///
    /// Blocks in reservations, and ids that are not cached, are ignored: what was inserted before the call counts. Looks at every
    /// run of the cache; hides in slices of up to 256 runs, between which other threads get their turn (a run that was matched at
    /// many depths is taken whole, at about a microsecond for each). Waits its turn if another thread is evicting.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let prompt = [1, 2, 3, 4, 5, 6];
    /// let start = session.acquire(&space, &prompt, 0)?;
    /// let inserted = session.insert(start.hit.lease(), &prompt, start.blocks)?;
    /// assert_eq!(cache.invalidate_blocks(&[inserted.blocks[1]]), 2); // that one, and the one beyond it
    /// assert_eq!((session.peek(&space, &prompt), session.is_invalidated(&inserted.lease)), (2, true));
    /// drop(inserted);
    /// assert_eq!(cache.stats().invalidated_blocks, 2);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn invalidate_blocks(&self, blocks: &[BlockId]) -> usize {
        let inner = &*self.inner;
        let wrong: HashSet<BlockId> = blocks.iter().copied().collect();
        inner.settle_by(Patience::Waits);
        let participant = inner.participant();
        // For the whole of it: what other threads evict meanwhile stays readable.
        let guard = participant.pin();
        let mut cuts = inner.cuts(&wrong, &guard);
        let mut hidden = 0;
        while !cuts.is_empty() {
            hidden += inner.in_turn(|evictor, resources| evictor.invalidate(&mut cuts, resources));
        }
        drop(guard);
        inner.ring();
        hidden
    }
}

impl Inner {
    /// Where the first of these blocks lies on each run, and all that hangs beyond; each run once.
    fn cuts(&self, wrong: &HashSet<BlockId>, guard: &Guard<'_>) -> Vec<Cut> {
        let (mut cuts, mut cut) = (Vec::new(), HashSet::new());
        // Leases of namespaces that were cleared read their blocks as others do.
        let detached: Vec<_> = self.evicting(|evictor, _| evictor.detached.iter().copied().collect());
        let detached = detached.into_iter().map(|space| space.get(guard));
        for space in self.namespaces.spaces(guard).into_iter().chain(detached) {
            let grid = self.grid.with_offset(space.offset);
            let runs = space.root(guard).map(|root| runs_below(root, usize::MAX, guard).0);
            // Parents come before children: what hangs beyond a cut is known to go when it is met.
            for run in runs.into_iter().flatten() {
                if cut.contains(&run.link()) {
                    continue;
                }
                let held = run.blocks_to(run.word().len(), grid);
                // Read once: a trim may put shorter ones in their place.
                let mut ids = run.block_ids(guard).iter().take(held).enumerate();
                if let Some((at, block)) = ids.find(|(_, id)| wrong.contains(id)) {
                    let first = cuts.len();
                    cuts.extend(Cut::before(run, at, *block).with_all_beyond(grid, guard));
                    cut.extend(cuts[first..].iter().map(|cut| cut.run()));
                }
            }
        }
        cuts
    }
}

impl Session {
    /// Whether blocks of this lease were [invalidated](PrefixCache::invalidate_blocks), so that its request must be computed
    /// again. Lock-free; time linear in the inserts that made the prefix.
    ///
    /// Also of a lease that an insert gave which was on its way meanwhile.
    ///
    /// # Panics
    ///
    /// If the lease is of another cache.
    pub fn is_invalidated(&self, lease: &Lease) -> bool {
        assert!(self.is_ours(lease.cache()), "the lease is of another cache");
        let participant = self.participant();
        let guard = participant.pin();
        let tip = lease.held().map(|held| held.point);
        std::iter::successors(tip, |point| point.run().parent()).any(|point| point.is_hidden(&guard))
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
