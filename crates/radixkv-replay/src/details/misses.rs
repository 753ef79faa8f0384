//! Classifies the tokens that were not cached by the reason of the miss.
//!
//! A key is cached from its beginning, so the missed tokens of a request are, in this order: those
//! that were cached before and are evicted; those that another request is computing; those that are
//! new; and the rest of the prompt, which does not fill a block. With one thread this is exact.
//! With several, a request that another thread serves at the same time counts as an earlier one.

use std::{cmp::min, collections::TryReserveError};

use serde::Serialize;

use crate::{
    prefixes::PrefixTree,
    replay::{CacheKind, Outcome, Replay, ReplayConfig},
    request::{Request, Trace},
};

/// The reason why tokens were not cached.
///
/// # Examples
///
/// ```
/// use radixkv_replay::details::MissReason;
///
/// assert_eq!(MissReason::Evicted.name(), "evicted");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MissReason {
    /// They were cached and then evicted: a larger cache, or another policy, would have hit them.
    Evicted,
    /// An earlier request was computing them; only in trace time.
    Computing,
    /// No request had inserted them before: no cache of this block size would have hit them.
    New,
    /// They do not fill a block: smaller blocks lose fewer.
    Partial,
    /// The request was too large for the cache.
    Bypassed,
}

impl MissReason {
    /// All reasons, in the order in which they occur in a key.
    pub const ALL: [Self; 5] = [Self::Evicted, Self::Computing, Self::New, Self::Partial, Self::Bypassed];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::Computing => "computing",
            Self::New => "new",
            Self::Partial => "partial",
            Self::Bypassed => "bypassed",
        }
    }
}

/// Prompt tokens that one request missed, by reason.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{Details, ReplayConfig, Trace, details::MissReason, replay};
///
/// let row = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4, 5]}"#;
/// let trace = Trace::from_reader(std::io::Cursor::new(format!("{row}\n{row}")), "rows", None)?;
/// let config = ReplayConfig::default().block_size(2).capacity("8".parse()?);
/// let missed = Details::new(&trace, &config, &replay(&trace, &config, &|| {})?)?.missed;
/// assert_eq!((missed[0].first(), missed[0].tokens(MissReason::New)), (Some(MissReason::New), 4));
/// assert_eq!((missed[1].first(), missed[1].tokens(MissReason::Partial)), (Some(MissReason::Partial), 1));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missed {
    tokens: [u32; 5],
    /// Blocks of its key that were evicted.
    pub(super) evicted_blocks: u32,
}

impl Missed {
    /// Tokens that were missed for this reason.
    #[must_use]
    pub fn tokens(&self, reason: MissReason) -> usize {
        self.tokens[reason as usize] as usize
    }

    /// The reason of the first miss; `None` if all tokens were cached.
    #[must_use]
    pub fn first(&self) -> Option<MissReason> {
        MissReason::ALL.into_iter().find(|&reason| self.tokens(reason) > 0)
    }
}

/// Prompt tokens missed for one reason.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{Details, ReplayConfig, replay, workload::CLASSES};
///
/// let (trace, config) = (CLASSES[2].trace(0), ReplayConfig::default());
/// for total in Details::new(&trace, &config, &replay(&trace, &config, &|| {})?)?.misses {
///     println!("{:>9}: {} tokens", total.reason.name(), total.tokens);
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MissTotal {
    /// The reason.
    pub reason: MissReason,
    /// Prompt tokens.
    pub tokens: u64,
    /// Requests whose first missed token has this reason.
    pub requests: usize,
}

/// The missed tokens of each request, by reason.
pub(super) fn of_requests(
    tree: &PrefixTree,
    trace: &Trace,
    config: &ReplayConfig,
    replayed: &Replay,
) -> Result<Vec<Missed>, TryReserveError> {
    let steps = Steps { config, replayed };
    let (started, inserted) = (tree.least(|at| steps.started(at)), tree.least(|at| steps.inserted(at)));
    let mut missed = Vec::new();
    missed.try_reserve_exact(trace.requests().len())?;
    for (number, (request, outcome)) in trace.requests().iter().zip(&replayed.outcomes).enumerate() {
        let now = if replayed.times.is_empty() { number as u64 } else { replayed.times[number].started };
        let reached = |earliest: &[u64]| tree.path(number).find(|&run| earliest[run] < now);
        let blocks = |run: Option<usize>| run.map_or(0, |run| tree.runs()[run].end);
        missed.push(Missed::new(request, outcome, config, blocks(reached(&inserted)), blocks(reached(&started))));
    }
    Ok(missed)
}

/// The steps in which requests began and inserted their keys; `u64::MAX` if they used no cache.
struct Steps<'a> {
    config: &'a ReplayConfig,
    replayed: &'a Replay,
}

impl Steps<'_> {
    fn started(&self, number: usize) -> u64 {
        match (self.cached(number), self.replayed.times.get(number)) {
            (false, _) => u64::MAX,
            (true, None) => number as u64,
            (true, Some(times)) => times.started,
        }
    }

    fn inserted(&self, number: usize) -> u64 {
        match (self.cached(number), self.replayed.times.get(number)) {
            (false, _) => u64::MAX,
            (true, None) => number as u64,
            (true, Some(times)) => times.inserted,
        }
    }

    fn cached(&self, number: usize) -> bool {
        self.config.cache == CacheKind::Radix && self.replayed.outcomes[number].hit_blocks.is_some()
    }
}

impl Missed {
    /// Splits the prompt by the number of its key's blocks that were inserted before, and the
    /// number that earlier requests had begun to compute.
    fn new(request: &Request, outcome: &Outcome, config: &ReplayConfig, inserted: usize, begun: usize) -> Self {
        let prompt = outcome.prompt_tokens;
        let Some(hit) = outcome.hit_blocks.map(|hit| hit as usize) else {
            return Self { tokens: [0, 0, 0, 0, prompt as u32], evicted_blocks: 0 };
        };
        let inserted = inserted.max(hit);
        let ends = [inserted, begun.max(inserted), request.key_tokens(config.outputs) / config.block_size];
        let (mut tokens, mut from) = ([0; 5], min(outcome.hit_tokens(config.block_size), prompt));
        for (part, end) in tokens.iter_mut().zip(ends) {
            let end = min(end * config.block_size, prompt).max(from);
            (*part, from) = ((end - from) as u32, end);
        }
        tokens[MissReason::Partial as usize] = (prompt - from) as u32;
        Self { tokens, evicted_blocks: (inserted - hit) as u32 }
    }
}

pub(super) fn totals(missed: &[Missed]) -> Vec<MissTotal> {
    let total = |reason| MissTotal {
        reason,
        tokens: missed.iter().map(|missed| missed.tokens(reason) as u64).sum(),
        requests: missed.iter().filter(|missed| missed.first() == Some(reason)).count(),
    };
    MissReason::ALL.into_iter().map(total).collect()
}
