//! Replaying a trace through a cache.
//!
//! Requests are served in the order of the trace. Serving one means: match its key, reserve the blocks that are
//! missing, insert, and hold the lease while the request runs. A request that needs more blocks than the cache has
//! (or than `longest` says) is bypassed: no lookup, no insert; its prompt still counts.
//!
//! With one thread and inline eviction time is logical and a lease is dropped before the next request comes, so that
//! the result is a pure function of the trace: same hits, same evictions, same digest on every machine. With more
//! threads the requests are handed out in trace order by one cursor, and every thread keeps the leases of the last
//! few requests it served: those are the ones that "run".
//!
//! With [`hold`](ReplayConfig::hold) a request runs for as many steps as it generates tokens, on one thread too: a step
//! is a request of the trace, and the lease goes when so many later ones were served (with several threads, when the
//! thread that holds it next takes one beyond them). Where leases stand in the way of a reservation, those that would
//! end first are given up, one by one. With one thread that is a pure function of the trace as well.
//!
//! A trace that was read with priorities gives each request's to what it matched and inserted.

mod latency;
mod outcome;
mod report;
mod schedule;
mod size;
mod stamps;
mod tally;
mod ttft;
mod worker;

use std::{collections::TryReserveError, io, str::FromStr, time::Instant};

pub use latency::Percentiles;
pub use outcome::Outcome;
pub use report::Report;
pub use schedule::CheckFault;
pub use stamps::Mismatch;
pub use ttft::{TimeToFirstToken, TtftPercentiles};

use super::Trace;
use radixkv::{
    BlockId, BuildError, Clock, Eviction, InsertErrorKind, PolicyKind, PrefixCache, ReserveError, Watermarks,
};

/// How much the cache holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Capacity {
    /// So many blocks.
    Blocks(usize),
    /// Percent of the trace's [working set](Trace::working_set), rounded to the nearest block, at least one.
    Percent(f64),
}

impl Capacity {
    /// The number of blocks for a trace.
    #[must_use]
    pub fn blocks(self, trace: &Trace, block_size: usize) -> usize {
        self.of(|| trace.working_set(block_size))
    }

    /// The number of blocks for a working set, which is counted only if that matters.
    fn of(self, working_set: impl FnOnce() -> usize) -> usize {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Percent(percent) => ((working_set() as f64 * percent / 100.0).round_ties_even() as usize).max(1),
        }
    }
}

/// What is wrong with a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapacityError {
    /// Neither `BLOCKS` nor `N%`.
    #[error("not a number of blocks, nor a percentage such as 10%")]
    Malformed,
    /// A cache needs at least a block.
    #[error("capacity must be more than zero")]
    Zero,
}

impl FromStr for Capacity {
    type Err = CapacityError;

    fn from_str(text: &str) -> Result<Self, CapacityError> {
        let capacity = match text.strip_suffix('%') {
            Some(percent) => Self::Percent(percent.trim().parse().map_err(|_| CapacityError::Malformed)?),
            None => Self::Blocks(text.parse().map_err(|_| CapacityError::Malformed)?),
        };
        match capacity {
            Self::Blocks(0) | Self::Percent(0.0) => Err(CapacityError::Zero),
            Self::Percent(percent) if !(percent.is_finite() && percent > 0.0) => Err(CapacityError::Malformed),
            capacity => Ok(capacity),
        }
    }
}

/// Threads of a replay at most: far more than there are cores, far fewer than a system has room for.
pub const MOST_THREADS: usize = 1024;

/// What the requests are served from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheKind {
    /// The prefix cache.
    #[default]
    Radix,
    /// No reuse: every request takes all its blocks from the pool and gives them back. The baseline.
    Naive,
}

/// Who evicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EvictionMode {
    /// The thread that reserves.
    #[default]
    Inline,
    /// A thread of its own, which keeps some blocks free.
    Background,
}

/// How to replay.
#[derive(Debug, Clone)]
pub struct ReplayConfig {
    /// Tokens per block. Default: 16.
    pub block_size: usize,
    /// Default: 10 percent of the working set.
    pub capacity: Capacity,
    /// Which blocks go first. Default: lru.
    pub policy: PolicyKind,
    /// Default: the prefix cache.
    pub cache: CacheKind,
    /// Threads that share the cache, [`MOST_THREADS`] at most. Default: 1.
    pub threads: usize,
    /// Default: inline.
    pub eviction: EvictionMode,
    /// Whether generated tokens are cached too. Default: no.
    pub outputs: bool,
    /// Bypass requests of more than this many blocks. Default: as many as the cache holds.
    pub longest: Option<usize>,
    /// Whether every hit is checked against the tokens its blocks were filled with. Default: no.
    pub verify: bool,
    /// Whether a request's lease is held for as many steps as it generates tokens. Default: no.
    pub hold: bool,
    /// How often everything is brought to a halt and the cache checked: no lease held, settled, valid, and no block
    /// lost. Default: never.
    pub checks: usize,
    /// Tokens of the longest request that is not bypassed: each thread makes it in one piece, at 4 bytes a token.
    /// Default: 2^24.
    pub max_request_tokens: usize,
    /// Tokens that the cache may come to hold, by its capacity or by what the trace asks for, whichever is less: 4 bytes
    /// each, and some more for every block. Default: 2^28.
    pub max_cached_tokens: usize,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        Self {
            block_size: 16,
            capacity: Capacity::Percent(10.0),
            policy: PolicyKind::default(),
            cache: CacheKind::default(),
            threads: 1,
            eviction: EvictionMode::default(),
            outputs: false,
            longest: None,
            verify: false,
            hold: false,
            checks: 0,
            max_request_tokens: 1 << 24,
            max_cached_tokens: 1 << 28,
        }
    }
}

impl ReplayConfig {
    /// Whether the result is a pure function of the trace.
    fn is_deterministic(&self) -> bool {
        self.threads == 1 && self.eviction == EvictionMode::Inline
    }

    fn build(&self, capacity: usize) -> Result<PrefixCache, ReplayError> {
        let clock = if self.is_deterministic() { Clock::Logical } else { Clock::Monotonic };
        let eviction = match self.eviction {
            EvictionMode::Inline => Eviction::Inline,
            EvictionMode::Background => Eviction::Background(Watermarks::for_capacity(capacity)),
        };
        // A cache has a bit for each block and no way to say that memory is short: asked for and given back here first.
        Vec::<u8>::new().try_reserve_exact(capacity.min(BlockId::MAX as usize) / 8)?;
        let builder = PrefixCache::builder(self.block_size, capacity).policy(self.policy).clock(clock);
        Ok(builder.eviction(eviction).build()?)
    }
}

/// Why a replay could not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// Blocks must hold something.
    #[error("block size must be more than zero")]
    ZeroBlockSize,
    /// Someone must do the work.
    #[error("threads must be more than zero")]
    ZeroThreads,
    /// Use fewer threads.
    #[error("{threads} threads are more than the {MOST_THREADS} that a replay has at most")]
    TooManyThreads {
        /// Threads asked for.
        threads: usize,
    },
    /// The system started no more threads: use fewer, or raise its limit.
    #[error("only {started} threads were started: {source}")]
    NoThread {
        /// Threads that ran.
        started: usize,
        /// What the system says.
        source: io::Error,
    },
    /// Bypass the request ([`ReplayConfig::longest`]), or raise [`ReplayConfig::max_request_tokens`].
    #[error("row {row}: {tokens} tokens of one request, more than the {most} that are made at most")]
    RequestTooLong {
        /// The request.
        row: usize,
        /// Its tokens in whole blocks.
        tokens: usize,
        /// The bound.
        most: usize,
    },
    /// Lower the capacity, or raise [`ReplayConfig::max_cached_tokens`].
    #[error("the cache would hold {tokens} tokens, more than the {most} that it may")]
    CacheTooLarge {
        /// Tokens of its capacity or of all requests, whichever is less.
        tokens: usize,
        /// The bound.
        most: usize,
    },
    /// Replay a part of the trace, or with a smaller cache.
    #[error("memory is short: {0}")]
    NoMemory(#[from] TryReserveError),
    /// There is no such cache.
    #[error("the cache cannot be built: {0}")]
    Build(#[from] BuildError),
    /// The cache refused blocks although nothing but this request could hold any.
    #[error("row {row}: refused with no other lease held: {source}")]
    Refused {
        /// The request.
        row: usize,
        /// What the cache said.
        source: ReserveError,
    },
    /// The cache did not take what was reserved for.
    #[error("row {row}: not inserted: {kind:?}")]
    NotInserted {
        /// The request.
        row: usize,
        /// What the cache said.
        kind: InsertErrorKind,
    },
    /// The cache is broken.
    #[error("after {served} requests: {fault}")]
    Check {
        /// Requests of the trace that had been served.
        served: usize,
        /// What is wrong.
        fault: CheckFault,
    },
}

/// What a replay found.
#[derive(Debug, Clone)]
pub struct Replay {
    /// The totals.
    pub report: Report,
    /// One for each request, in replay order.
    pub outcomes: Vec<Outcome>,
    /// The first few hits whose blocks held something else; the report counts all of them.
    pub mismatches: Vec<Mismatch>,
}

/// Replays a trace; `served` is called after every request, from the thread that served it.
///
/// # Errors
///
/// Fails if there can be no such cache, and if the cache breaks a promise.
///
/// # Examples
///
/// ```no_run
/// use radixkv_replay::{ReplayConfig, Trace, replay};
///
/// let trace = Trace::open("conversation.jsonl.zst", None)?;
/// let replayed = replay(&trace, &ReplayConfig::default(), &|| {})?;
/// println!("{:.1} % hit", 100.0 * replayed.report.hit_rate);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub fn replay(trace: &Trace, config: &ReplayConfig, served: &(dyn Fn() + Sync)) -> Result<Replay, ReplayError> {
    let began = Instant::now();
    if config.block_size == 0 {
        return Err(ReplayError::ZeroBlockSize);
    }
    if config.threads == 0 {
        return Err(ReplayError::ZeroThreads);
    }
    if config.threads > MOST_THREADS {
        return Err(ReplayError::TooManyThreads { threads: config.threads });
    }
    let working_set = match config.capacity {
        Capacity::Blocks(_) => 0,
        Capacity::Percent(_) => trace.try_working_set(config.block_size)?,
    };
    let capacity = config.capacity.of(|| working_set);
    config.check_sizes(trace, capacity)?;
    let cache = config.build(capacity)?;
    let tally = schedule::run(trace, config, capacity, &cache, served)?;
    cache.settle();
    let totals = cache.stats();
    let seconds = (trace.read_time() + began.elapsed()).as_secs_f64();
    let report = Report::new(trace, config, &totals, &tally, seconds);
    Ok(Replay { report, outcomes: tally.outcomes, mismatches: tally.mismatches })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_blocks_or_percent() {
        assert_eq!("100".parse(), Ok(Capacity::Blocks(100)));
        assert_eq!("12.5%".parse(), Ok(Capacity::Percent(12.5)));
        for zero in ["0", "0%", "0.0%"] {
            assert_eq!(zero.parse::<Capacity>(), Err(CapacityError::Zero));
        }
        for bad in ["", "%", "-1", "-1%", "ten", "NaN%", "inf%", "1.5"] {
            assert_eq!(bad.parse::<Capacity>(), Err(CapacityError::Malformed), "{bad:?}");
        }
    }
}
