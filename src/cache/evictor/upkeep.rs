//! Maintenance by the evictor between evictions, in bounded steps. `settle`, `run_once`, the
//! background evictor and reservations that evict call it.

use super::exchange::SLICE;
use super::{AgingPass, Evictor, QuotaPass, Ranking, Resources, SortGoal};

/// The maintenance in one [`settle`](crate::PrefixCache::settle): only work that was pending when
/// it began, whatever other threads add meanwhile.
#[derive(Debug)]
pub(in crate::cache) struct Upkeep {
    /// Drops prefixes that are too old.
    aging: Option<AgingPass>,
    /// The number of exchanges that had begun; set by the first slice.
    begun: Option<u64>,
    sorting: SortGoal,
    /// Begins after the candidates are sorted by their groups.
    quotas: QuotaPass,
}

impl Upkeep {
    pub(in crate::cache) fn new(aging: Option<AgingPass>) -> Self {
        Self { aging, begun: None, sorting: SortGoal::default(), quotas: QuotaPass::default() }
    }
}

impl Evictor<'_> {
    /// Takes in up to `entries` changes, and does a slice of exchanging and sorting; returns true
    /// if more is left. Evicts nothing.
    pub(in crate::cache) fn tidy(&mut self, entries: &mut usize, resources: Resources<'_>) -> bool {
        let drained = self.drain(entries, resources);
        let exchanging = self.advance_exchange(SLICE, resources);
        let sorting = self.sort_groups(SLICE, resources);
        !drained || exchanging || sorting
    }

    /// As [`tidy`](Self::tidy), and evicts a slice of the blocks that must go even if none are
    /// needed: prefixes that are too old, then blocks beyond a quota. Takes in up to `entries` more
    /// changes meanwhile. Returns true if more is left.
    pub(in crate::cache) fn step(
        &mut self,
        mut entries: usize,
        aging: Option<AgingPass>,
        resources: Resources<'_>,
    ) -> bool {
        let untidy = self.tidy(&mut { entries }, resources);
        let aging = aging.is_some_and(|pass| self.age_on(pass, &mut entries, resources));
        let over = !aging && self.keep_to_quotas(&mut QuotaPass::default(), &mut entries, resources);
        untidy || aging || over
    }

    /// Does a slice of [`settle`](crate::PrefixCache::settle); returns true if more is left.
    pub(in crate::cache) fn keep_up(&mut self, upkeep: &mut Upkeep, resources: Resources<'_>) -> bool {
        let begun = self.ranking.exchange.begun;
        // Recorded by the first slice in any case, because an exchange that begins later is not
        // part of this work.
        let known = *upkeep.begun.get_or_insert(begun);
        let exchanging = self.advance_exchange(SLICE, resources) && begun == known;
        if self.sort_towards(&mut upkeep.sorting, resources) {
            return true;
        }
        let mut entries = usize::MAX;
        let aging = upkeep.aging.as_mut().is_some_and(|pass| self.age(pass, &mut entries, resources));
        exchanging || aging || self.keep_to_quotas(&mut upkeep.quotas, &mut entries, resources)
    }

    /// Whether there is upkeep to do other than taking entries from the queue.
    #[inline]
    pub(in crate::cache) fn has_upkeep(&self) -> bool {
        let has = |ranking: &Ranking| ranking.exchange.is_pending() || ranking.has_spent();
        self.shards().any(|shard| has(&shard.ranking) || shard.sorting.is_pending())
    }

    /// Does a slice of exchanging and sorting.
    #[cold]
    pub(in crate::cache) fn keep_upkeep_up(&mut self, resources: Resources<'_>) {
        self.advance_exchange(SLICE, resources);
        self.sort_groups(SLICE, resources);
    }
}
