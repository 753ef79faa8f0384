//! Models the value of hits: the time to first token with and without the cache.

use serde::Serialize;

use super::outcome::Outcome;

/// Modelled time to first token in seconds: prefill only, at a constant rate. It is the number of
/// computed tokens over the rate; the last prompt token is always computed. Tokens from a host tier
/// are copied before, which adds the time of the copy.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay, replay::TimeToFirstToken, workload::CLASSES};
///
/// let replayed = replay(&CLASSES[2].trace(0), &ReplayConfig::default(), &|| {})?;
/// let ttft = TimeToFirstToken::new(&replayed.outcomes, 16, 10_000.0); // 10,000 tokens a second
/// println!("{:.3} s on average, {:.3} s without the cache", ttft.cached.mean, ttft.uncached.mean);
/// # Ok::<_, radixkv_replay::ReplayError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TimeToFirstToken {
    /// Prompt tokens computed per second.
    pub prefill_rate: f64,
    /// With the cache.
    pub cached: TtftPercentiles,
    /// Without the cache: every prompt token computed.
    pub uncached: TtftPercentiles,
    /// Mean without the cache over mean with it.
    pub speedup: f64,
}

/// Percentiles of a time to first token, in seconds; [`TimeToFirstToken::new`] computes them.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay, replay::TimeToFirstToken, workload::CLASSES};
///
/// let replayed = replay(&CLASSES[2].trace(0), &ReplayConfig::default(), &|| {})?;
/// let cached = TimeToFirstToken::new(&replayed.outcomes, 16, 10_000.0).cached;
/// assert!(cached.p50 <= cached.p99);
/// # Ok::<_, radixkv_replay::ReplayError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TtftPercentiles {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// One request in a hundred takes longer.
    pub p99: f64,
}

impl TimeToFirstToken {
    /// Models a replay on an engine that computes `prefill_rate` prompt tokens a second.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{ReplayConfig, replay, replay::TimeToFirstToken, workload::CLASSES};
    ///
    /// let replayed = replay(&CLASSES[2].trace(0), &ReplayConfig::default(), &|| {})?;
    /// let ttft = TimeToFirstToken::new(&replayed.outcomes, 16, 10_000.0);
    /// assert!(ttft.speedup > 1.9 && ttft.cached.mean < ttft.uncached.mean);
    /// # Ok::<_, radixkv_replay::ReplayError>(())
    /// ```
    #[must_use]
    pub fn new(outcomes: &[Outcome], block_size: usize, prefill_rate: f64) -> Self {
        // A copy counts as the number of tokens that could be computed in the same time.
        let copied = |outcome: &Outcome| outcome.copy_ns as f64 / 1e9 * prefill_rate;
        let computed = |outcome: &Outcome| outcome.computed_tokens(block_size).max(outcome.prompt_tokens.min(1));
        let cached = |outcome: &Outcome| computed(outcome) as f64 + copied(outcome);
        let uncached = |outcome: &Outcome| outcome.prompt_tokens as f64;
        let all = |tokens: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(tokens).sum::<f64>();
        let (most, least) = (all(&uncached), all(&cached));
        let cached = TtftPercentiles::of(outcomes.iter().map(cached), prefill_rate);
        let uncached = TtftPercentiles::of(outcomes.iter().map(uncached), prefill_rate);
        // Computed from tokens, because seconds may be too small to be distinguished from zero.
        let speedup = if least > 0.0 { most / least } else { 1.0 };
        Self { prefill_rate, cached, uncached, speedup }
    }
}

impl TtftPercentiles {
    fn of(tokens: impl Iterator<Item = f64>, rate: f64) -> Self {
        let mut tokens: Vec<f64> = tokens.collect();
        tokens.sort_unstable_by(f64::total_cmp);
        let count = tokens.len().max(1);
        let at = |quantile: f64| {
            let rank = (quantile * count as f64).ceil() as usize;
            tokens.get(rank.saturating_sub(1)).map_or(0.0, |&tokens| tokens / rate)
        };
        let mean = tokens.iter().sum::<f64>() / count as f64 / rate;
        Self { mean, p50: at(0.5), p99: at(0.99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_token_is_always_computed() {
        let outcome = |prompt_tokens, hit_blocks| Outcome { prompt_tokens, hit_blocks, ..Outcome::BYPASSED };
        let outcomes = [outcome(32, Some(2)), outcome(100, Some(3)), outcome(50, None), outcome(0, Some(0))];
        let ttft = TimeToFirstToken::new(&outcomes, 16, 10.0);
        let tokens = [1, 52, 50, 0];
        assert_eq!(ttft.cached.mean, tokens.iter().sum::<u32>() as f64 / 4.0 / 10.0);
        assert_eq!((ttft.cached.p50, ttft.cached.p99), (0.1, 5.2));
        assert_eq!((ttft.uncached.p50, ttft.uncached.p99), (3.2, 10.0));
        assert!((ttft.speedup - 182.0 / 103.0).abs() < 1e-12);
        assert_eq!(TimeToFirstToken::new(&[], 16, 10.0).cached.mean, 0.0);
    }

    #[test]
    fn a_copy_from_the_host_takes_its_time() {
        let copied = Outcome { prompt_tokens: 32, hit_blocks: Some(1), copy_ns: 500_000_000, ..Outcome::BYPASSED };
        let ttft = TimeToFirstToken::new(&[copied], 16, 10.0);
        assert_eq!((ttft.cached.mean, ttft.uncached.mean), (2.1, 3.2));
    }
}
