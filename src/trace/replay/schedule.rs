//! Who serves which request, and the halts in between.
//!
//! A trace is cut into as many stretches as there are checks. Within a stretch threads take requests in trace order
//! from one cursor; at its end they are joined, which is what makes the halt quiet: no thread runs and no lease is
//! held. A thread that panics ends the replay at its stretch instead of leaving others at a barrier.

use std::{
    fmt, panic,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
};

use super::{
    ReplayConfig, ReplayError,
    tally::Tally,
    worker::{Shared, Worker},
};
use crate::{PrefixCache, Stats, diagnostics::Violation, trace::Trace};

/// What a check found.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckFault {
    /// An invariant of the cache does not hold.
    Invalid(Violation),
    /// Blocks were lost or counted twice: free, reserved, evictable and protected do not add up to the capacity.
    NotConserved(Stats),
    /// Blocks are reserved or protected, though no reservation and no lease exists.
    StillHeld(Stats),
}

impl fmt::Display for CheckFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, stats) = match self {
            Self::Invalid(violation) => return violation.fmt(f),
            Self::NotConserved(stats) => ("blocks are not conserved", stats),
            Self::StillHeld(stats) => ("blocks are held by no one", stats),
        };
        let Stats { free_blocks, reserved_blocks, evictable_blocks, protected_blocks, capacity_blocks, .. } = stats;
        write!(
            f,
            "{what}: {free_blocks} free, {reserved_blocks} reserved, {evictable_blocks} evictable and \
             {protected_blocks} protected of {capacity_blocks}"
        )
    }
}

/// Serves every request of the trace, checking the cache `config.checks` times, the last time at the end.
pub(super) fn run(
    trace: &Trace,
    config: &ReplayConfig,
    capacity: usize,
    cache: &PrefixCache,
    served: &(dyn Fn() + Sync),
) -> Result<Tally, ReplayError> {
    let requests = trace.requests().len();
    let stretches = config.checks.clamp(1, requests.max(1));
    let shared = Shared::new(trace, config, capacity, cache, served)?;
    let mut total = Tally::new();
    let mut start = 0;
    for stretch in 1..=stretches {
        let end = requests * stretch / stretches;
        for tally in serve(&shared, start, end)? {
            total.merge(tally)?;
        }
        if config.checks > 0 {
            // A check notes a byte for each block and has no way to say that memory is short: asked for here first.
            Vec::<u8>::new().try_reserve_exact(capacity)?;
            check(cache).map_err(|fault| ReplayError::Check { served: end, fault })?;
        }
        start = end;
    }
    total.sort()?;
    Ok(total)
}

/// Serves the requests from `start` to `end`; no lease is held afterwards.
fn serve(shared: &Shared<'_>, start: usize, end: usize) -> Result<Vec<Tally>, ReplayError> {
    let cursor = AtomicUsize::new(start);
    // Relaxed: the cursor hands out numbers and nothing else.
    let next = || Some(cursor.fetch_add(1, Relaxed)).filter(|&at| at < end);
    if shared.threads() == 1 {
        return Ok(vec![Worker::new(shared).run(next)?]);
    }
    // A thread without a request would do nothing.
    let threads = shared.threads().min(end - start);
    thread::scope(|scope| {
        let (mut workers, mut refused) = (Vec::with_capacity(threads), None);
        for started in 0..threads {
            match thread::Builder::new().spawn_scoped(scope, || Worker::new(shared).run(next)) {
                Ok(worker) => workers.push(worker),
                Err(source) => {
                    // Relaxed: as above; those that run take no further request.
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

/// Checks a cache that nothing is held of.
fn check(cache: &PrefixCache) -> Result<(), CheckFault> {
    cache.settle();
    cache.validate().map_err(CheckFault::Invalid)?;
    let stats = cache.stats();
    let blocks = stats.free_blocks + stats.reserved_blocks + stats.evictable_blocks + stats.protected_blocks;
    if blocks != stats.capacity_blocks {
        return Err(CheckFault::NotConserved(stats));
    }
    if stats.reserved_blocks + stats.protected_blocks > 0 {
        return Err(CheckFault::StillHeld(stats));
    }
    Ok(())
}
