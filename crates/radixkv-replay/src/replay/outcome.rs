//! The result of one request.

/// The result of one request: what was cached, and what had to be computed.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, Trace, replay, replay::Capacity};
///
/// let row = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4, 5]}"#;
/// let trace = Trace::from_reader(std::io::Cursor::new(format!("{row}\n{row}")), "rows", None)?;
/// let config = ReplayConfig::default().block_size(2).capacity(Capacity::Blocks(8));
/// let second = replay(&trace, &config, &|| {})?.outcomes[1];
/// assert_eq!((second.hit_tokens(2), second.computed_tokens(2)), (4, 1));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// Row of the file that the request was read from, counted from 0.
    pub row: usize,
    /// Number of tokens of its prompt.
    pub prompt_tokens: usize,
    /// Number of its blocks that were cached, in any tier; `None` if the request was bypassed.
    pub hit_blocks: Option<u32>,
    /// Tokens beyond these blocks that were cached in smaller blocks of a host tier.
    pub tail_tokens: u32,
    /// The number of these tokens from the host tier.
    pub host_tokens: u32,
    /// The number of these tokens from a remote tier.
    pub remote_tokens: u32,
    /// Time until the tokens from the host tier and the remote tier are on the device, in
    /// nanoseconds.
    pub copy_ns: u64,
    /// The part of that time until the tokens from the remote tier are in the host.
    pub fetch_ns: u64,
    /// Blocks cached after the request; with several threads, after one of the requests shortly
    /// before.
    pub cached_blocks: u32,
    /// The number of these blocks that leases protect.
    pub protected_blocks: u32,
}

impl Outcome {
    /// The outcome of a bypassed request.
    pub(super) const BYPASSED: Self = Self {
        row: 0,
        prompt_tokens: 0,
        hit_blocks: None,
        tail_tokens: 0,
        host_tokens: 0,
        remote_tokens: 0,
        copy_ns: 0,
        fetch_ns: 0,
        cached_blocks: 0,
        protected_blocks: 0,
    };

    /// Number of prompt or generated tokens that were cached.
    #[must_use]
    pub fn hit_tokens(&self, block_size: usize) -> usize {
        self.hit_blocks.unwrap_or(0) as usize * block_size + self.tail_tokens as usize
    }

    /// Number of tokens that were cached on the device.
    #[must_use]
    pub fn device_tokens(&self, block_size: usize) -> usize {
        self.hit_tokens(block_size) - (self.host_tokens + self.remote_tokens) as usize
    }

    /// Number of cached tokens that an engine can use if it always computes the last prompt token,
    /// to get its logits.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{ReplayConfig, Trace, replay, replay::Capacity};
    ///
    /// let row = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4]}"#;
    /// let trace = Trace::from_reader(std::io::Cursor::new(format!("{row}\n{row}")), "rows", None)?;
    /// let config = ReplayConfig::default().block_size(2).capacity(Capacity::Blocks(8));
    /// let second = replay(&trace, &config, &|| {})?.outcomes[1];
    /// assert_eq!((second.hit_tokens(2), second.hit_tokens_capped(2)), (4, 2));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn hit_tokens_capped(&self, block_size: usize) -> usize {
        let most = self.prompt_tokens.saturating_sub(1);
        // Tokens beyond whole blocks come from a tier with smaller blocks.
        let most = if self.tail_tokens > 0 { most } else { most / block_size * block_size };
        self.hit_tokens(block_size).min(most)
    }

    /// Number of prompt tokens that had to be computed.
    #[must_use]
    pub fn computed_tokens(&self, block_size: usize) -> usize {
        self.prompt_tokens.saturating_sub(self.hit_tokens(block_size))
    }
}
