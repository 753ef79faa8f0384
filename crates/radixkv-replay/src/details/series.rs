//! The hits and the occupancy of a replay over time, in parts of the trace.

use serde::Serialize;

use crate::{replay::Outcome, request::Trace};

/// Maximum number of parts.
const PARTS: usize = 200;

/// A part of a trace: its hits, and the cache's blocks at its end.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{Details, ReplayConfig, replay, workload::CLASSES};
///
/// let (trace, config) = (CLASSES[2].trace(0), ReplayConfig::default());
/// let series = Details::new(&trace, &config, &replay(&trace, &config, &|| {})?)?.series;
/// assert_eq!((series.len(), series[199].requests), (200, 1000));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sample {
    /// Requests from the beginning of the trace to the end of the part.
    pub requests: usize,
    /// The timestamp of the last of these requests.
    pub timestamp: f64,
    /// Prompt tokens of the part.
    pub prompt_tokens: u64,
    /// Tokens of the part that were cached.
    pub hit_tokens: u64,
    /// `hit_tokens` over `prompt_tokens`.
    pub hit_rate: f64,
    /// The hit rate from the beginning of the trace to the end of the part.
    pub hit_rate_so_far: f64,
    /// Blocks cached at the end of the part.
    pub cached_blocks: u32,
    /// The number of these blocks that leases protect.
    pub protected_blocks: u32,
}

pub(super) fn of(trace: &Trace, block_size: usize, outcomes: &[Outcome]) -> Vec<Sample> {
    let parts = outcomes.len().clamp(1, PARTS);
    let (mut series, mut begin) = (Vec::with_capacity(parts), 0);
    let (mut all_tokens, mut all_hits) = (0, 0);
    for part in 1..=parts {
        let end = outcomes.len() * part / parts;
        let (Some(last), Some(request)) = (outcomes[begin..end].last(), trace.requests().get(end.max(1) - 1)) else {
            continue;
        };
        let sum = |tokens: &dyn Fn(&Outcome) -> usize| outcomes[begin..end].iter().map(|one| tokens(one) as u64).sum();
        let prompt_tokens: u64 = sum(&|outcome| outcome.prompt_tokens);
        let hit_tokens: u64 = sum(&|outcome| outcome.hit_tokens(block_size));
        (all_tokens, all_hits) = (all_tokens + prompt_tokens, all_hits + hit_tokens);
        series.push(Sample {
            requests: end,
            timestamp: request.timestamp(),
            prompt_tokens,
            hit_tokens,
            hit_rate: hit_tokens as f64 / prompt_tokens.max(1) as f64,
            hit_rate_so_far: all_hits as f64 / all_tokens.max(1) as f64,
            cached_blocks: last.cached_blocks,
            protected_blocks: last.protected_blocks,
        });
        begin = end;
    }
    series
}
