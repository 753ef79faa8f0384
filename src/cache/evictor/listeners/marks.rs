//! Marks of removed blocks, which tell a later lookup why it missed (`matching::ghost_table`).

use crate::cache::evictor::{Evictor, Resources};
use crate::reclaim::Ref;
use crate::tree::Run;

impl Evictor<'_> {
    /// Leaves a mark of the first removed block of `run`, its `keep`-th.
    #[inline]
    pub(in crate::cache) fn leave_mark<'g>(&mut self, run: Ref<'g, Run>, keep: usize, resources: Resources<'g>) {
        // The first block of a run or piece was marked by its insert. That is enough, unless so
        // many runs and pieces were marked later that this mark is probably overwritten.
        let (serial, first) = self.insert_of(run, keep, resources);
        if keep > first || !resources.seen.keeps_for(self.registered - serial) {
            let mark = resources.seen.mark_of(run, keep, resources.layout_of(run), resources.guard);
            mark.into_iter().for_each(|mark| resources.dead.mark(mark));
        }
    }

    /// The serial number of the run or piece that has a block of `run`, and the index of its first
    /// block.
    #[inline]
    fn insert_of(&self, run: Ref<'_, Run>, block: usize, resources: Resources<'_>) -> (u64, usize) {
        run.account.with(&self.owner, |account| {
            let layout = resources.layout_of(run);
            let end = || (layout.end_of(layout.blocks(run.start()) + block + 1) - run.start()) as u32;
            let piece = if account.pieces.is_empty() { None } else { account.pieces.at(end()) };
            piece.map_or((account.serial, 0), |piece| (piece.serial, run.blocks_to(piece.start, layout)))
        })
    }
}
