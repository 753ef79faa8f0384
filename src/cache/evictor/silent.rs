//! Silent points: their leases are not reported to the evictor, because it checks these points
//! itself when it needs to know.
//!
//! A point becomes silent when its entry is taken out of the queue, or when it is filed. From then
//! on the evictor finds it
//!
//! - at the end of a run, because it is filed with the policy: when its turn comes, or in a pass
//!   over the candidates;
//! - inside a run, when the run is trimmed to it;
//! - as the parent of child runs, when the last of them is removed.
//!
//! So a candidate may be leased, or may have been used since it was filed. Its turn may come too
//! early, but never too late, because a point is silent only under policies whose keys never fall
//! by a use ([`PolicyKind::keys_rise`](crate::PolicyKind)). When its turn comes, an idle candidate
//! is evicted if it was not used since it was filed, else filed again under its current key. If
//! the candidate is leased, the evictor *listens* to it: it clears `SILENT`, unfiles the point and
//! protects it in the accounts. The release of the last lease then queues the point.
//!
//! The accounts do not count silent leases: the number of *evictable* blocks is an upper bound
//! until a [`LeasePass`] has checked the path from every candidate to the root. A waiter relies on
//! that: a silent release makes no block available that the waiter has not counted. So while a
//! thread waits, no point with a lease becomes silent.
//!
//! No point is silent in a namespace with a limit on pinned blocks, because the accounts decide
//! about that limit, or in one that is to be cleared unless it is in use, until that is decided. No
//! point becomes silent inside a block, in a detached space, or while any block is hidden.
//!
//! # Who needs to know of silent leases
//!
//! | who | how |
//! |---|---|
//! | an eviction | adds up the blocks of the first idle candidates; if these are too few, makes a pass over all leases |
//! | `stats`, `settle`, `validate` | the same pass |
//! | a waiter | counts silent points as evictable; the evictor listens to leased ones (E28) |
//! | a limit on pinned blocks | no point is silent; setting the limit listens to all |
//! | a clear, an invalidation | listen to the end of each run that they cannot free |
//!
//! An eviction needs to know because a refused request must evict nothing. The pass is done in
//! slices: from each candidate toward the root, to the first protected run. That covers every run
//! without a lease in the accounts, because each is on the path of a candidate: the end of the run,
//! or of a run attached to it. The pass costs one load for each point without a lease and one
//! compare-and-swap for each lease.

use std::collections::HashSet;

use smallvec::SmallVec;

use super::{Evictor, Resources};
use crate::cache::numbers::stats::Total;
use crate::policy::CandidateId;
use crate::reclaim::{Link, Ref};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::model_size;
use crate::tree::{Point, Run, Snapshot};

/// The most candidates that one turn files again or finds leased, or checks in a [`LeasePass`].
pub(super) const STALE: usize = model_size(512, 2);
/// How many candidates at the head of the order are checked before a pass over all: as many as
/// blocks are missing, between these.
const FEW: usize = 32;
const MOST: usize = 512;

/// A pass over the candidates that puts silent leases into the accounts.
#[derive(Debug, Default)]
pub(in crate::cache) struct LeasePass {
    /// The next slot, and the shard that has it.
    next: usize,
    shard: usize,
}

impl LeasePass {
    /// Takes the next shard and slot; `None` after the last one.
    fn take(&mut self, evictor: &Evictor<'_>) -> Option<(usize, CandidateId)> {
        while self.next >= evictor.get(self.shard)?.ranking.slots().len() {
            (self.next, self.shard) = (0, self.shard + 1);
        }
        self.next += 1;
        Some((self.shard, CandidateId::at(self.next - 1)))
    }

    fn is_complete(&self, evictor: &Evictor<'_>) -> bool {
        let mut rest = evictor.shards().skip(self.shard).map(|shard| shard.ranking.slots().len());
        rest.next().is_none_or(|slots| self.next >= slots) && rest.all(|slots| slots == 0)
    }
}

impl Evictor<'_> {
    /// Whether `point` may be silent, with or without a lease.
    #[inline]
    pub(super) fn may_be_silent(&self, point: Ref<'_, Point>, is_leased: bool, resources: Resources<'_>) -> bool {
        let run = point.run();
        let by_policy =
            if is_leased { self.ranking.files_leased() && !resources.is_awaited } else { self.ranking.is_lazy() };
        by_policy
            && self.common.listeners.hidden.is_empty()
            && !run.space().is_detached()
            && !run.space().account.must_be_told()
            && point.end() == resources.layout_of(run).boundary(point.end())
    }

    /// Whether the evictor must listen to `point`, which is silent and leased.
    pub(super) fn must_listen(&self, point: Ref<'_, Point>) -> bool {
        let run = point.run();
        let is_end = run.word().len() == point.depth();
        run.space().is_detached()
            || !self.common.listeners.hidden.is_empty()
            || (is_end && !self.ranking.files_leased())
    }

    /// Clears `SILENT`; returns the word. Takes the point's hot slot off if a silent release has
    /// left it without a lease.
    pub(super) fn word_after_listening(&mut self, point: Ref<'_, Point>, resources: Resources<'_>) -> Snapshot {
        let word = point.word.listen();
        if word.slot().is_some() && self.deflate_spare(point, resources) { point.word.look() } else { word }
    }

    /// As [`HotPoints::deflate_spare`](crate::tree::HotPoints::deflate_spare); counts it.
    pub(super) fn deflate_spare(&mut self, point: Ref<'_, Point>, resources: Resources<'_>) -> bool {
        let push = |point: Ref<'_, Point>| self.of_mut(point.run()).backlog.push(point);
        let is_deflated = resources.hot.deflate_spare(point, resources.guard, push);
        self.totals.add(Total::Deflations, is_deflated.into());
        is_deflated
    }

    /// Clears `SILENT`, so that the release of the last lease queues `point`. Unfiles and protects
    /// the point if it is leased; returns whether it is.
    pub(super) fn listen(&mut self, point: Ref<'_, Point>, resources: Resources<'_>) -> bool {
        let is_leased = self.word_after_listening(point, resources).leases() > 0;
        if is_leased {
            self.unfile(point);
            self.account(point, true, resources);
        }
        is_leased
    }

    /// Listens to a point that must be removed as soon as it is idle, if it is silent and leased.
    pub(super) fn listen_if_leased(&mut self, point: Ref<'_, Point>, resources: Resources<'_>) {
        let word = point.word.look();
        if word.is_silent() && word.leases() > 0 {
            self.listen(point, resources);
        }
    }

    /// Whether a candidate whose turn has come is the victim. If not, it is filed again under its
    /// current key, or unfiled.
    #[inline]
    pub(super) fn is_due(&mut self, point: Ref<'_, Point>, resources: Resources<'_>) -> bool {
        let word = point.word.look();
        if !word.is_silent() {
            return true;
        }
        let is_end = point.run().word().len() == point.depth();
        if word.is_idle() && is_end && self.is_filed_as_it_is(point, resources) {
            return true;
        }
        self.refile(point, word.leases() > 0, resources);
        false
    }

    #[inline(always)]
    pub(super) fn is_filed_as_it_is(&self, point: Ref<'_, Point>, resources: Resources<'_>) -> bool {
        let Some(slot) = point.account.get(&self.owner).candidate else { return false };
        self.of(point.run()).ranking.policy.is_under(slot, self.candidate_stats(point, resources).0, self.entry(point))
    }

    #[cold]
    pub(super) fn refile(&mut self, point: Ref<'_, Point>, is_leased: bool, resources: Resources<'_>) {
        self.first_mut().stale_left = self.first_mut().stale_left.saturating_sub(1);
        if !(is_leased && self.listen(point, resources)) {
            self.place(point, resources);
            self.visit_again(resources);
        }
    }

    /// Whether another turn is needed, because this one may not file more candidates again.
    pub(in crate::cache) fn needs_turn(&self) -> bool {
        self.first().stale_left == 0
    }

    /// Takes silent leases into the accounts until these show whether `missing` blocks can be
    /// evicted (unless new leases are taken). Returns false if that needs more turns with the same
    /// `pass`. Evicts nothing.
    pub(in crate::cache) fn ascertain(
        &mut self,
        missing: usize,
        pass: &mut Option<LeasePass>,
        resources: Resources<'_>,
    ) -> bool {
        if pass.is_none() && missing <= self.evictable() && self.first_can_free(missing, resources) {
            return true;
        }
        let is_complete = self.account_leases(pass.get_or_insert_default(), STALE, resources);
        if is_complete {
            *pass = None;
        }
        is_complete
    }

    /// Whether the first candidates have at least `missing` blocks to evict.
    pub(super) fn first_can_free(&self, missing: usize, resources: Resources<'_>) -> bool {
        let own_blocks = |candidate: Link<Point>| self.own_blocks(candidate.get(resources.guard), resources);
        // One victim is enough for most requests.
        if self.choose().is_some_and(|candidate| own_blocks(candidate) >= missing) {
            return true;
        }
        let (first, mut blocks) = (missing.clamp(FEW, MOST), 0);
        self.shards().flat_map(|shard| shard.ranking.first(first)).any(|candidate| {
            blocks += own_blocks(candidate);
            blocks >= missing
        })
    }

    /// The number of blocks between `point` and the next point below it on its run; zero if `point`
    /// is not an idle end of a run.
    fn own_blocks(&self, point: Ref<'_, Point>, resources: Resources<'_>) -> usize {
        let (run, word) = (point.run(), point.word.look());
        if !word.is_idle() || run.word().len() != point.depth() {
            return 0;
        }
        let layout = resources.layout_of(run);
        let below = self.point_below(point).map_or(0, |below| below.depth());
        run.blocks_to(point.depth(), layout) - run.blocks_to(below, layout)
    }

    /// Puts the silent leases on the paths of up to `candidates` more candidates into the accounts;
    /// returns true if no candidate is left.
    pub(in crate::cache) fn account_leases(
        &mut self,
        pass: &mut LeasePass,
        candidates: usize,
        resources: Resources<'_>,
    ) -> bool {
        let mut seen = HashSet::new();
        for _ in 0..candidates {
            let Some((shard, slot)) = pass.take(self) else {
                return true;
            };
            if let Some(candidate) = self.at(shard).ranking.at(slot) {
                let point = candidate.get(resources.guard);
                if point.word.look().children() > 0 || point.run().word().len() != point.depth() {
                    // A run was attached to the point, or its own run has grown.
                    self.unfile(point);
                }
                self.account_path(point.run(), &mut seen, resources);
            }
        }
        pass.is_complete(self)
    }

    /// Puts the silent leases on `run` and its ancestors into the accounts, up to a run that is
    /// protected or in `seen`.
    fn account_path<'g>(&mut self, mut run: Ref<'g, Run>, seen: &mut HashSet<Link<Run>>, resources: Resources<'g>) {
        loop {
            self.account_run(run, resources);
            if run.account.with(&self.owner, |account| account.protected) > 0 {
                return;
            }
            let Some(parent) = run.parent() else { return };
            run = parent.run();
            if !seen.insert(run.link()) {
                return;
            }
        }
    }

    /// Listens to the leased silent points of `run`, or to all its silent points if all leases in
    /// the namespace must be reported.
    pub(super) fn account_run(&mut self, run: Ref<'_, Run>, resources: Resources<'_>) {
        let to_all = run.space().account.must_be_told();
        let is_of_interest = |point: Ref<'_, Point>| {
            let word = point.word.look();
            word.is_silent() && !word.is_dead() && (to_all || word.leases() > 0)
        };
        // Mostly none.
        let points: SmallVec<[Link<Point>; 4]> = run.account.with(&self.owner, |account| {
            account.points.iter().filter(|point| is_of_interest(point.get(run.as_ref()))).collect()
        });
        for point in points {
            // Work on an earlier point may have killed this one; the list of a dead run keeps its
            // points (W3).
            let point = point.get(run.as_ref());
            if is_of_interest(point) && !self.listen(point, resources) {
                // A point that is not silent must be filed under its current key.
                self.place(point, resources);
                self.visit_again(resources);
            }
        }
    }

    /// Does [`account_run`](Self::account_run) for runs in the accounts or in the queue.
    pub(in crate::cache) fn listen_to_all<'g>(
        &mut self,
        runs: impl Iterator<Item = Ref<'g, Run>>,
        resources: Resources<'g>,
    ) {
        runs.for_each(|run| self.account_run(run, resources));
    }

    /// Makes `point`, which is being filed, silent if it may be; returns false if it cannot be
    /// filed because it is leased.
    #[inline]
    pub(super) fn silence(&mut self, point: Ref<'_, Point>, resources: Resources<'_>) -> bool {
        // Relaxed: only the evictor writes the bit.
        let word = point.word.load(Relaxed);
        match (word.is_silent(), self.ranking.is_lazy()) {
            (false, true) if self.may_be_silent(point, word.leases() > 0, resources) => point.word.silence(),
            (true, false) => return !self.listen(point, resources),
            _ => {}
        }
        true
    }
}
