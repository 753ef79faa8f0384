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
    let base = id << 20;
    // The first token is mixed like the others and then replaced, so the loop has no branch.
    // Vectorized for SSE2, which has no 64-bit multiplication, it takes 1.5 ns a token. Hiding
    // every other seed from the compiler keeps it scalar: 1.0 ns. AVX2 would be no faster.
    let mut at = 0;
    while at + 1 < out.len() {
        out[at] = mix(base | at as u64);
        out[at + 1] = mix(black_box(base | (at + 1) as u64));
        at += 2;
    }
    if at < out.len() {
        out[at] = mix(base | at as u64);
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
mod tests;
