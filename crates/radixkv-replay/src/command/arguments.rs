//! The options of `radixkv replay`.

use std::path::PathBuf;

use clap::Args;
use radixkv_replay::{
    ReplayConfig,
    replay::{Capacity, WarmUp},
};

use crate::{
    serving::{Serving, natural, set},
    tiers::TierOptions,
};

/// The lowest rate, in tokens a second: at a lower one a time could exceed the range of `f64`.
const SLOWEST: f64 = 1e-6;

/// Replay a request trace, or the built-in workloads, and report hits, evictions, latencies and
/// memory.
///
/// A trace is a file of JSON lines, plain or compressed with gzip or zstd. A row has timestamp,
/// input_length, output_length and hash_ids; instead of lengths and hash_ids it may have the
/// tokens: input_tok_ids and output_tok_ids.
///
/// Without a trace, seeded workloads are replayed class by class. The report shows the hit rate of
/// each class beside the range that its parameters predict for a cache that never evicts.
///
/// `seconds` in the report covers the whole replay: reading and parsing the file, counting the
/// working set, generating tokens, and all work of the cache.
///
/// Exit status: 0 on success, 1 if a bug of the cache was found, 2 if the command line, the trace
/// or the system is at fault.
#[derive(Args)]
pub(crate) struct Arguments {
    /// File of the trace, or - for standard input; without it, the built-in workloads are replayed
    pub(crate) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) serving: Serving,
    /// Check the blocks of every hit against the tokens they were filled with; exit with 1 on a
    /// mismatch
    #[arg(long)]
    verify: bool,
    /// Pause this many times with no lease held, and check that the cache is valid and lost no
    /// block
    #[arg(long, default_value = "0", value_name = "N", value_parser = natural)]
    checks: usize,
    /// Write a CSV row for every request, in replay order; an existing file is replaced only on
    /// success
    #[arg(long, value_name = "FILE.csv", requires = "trace")]
    pub(crate) requests: Option<PathBuf>,
    /// Model the time to first token at this prefill rate (tokens per second), with and without the
    /// cache
    #[arg(long, value_name = "TOKENS/S", value_parser = rate)]
    pub(crate) prefill_rate: Option<f64>,
    /// Leave the first requests out of rates: a number of requests, or those of the first seconds,
    /// such as 60s
    #[arg(long, value_name = "N|Ns", requires = "trace")]
    warm_up: Option<WarmUp>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with plots: hits and occupancy over the trace, misses and evictions by reason,
    /// latencies
    #[arg(long, value_name = "FILE.html", requires = "trace")]
    pub(crate) report: Option<PathBuf>,
    /// Update a file while the replay runs, for `radixkv top --live FILE`
    #[arg(long, value_name = "FILE", requires = "trace")]
    pub(crate) live: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) metrics: crate::metrics::MetricsOptions,
    #[command(flatten)]
    pub(crate) tiers: TierOptions,
    #[cfg(feature = "follow")]
    #[command(flatten)]
    pub(crate) events: crate::events::EventsOptions,
}

fn rate(text: &str) -> Result<f64, &'static str> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate < SLOWEST => Err("must be at least 0.000001"),
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("not a number above zero"),
    }
}

impl Arguments {
    pub(crate) fn config(&self, default_capacity: Capacity) -> ReplayConfig {
        let config = self.serving.config(default_capacity).verify(self.verify).checks(self.checks);
        let config = set(config, self.tiers.tiers(), ReplayConfig::tiers);
        set(config, self.warm_up, ReplayConfig::warm_up)
    }
}
