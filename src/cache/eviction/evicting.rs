//! The operations that evict: from all namespaces, or from one. They work in bounded turns of the
//! evictor ([`Inner::evict_in_turns`]).

use std::time::Duration;

use crate::cache::evictor::{Evictor, Resources, SWEEP_SLICE, runs_below};
use crate::cache::inner::Inner;
use crate::cache::namespaces::namespace::Namespace;
use crate::cache::numbers::stats::Total;
use crate::cache::prefix_cache::PrefixCache;
use crate::cache::spans::within_span;
use crate::cache::turn::LockMode;

/// Bytes of garbage that may wait for the next eviction.
const RECLAIM_BYTES: usize = 32 << 10;
/// The most blocks that one turn evicts.
const SLICE: usize = 128;

pub(in crate::cache) fn evict_idle(cache: &PrefixCache, namespace: &Namespace, idle: Duration) -> usize {
    let inner = &*cache.inner;
    let Some(idle_since) = inner.time.present().before(idle) else { return 0 };
    inner.settle_by(LockMode::Waits);
    let participant = inner.participant();
    // Pinned throughout: runs that other threads evict meanwhile stay readable.
    let guard = participant.pin();
    let Some(root) = namespace.0.root(&guard) else { return 0 };
    let (runs, _) = runs_below(root, usize::MAX, &guard);
    let runs: Vec<_> = runs.into_iter().rev().map(|run| run.link()).collect();
    let slices = runs.chunks(SWEEP_SLICE).map(|slice| {
        inner.in_turn(|evictor, resources| {
            evictor.evict_idle(slice.iter().map(|run| run.get(resources.guard)), idle_since, resources)
        })
    });
    slices.sum()
}

impl Inner {
    /// Evicts up to `blocks` blocks, in turns, but no more than could be evicted in the first turn:
    /// an eviction sink, or other threads, may cache as fast as this evicts. `evict` frees at most
    /// the given number and returns how many it freed; `None` if that does not count and another
    /// turn is needed.
    pub(in crate::cache) fn evict_in_turns(
        &self,
        blocks: usize,
        mut evict: impl FnMut(&mut Evictor<'_>, usize, Resources<'_>) -> Option<usize>,
    ) -> usize {
        within_span!("evict");
        let (mut evicted, mut first) = (0, None);
        let mut slice = |evictor: &mut Evictor<'_>, resources: Resources<'_>| {
            let blocks = *first.get_or_insert_with(|| blocks.min(evictor.evictable()));
            let want = (blocks - evicted).min(SLICE);
            let freed = evict(evictor, want, resources);
            evicted += freed.unwrap_or(0);
            // A little garbage waits for the next eviction, unless nothing is cached any more.
            let is_garbage = evictor.sum(|shard| shard.totals.get(Total::Runs) as usize) == 0
                || resources.guard.retired_bytes() >= RECLAIM_BYTES;
            let more = freed.is_none_or(|freed| freed == SLICE) || evictor.needs_turn();
            (more && evicted < blocks, is_garbage)
        };
        let (mut more, mut is_garbage) = self.settled(&mut slice);
        while more {
            let garbage;
            (more, garbage) = self.in_turn(&mut slice);
            is_garbage |= garbage;
        }
        if evicted > 0 && is_garbage {
            self.reclaim();
        }
        evicted
    }
}
