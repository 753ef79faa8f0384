//! Quotas: counts the cached blocks of each namespace, and chooses victims first from namespaces
//! that exceed their limits.
//!
//! The blocks of every namespace are counted together with the totals. The candidates of a
//! namespace with a limit on cached blocks (or a time to idle, or from which a caller evicts) are
//! ordered a second time, as a *group*, so that the next victim of one namespace is found as fast
//! as the next victim of all. A group is noted when it exceeds its limit, or gets a candidate while
//! it does; the note is removed when a choice finds no victim in the group. So notes never cost
//! more work than filing and freeing.

use std::collections::HashMap;
use std::ops::Bound;
use std::time::Duration;

use crate::cache::clock::nanoseconds;
use crate::cache::evictor::exchange::SLICE;
use crate::cache::evictor::{Choice, Evictor, Resources};
use crate::cache::listening::events::EvictionReason;
use crate::cache::namespaces::quota::Quota;
use crate::cache::numbers::stats::Total;
use crate::policy::{CandidateId, GroupTable, QuotaGroup};
use crate::reclaim::Ref;
use crate::sync::Arc;
use crate::tree::{NamespaceAccount, Run};

/// The groups of namespaces, and which of them exceed their limits.
#[derive(Debug, Default)]
pub(in crate::cache) struct Quotas {
    /// The namespaces that have a group; each keeps it until it ends.
    pub(in crate::cache) limited: HashMap<QuotaGroup, Arc<NamespaceAccount>>,
    /// The noted groups: all that are over their limit and have a candidate, and some others.
    over: GroupTable,
    groups: usize,
    /// The number of rounds of sorting that have begun.
    rounds: u64,
    /// Whether another round begins after the one in progress.
    sorts_again: bool,
    /// The number of namespaces with a limit on cached blocks.
    limits: usize,
}

/// Progress in filing a shard's candidates again under their groups.
#[derive(Debug, Default)]
pub(in crate::cache) struct Sorting {
    /// The number of slots that are still to be filed again.
    unsorted: usize,
    next: usize,
    /// The number of slots when the round began; later slots were filed under their groups at once.
    round: usize,
}

impl Sorting {
    #[inline]
    pub(in crate::cache) fn is_pending(&self) -> bool {
        self.unsorted > 0
    }

    /// The next slot to file again.
    fn take(&mut self) -> Option<CandidateId> {
        self.unsorted = self.unsorted.checked_sub(1)?;
        let slot = if self.next < self.round { self.next } else { 0 };
        self.next = slot + 1;
        Some(CandidateId::at(slot))
    }
}

/// The last round of sorting that the present groups need; set by the first slice.
#[derive(Debug, Default)]
pub(in crate::cache) struct SortGoal(Option<u64>);

/// One pass that evicts the blocks that namespaces have beyond their limits: one namespace after
/// another, and from each as many as its excess when the pass reaches it. So a pass ends and reaches
/// each namespace, whatever others insert meanwhile.
#[derive(Debug, Default)]
pub(in crate::cache) struct QuotaPass {
    sorting: SortGoal,
    /// The last group to visit; set by the first slice.
    last: Option<QuotaGroup>,
    /// The group that the pass has reached, with the number of blocks that it must still lose.
    at: Option<(QuotaGroup, usize)>,
}

impl Quotas {
    /// The number of blocks that a group has beyond its limit.
    fn excess(&self, group: QuotaGroup) -> usize {
        self.limited.get(&group).map_or(0, |account| account.excess())
    }

    /// The first noted group after `group`, up to `last`, with its excess: zero if the group is
    /// still noted although its limit was raised.
    fn noted_after(&self, group: Option<QuotaGroup>, last: QuotaGroup) -> Option<(QuotaGroup, usize)> {
        let from = group.map_or(Bound::Unbounded, |group| Bound::Excluded((Duration::ZERO, group)));
        let (&(_, next), _) = self.over.range((from, Bound::Unbounded)).next()?;
        (next <= last).then(|| (next, self.excess(next)))
    }

    pub(in crate::cache) fn is_noted(&self, group: QuotaGroup) -> bool {
        self.over.contains_key(&(Duration::ZERO, group))
    }

    /// Whether no namespace has a limit on cached blocks.
    pub(in crate::cache) fn have_no_limits(&self) -> bool {
        self.limits == 0
    }

    /// Sets the limits of a namespace, and counts whether it has one on cached blocks now: a limit of
    /// 2^32 - 1 or more is no limit.
    fn limit(&mut self, account: &NamespaceAccount, cached: Option<usize>, pinned: Option<usize>) {
        self.limits -= usize::from(account.cached_limit().is_some());
        account.limit(cached, pinned);
        self.limits += usize::from(account.cached_limit().is_some());
    }
}

impl Evictor<'_> {
    /// Counts `blocks` new blocks of `run`, of which `charged` were charged to its namespace by a
    /// reservation.
    pub(in crate::cache) fn count_cached(&mut self, run: Ref<'_, Run>, blocks: usize, charged: usize) {
        let account = &run.space().account;
        self.change_cached(account, blocks as isize);
        if charged > 0 {
            account.unreserve(charged);
        }
        self.note_group(account.group.get(&self.owner), account);
    }

    /// Counts `blocks` unprotected blocks of `run` as freed.
    pub(in crate::cache) fn count_freed(&mut self, run: Ref<'_, Run>, blocks: usize) {
        self.change_cached(&run.space().account, -(blocks as isize));
    }

    #[inline]
    fn change_cached(&mut self, account: &Arc<NamespaceAccount>, blocks: isize) {
        if self.has_all() {
            account.change_cached(blocks);
        } else {
            self.first_mut().pending_counts.change(account, blocks);
        }
    }

    /// Counts `after` protected blocks of `run` instead of `before`.
    pub(in crate::cache) fn count_protected(&mut self, run: Ref<'_, Run>, before: usize, after: usize) {
        let account = &run.space().account;
        account.set_protected(account.protected() + after - before);
    }

    /// Notes a group if it is over its limit.
    pub(in crate::cache) fn note_group(&mut self, group: Option<QuotaGroup>, account: &NamespaceAccount) {
        if let Some(group) = group.filter(|_| account.excess() > 0) {
            self.common.listeners.quotas.over.insert((Duration::ZERO, group), Duration::ZERO);
        }
    }

    pub(in crate::cache) fn set_quota(
        &mut self,
        account: &Arc<NamespaceAccount>,
        quota: Quota,
        resources: Resources<'_>,
    ) {
        self.common.listeners.quotas.limit(account, quota.cached_blocks, quota.pinned_blocks);
        account.set_time_to_idle(quota.time_to_idle);
        let group = match (quota.cached_blocks, quota.time_to_idle) {
            (None, None) => account.group.get(&self.owner),
            _ => Some(self.group_of(account)),
        };
        self.note_group(group, account);
        if let Some(group) = group {
            self.set_time(group, quota.time_to_idle);
        }
        if quota.time_to_idle.is_some() {
            self.begin_aging(resources);
        }
        self.sort_groups(SLICE, resources);
    }

    /// The group of a namespace's candidates. If it has none yet, makes one and begins to sort the
    /// candidates into it.
    fn group_of(&mut self, account: &Arc<NamespaceAccount>) -> QuotaGroup {
        if let Some(group) = account.group.get(&self.owner) {
            return group;
        }
        let group = QuotaGroup::at(self.common.listeners.quotas.groups);
        self.common.listeners.quotas.groups += 1;
        self.common.listeners.quotas.limited.insert(group, Arc::clone(account));
        account.group.with_mut(&mut self.owner, |of| *of = Some(group));
        // Without cached blocks there is no candidate, and later ones are filed under the group at
        // once.
        if account.cached() > 0 {
            self.begin_sorting();
        }
        group
    }

    /// Begins to file every slot again, slice by slice: at once, or after the round in progress,
    /// which therefore ends however often groups are made.
    pub(in crate::cache) fn begin_sorting(&mut self) {
        if self.is_sorting() {
            self.common.listeners.quotas.sorts_again = true;
            return;
        }
        self.common.listeners.quotas.rounds += 1;
        for shard in self.shards_mut() {
            shard.sorting.round = shard.ranking.slots().len();
            shard.sorting.unsorted = shard.sorting.round;
        }
    }

    /// Frees up to `want` blocks of one namespace, in the policy's order; returns how many. First
    /// sorts a slice of candidates, and returns `None` if more are left to be sorted.
    pub(in crate::cache) fn evict_of(
        &mut self,
        account: &Arc<NamespaceAccount>,
        want: usize,
        sorting: &mut SortGoal,
        resources: Resources<'_>,
    ) -> Option<usize> {
        let group = self.group_of(account);
        if self.sort_towards(sorting, resources) {
            return None;
        }
        let mut entries = usize::MAX;
        let freed =
            self.evict_by(want, &mut entries, resources, |evictor| evictor.choose_of(group).map(Choice::for_capacity));
        Some(freed)
    }

    /// Evicts a slice of one namespace's blocks beyond its limit; returns true if more are left.
    pub(in crate::cache) fn keep_to_quota(
        &mut self,
        account: &NamespaceAccount,
        sorting: &mut SortGoal,
        resources: Resources<'_>,
    ) -> bool {
        let excess = account.excess();
        let Some(group) = account.group.get(&self.owner).filter(|_| excess > 0) else { return false };
        if self.sort_towards(sorting, resources) {
            return true;
        }
        let mut entries = usize::MAX;
        self.drain(&mut entries, resources);
        let want = excess.min(SLICE);
        let freed = self.evict_by(want, &mut entries, resources, |evictor| evictor.choose_beyond(group));
        _ = self.choose_beyond(group);
        (freed == want || self.needs_turn()) && account.excess() > 0
    }

    /// Forgets the quota of a namespace that has ended.
    pub(in crate::cache) fn end_quota(&mut self, account: &NamespaceAccount) {
        self.common.listeners.quotas.limit(account, None, None);
        account.set_time_to_idle(None);
        if let Some(group) = account.group.get(&self.owner) {
            self.common.listeners.quotas.limited.remove(&group);
            self.set_time(group, None);
        }
    }

    /// Files up to `slots` slots again, under their groups; returns true if more are left.
    pub(in crate::cache) fn sort_groups(&mut self, slots: usize, resources: Resources<'_>) -> bool {
        let mut left = slots;
        for place in 0..self.len() {
            while left > 0 {
                let Some(slot) = self.at_mut(place).sorting.take() else { break };
                left -= 1;
                if let Some(candidate) = self.at(place).ranking.at(slot) {
                    self.file(candidate.get(resources.guard), resources);
                }
            }
        }
        if self.common.listeners.quotas.sorts_again && !self.is_sorting() {
            self.common.listeners.quotas.sorts_again = false;
            self.begin_sorting();
        }
        self.is_sorting()
    }

    /// Files a slice of slots again; returns true if more are left that the groups of the first call
    /// with this goal need. Groups that other threads make later do not move the goal.
    pub(in crate::cache) fn sort_towards(&mut self, goal: &mut SortGoal, resources: Resources<'_>) -> bool {
        let Quotas { rounds, sorts_again, .. } = &self.common.listeners.quotas;
        let goal = *goal.0.get_or_insert(rounds + u64::from(*sorts_again));
        self.sort_groups(SLICE, resources) && self.common.listeners.quotas.rounds <= goal
    }

    /// Whether some candidates may not be filed under their group yet.
    pub(in crate::cache) fn is_sorting(&self) -> bool {
        self.shards().any(|shard| shard.sorting.is_pending())
    }

    /// Sets the time to idle of the namespace that has this group.
    fn set_time(&mut self, group: QuotaGroup, time: Option<Duration>) {
        self.shards_mut().for_each(|shard| {
            shard.ranking.aging.set_time(group, time);
            shard.totals.set(
                Total::TimeToIdle,
                shard.ranking.aging.shortest().map_or(0, |time| nanoseconds(time).saturating_add(1)),
            );
        });
    }

    /// The next victim of a namespace that is over its limit.
    pub(in crate::cache) fn choose_over_quota(&mut self) -> Option<Choice> {
        while let Some((&(_, group), _)) = self.common.listeners.quotas.over.first_key_value() {
            let victim = self.choose_beyond(group);
            if victim.is_some() {
                return victim;
            }
        }
        None
    }

    /// The next victim of a group that is over its limit. Without one, the group's note is removed.
    fn choose_beyond(&mut self, group: QuotaGroup) -> Option<Choice> {
        let excess = self.common.listeners.quotas.excess(group);
        let victim = self.choose_of(group).filter(|_| excess > 0);
        if victim.is_none() {
            self.common.listeners.quotas.over.remove(&(Duration::ZERO, group));
        }
        victim.map(|victim| Choice { victim, most: excess, reason: EvictionReason::Quota })
    }

    /// Does a slice of a pass; returns true if more is left. Takes in at most `entries` changes
    /// meanwhile, which it subtracts from `entries`.
    pub(in crate::cache) fn keep_to_quotas(
        &mut self,
        pass: &mut QuotaPass,
        entries: &mut usize,
        resources: Resources<'_>,
    ) -> bool {
        // Blocks that were cached before their namespace had a limit are found only after sorting
        // by groups.
        if pass.last.is_none() && self.sort_towards(&mut pass.sorting, resources) {
            return true;
        }
        let noted = self.common.listeners.quotas.over.last_key_value().map(|((_, group), _)| *group);
        let Some(last) = pass.last.or(noted) else { return false };
        pass.last = Some(last);
        let mut slice = SLICE;
        loop {
            let unfinished = pass.at.filter(|(_, owed)| *owed > 0);
            let next = || self.common.listeners.quotas.noted_after(pass.at.map(|(group, _)| group), last);
            let Some((group, owed)) = unfinished.or_else(next) else { return false };
            if slice == 0 {
                return true;
            }
            let want = slice.min(owed);
            let freed = self.evict_by(want, entries, resources, |evictor| evictor.choose_beyond(group));
            pass.at = Some((group, owed - freed));
            if self.needs_turn() {
                return true;
            }
            // A group without a victim also counts: there may be many of them.
            slice -= freed.max(1).min(slice);
            if freed < want || freed == owed {
                // Removes the note of a group that is at its limit now, so that later passes do not
                // look at it.
                _ = self.choose_beyond(group);
                pass.at = Some((group, 0));
            }
        }
    }
}
