//! The range of hit rates that the parameters of a workload class predict.

/// The block size for which the bands are computed.
pub const BAND_BLOCK_SIZE: usize = 16;

/// The hit rates that a class's parameters predict for a cache that never evicts.
///
/// # Examples
///
/// ```
/// let band = radixkv_replay::workload::CLASSES[0].band();
/// assert!(band.low <= band.high && band.contains(band.high));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Band {
    /// The lowest hit rate.
    pub low: f64,
    /// The highest hit rate.
    pub high: f64,
}

impl Band {
    /// Whether a hit rate is within the band.
    ///
    /// # Examples
    ///
    /// ```
    /// let few_shot = &radixkv_replay::workload::CLASSES[6];
    /// assert!(few_shot.band().contains(0.89) && !few_shot.band().contains(0.5));
    /// ```
    #[must_use]
    pub fn contains(&self, hit_rate: f64) -> bool {
        // Reports round to six decimals.
        (self.low - 1e-6..=self.high + 1e-6).contains(&hit_rate)
    }

    /// The band for a number of hit tokens that holds for matching single tokens. Matching whole
    /// blocks loses up to a block less one token for each request that hits.
    pub(super) fn of_tokens(hit_tokens: f64, prompt_tokens: f64, hitting_requests: f64) -> Self {
        let lost = hitting_requests * (BAND_BLOCK_SIZE - 1) as f64;
        Self { low: (hit_tokens - lost).max(0.0) / prompt_tokens, high: hit_tokens / prompt_tokens }
    }

    /// The band, wider by the fraction `share` on both sides, to allow for random draws.
    pub(super) fn widened(self, share: f64) -> Self {
        Self { low: self.low * (1.0 - share), high: (self.high * (1.0 + share)).min(1.0) }
    }
}
