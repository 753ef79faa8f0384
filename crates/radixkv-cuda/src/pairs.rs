//! Checks of the blocks that one call copies, for `copies` and `swap`.

use radixkv::BlockId;
use radixkv_attention::ShapeError;

/// Blocks of a pool, a bit each.
#[derive(Debug)]
pub(super) struct BlockSet {
    words: Vec<u64>,
}

impl BlockSet {
    fn new(blocks: usize) -> Self {
        Self { words: vec![0; blocks.div_ceil(64)] }
    }

    /// Adds a block; returns whether it is new.
    fn insert(&mut self, block: BlockId) -> bool {
        let (word, bit) = (&mut self.words[block as usize / 64], 1 << (block % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn contains(&self, block: BlockId) -> bool {
        self.words[block as usize / 64] & 1 << (block % 64) != 0
    }
}

/// Checks that the order of the copies makes no difference: no block is beyond the layout, written
/// twice, or written and read.
pub(super) fn check_copies(pairs: &[(BlockId, BlockId)], blocks: usize) -> Result<(), ShapeError> {
    check_ids(pairs.iter().map(|(from, _)| *from), blocks)?;
    let written = check_written_once(pairs, blocks)?;
    match pairs.iter().find(|(from, _)| written.contains(*from)) {
        Some(&(block, _)) => Err(ShapeError::CopyOverlap { block }),
        None => Ok(()),
    }
}

/// Checks that all ids are below `blocks`.
pub(super) fn check_ids(mut ids: impl Iterator<Item = BlockId>, blocks: usize) -> Result<(), ShapeError> {
    match ids.find(|block| *block as usize >= blocks) {
        Some(block) => Err(ShapeError::CopyRange { block, blocks }),
        None => Ok(()),
    }
}

/// Returns the blocks written, if all are below `blocks` and none is written twice.
pub(super) fn check_written_once(pairs: &[(BlockId, BlockId)], blocks: usize) -> Result<BlockSet, ShapeError> {
    let mut written = BlockSet::new(blocks);
    for &(_, block) in pairs {
        if block as usize >= blocks {
            return Err(ShapeError::CopyRange { block, blocks });
        }
        if !written.insert(block) {
            return Err(ShapeError::CopyOverlap { block });
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_accepted_whatever_their_order_and_refused_where_it_matters() {
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..2000 {
            let blocks = random.usize(1..140);
            let mut draw = || random.u32(..blocks as u32 + u32::from(blocks > 120));
            let pairs: Vec<(u32, u32)> = (0..blocks % 9).map(|_| (draw(), draw())).collect();
            let beyond = pairs.iter().any(|(from, to)| (*from.max(to)) as usize >= blocks);
            let twice = (1..pairs.len()).any(|at| pairs[..at].iter().any(|(_, to)| *to == pairs[at].1));
            let read = pairs.iter().any(|(from, _)| pairs.iter().any(|(_, to)| from == to));
            assert_eq!(check_copies(&pairs, blocks).is_ok(), !(beyond || twice || read), "{pairs:?} of {blocks}");
        }
    }
}
