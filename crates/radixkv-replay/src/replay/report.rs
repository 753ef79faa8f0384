//! The totals of a replay, and the digest of its hits.

use serde::Serialize;
use sha2::{Digest, Sha256};

use radixkv::Stats;

use super::{
    config::{CacheKind, EvictionMode, ReplayConfig},
    latency::Percentiles,
    outcome::Outcome,
    tally::Tally,
    tiers::TierReport,
    times::ServiceReport,
    ttft::TimeToFirstToken,
};
use crate::request::Trace;

/// The digest's entry for a bypassed request.
const BYPASSED: u32 = u32::MAX;

/// The totals of a replay. `serde` serializes them with the field names as keys.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay, workload::CLASSES};
///
/// let replayed = replay(&CLASSES[2].trace(0), &ReplayConfig::default(), &|| {})?;
/// let report = replayed.report;
/// assert_eq!((report.requests, report.prompt_tokens, report.hit_rate), (1000, 512_000, 0.495));
/// # Ok::<_, radixkv_replay::ReplayError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The eviction policy.
    pub policy: String,
    /// The unit of eviction: always `block`, the last block of a prefix.
    pub granularity: &'static str,
    /// What counts as a use for the policy: always `strict`, only matches.
    pub flavor: &'static str,
    /// `radix` or `naive`.
    pub cache: &'static str,
    /// `inline` or `background`.
    pub eviction: &'static str,
    /// Blocks in the cache; with a host tier, in the caches of all instances.
    pub capacity: usize,
    /// Tokens per block.
    pub block_size: usize,
    /// Whether generated tokens were cached.
    pub outputs: bool,
    /// The field of the rows that priorities were read from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_from: Option<String>,
    /// Whether leases were held for as many steps as their requests generate tokens.
    pub hold: bool,
    /// Leases that were dropped early because blocks were short.
    pub given_up_leases: u64,
    /// Threads that shared the cache.
    pub threads: usize,
    /// Tokens per hash id, if the trace has hash ids.
    pub unit: Option<usize>,
    /// Number of first requests that the fields down to `hit_rate_capped`, the bypassed requests
    /// and tokens, the times to first token and the waits leave out.
    pub warm_up_requests: usize,
    /// Requests that were served or bypassed.
    pub requests: usize,
    /// Prompt tokens of all these requests.
    pub prompt_tokens: u64,
    /// Tokens that were cached.
    pub hit_tokens: u64,
    /// `hit_tokens` over `prompt_tokens`.
    pub hit_rate: f64,
    /// Tokens that were cached and that an engine can use if it always computes a prompt's last
    /// token.
    pub hit_tokens_capped: u64,
    /// `hit_tokens_capped` over `prompt_tokens`.
    pub hit_rate_capped: f64,
    /// Blocks that were inserted.
    pub inserted_blocks: u64,
    /// Blocks that were evicted.
    pub evicted_blocks: u64,
    /// The most blocks in use after a request.
    pub peak_blocks: usize,
    /// Blocks in use at the end.
    pub final_blocks: usize,
    /// Requests too large for the cache, or for `longest`.
    pub bypassed_requests: usize,
    /// Prompt tokens of the bypassed requests.
    pub bypassed_tokens: u64,
    /// First 16 hex digits of SHA-256 over the hit blocks of each request (little-endian `u32`, all
    /// ones if it was bypassed).
    pub match_digest: String,
    /// Total time: reading and parsing, counting the working set, making tokens, and the cache's
    /// work.
    pub seconds: f64,
    /// Prompt tokens over `seconds`, including the warm-up.
    pub tokens_per_second: f64,
    /// Latency of a match.
    pub match_ns: Percentiles,
    /// Latency of an insert.
    pub insert_ns: Percentiles,
    /// Latency of a reservation that had to evict blocks.
    pub evict_ns: Percentiles,
    /// Index memory at the end, in bytes.
    pub index_bytes: usize,
    /// The most index memory after a request, in bytes.
    pub index_bytes_peak: usize,
    /// The most index memory beyond a megabyte, over the minimum of 4 bytes per cached token and
    /// per cached block.
    pub index_ratio_peak: f64,
    /// Blocks of hits whose tokens differ from the matched tokens, if hits were verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify_errors: Option<u64>,
    /// The modelled times to first token, if a prefill rate was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft: Option<TimeToFirstToken>,
    /// The waits of requests, if they were served in trace time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceReport>,
    /// The hits by tier and the copies between tiers, if there is a host tier.
    #[serde(flatten)]
    pub tiers: Option<TierReport>,
}

impl Report {
    pub(super) fn new(
        trace: &Trace,
        config: &ReplayConfig,
        totals: &Stats,
        tally: &Tally,
        warm_up: usize,
        seconds: f64,
    ) -> Self {
        let outcomes = &tally.outcomes[warm_up..];
        let final_blocks = totals.capacity_blocks - totals.free_blocks;
        let block_size = config.block_size;
        let sum = |tokens: &dyn Fn(&Outcome) -> usize| outcomes.iter().map(|outcome| tokens(outcome) as u64).sum();
        let prompt_tokens = sum(&|outcome| outcome.prompt_tokens);
        let hit_tokens = sum(&|outcome| outcome.hit_tokens(block_size));
        let hit_tokens_capped = sum(&|outcome| outcome.hit_tokens_capped(block_size));
        let bypassed = |outcome: &&Outcome| outcome.hit_blocks.is_none();
        Self {
            policy: config.policy.to_string(),
            granularity: "block",
            flavor: "strict",
            cache: match config.cache {
                CacheKind::Radix => "radix",
                CacheKind::Naive => "naive",
            },
            eviction: match config.eviction {
                EvictionMode::Inline => "inline",
                EvictionMode::Background => "background",
            },
            capacity: totals.capacity_blocks,
            block_size,
            outputs: config.outputs,
            priority_from: trace.priority_from().map(str::to_owned),
            hold: config.hold,
            given_up_leases: tally.given_up,
            threads: config.threads,
            unit: trace.unit(),
            warm_up_requests: warm_up,
            requests: outcomes.len(),
            prompt_tokens,
            hit_tokens,
            hit_rate: rate(hit_tokens, prompt_tokens),
            hit_tokens_capped,
            hit_rate_capped: rate(hit_tokens_capped, prompt_tokens),
            inserted_blocks: tally.inserted_blocks,
            evicted_blocks: totals.evicted_blocks,
            peak_blocks: tally.peak_blocks.max(final_blocks),
            final_blocks,
            bypassed_requests: outcomes.iter().filter(bypassed).count(),
            bypassed_tokens: outcomes.iter().filter(bypassed).map(|outcome| outcome.prompt_tokens as u64).sum(),
            match_digest: digest(tally.outcomes.iter().map(|outcome| outcome.hit_blocks)),
            seconds,
            tokens_per_second: trace.prompt_tokens() as f64 / seconds.max(f64::MIN_POSITIVE),
            match_ns: tally.matches.percentiles(),
            insert_ns: tally.inserts.percentiles(),
            evict_ns: tally.evictions.percentiles(),
            index_bytes: totals.index_bytes,
            index_bytes_peak: tally.index_bytes_peak.max(totals.index_bytes),
            index_ratio_peak: tally.index_ratio_peak,
            verify_errors: config.verify.then_some(tally.verify_errors),
            ttft: None,
            service: config
                .service
                .map(|service| ServiceReport::new(service, &tally.times, tally.peak_running, warm_up)),
            tiers: None,
        }
    }
}

/// `tokens` over `of`, rounded to six decimals; zero if `of` is zero.
pub(super) fn rate(tokens: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { (tokens as f64 / of as f64 * 1e6).round() / 1e6 }
}

/// The digest of the number of hit blocks of each request; `None` is a bypassed request.
pub(super) fn digest(hit_blocks: impl Iterator<Item = Option<u32>>) -> String {
    let mut hash = Sha256::new();
    for blocks in hit_blocks {
        hash.update(blocks.unwrap_or(BYPASSED).to_le_bytes());
    }
    hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}
