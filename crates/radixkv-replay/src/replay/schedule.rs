//! Assigns requests to threads, and pauses them for checks.
//!
//! A trace is split into as many intervals as there are checks. Within an interval, threads take
//! requests in trace order from one cursor. At its end all threads are joined, so the check runs
//! while no thread runs and no lease is held. A thread that panics ends the replay at the end of
//! its interval; no other thread waits for it at a barrier.

use std::{
    panic,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
};

use radixkv::PrefixCache;

use super::{
    check::check,
    config::ReplayConfig,
    error::ReplayError,
    tally::Tally,
    worker::{ReplayShared, Served, Worker},
};
use crate::request::Trace;

/// Serves the first `requests` requests of the trace, and checks the cache `config.checks` times,
/// the last time at the end. With `stops_running`, requests that still run after the last one began
/// are not served to their end, and [`Tally::held`] lists their leases.
pub(super) fn run(
    trace: &Trace,
    requests: usize,
    config: &ReplayConfig,
    capacity: usize,
    cache: &PrefixCache,
    watch: &(dyn Fn(Served<'_>) + Sync),
    stops_running: bool,
) -> Result<Tally, ReplayError> {
    let intervals = config.checks.clamp(1, requests.max(1));
    let shared = ReplayShared::new(trace, config, capacity, cache, watch, stops_running)?;
    let mut total = Tally::new();
    let mut start = 0;
    for interval in 1..=intervals {
        let end = requests * interval / intervals;
        for tally in serve(&shared, start, end)? {
            total.merge(tally)?;
        }
        if config.checks > 0 {
            // A check takes a byte per block and cannot report that memory is short: this reports
            // it.
            Vec::<u8>::new().try_reserve_exact(capacity)?;
            check(cache).map_err(|fault| ReplayError::Check { served: end, fault })?;
        }
        start = end;
    }
    total.sort()?;
    Ok(total)
}

/// Serves the requests `start..end`; no lease is held after it returns.
fn serve(shared: &ReplayShared<'_>, start: usize, end: usize) -> Result<Vec<Tally>, ReplayError> {
    let cursor = AtomicUsize::new(start);
    // Relaxed: the cursor only hands out numbers; it publishes no other data.
    let next = || Some(cursor.fetch_add(1, Relaxed)).filter(|&at| at < end);
    if shared.threads() == 1 {
        return Ok(vec![Worker::new(shared).run(next)?]);
    }
    // More threads than requests would have nothing to serve.
    let threads = shared.threads().min(end - start);
    thread::scope(|scope| {
        let (mut workers, mut refused) = (Vec::with_capacity(threads), None);
        for started in 0..threads {
            match thread::Builder::new().spawn_scoped(scope, || Worker::new(shared).run(next)) {
                Ok(worker) => workers.push(worker),
                Err(source) => {
                    // Relaxed: as above; the running threads take no further request.
                    cursor.store(end, Relaxed);
                    refused = Some(ReplayError::NoThread { started, source });
                    break;
                }
            }
        }
        let joined =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        let tallies = joined.collect();
        refused.map_or(tallies, Err)
    })
}
