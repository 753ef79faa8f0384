//! The pool, and every cached block in exactly one place.

use super::{RunAt, Violation, ensure};
use crate::block::BlockId;
use crate::cache::evictor::{Evictor, Works};
use crate::reclaim::Ref;
use crate::tree::Run;

/// Checks the pool, and the blocks of `runs` against it.
pub(super) fn check(runs: &[Ref<'_, Run>], evictor: &Evictor, works: Works<'_>) -> Result<(), Violation> {
    check_pool(evictor, works)?;
    let mut cached = Cached::of(works);
    for &run in runs {
        let held = run.blocks_to(run.word().len(), works.block_size);
        // The arrays were found long enough.
        for &block in run.block_ids(works.guard).iter().take(held) {
            cached.add(block, run)?;
        }
    }
    Ok(())
}

/// What is not free was reserved or inserted: more cannot be in the accounts.
fn check_pool(evictor: &Evictor, works: Works<'_>) -> Result<(), Violation> {
    let (capacity, free) = (works.pool.capacity(), works.pool.free());
    let stray = works.pool.bits_beyond();
    ensure(stray == 0, || Violation::BitsBeyond { bits: stray, capacity })?;
    let set = works.pool.count_bits();
    ensure(set == free, || Violation::FreeCount { counted: free, set })?;
    let (evictable, protected) = (evictor.totals.evictable, evictor.totals.protected);
    let taken = capacity.saturating_sub(free);
    let fits = evictable.checked_add(protected).is_some_and(|cached| cached <= taken);
    ensure(fits, || Violation::Conservation { free, evictable, protected, capacity })
}

/// Blocks that were met in the tree.
struct Cached<'g> {
    works: Works<'g>,
    met: Vec<bool>,
}

impl<'g> Cached<'g> {
    fn of(works: Works<'g>) -> Self {
        Self { works, met: vec![false; works.pool.capacity()] }
    }

    fn add(&mut self, block: BlockId, run: Ref<'_, Run>) -> Result<(), Violation> {
        let (run, capacity) = (RunAt::of(run), self.met.len());
        let Some(met) = self.met.get_mut(block as usize) else {
            return Err(Violation::BlockOutside { run, block, capacity });
        };
        ensure(!std::mem::replace(met, true), || Violation::BlockTwice { run, block })?;
        ensure(!self.works.pool.is_free(block), || Violation::BlockFree { run, block })
    }
}
