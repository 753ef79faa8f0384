//! The verbs that evict: of all namespaces, or of one.

use std::time::Duration;

use super::evictor::{Evictor, Resources, SWEEP_SLICE, runs_below};
use super::inner::{Inner, Patience};
use super::namespace::Namespace;
use super::prefix_cache::PrefixCache;
use super::spans::within_span;

/// Garbage of evictions that may wait for the next one.
const RECLAIM_BYTES: usize = 32 << 10;
/// The most blocks that are evicted in one turn.
const SLICE: usize = 128;

impl PrefixCache {
    /// Frees up to `blocks` blocks that no lease protects, in the policy's exact order, and returns how many it freed.
    ///
    /// It frees exactly as many as asked for, or all that can go: the last victim is shortened from its end. Waits its
    /// turn if another thread is evicting.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let prompt = [1, 2, 3, 4, 5, 6];
    /// let miss = session.match_prefix(&space, &prompt);
    /// drop(session.insert(miss.lease(), &prompt, session.reserve(3)?)?);
    /// assert_eq!(cache.evict(2), 2);
    /// assert_eq!(session.peek(&space, &prompt), 2); // the first block is left
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn evict(&self, blocks: usize) -> usize {
        self.inner.evict_in_turns(blocks, |evictor, want, resources| {
            let mut entries = usize::MAX;
            Some(evictor.evict(want, &mut entries, resources))
        })
    }

    /// As [`evict`](Self::evict), of one namespace alone.
    ///
    /// The first time for a namespace without a limit on its cached blocks, all candidates are sorted anew, in slices between
    /// which other threads get their turn, as [`set_quota`](Self::set_quota) does. The namespace counts as limited then, where the
    /// order of limits decides.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let tenant = cache.namespace(&["tenant-7"]);
    /// for space in [&tenant, &space] {
    ///     let miss = session.match_prefix(space, &[1, 2, 3, 4]);
    ///     drop(session.insert(miss.lease(), &[1, 2, 3, 4], session.reserve(2)?)?);
    /// }
    /// assert_eq!(cache.evict_namespace(&tenant, 8), 2);
    /// assert_eq!((session.peek(&tenant, &[1, 2, 3, 4]), session.peek(&space, &[1, 2, 3, 4])), (0, 4));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn evict_namespace(&self, namespace: &Namespace, blocks: usize) -> usize {
        self.inner.namespaces.check(namespace);
        self.inner.evict_in_turns(blocks, |evictor, want, resources| {
            // One that was dropped has nothing.
            namespace
                .0
                .root(resources.guard)
                .map_or(Some(0), |_| evictor.evict_of(&namespace.0.holdings, want, resources))
        })
    }
}

impl PrefixCache {
    /// Evicts what of a namespace was not used for `idle`, whether blocks are needed or not; returns how many blocks.
    ///
    /// They count as dropped for their age, as by [`Builder::time_to_idle`](crate::Builder::time_to_idle) for all namespaces and
    /// [`Quota::time_to_idle`](crate::Quota::time_to_idle) for one, which see to it again and again. Looks at every run of the namespace, in slices between which other threads get their turn; waits its turn if
    /// another thread is evicting.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use radixkv::{Clock, PrefixCache};
    /// let cache = PrefixCache::builder(2, 8).clock(Clock::Logical).build()?;
    /// # let session = cache.session();
    /// let tenant = cache.namespace(&["tenant-7"]);
    /// for (time, prompt) in [(0, [1, 2, 3, 4]), (90, [1, 2, 5, 6])] {
    ///     cache.set_time(time);
    ///     let start = session.acquire(&tenant, &prompt, 0)?;
    ///     drop(session.insert(start.hit.lease(), &prompt, start.blocks)?);
    /// }
    /// cache.set_time(100);
    /// assert_eq!(cache.evict_idle(&tenant, Duration::from_nanos(50)), 1); // 3, 4
    /// assert_eq!(session.peek(&tenant, &[1, 2, 5, 6]), 4);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn evict_idle(&self, namespace: &Namespace, idle: Duration) -> usize {
        let inner = &*self.inner;
        inner.namespaces.check(namespace);
        let Some(idle_since) = inner.time.present().before(idle) else { return 0 };
        inner.settle_by(Patience::Waits);
        let participant = inner.participant();
        // For the whole of it: what other threads evict meanwhile stays readable.
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
}

impl Inner {
    /// Evicts up to `blocks` blocks, in turns: `evict` frees up to so many, or does a part of what comes before that.
    pub(super) fn evict_in_turns(
        &self,
        blocks: usize,
        mut evict: impl FnMut(&mut Evictor, usize, Resources<'_>) -> Option<usize>,
    ) -> usize {
        within_span!("evict");
        let mut evicted = 0;
        let mut slice = |evictor: &mut Evictor, resources: Resources<'_>| {
            let want = (blocks - evicted).min(SLICE);
            let freed = evict(evictor, want, resources);
            evicted += freed.unwrap_or(0);
            // A little garbage waits for the next eviction, unless nothing is cached any more.
            let is_garbage = evictor.totals.runs == 0 || resources.guard.retired_bytes() >= RECLAIM_BYTES;
            (freed.is_none_or(|freed| freed == SLICE) && evicted < blocks, is_garbage)
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
