//! The results of a sweep.

use std::fmt;

use radixkv::PolicyKind;
use serde::{Serialize, Serializer};

use super::hits::Hits;

/// The policy or reference model of a point.
///
/// # Examples
///
/// ```
/// use radixkv::PolicyKind;
/// use radixkv_replay::sweep::Line;
///
/// assert_eq!((Line::Policy(PolicyKind::Lru).name(), Line::ApcVllm.name()), ("lru", "apc-vllm"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Line {
    /// The cache, under one of its policies.
    Policy(PolicyKind),
    /// A flat cache of block hashes.
    Apc,
    /// A flat cache of block hashes with vLLM's accounting.
    ApcVllm,
    /// The optimum (Belady): evicts the block whose next use is latest.
    Belady,
    /// A cache that never evicts.
    Infinite,
}

impl Line {
    /// The reference lines that are computed at every capacity.
    pub const REFERENCES: [Self; 3] = [Self::Apc, Self::ApcVllm, Self::Belady];

    /// The name of the line in tables and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Policy(policy) => policy.name(),
            Self::Apc => "apc",
            Self::ApcVllm => "apc-vllm",
            Self::Belady => "belady",
            Self::Infinite => "infinite",
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One cache of a sweep. `serde` serializes it with the field names as keys.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{sweep::{SweepConfig, SweepPlan}, workload::CLASSES};
///
/// let trace = CLASSES[2].trace(0);
/// let sweep = SweepPlan::new(&trace, &SweepConfig::default())?.run(&|| {})?;
/// let worst = sweep.points.iter().min_by(|a, b| a.hit_rate.total_cmp(&b.hit_rate)).expect("a point");
/// println!("{} with {} blocks: {:.1} %", worst.line, worst.capacity, 100.0 * worst.hit_rate);
/// # Ok::<_, radixkv_replay::sweep::SweepError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SweepPoint {
    /// The policy or reference model.
    pub line: Line,
    /// Tokens per block.
    pub block_size: usize,
    /// Blocks in the cache; for [`Line::Infinite`] all distinct blocks.
    pub capacity: usize,
    /// Tokens in the cache.
    pub capacity_tokens: usize,
    /// `capacity` over the distinct full blocks of all prompts; zero if there are none.
    pub working_set_share: f64,
    /// Tokens that were cached.
    pub hit_tokens: u64,
    /// `hit_tokens` over the tokens of all prompts.
    pub hit_rate: f64,
    /// Tokens that were cached and that an engine can use if it always computes a prompt's last
    /// token.
    pub hit_tokens_capped: u64,
    /// `hit_tokens_capped` over the tokens of all prompts.
    pub hit_rate_capped: f64,
    /// Blocks that were inserted.
    pub inserted_blocks: u64,
    /// Blocks that were evicted.
    pub evicted_blocks: u64,
    /// Requests too large for the cache.
    pub bypassed_requests: usize,
    /// Prompt tokens of these requests.
    pub bypassed_tokens: u64,
    /// The digest of every request's hit blocks, as in a replay's
    /// [`Report`](crate::replay::Report).
    pub match_digest: String,
}

impl SweepPoint {
    pub(super) fn of_hits(line: Line, block_size: usize, capacity: usize, working_set: usize, hits: &Hits) -> Self {
        Self {
            line,
            block_size,
            capacity,
            capacity_tokens: capacity.saturating_mul(block_size),
            working_set_share: rate(capacity as u64, working_set as u64),
            hit_tokens: hits.hit_tokens,
            hit_rate: rate(hits.hit_tokens, hits.prompt_tokens),
            hit_tokens_capped: hits.hit_tokens_capped,
            hit_rate_capped: rate(hits.hit_tokens_capped, hits.prompt_tokens),
            inserted_blocks: hits.inserted_blocks,
            evicted_blocks: hits.evicted_blocks,
            bypassed_requests: hits.bypassed_requests,
            bypassed_tokens: hits.bypassed_tokens,
            match_digest: hits.digest(),
        }
    }
}

/// The costs of a block size. `serde` serializes them with the field names as keys.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{sweep::{SweepConfig, SweepPlan}, workload::CLASSES};
///
/// let trace = CLASSES[2].trace(0);
/// let config = SweepConfig { block_sizes: vec![1, 100], ..SweepConfig::default() };
/// let sweep = SweepPlan::new(&trace, &config)?.run(&|| {})?;
/// let lost: Vec<u64> = sweep.block_sizes.iter().map(|size| size.lost_hit_tokens).collect();
/// assert!(lost[0] == 0 && lost[1] > 0);
/// # Ok::<_, radixkv_replay::sweep::SweepError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BlockSizeFigures {
    /// Tokens per block.
    pub block_size: usize,
    /// Distinct full blocks of all prompts.
    pub working_set_blocks: usize,
    /// Prompt tokens after the last whole block of their prompt, which are never cached.
    pub rounded_tokens: u64,
    /// Tokens that a cache that never evicts would hit with blocks of one token, but not with this
    /// size.
    pub lost_hit_tokens: u64,
    /// Index memory per cached token in bytes, at its peak during a replay with lru at the largest
    /// capacity.
    pub index_bytes_per_token: f64,
}

/// The result of a sweep. `serde` serializes it with the field names as keys.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{sweep::{SweepConfig, SweepPlan}, workload::CLASSES};
///
/// let trace = CLASSES[2].trace(0);
/// let sweep = SweepPlan::new(&trace, &SweepConfig::default())?.run(&|| {})?;
/// assert_eq!((sweep.requests, sweep.prompt_tokens), (1000, 512_000));
/// # Ok::<_, radixkv_replay::sweep::SweepError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sweep {
    /// Number of requests of the trace.
    pub requests: usize,
    /// Number of tokens of all their prompts.
    pub prompt_tokens: u64,
    /// Tokens per hash id, if the trace has hash ids.
    pub unit: Option<usize>,
    /// Whether generated tokens were cached.
    pub outputs: bool,
    /// The costs of each block size.
    pub block_sizes: Vec<BlockSizeFigures>,
    /// One point for each block size, capacity and line, in this order; the infinite cache is the
    /// last point of each block size.
    pub points: Vec<SweepPoint>,
}

/// `part` over `of`, rounded to six decimals as in a replay's report; zero if `of` is zero.
fn rate(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { (part as f64 / of as f64 * 1e6).round() / 1e6 }
}
