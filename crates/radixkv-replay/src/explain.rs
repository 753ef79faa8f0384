//! Compares two prompts: what they share, and how much of it a cache can reuse.

use radixkv::key::{Token, common_prefix};
use serde::Serialize;

/// Length of a run of equal tokens that counts as agreement again; fewer may be equal by chance.
const REJOINED: usize = 16;

/// A comparison of two prompts: what they share, and how much of it a cache can reuse. `serde`
/// serializes it with the field names as keys.
///
/// # Examples
///
/// ```
/// use radixkv_replay::Explained;
///
/// let (a, b): (Vec<u32>, Vec<u32>) = ((0..40).collect(), (0..37).chain([90, 91]).collect());
/// let explained = Explained::new(&a, &b, 16);
/// assert_eq!((explained.shared_tokens, explained.whole_blocks, explained.mid_block_tokens), (37, 2, 5));
/// assert_eq!(explained.block_hash_tokens, 32);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explained {
    /// Number of tokens of each prompt.
    pub tokens: [usize; 2],
    /// Tokens per block.
    pub block_size: usize,
    /// The length of the common prefix in tokens.
    pub shared_tokens: usize,
    /// Whole blocks of the common prefix, which the second prompt hits once the first one is
    /// cached.
    pub whole_blocks: usize,
    /// Tokens of the common prefix beyond these blocks, in the block where the prompts diverge.
    /// Only a cache that copies a part of a block (`Session::match_partial`) hits them.
    pub mid_block_tokens: usize,
    /// Tokens that a cache with block hashes reuses for the second prompt: those of the whole
    /// blocks.
    pub block_hash_tokens: usize,
    /// The same for a cache that always leaves the last prompt token to be computed.
    pub block_hash_tokens_capped: usize,
    /// The offset in each prompt from which they agree again for at least 16 tokens. No prefix
    /// cache reuses those tokens.
    pub rejoins_at: Option<[usize; 2]>,
}

impl Explained {
    /// Compares two prompts.
    ///
    /// # Panics
    ///
    /// Panics if `block_size` is zero.
    #[must_use]
    pub fn new(a: &[Token], b: &[Token], block_size: usize) -> Self {
        let shared_tokens = common_prefix(a, b);
        let whole_blocks = shared_tokens / block_size;
        let recovered = whole_blocks * block_size;
        Self {
            tokens: [a.len(), b.len()],
            block_size,
            shared_tokens,
            whole_blocks,
            mid_block_tokens: shared_tokens - recovered,
            block_hash_tokens: recovered,
            block_hash_tokens_capped: recovered.min(b.len().saturating_sub(1) / block_size * block_size),
            rejoins_at: rejoin(&a[shared_tokens..], &b[shared_tokens..])
                .map(|places| places.map(|place| shared_tokens + place)),
        }
    }
}

/// The first window of `b` that also occurs in `a`: its first offset in `a`, and its offset in `b`.
fn rejoin(a: &[Token], b: &[Token]) -> Option<[usize; 2]> {
    let mut places = std::collections::HashMap::new();
    for (place, window) in a.windows(REJOINED).enumerate() {
        places.entry(window).or_insert(place);
    }
    b.windows(REJOINED).enumerate().find_map(|(place, window)| Some([*places.get(window)?, place]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_part_anywhere() {
        let explained = |a: &[Token], b: &[Token]| Explained::new(a, b, 4);
        let same = explained(&[1, 2, 3, 4], &[1, 2, 3, 4]);
        assert_eq!((same.shared_tokens, same.whole_blocks, same.mid_block_tokens), (4, 1, 0));
        assert_eq!((same.block_hash_tokens, same.block_hash_tokens_capped), (4, 0));
        let none = explained(&[], &[1]);
        assert_eq!((none.shared_tokens, none.block_hash_tokens_capped, none.rejoins_at), (0, 0, None));
        let part = explained(&[1, 2, 3, 4, 5, 6, 7], &[1, 2, 3, 4, 5, 9, 7]);
        assert_eq!((part.shared_tokens, part.whole_blocks, part.mid_block_tokens), (5, 1, 1));
    }

    #[test]
    fn a_prompt_that_was_shifted_rejoins() {
        let shared: Vec<Token> = (1000..1000 + REJOINED as Token).collect();
        let after = |start: &[Token]| [start, &shared].concat();
        assert_eq!(Explained::new(&after(&[1, 2]), &after(&[1, 3, 4]), 4).rejoins_at, Some([2, 3]));
        assert_eq!(Explained::new(&after(&[1, 2]), &after(&[1, 3, 4])[..REJOINED], 4).rejoins_at, None);
    }
}
