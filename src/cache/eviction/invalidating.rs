//! Invalidating blocks by their ids: hides them and everything beyond from lookups.

use std::collections::HashSet;

use crate::block::BlockId;
use crate::cache::evictor::{Cut, runs_below};
use crate::cache::inner::Inner;
use crate::cache::prefix_cache::PrefixCache;
use crate::cache::turn::LockMode;
use crate::reclaim::Guard;

pub(in crate::cache) fn invalidate_blocks(cache: &PrefixCache, blocks: &[BlockId]) -> usize {
    let inner = &*cache.inner;
    let wrong: HashSet<BlockId> = blocks.iter().copied().collect();
    inner.settle_by(LockMode::Waits);
    let participant = inner.participant();
    // Pinned throughout: runs that other threads evict meanwhile stay readable.
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

impl Inner {
    /// The cuts to make: on each run before the first of these blocks, and on all runs beyond. Each
    /// run occurs once.
    fn cuts(&self, wrong: &HashSet<BlockId>, guard: &Guard<'_>) -> Vec<Cut> {
        let (mut cuts, mut cut) = (Vec::new(), HashSet::new());
        // Leases in namespaces that were cleared still read their blocks.
        let detached: Vec<_> = self.evicting(|evictor, _| evictor.common.detached.iter().copied().collect());
        let detached = detached.into_iter().map(|space| space.get(guard));
        for space in self.namespaces.spaces(guard).into_iter().chain(detached) {
            let layout = self.layout.with_offset(space.offset);
            let runs = space.root(guard).map(|root| runs_below(root, usize::MAX, guard).0);
            // Parents come before children, so a run beyond a cut is already in `cut` when it is
            // met.
            for run in runs.into_iter().flatten() {
                if cut.contains(&run.link()) {
                    continue;
                }
                let held = run.blocks_to(run.word().len(), layout);
                // Read once: a trim may replace the arrays with shorter ones.
                let mut ids = run.block_ids(guard).iter().take(held).enumerate();
                if let Some((at, block)) = ids.find(|(_, id)| wrong.contains(id)) {
                    let first = cuts.len();
                    cuts.extend(Cut::before(run, at, *block).with_all_beyond(layout, guard));
                    cut.extend(cuts[first..].iter().map(|cut| cut.run()));
                }
            }
        }
        cuts
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
