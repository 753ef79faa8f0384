//! What is left of blocks that went: a mark, by which a lookup that misses them says why.

use crate::cache::evictor::{Evictor, Resources};
use crate::reclaim::Ref;
use crate::tree::Run;

impl Evictor {
    /// Leaves a mark of the `keep`-th block of `run`, from which on it has gone.
    #[inline]
    pub(in crate::cache) fn leave_mark<'g>(&mut self, run: Ref<'g, Run>, keep: usize, resources: Resources<'g>) {
        // Of a run or piece that goes whole, the first block was marked when it came; as many marks
        // were left since as came after it.
        let (serial, first) = self.insert_of(run, keep, resources);
        if keep > first || !resources.seen.keeps_for(self.registered - serial) {
            let mark = resources.seen.mark_of(run, keep, resources.grid_of(run), resources.guard);
            mark.into_iter().for_each(|mark| resources.dead.mark(mark));
        }
    }

    /// The number of the run or piece that has a block of `run`, and the first of its blocks.
    #[inline]
    fn insert_of(&self, run: Ref<'_, Run>, block: usize, resources: Resources<'_>) -> (u64, usize) {
        run.account.with(&self.owner, |account| {
            let grid = resources.grid_of(run);
            let end = || (grid.end_of(grid.blocks(run.start()) + block + 1) - run.start()) as u32;
            let piece = if account.pieces.is_empty() { None } else { account.pieces.at(end()) };
            piece.map_or((account.serial, 0), |piece| (piece.serial, run.blocks_to(piece.start, grid)))
        })
    }
}
