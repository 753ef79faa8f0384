//! Candidates for eviction: the ends of runs, filed with the policy.
//!
//! A candidate has no child run, and no leases except silent ones (`silent`). It is filed when its
//! entry is taken out of the queue, and again when the evictor finds its stats changed. The order
//! is by demotion, then the policy's key, then the serial number of the run, or of the piece in
//! which it ends. So among a shard's candidates with equal keys, the one inserted first is evicted
//! first. The order of filing breaks no ties: it depends on when the evictor drained the queue.

use std::num::NonZeroU32;

use super::aging::Aging;
use super::due::Due;
use super::exchange::Exchange;
use super::shards::Shard;
use super::{Evictor, Resources};
use crate::cache::leases::priority::Priority;
use crate::policy::{CandidateEntry, CandidateId, CandidateStats, Policy, PolicyKind, QuotaGroup, Stack, Table};
use crate::reclaim::{Link, Ref};
use crate::tree::Point;

/// The most vacant slots whose memory is kept when no candidate is left.
const FEW: usize = 1024;

/// The policy, and the candidate in each of its slots. Fields that nearly every turn writes are
/// last.
#[derive(Debug)]
#[repr(C)]
pub(in crate::cache) struct Ranking {
    pub(in crate::cache) kind: PolicyKind,
    pub(in crate::cache) exchange: Exchange,
    pub(in crate::cache) aging: Aging,
    /// The times at which a candidate's stats change without a use.
    pub(in crate::cache) due: Due,
    /// Old lists of vacant slots, from before ids started again at zero, to be freed in slices.
    spent: Vec<Stack<CandidateId>>,
    pub(in crate::cache) policy: Policy,
    candidates: Table<Link<Point>>,
    vacant: Stack<CandidateId>,
}

impl Ranking {
    pub(super) fn new(kind: PolicyKind, aging: bool) -> Self {
        Self {
            kind,
            policy: kind.build(),
            exchange: Exchange::default(),
            aging: Aging::new(aging),
            due: Due::default(),
            candidates: Table::default(),
            vacant: Stack::default(),
            spent: Vec::new(),
        }
    }

    /// The first candidates in the order, up to `most`.
    pub(super) fn first(&self, most: usize) -> impl Iterator<Item = Link<Point>> {
        self.policy.first(most).filter_map(|slot| self.at(slot))
    }

    /// Whether a candidate may be used without being filed again, because a use lowers no key under
    /// any policy that candidates are filed with.
    #[inline]
    pub(in crate::cache) fn is_lazy(&self) -> bool {
        self.kind.keys_rise() && self.coming().keys_rise()
    }

    /// As [`is_lazy`](Self::is_lazy), for a leased candidate, whose use may be undone.
    #[inline]
    pub(in crate::cache) fn files_leased(&self) -> bool {
        self.kind.keys_rise_while_leased() && self.coming().keys_rise_while_leased()
    }

    pub(in crate::cache) fn at(&self, slot: CandidateId) -> Option<Link<Point>> {
        self.candidates.get(slot.index()).copied()
    }

    pub(in crate::cache) fn slots(&self) -> &Table<Link<Point>> {
        &self.candidates
    }

    pub(in crate::cache) fn vacant(&self) -> &Stack<CandidateId> {
        &self.vacant
    }

    /// Both tables, for tests to overwrite.
    #[cfg(test)]
    pub(in crate::cache) fn tables(&mut self) -> (&mut Table<Link<Point>>, &mut Stack<CandidateId>) {
        (&mut self.candidates, &mut self.vacant)
    }

    /// Frees a slice of the old lists of vacant slots; returns whether any is left.
    pub(super) fn discard_spent(&mut self, slots: usize) -> bool {
        if self.spent.last_mut().is_some_and(|spent| !spent.discard(slots)) {
            self.spent.pop();
        }
        !self.spent.is_empty()
    }

    /// Whether old lists of vacant slots are left to be freed.
    pub(in crate::cache) fn has_spent(&self) -> bool {
        !self.spent.is_empty()
    }

    /// Prefetches the data that the next choice, and filing one more candidate, will change.
    pub(super) fn prefetch_ends(&self) {
        self.policy.prefetch_ends();
        self.vacant.prefetch_end();
    }

    fn occupy(&mut self, point: Link<Point>) -> CandidateId {
        let slot = self.vacant.pop().unwrap_or_else(|| CandidateId::at(self.candidates.len()));
        self.candidates.set(slot.index(), point);
        slot
    }

    pub(super) fn file(&mut self, slot: CandidateId, stats: CandidateStats, entry: CandidateEntry) {
        self.policy.file(slot, stats, entry);
        self.exchange.file(slot, stats, entry);
        self.aging.file(slot, stats, entry);
    }

    fn vacate(&mut self, slot: CandidateId) {
        self.policy.remove(slot);
        self.due.set(slot, None);
        self.exchange.remove(slot);
        self.aging.remove(slot);
        self.candidates.take(slot.index());
        self.vacant.push(slot);
        if self.vacant.len() == self.candidates.len() && self.vacant.len() > FEW {
            // No candidate is left: ids start again at zero.
            self.spent.push(std::mem::take(&mut self.vacant));
            self.candidates = Table::default();
        }
    }
}

impl Evictor<'_> {
    /// The best victim of all locked shards; it stays filed.
    #[inline]
    pub(super) fn choose(&self) -> Option<Link<Point>> {
        self.best(|ranking| &ranking.policy, Policy::choose)
    }

    /// The best victim of a group; it stays filed.
    pub(in crate::cache) fn choose_of(&self, group: QuotaGroup) -> Option<Link<Point>> {
        self.best(|ranking| &ranking.policy, |policy| policy.choose_of(group))
    }

    /// The candidate of a group, or of all, that was used longest ago; it stays filed.
    pub(super) fn oldest(&self, group: Option<QuotaGroup>) -> Option<Link<Point>> {
        self.ranking.aging.order()?;
        self.best(
            |ranking| ranking.aging.order().expect("all shards order by last use"),
            |order| group.map_or_else(|| order.choose(), |group| order.choose_of(group)),
        )
    }

    /// The first of the candidates that `choose` finds in the shards' orders.
    #[inline(always)]
    fn best<'s>(
        &'s self,
        order: fn(&'s Ranking) -> &'s Policy,
        choose: impl Fn(&Policy) -> Option<CandidateId>,
    ) -> Option<Link<Point>> {
        if self.rest.is_empty() {
            let ranking = &self.first().ranking;
            return ranking.at(choose(order(ranking))?);
        }
        let place = |shard: &'s Shard| {
            let policy = order(&shard.ranking);
            Some((policy.place(choose(policy)?)?, &shard.ranking))
        };
        let ranking = self.shards().filter_map(place).min_by_key(|(place, _)| *place)?.1;
        ranking.at(choose(order(ranking))?)
    }

    /// Files `point`, or files it again under its current stats.
    pub(super) fn file(&mut self, point: Ref<'_, Point>, resources: Resources<'_>) {
        if !self.silence(point, resources) {
            return;
        }
        self.go_to(point.run());
        let slot = match point.account.get(&self.owner).candidate {
            Some(slot) => slot,
            None => {
                let slot = self.ranking.occupy(point.link());
                point.account.with_mut(&mut self.owner, |account| account.candidate = Some(slot));
                slot
            }
        };
        let (stats, until) = self.candidate_stats(point, resources);
        let entry = self.entry(point);
        self.ranking.file(slot, stats, entry);
        self.ranking.due.set(slot, until);
        self.note_group(entry.group, &point.run().space().account);
    }

    /// Takes `point` out of the ranking if it is filed.
    pub(super) fn unfile(&mut self, point: Ref<'_, Point>) {
        let slot = point.account.with_mut(&mut self.owner, |account| account.candidate.take());
        if let Some(slot) = slot {
            self.of_mut(point.run()).ranking.vacate(slot);
        }
    }

    /// The part of a candidate's data that does not change. A run has one candidate at a time, its
    /// end, so the serial number of the run, or of the piece in which it ends, is the candidate's.
    #[inline]
    pub(in crate::cache) fn entry(&self, point: Ref<'_, Point>) -> CandidateEntry {
        let run = point.run();
        let serial = run
            .account
            .with(&self.owner, |account| account.pieces.at(point.depth()).map_or(account.serial, |piece| piece.serial));
        CandidateEntry { serial, group: run.space().account.group.get(&self.owner) }
    }

    /// The current stats of a point, and when they change without a use, if ever.
    #[inline]
    pub(in crate::cache) fn candidate_stats(
        &self,
        point: Ref<'_, Point>,
        resources: Resources<'_>,
    ) -> (CandidateStats, Option<u64>) {
        let statistics = &point.statistics;
        let (last, hits) = (statistics.last(), statistics.hits());
        let marked = point.marks.made(resources.guard);
        let (priority, until) =
            marked.and_then(|marked| marked.priority_at(self.now)).unwrap_or((Priority::DEFAULT.level(), None));
        let demoted = marked.is_some_and(|marked| marked.is_demoted(last));
        let run = point.run();
        let (born, level) = run.account.with(&self.owner, |account| {
            let born = account.pieces.at(point.depth()).map_or(run.born(), |piece| piece.born);
            (born, account.level_at(point.depth()).map_or(0, NonZeroU32::get))
        });
        (CandidateStats { last, hits, born, level, priority, demoted }, until)
    }
}
