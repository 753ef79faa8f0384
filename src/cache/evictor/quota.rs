//! Quotas: what each namespace has cached, and who is evicted first because its namespace has more than it may.
//!
//! Every namespace's blocks are counted where the totals are. The candidates of a namespace with a limit on what is
//! cached stand in the policy's order a second time, as a *group*, so that the next victim of a namespace is found as
//! fast as that of all. Groups are noted when they go over their limit or get a candidate while they are, and struck
//! off when a choice finds nothing there: never more work than what was filed and freed.

use std::collections::{BTreeSet, HashMap};

use super::exchange::SLICE;
use super::{Evictor, Resources};
use crate::cache::Quota;
use crate::policy::{Group, Slot};
use crate::reclaim::{Link, Ref};
use crate::sync::Arc;
use crate::tree::{Holdings, Point, Run};

/// Namespaces with a limit on what is cached.
#[derive(Debug, Default)]
pub(in crate::cache) struct Quotas {
    pub(in crate::cache) limited: HashMap<Group, Arc<Holdings>>,
    /// All that are over their limit and have a candidate, and some that are not or have none.
    over: BTreeSet<Group>,
    groups: usize,
    /// Slots that are still to be filed anew, under their groups, the next of them, and the slots of the round: those
    /// beyond hold candidates that came later, and were filed under their groups at once.
    unsorted: usize,
    next: usize,
    round: usize,
}

impl Quotas {
    /// Whether candidates may stand outside their group.
    pub(in crate::cache) fn is_sorting(&self) -> bool {
        self.unsorted > 0
    }

    pub(in crate::cache) fn is_noted(&self, group: Group) -> bool {
        self.over.contains(&group)
    }
}

impl Evictor {
    /// `run` holds `blocks` more; so many of them were `claimed` by a reservation of its namespace.
    pub(super) fn count_cached(&mut self, run: Ref<'_, Run>, blocks: usize, charged: usize) {
        let holdings = &run.space().holdings;
        holdings.set_cached(holdings.cached() + blocks);
        if charged > 0 {
            holdings.unreserve(charged);
        }
        self.note_group(holdings.group.get(&self.owner), holdings);
    }

    /// `run` holds `blocks` fewer, which nothing protected.
    pub(super) fn count_freed(&mut self, run: Ref<'_, Run>, blocks: usize) {
        let holdings = &run.space().holdings;
        holdings.set_cached(holdings.cached() - blocks);
    }

    /// `after` blocks of `run` are protected that were `before`.
    pub(super) fn count_protected(&mut self, run: Ref<'_, Run>, before: usize, after: usize) {
        let holdings = &run.space().holdings;
        holdings.set_protected(holdings.protected() + after - before);
    }

    /// Notes a group that is over its limit.
    pub(super) fn note_group(&mut self, group: Option<Group>, holdings: &Holdings) {
        if let Some(group) = group.filter(|_| holdings.excess() > 0) {
            self.quotas.over.insert(group);
        }
    }

    pub(in crate::cache) fn set_quota(&mut self, holdings: &Arc<Holdings>, quota: Quota, resources: Resources<'_>) {
        holdings.limit(quota.cached_blocks, quota.pinned_blocks);
        let mut group = holdings.group.get(&self.owner);
        if group.is_none() && quota.cached_blocks.is_some() {
            let new = Group::at(self.quotas.groups);
            group = Some(new);
            self.quotas.groups += 1;
            self.quotas.limited.insert(new, Arc::clone(holdings));
            holdings.group.with_mut(&mut self.owner, |group| *group = Some(new));
            // Nothing cached, no candidate: those to come are filed under the group at once.
            if holdings.cached() > 0 {
                self.quotas.round = self.ranking.slots().len();
                self.quotas.unsorted = self.quotas.round;
            }
        }
        self.note_group(group, holdings);
        self.sort_groups(SLICE, resources);
    }

    /// Forgets the quota of a namespace that has ended.
    pub(in crate::cache) fn end_quota(&mut self, holdings: &Holdings) {
        holdings.limit(None, None);
        if let Some(group) = holdings.group.get(&self.owner) {
            self.quotas.limited.remove(&group);
        }
    }

    /// Files up to so many slots anew, under their groups; true if more are left.
    pub(super) fn sort_groups(&mut self, slots: usize, resources: Resources<'_>) -> bool {
        for _ in 0..slots.min(self.quotas.unsorted) {
            self.quotas.next = if self.quotas.next < self.quotas.round { self.quotas.next } else { 0 };
            if let Some(candidate) = self.ranking.at(Slot::at(self.quotas.next)) {
                self.file(candidate.get(resources.guard), resources);
            }
            self.quotas.next += 1;
            self.quotas.unsorted -= 1;
        }
        self.quotas.is_sorting()
    }

    /// The next victim of a namespace with more than it may have, and how many blocks too many these are.
    pub(super) fn choose_over_quota(&mut self) -> Option<(Link<Point>, usize)> {
        while let Some(group) = self.quotas.over.first().copied() {
            let excess = self.quotas.limited.get(&group).map_or(0, |holdings| holdings.excess());
            match self.ranking.choose_of(group).filter(|_| excess > 0) {
                Some(victim) => return Some((victim, excess)),
                None => _ = self.quotas.over.remove(&group),
            }
        }
        None
    }

    /// Evicts a slice of what namespaces have cached beyond their limits; how much. Takes in up to `entries` changes
    /// meanwhile, less those then.
    pub(in crate::cache) fn keep_to_quotas(&mut self, entries: &mut usize, resources: Resources<'_>) -> usize {
        if self.quotas.over.is_empty() {
            return 0;
        }
        let evicted = self.evict_by(SLICE, entries, resources, Self::choose_over_quota);
        self.totals.evicted += evicted as u64;
        evicted
    }

    /// Blocks that namespaces have cached beyond their limits.
    pub(super) fn over_quota(&self) -> usize {
        let over = self.quotas.over.iter().filter_map(|group| self.quotas.limited.get(group));
        over.map(|holdings| holdings.excess()).sum()
    }
}
