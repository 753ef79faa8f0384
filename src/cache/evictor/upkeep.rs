//! What the evictor does between evictions, in bounded steps.

use super::exchange::SLICE;
use super::{Evictor, Works};

impl Evictor {
    /// Takes up to `entries` changes in, and does a slice of sorting; true if more is left. Evicts nothing.
    pub(in crate::cache) fn tidy(&mut self, entries: usize, works: Works<'_>) -> bool {
        let drained = self.drain(entries, works);
        let exchanging = self.advance_exchange(SLICE, works);
        let sorting = self.sort_groups(SLICE, works);
        !drained || exchanging || sorting
    }

    /// The same, and a slice of what must go although nobody asked for blocks: what was last used at `idle_since` or
    /// before, then what is beyond a quota. True if more is left.
    pub(in crate::cache) fn step(&mut self, entries: usize, idle_since: Option<u64>, works: Works<'_>) -> bool {
        let untidy = self.tidy(entries, works);
        let aging = idle_since.is_some_and(|idle_since| self.age(idle_since, works));
        let over = !aging && self.keep_to_quotas(works);
        untidy || aging || over
    }

    /// Whether there is something to tidy beside the queue.
    pub(in crate::cache) fn is_behind(&self) -> bool {
        self.ranking.exchange.is_pending() || self.quotas.is_sorting()
    }
}
