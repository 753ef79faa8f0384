//! Fingerprints: hashes of a block's last tokens, for statistics. They never identify a block.

use crate::block::BlockLayout;
use crate::key::Token;

/// Number of a block's last tokens that its fingerprint uses.
pub(crate) const TAIL: usize = 8;

/// The fingerprint of the last block of `tokens`, which end at a block boundary.
#[inline]
pub(crate) fn fingerprint(tokens: &[Token], layout: BlockLayout) -> u64 {
    fingerprint_of(&tokens[tokens.len() - TAIL.min(layout.tokens())..], tokens.len())
}

/// The fingerprint of a block that ends at depth `end`, from its last tokens: [`TAIL`] of them, or
/// all if there are fewer.
#[inline]
pub(crate) fn fingerprint_of(last: &[Token], end: usize) -> u64 {
    match <&[Token; TAIL]>::try_from(last) {
        // With a constant length, the compiler unrolls the loop completely.
        Ok(last) => mix(last, end),
        Err(_) => mix(last, end),
    }
}

#[inline(always)]
fn mix(tokens: &[Token], end: usize) -> u64 {
    // An odd number without a pattern: the golden ratio in 64 bits.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |mixed: u64, tokens: u64| (mixed ^ tokens).wrapping_mul(FACTOR).rotate_left(29);
    let mut mixed = end as u64;
    let mut pairs = tokens.chunks_exact(2);
    for pair in &mut pairs {
        mixed = step(mixed, u64::from(pair[0]) | u64::from(pair[1]) << 32);
    }
    for token in pairs.remainder() {
        mixed = step(mixed, u64::from(*token));
    }
    mixed ^ mixed >> 32
}
