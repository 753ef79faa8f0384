//! Time to idle: dropping prefixes that were not used for a given time, even if no blocks are
//! needed.
//!
//! Once a time to idle is set, the candidates are also kept in a second order, by last use, for all
//! of them and for each group. The oldest candidate is trimmed like a victim of the policy; then
//! the point before it on its path, whose last use is no earlier, may become a candidate.
//!
//! This order ignores the policy and demotion. Setting the first time to idle sorts the candidates,
//! in slices. `run_once`, `settle` and the background evictor drop prefixes that are too old; the
//! background thread wakes after an eighth of the shortest time in force, or when a logical clock
//! is set.

use std::ops::Bound;
use std::time::Duration;

use super::exchange::SLICE;
use super::{Choice, Evictor, Resources};
use crate::cache::clock::Present;
use crate::cache::listening::events::EvictionReason;
use crate::policy::{CandidateEntry, CandidateId, CandidateStats, GroupTable, Policy, PolicyKind, QuotaGroup};
use crate::reclaim::{Link, Ref};
use crate::tree::Point;

/// Candidates by last use.
#[derive(Debug, Default)]
pub(in crate::cache) struct Aging {
    /// `None` until the first time to idle is set.
    order: Option<Box<Policy>>,
    /// The groups of namespaces that have a time to idle of their own.
    timed: GroupTable,
    /// `timed`, the shortest time first.
    times: GroupTable,
    /// The pass that the evictor's steps share continues after this group.
    up_to: Option<QuotaGroup>,
}

/// One pass that drops the prefixes that are too old at one moment. It ends, whatever other threads
/// add meanwhile.
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) struct AgingPass {
    present: Present,
    /// The time to idle for prefixes of any namespace.
    of_all: Option<Duration>,
    /// The last namespace with a time of its own that the pass has completed.
    up_to: Option<QuotaGroup>,
}

impl AgingPass {
    pub(in crate::cache) fn new(present: Present, of_all: Option<Duration>) -> Self {
        Self { present, of_all, up_to: None }
    }
}

impl Aging {
    pub(super) fn new(wanted: bool) -> Self {
        Self { order: wanted.then(|| Box::new(PolicyKind::Lru.build())), ..Self::default() }
    }

    pub(super) fn file(&mut self, slot: CandidateId, stats: CandidateStats, entry: CandidateEntry) {
        if let Some(order) = &mut self.order {
            order.file(slot, CandidateStats { demoted: false, ..stats }, entry);
        }
    }

    pub(super) fn remove(&mut self, slot: CandidateId) {
        if let Some(order) = &mut self.order {
            order.remove(slot);
        }
    }

    /// The next namespace after `group` that has a time of its own, and that time.
    fn after(&self, group: Option<QuotaGroup>) -> Option<(QuotaGroup, Duration)> {
        let from = group.map_or(Bound::Unbounded, |group| Bound::Excluded((Duration::ZERO, group)));
        self.timed.range((from, Bound::Unbounded)).next().map(|((_, group), time)| (*group, *time))
    }

    /// The shortest time to idle that a namespace has of its own.
    pub(super) fn shortest(&self) -> Option<Duration> {
        self.times.first_key_value().map(|(_, time)| *time)
    }

    /// Sets the time to idle of the namespace that has this group; `None` removes it.
    pub(super) fn set_time(&mut self, group: QuotaGroup, time: Option<Duration>) {
        let before = match time {
            Some(time) => self.timed.insert((Duration::ZERO, group), time),
            None => self.timed.remove(&(Duration::ZERO, group)),
        };
        before.into_iter().for_each(|before| _ = self.times.remove(&(before, group)));
        time.into_iter().for_each(|time| _ = self.times.insert((time, group), time));
    }

    /// The order, for tests to overwrite.
    #[cfg(test)]
    pub(in crate::cache) fn order_mut(&mut self) -> &mut Policy {
        self.order.as_mut().expect("a time to idle is set")
    }

    /// The order, for `validate`.
    pub(in crate::cache) fn order(&self) -> Option<&Policy> {
        self.order.as_deref()
    }
}

impl Evictor<'_> {
    /// Begins to order the candidates by last use, unless that has begun already; sorts a slice.
    pub(in crate::cache) fn begin_aging(&mut self, resources: Resources<'_>) {
        if self.ranking.aging.order.is_none() {
            let order = || Some(Box::new(PolicyKind::Lru.build()));
            self.shards_mut().for_each(|shard| shard.ranking.aging.order = order());
            self.begin_sorting();
        }
        self.sort_groups(SLICE, resources);
    }

    /// Does a slice of a pass: first by the time for any namespace, then by their own. Returns true
    /// if more is left. Takes in at most `entries` changes, which it subtracts from `entries`. The
    /// candidates of the pass's namespaces are sorted.
    pub(super) fn age(&mut self, pass: &mut AgingPass, entries: &mut usize, resources: Resources<'_>) -> bool {
        let mut slice = SLICE;
        if let Some(since) = pass.of_all.and_then(|time| pass.present.before(time)) {
            slice -= self.drop_idle(None, since, slice, entries, resources);
            if self.needs_turn() {
                return true;
            }
        }
        while slice > 0 {
            let Some((group, time)) = self.first().ranking.aging.after(pass.up_to) else {
                return false;
            };
            // A namespace without a prefix that is too old also counts: there may be many of them.
            slice -= 1;
            let since = pass.present.before(time);
            let dropped = since.map_or(0, |since| self.drop_idle(Some(group), since, slice, entries, resources));
            slice -= dropped;
            if self.needs_turn() {
                return true;
            }
            if slice > 0 {
                pass.up_to = Some(group);
            }
        }
        true
    }

    /// As [`age`](Self::age), for the pass that the evictor's steps share, each step with its own
    /// current time. Does nothing while candidates are being sorted.
    pub(super) fn age_on(&mut self, mut pass: AgingPass, entries: &mut usize, resources: Resources<'_>) -> bool {
        if self.is_sorting() {
            return false;
        }
        pass.up_to = self.first().ranking.aging.up_to;
        let more = self.age(&mut pass, entries, resources);
        self.first_mut().ranking.aging.up_to = pass.up_to.filter(|_| more);
        more
    }

    /// The oldest candidate, of a group or of all, if it was last used at `idle_since` or before.
    /// Refiles candidates that were used since they were filed.
    fn idle_candidate(
        &mut self,
        group: Option<QuotaGroup>,
        idle_since: u64,
        resources: Resources<'_>,
    ) -> Option<Link<Point>> {
        while !self.needs_turn() {
            let oldest = self.oldest(group)?;
            let point = oldest.get(resources.guard);
            if point.statistics.last() <= idle_since {
                return Some(oldest);
            }
            let word = point.word.look();
            // A point that is not silent was filed again after each use.
            if !word.is_silent() || self.is_aging_as_it_is(point, resources) {
                return None;
            }
            self.refile(point, word.leases() > 0, resources);
        }
        None
    }

    /// Whether a candidate is at its right place in the order by last use.
    fn is_aging_as_it_is(&self, point: Ref<'_, Point>, resources: Resources<'_>) -> bool {
        let aging = &self.of(point.run()).ranking.aging;
        let Some((order, slot)) = aging.order.as_ref().zip(point.account.get(&self.owner).candidate) else {
            return true;
        };
        let stats = CandidateStats { demoted: false, ..self.candidate_stats(point, resources).0 };
        order.is_under(slot, stats, self.entry(point))
    }

    /// Drops up to `most` blocks that were last used at `idle_since` or before, of a group or of
    /// all; returns how many.
    fn drop_idle(
        &mut self,
        group: Option<QuotaGroup>,
        idle_since: u64,
        most: usize,
        entries: &mut usize,
        resources: Resources<'_>,
    ) -> usize {
        // Points in the queue may also be too old.
        if !self.is_caught_up(resources) {
            self.take_in(entries, resources);
        }
        if self.idle_candidate(group, idle_since, resources).is_none() {
            return 0;
        }
        self.evict_by(most, entries, resources, |evictor| {
            let victim = evictor.idle_candidate(group, idle_since, resources)?;
            Some(Choice { victim, most: usize::MAX, reason: EvictionReason::Age })
        })
    }
}
