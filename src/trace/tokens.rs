//! Token ids from hash ids: what a trace that publishes only hashes is replayed with.
//!
//! A published trace names pieces of a prompt by hash ids and keeps the text to itself. Every hash id stands for an
//! endless sequence of pseudo-random tokens whose first token is the id itself, so that pieces with different ids
//! part at their first token and equal ids give equal tokens, wherever and whenever they are made.

use std::hint::black_box;

use crate::key::Token;

/// Hash ids from here on belong to prompt tokens that no hash id of the trace covers: one id per row of the file.
pub const UNIQUE_PROMPT: u64 = 1 << 31;

/// Hash ids from here on belong to generated tokens: one id per row of the file.
pub const UNIQUE_OUTPUT: u64 = 3 << 30;

/// Token `at` of hash id `id`: the id for the first, the low half of splitmix64 of `id << 20 | at` for the others.
///
/// # Examples
///
/// ```
/// assert_eq!(radixkv::trace::token_id(46, 0), 46);
/// assert_eq!(radixkv::trace::token_id(46, 511), 2211684443);
/// ```
#[inline]
#[must_use]
pub fn token_id(id: u64, at: u64) -> Token {
    if at == 0 { id as Token } else { mix(id << 20 | at) }
}

/// Writes the first `out.len()` tokens of `id`.
pub(crate) fn fill(id: u64, out: &mut [Token]) {
    let (base, mut at) = (id << 20, 0);
    // The first token is mixed along with the others and then replaced: a loop without a branch. Left to itself it is
    // vectorized for SSE2, which has no 64-bit multiplication: 1.5 ns a token. Hiding every other seed keeps it
    // scalar: 1.0 ns. AVX2 would do no better.
    let mut pairs = out.chunks_exact_mut(2);
    for pair in &mut pairs {
        pair[0] = mix(base | at);
        pair[1] = mix(black_box(base | (at + 1)));
        at += 2;
    }
    if let [odd] = pairs.into_remainder() {
        *odd = mix(base | at);
    }
    if let Some(first) = out.first_mut() {
        *first = id as Token;
    }
}

/// The low half of splitmix64.
#[inline(always)]
fn mix(seed: u64) -> Token {
    splitmix64(seed) as Token
}

/// One step of splitmix64 from the state `seed`.
#[inline(always)]
pub(crate) fn splitmix64(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_examples_hold() {
        let examples = [
            (0, 0, 0),
            (0, 1, 2_298_633_409),
            (1, 0, 1),
            (1, 1, 3_271_458_679),
            (46, 511, 2_211_684_443),
            (182_789, 17, 468_490_157),
            (UNIQUE_PROMPT + 5, 0, 2_147_483_653),
            (UNIQUE_PROMPT + 5, 3, 565_840_089),
            (UNIQUE_OUTPUT + 7, 2, 1_067_733_639),
        ];
        for (id, at, token) in examples {
            assert_eq!(token_id(id, at), token, "token {at} of {id}");
        }
    }

    #[test]
    fn filling_equals_asking_one_by_one() {
        for id in [0, 1, 46, UNIQUE_PROMPT + 5, u64::MAX] {
            let mut tokens = [0; 601];
            fill(id, &mut tokens);
            for (at, token) in tokens.iter().enumerate() {
                assert_eq!(*token, token_id(id, at as u64));
            }
        }
        fill(3, &mut []);
    }
}
