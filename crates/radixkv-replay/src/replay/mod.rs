//! Replays a trace through a cache and reports the hits, evictions, latencies and memory.
//!
//! Requests are served in the order of the trace. To serve a request, a thread matches its key,
//! reserves the missing blocks, inserts them, and holds the lease while the request runs. A request
//! that needs more blocks than the cache has (or than [`longest`](ReplayConfig::longest) allows) is
//! bypassed: no lookup, no insert; its prompt still counts.
//!
//! With one thread and inline eviction, time is logical and a lease is dropped before the next
//! request is served. The result is then a pure function of the trace: the same hits, evictions and
//! digest on every machine. With more threads, each thread takes the next request of the trace, and
//! keeps the leases of the last few requests that it served: those are the requests that "run".
//!
//! With [`hold`](ReplayConfig::hold) a request runs for as many steps as it generates tokens, also
//! on one thread. A step is one request of the trace: the lease is dropped once that many later
//! requests were served (with several threads, when the thread that holds it takes its first
//! request after them). If leases leave too few blocks for a reservation, the leases that would end
//! first are dropped early, one by one. With one thread this is also a pure function of the trace.
//!
//! With [`service`](ReplayConfig::service) requests arrive at the trace's timestamps and run
//! concurrently in a fixed number of slots, each with its lease: the trace then determines how many
//! leases are held at once.
//!
//! With [`tiers`](ReplayConfig::tiers) one or several caches share a host tier: blocks that one of
//! them evicts are stored there, and all of them can hit those blocks. Nothing is copied; the time
//! that copies would take is computed from bytes, a bandwidth and a latency.
//!
//! If the trace was read with priorities, each request gives its priority to the prefix that it
//! matched and inserted.

mod capacity;
mod check;
mod config;
mod error;
mod latency;
mod outcome;
mod report;
mod schedule;
mod size;
mod stamps;
mod tally;
mod tiers;
mod times;
mod trace_time;
mod ttft;
mod worker;

use std::time::Instant;

use radixkv::{BlockId, Clock, Eviction, PrefixCache, Watermarks};

pub use capacity::{Capacity, CapacityError};
pub use check::CheckFault;
pub use config::{CacheKind, EvictionMode, MAX_THREADS, ReplayConfig};
pub use error::ReplayError;
pub use latency::{Latencies, LatencyBar, Percentiles};
pub use outcome::Outcome;
pub use report::Report;
pub use stamps::Mismatch;
pub use tiers::{HostKind, Leftover, MAX_INSTANCES, RemoteReport, Route, Shortage, TierReport, Tiers};
pub use times::{RequestTimes, ServiceReport, Waits};
pub use trace_time::{Service, TimeUnit, WarmUp};
pub use ttft::{TimeToFirstToken, TtftPercentiles};
pub use worker::Served;

use tally::Tally;

use crate::request::Trace;

/// The result of a replay.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay, workload::CLASSES};
///
/// let trace = CLASSES[2].trace(0);
/// let replayed = replay(&trace, &ReplayConfig::default(), &|| {})?;
/// assert_eq!(replayed.outcomes.len(), replayed.report.requests);
/// # Ok::<_, radixkv_replay::ReplayError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Replay {
    /// The totals.
    pub report: Report,
    /// The outcome of each request, in replay order.
    pub outcomes: Vec<Outcome>,
    /// The first few blocks of hits whose tokens differ from the matched tokens; the report counts
    /// all of them.
    pub mismatches: Vec<Mismatch>,
    /// The waits of each request in replay order; empty unless requests are served in trace time.
    pub times: Vec<RequestTimes>,
    /// Histograms of the latencies of the cache's operations.
    pub latencies: Latencies,
}

/// Replays a trace; `served` is called after every request, on the thread that served it.
///
/// # Errors
///
/// Fails if no such cache can be built, if the trace exceeds the limits of `config`, if memory or
/// threads are short, and if the cache is found to have a bug.
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
    replay_watched(trace, config, &|_| served())
}

/// Replays a trace as [`replay`](replay()) does, and calls `watch` for each request, with the
/// current state of the cache.
///
/// # Errors
///
/// As [`replay`](replay()).
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay, workload::CLASSES};
///
/// let watch = |served: replay::Served<'_>| {
///     let stats = served.cache.stats();
///     assert!(stats.free_blocks <= stats.capacity_blocks);
/// };
/// replay::replay_watched(&CLASSES[2].trace(0), &ReplayConfig::default(), &watch)?;
/// # Ok::<_, radixkv_replay::ReplayError>(())
/// ```
pub fn replay_watched(
    trace: &Trace,
    config: &ReplayConfig,
    watch: &(dyn Fn(Served<'_>) + Sync),
) -> Result<Replay, ReplayError> {
    let began = Instant::now();
    let warm_up = config.warm_up.requests(trace, config.time_unit)?;
    config.check_tiers()?;
    let (totals, tally, tiers) = match &config.tiers {
        Some(tiers) => {
            config.check_block_size()?;
            let (totals, tally, report) = tiers::run(trace, config, tiers, warm_up, watch)?;
            (totals, tally, Some(report))
        }
        None => {
            let (cache, tally) = serve(trace, trace.requests().len(), config, watch, false)?;
            cache.settle();
            (cache.stats(), tally, None)
        }
    };
    let seconds = (trace.read_time() + began.elapsed()).as_secs_f64();
    let report = Report { tiers, ..Report::new(trace, config, &totals, &tally, warm_up, seconds) };
    let latencies = Latencies::new(&tally);
    Ok(Replay { report, outcomes: tally.outcomes, mismatches: tally.mismatches, times: tally.times, latencies })
}

/// The state of a cache in the middle of a trace.
pub(crate) struct Moment {
    pub(crate) cache: PrefixCache,
    /// The leases that were held: the number of the request, and the tokens that were leased.
    pub(crate) held: Vec<(usize, usize)>,
    /// The numbers of the requests that did not bypass the cache.
    pub(crate) served: Vec<usize>,
}

/// Serves the first `requests` requests, and returns the cache with the leases held at that moment.
pub(crate) fn replay_until(
    trace: &Trace,
    requests: usize,
    config: &ReplayConfig,
    served: &(dyn Fn() + Sync),
) -> Result<Moment, ReplayError> {
    if requests > trace.requests().len() {
        return Err(ReplayError::NoSuchMoment { at: requests, requests: trace.requests().len() });
    }
    let (cache, tally) = serve(trace, requests, config, &|_| served(), true)?;
    let held = tally.held.iter().map(|held| (held.number, held.tokens)).collect();
    let served = (0..requests).filter(|&number| tally.outcomes[number].hit_blocks.is_some()).collect();
    Ok(Moment { cache, held, served })
}

/// Serves the first `requests` requests from a new cache.
fn serve(
    trace: &Trace,
    requests: usize,
    config: &ReplayConfig,
    watch: &(dyn Fn(Served<'_>) + Sync),
    stops_running: bool,
) -> Result<(PrefixCache, Tally), ReplayError> {
    config.check_block_size()?;
    if config.threads == 0 {
        return Err(ReplayError::ZeroThreads);
    }
    if config.threads > MAX_THREADS {
        return Err(ReplayError::TooManyThreads { threads: config.threads });
    }
    config.check_service()?;
    let capacity = match config.capacity {
        Capacity::Percent(_) => {
            config.capacity.of_working_set(trace.try_working_set_blocks(config.block_size)?, config.block_size)
        }
        Capacity::Blocks(_) | Capacity::Tokens(_) => config.capacity.of_working_set(0, config.block_size),
    };
    config.check_sizes(trace, capacity)?;
    let cache = build(config, capacity)?;
    let tally = schedule::run(trace, requests, config, capacity, &cache, watch, stops_running)?;
    Ok((cache, tally))
}

fn build(config: &ReplayConfig, capacity: usize) -> Result<PrefixCache, ReplayError> {
    let clock = if config.is_deterministic() { Clock::Logical } else { Clock::Monotonic };
    let eviction = match config.eviction {
        EvictionMode::Inline => Eviction::Inline,
        EvictionMode::Background => Eviction::Background(Watermarks::for_capacity(capacity)),
    };
    // The cache needs a bit per block and cannot report that memory is short: this reports it.
    Vec::<u8>::new().try_reserve_exact(capacity.min(BlockId::MAX as usize) / 8)?;
    let builder = PrefixCache::builder(config.block_size, capacity).policy(config.policy).clock(clock);
    builder.eviction(eviction).build().map_err(ReplayError::Build)
}
