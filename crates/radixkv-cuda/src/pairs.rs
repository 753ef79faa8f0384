//! Checks of the blocks that one call copies.

use radixkv::BlockId;
use radixkv_attention::ShapeError;

/// Checks that the order of the copies makes no difference: no block is beyond the layout, written twice, or written
/// and read.
pub(super) fn check_copies(pairs: &[(BlockId, BlockId)], blocks: usize) -> Result<(), ShapeError> {
    check_ids(pairs.iter().flat_map(|(from, to)| [*from, *to]), blocks)?;
    let written = check_written_once(pairs)?;
    match pairs.iter().find(|(from, _)| written.binary_search(from).is_ok()) {
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

/// The blocks written, sorted, if none is written twice.
pub(super) fn check_written_once(pairs: &[(BlockId, BlockId)]) -> Result<Vec<BlockId>, ShapeError> {
    let mut written: Vec<BlockId> = pairs.iter().map(|(_, to)| *to).collect();
    written.sort_unstable();
    match written.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ShapeError::CopyOverlap { block: pair[0] }),
        None => Ok(written),
    }
}
