//! Reading the blocks of a leased path, from its tip upwards through fixed parents.

use crate::block::BlockId;
use crate::reclaim::{Guard, Ref};

use super::point::Point;

/// Appends the ids of the path's blocks from `first` on, in order. The caller holds a lease on `tip`.
pub(crate) fn append_blocks(
    tip: Ref<'_, Point>,
    first: usize,
    block_size: usize,
    blocks: &mut Vec<BlockId>,
    guard: &Guard<'_>,
) {
    let base = blocks.len();
    let (mut run, mut depth) = (tip.run(), tip.depth());
    blocks.resize(base + (tip.end() / block_size - first), 0);
    let path = &mut blocks[base..];
    loop {
        // The run holds blocks `at..at + held` of the path.
        let at = run.start() / block_size;
        let held = run.blocks_to(depth, block_size);
        if let Some(skip) = (at + held).checked_sub(first).map(|_| first.saturating_sub(at)) {
            if skip < held {
                let ids = &run.block_ids(guard)[skip..held];
                path[at + skip - first..at + held - first].copy_from_slice(ids);
            }
        }
        if at <= first {
            return;
        }
        let Some(parent) = run.parent() else { return };
        (run, depth) = (parent.run(), parent.depth());
    }
}
