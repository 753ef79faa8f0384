//! Matches in a host tier: pinned blocks that continue a sequence. The pins of `slots` protect
//! their bytes.

use std::{fmt, ops::Range, sync::Arc};

use crate::{
    index::Place,
    tier::{HostBlock, HostTier, Inner},
};

/// The host blocks that continue a cached prefix, pinned: while this value lives, they are neither
/// evicted nor overwritten.
///
/// Made by [`HostTier::match_from`](crate::HostTier::match_from). Dropping it makes its blocks the
/// most recently used of the tier.
#[must_use = "dropping it unpins its blocks"]
pub struct HostMatch {
    tier: Arc<Inner>,
    from: usize,
    blocks: Vec<HostBlock>,
}

impl HostMatch {
    pub(crate) fn new(tier: Arc<Inner>, from: usize, found: Vec<(HostBlock, Place)>) -> Self {
        Self { tier, from, blocks: found.into_iter().map(|(block, _)| block).collect() }
    }

    /// Tokens of the match beyond the first `from` tokens of the sequence.
    pub fn len_tokens(&self) -> usize {
        self.tokens().len()
    }

    /// The range of the sequence's tokens that the match covers.
    pub fn tokens(&self) -> Range<usize> {
        let first = self.from / self.tier.block_size();
        let end = (first + self.blocks.len()) * self.tier.block_size();
        self.from..end.max(self.from)
    }

    /// The pinned blocks, in the order of the sequence. The first one may begin before token
    /// `from`.
    pub fn blocks(&self) -> &[HostBlock] {
        &self.blocks
    }

    /// The bytes of the block at this index of [`blocks`](Self::blocks); empty if the tier only
    /// counts.
    ///
    /// # Panics
    ///
    /// If the index is out of range.
    #[allow(unsafe_code)]
    pub fn bytes(&self, at: usize) -> &[u8] {
        let block = self.blocks[at] as usize;
        // SAFETY: `self` has the block pinned, and the slice borrows `self`.
        unsafe { self.tier.memory().block(block, self.tier.block_bytes()) }
    }

    /// Whether the match is of this tier.
    pub(crate) fn is_of(&self, tier: &HostTier) -> bool {
        Arc::ptr_eq(&self.tier, &tier.inner)
    }

    /// Counts the match as a lookup.
    pub(crate) fn count_lookup(&self) {
        self.tier.lock().counters.looked_up(self.blocks.len());
    }

    /// Removes from the tier the blocks that end within the first `tokens` tokens of the sequence,
    /// because they are cached elsewhere. Their memory is freed when the last reader releases it.
    /// Returns how many the tier still had.
    pub fn remove_up_to(&self, tokens: usize) -> usize {
        let first = self.from / self.tier.block_size();
        let whole = (tokens / self.tier.block_size()).saturating_sub(first).min(self.blocks.len());
        let mut state = self.tier.lock();
        // Deepest first, so that each removal cuts the end of a run only once.
        let removed = self.blocks[..whole].iter().rev().filter(|&&block| state.remove(block)).count();
        state.counters.removed_blocks += removed as u64;
        removed
    }

    /// Releases the blocks that end beyond the first `tokens` tokens of the sequence.
    pub fn shorten(&mut self, tokens: usize) {
        let first = self.from / self.tier.block_size();
        let kept = (tokens / self.tier.block_size()).saturating_sub(first);
        if kept < self.blocks.len() {
            let given_up = self.blocks.split_off(kept);
            self.tier.unpin(given_up.into_iter());
        }
    }
}

impl Drop for HostMatch {
    fn drop(&mut self) {
        if !self.blocks.is_empty() {
            self.tier.unpin(self.blocks.iter().copied());
        }
    }
}

impl fmt::Debug for HostMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMatch").field("tokens", &self.tokens()).finish_non_exhaustive()
    }
}
