//! Slots: the index of each token's keys and values in an engine's KV memory.

use std::ops::Range;

use super::BlockId;

/// Writes the slots of the tokens in `tokens`, a range of a sequence whose blocks are `blocks`. The
/// slot of a token is `block id * block_size + offset in the block`. One pass, no allocation.
///
/// # Panics
///
/// If the length of `slots` is not the number of tokens, or a token is beyond the blocks.
///
/// # Examples
///
/// ```
/// let mut slots = [0; 4];
/// // The sequence's blocks of four tokens are 7 and 2; its tokens 2 to 5 are computed now.
/// radixkv::write_slots(&[7, 2], 4, 2..6, &mut slots);
/// assert_eq!(slots, [30, 31, 8, 9]);
/// ```
pub fn write_slots(blocks: &[BlockId], block_size: usize, tokens: Range<usize>, slots: &mut [i64]) {
    let len = tokens.len();
    assert!(slots.len() == len, "{len} tokens need {len} slots, not {}", slots.len());
    let room = blocks.len().saturating_mul(block_size);
    assert!(tokens.end <= room, "tokens end at {}, but the blocks have room for {room}", tokens.end);
    if len == 0 {
        return;
    }
    let (first, within) = (tokens.start / block_size, tokens.start % block_size);
    let (head, rest) = slots.split_at_mut(len.min(block_size - within));
    write_block(blocks[first], block_size, within, head);
    rest.chunks_mut(block_size).zip(&blocks[first + 1..]).for_each(|(part, block)| {
        write_block(*block, block_size, 0, part);
    });
}

fn write_block(block: BlockId, block_size: usize, within: usize, slots: &mut [i64]) {
    let base = i64::from(block) * block_size as i64 + within as i64;
    slots.iter_mut().zip(base..).for_each(|(slot, at)| *slot = at);
}

#[cfg(test)]
mod tests;
