//! What became of one request.

/// What became of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Row of the file.
    pub row: usize,
    /// Length of its prompt.
    pub prompt_tokens: usize,
    /// Blocks that were cached; `None` if the request was bypassed.
    pub hit_blocks: Option<u32>,
}

impl Outcome {
    /// Tokens that were cached.
    #[must_use]
    pub fn hit_tokens(&self, block_size: usize) -> usize {
        self.hit_blocks.unwrap_or(0) as usize * block_size
    }

    /// The same for an engine that never takes the last prompt token from the cache, as it needs its logits.
    #[must_use]
    pub fn hit_tokens_capped(&self, block_size: usize) -> usize {
        let most = self.prompt_tokens.saturating_sub(1) / block_size * block_size;
        self.hit_tokens(block_size).min(most)
    }

    /// Prompt tokens that had to be computed.
    #[must_use]
    pub fn computed_tokens(&self, block_size: usize) -> usize {
        self.prompt_tokens.saturating_sub(self.hit_tokens(block_size))
    }
}
