//! Breaks down the totals of a replay: hits and occupancy over the trace, misses and evictions by
//! reason, hot prefixes.

mod evictions;
mod hot;
mod misses;
mod series;

use std::collections::TryReserveError;

use serde::Serialize;

pub use evictions::Evictions;
pub use hot::{HotPrefix, PrefixHits};
pub use misses::{MissReason, MissTotal, Missed};
pub use series::Sample;

use crate::{
    prefixes::PrefixTree,
    replay::{Latencies, Replay, ReplayConfig},
    request::Trace,
};

/// Number of prefixes that are listed.
const LISTED: usize = 10;

/// A breakdown of a replay's totals. `serde` serializes it with the field names as keys.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{Details, ReplayConfig, replay, workload::CLASSES};
///
/// let (trace, config) = (CLASSES[2].trace(0), ReplayConfig::default());
/// let replayed = replay(&trace, &config, &|| {})?;
/// let details = Details::new(&trace, &config, &replayed)?;
/// let missed: u64 = details.misses.iter().map(|total| total.tokens).sum();
/// assert_eq!(missed + replayed.report.hit_tokens, replayed.report.prompt_tokens);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Details {
    /// At most 200 parts of the trace with about equal numbers of requests, including the warm-up.
    pub series: Vec<Sample>,
    /// Prompt tokens that were not cached, by reason, without the warm-up.
    pub misses: Vec<MissTotal>,
    /// Evicted blocks, by whether they were requested again.
    pub evictions: Evictions,
    /// The runs of the trace's keys with the most hit tokens, without the warm-up; ten at most.
    pub top_prefixes: Vec<HotPrefix>,
    /// Histograms of the latencies of the cache's operations.
    pub latencies: Latencies,
    /// The misses of each request, in replay order.
    #[serde(skip)]
    pub missed: Vec<Missed>,
}

impl Details {
    /// Computes the breakdown of a replay that was made with `trace` and `config`.
    ///
    /// # Errors
    ///
    /// Fails if memory is short.
    pub fn new(trace: &Trace, config: &ReplayConfig, replayed: &Replay) -> Result<Self, TryReserveError> {
        let tree = PrefixTree::new(trace, trace.requests().len(), config.block_size, config.outputs)?;
        let warm_up = replayed.report.warm_up_requests;
        let missed = misses::of_requests(&tree, trace, config, replayed)?;
        let mut hits = PrefixHits::new(&tree, config.block_size);
        for (number, outcome) in replayed.outcomes.iter().enumerate().skip(warm_up) {
            hits.add(number, outcome);
        }
        Ok(Self {
            series: series::of(trace, config.block_size, &replayed.outcomes),
            misses: misses::totals(missed.get(warm_up..).unwrap_or_default()),
            evictions: Evictions::new(replayed, &missed),
            top_prefixes: hits.hottest(trace, LISTED),
            latencies: replayed.latencies.clone(),
            missed,
        })
    }
}
