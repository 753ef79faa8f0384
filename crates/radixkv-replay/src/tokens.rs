//! Makes tokens from hash ids, so that a trace that publishes only hash ids can be replayed.
//!
//! A published trace names pieces of a prompt by hash ids and withholds their text. Every hash id
//! stands for an endless sequence of pseudo-random tokens, which is the same on every machine.
//!
//! Ids below 2^44 follow a published rule, by which other programs make the same tokens. The first
//! token is the id itself, so pieces with different ids below 2^32 differ in their first token. The
//! other tokens are made from the seed `id << 20 | at`, which has room for 44 bits of the id.
//! Larger ids, such as 64-bit hashes, are first scrambled by a bijection, and their tokens are the
//! other half of the generator's output: if a large and a small id share a seed, their tokens still
//! differ. Two ids, one of them at least 2^44, agree in `n` tokens with a probability of 2^(-32 n).

use std::hint::black_box;

use radixkv::key::Token;

/// The first of the hash ids for prompt tokens that no hash id of the trace covers: one id per row.
pub const UNIQUE_PROMPT: u64 = 1 << 31;

/// The first of the hash ids for generated tokens that the trace does not list: one id per row.
pub const UNIQUE_OUTPUT: u64 = 3 << 30;

/// The first hash id that needs more bits than the published rule uses.
const LARGE: u64 = 1 << 44;

/// Token `at` (counted from 0) of hash id `id`.
///
/// Below 2^44, token 0 is the id, and the others are the low half of splitmix64 of `id << 20 | at`.
/// From 2^44 on, every token is the high half of splitmix64 of `splitmix64(id) + at`.
///
/// # Examples
///
/// ```
/// use radixkv_replay::token_id;
///
/// assert_eq!(token_id(46, 0), 46);
/// assert_eq!(token_id(46, 511), 2211684443);
/// assert_ne!(token_id(46 + (1 << 44), 511), token_id(46, 511));
/// ```
#[inline]
#[must_use]
pub fn token_id(id: u64, at: u64) -> Token {
    match (id < LARGE, at) {
        (true, 0) => id as Token,
        (true, _) => mix(id << 20 | at),
        (false, _) => mix_large(splitmix64(id), at),
    }
}

/// Writes the first `out.len()` tokens of `id`.
pub(crate) fn fill(id: u64, out: &mut [Token]) {
    if id < LARGE {
        return fill_published(id, out);
    }
    let scrambled = splitmix64(id);
    for (at, token) in out.iter_mut().enumerate() {
        *token = mix_large(scrambled, at as u64);
    }
}

fn fill_published(id: u64, out: &mut [Token]) {
    let (base, mut at) = (id << 20, 0);
    // The first token is mixed like the others and then replaced, so the loop has no branch.
    // Vectorized for SSE2, which has no 64-bit multiplication, it takes 1.5 ns a token. Hiding
    // every other seed from the compiler keeps it scalar: 1.0 ns. AVX2 would be no faster.
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

/// The high half of splitmix64 for an id that is already scrambled.
#[inline(always)]
fn mix_large(scrambled: u64, at: u64) -> Token {
    (splitmix64(scrambled.wrapping_add(at)) >> 32) as Token
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

    // Holds: RP8.
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
            (LARGE - 1, 0, u32::MAX),
            (LARGE - 1, 1, 1_107_950_444),
        ];
        for (id, at, token) in examples {
            assert_eq!(token_id(id, at), token, "token {at} of {id}");
        }
    }

    #[test]
    fn every_bit_of_an_id_counts() {
        let tokens = |id: u64| [0, 1, 2, 3].map(|at| token_id(id, at));
        let ids: Vec<u64> = (0..64).flat_map(|bit| [5, 1 << 43].map(|id| id ^ 1 << bit)).chain([5, 1 << 43]).collect();
        for (at, &a) in ids.iter().enumerate() {
            for &b in ids[..at].iter().filter(|&&b| b != a) {
                assert_ne!(tokens(a)[1..], tokens(b)[1..], "{a:#x} and {b:#x}");
            }
        }
    }

    /// A large id whose scrambled form is the seed of a small id's first token: all seeds that
    /// follow are also equal.
    #[test]
    fn a_seed_in_common_gives_other_tokens() {
        for small in [1, 46, LARGE - 1] {
            let large = unscrambled(small << 20);
            assert!(large >= LARGE);
            for at in 1..100 {
                assert_ne!(token_id(large, at), token_id(small, at), "token {at} of {small}");
            }
        }
    }

    /// The state from which splitmix64 makes `z`.
    fn unscrambled(z: u64) -> u64 {
        let unshifted = |z: u64, by: u32| (0..64 / by).fold(z, |known, _| z ^ known >> by);
        let z = unshifted(z, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
        let z = unshifted(z, 27).wrapping_mul(0x96de_1b17_3f11_9089);
        unshifted(z, 30).wrapping_sub(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn filling_equals_asking_one_by_one() {
        for id in [0, 1, 46, UNIQUE_PROMPT + 5, LARGE - 1, LARGE, u64::MAX] {
            let mut tokens = [0; 601];
            fill(id, &mut tokens);
            for (at, token) in tokens.iter().enumerate() {
                assert_eq!(*token, token_id(id, at as u64));
            }
        }
        fill(3, &mut []);
    }
}
