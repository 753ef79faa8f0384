//! Prefetching the memory of the next victims while other victims are trimmed, and of the next
//! entries of the queue while others are taken out.
//!
//! A victim was last touched long ago. With many candidates its data is in main memory and not in a
//! processor cache, and each part of it holds the address of the next part. So the next victims are
//! prefetched in steps, each after the previous part has arrived:
//!
//! | victims ahead | prefetched |
//! |---|---|
//! | 12 | its entries in the tables of ranking and policy |
//! | 9 | its point |
//! | 6 | its run |
//! | 4 | its run's arrays |
//!
//! The policy finds the victim twelve places behind one without reading the data of those in between.
//! A ring keeps the last ones that it found, for the later steps. Candidates that are filed again
//! when their turn comes count as victims here: they are read as well.
//!
//! All of this is a hint: the policy may still choose another victim.
//!
//! If several threads take turns to evict, the data that one of them has prefetched or changed is
//! in its own core's cache, not in the next one's. So a turn that follows another thread's
//! begins with prefetching the next victim and the ends of queue and ranking (`take_over`):
//! otherwise each part would be a separate cache miss under the lock.
//!
//! The point of a queue entry was used a moment ago, but the policy's data for it was not. The run
//! and the policy's data are prefetched eight entries ahead; the place in the order, whose address
//! is in that data, four entries ahead.
//!
//! Victims and entries are prefetched only with more than a thousand candidates: fewer fit in a
//! core's own cache.

use super::{Evictor, Resources};
use crate::policy::{CandidateId, Policy};
use crate::reclaim::{Link, Ref};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{prefetch, prefetch_bytes_to_write, prefetch_to_write};
use crate::tree::{Arrays, Point, Run};

/// With at most this many candidates, their points, runs and arrays stay in a core's own cache. In
/// builds that look for reads of freed memory (tests and sanitizers) it is one.
const FEW: usize = if cfg!(any(test, radixkv_heap)) { 1 } else { 1024 };

/// Candidates whose policy data was prefetched, but whose place in the order was not yet.
#[derive(Debug, Default)]
pub(super) struct Soon {
    candidates: [Option<CandidateId>; 4],
    next: usize,
}

impl Soon {
    /// Replaces the oldest candidate, which it returns.
    fn replace_oldest(&mut self, candidate: Option<CandidateId>) -> Option<CandidateId> {
        self.next = (self.next + 1) % self.candidates.len();
        std::mem::replace(&mut self.candidates[self.next], candidate)
    }
}

/// How many victims ahead the first step prefetches.
const FURTHEST: usize = 12;

/// The length of the ring of upcoming victims: a power of two, greater than [`FURTHEST`].
const RING: usize = 16;
const _: () = assert!(RING.is_power_of_two() && RING > FURTHEST);

/// Addresses of the parts of an upcoming victim. They may only be prefetched: it may have been
/// freed.
#[derive(Debug, Clone, Copy)]
struct NextVictim {
    point: Link<Point>,
    run: Link<Run>,
    parent: Option<Link<Point>>,
    arrays: Option<Link<Arrays>>,
}

/// The next victims: for each of the last ones, the candidate [`FURTHEST`] places behind it.
#[derive(Debug, Default)]
pub(super) struct Upcoming {
    /// A ring; the latest one is at `begin`.
    named: [Option<CandidateId>; RING],
    begin: usize,
    next: Option<NextVictim>,
}

impl Upcoming {
    /// Advances to `victim`, which the policy has chosen.
    #[inline]
    fn go_to(&mut self, victim: CandidateId, policy: &Policy) {
        self.begin = (self.begin + 1) % RING;
        self.named[self.begin] = policy.behind(victim, FURTHEST);
    }

    /// The candidate that is about this many victims ahead, at most [`FURTHEST`].
    #[inline]
    fn at(&self, ahead: usize) -> Option<CandidateId> {
        self.named[(self.begin + RING - (FURTHEST - ahead)) % RING]
    }
}

impl Evictor<'_> {
    /// Prefetches the data for taking out the entries after the next one.
    pub(super) fn look_into_backlog(&mut self, resources: Resources<'_>) {
        if self.ranking.policy.len() <= FEW {
            return;
        }
        while let Some(point) = self.backlog.ahead(resources.guard) {
            // Relaxed: only the evictor kills points; a dead point's run may have been freed.
            if point.word.load(Relaxed).is_dead() {
                continue;
            }
            prefetch(point.run().as_ptr());
            let candidate = point.account.get(&self.owner).candidate;
            candidate.into_iter().for_each(|candidate| self.ranking.policy.prefetch(candidate));
            if let Some(earlier) = self.soon.replace_oldest(candidate) {
                self.ranking.policy.prefetch_place(earlier);
            }
        }
    }

    /// Prefetches the parts of the victims after `victim`, which the policy has just chosen.
    pub(super) fn look_ahead(&mut self, victim: Ref<'_, Point>, resources: Resources<'_>) {
        self.go_to(victim.run());
        let Some(slot) = victim.account.get(&self.owner).candidate else { return };
        if self.ranking.policy.len() <= FEW {
            return;
        }
        let shard = &mut **self;
        shard.upcoming.go_to(slot, &shard.ranking.policy);
        let [at_entries, at_point, at_run, at_arrays, at_next] =
            [FURTHEST, 9, 6, 4, 1].map(|ahead| shard.upcoming.at(ahead));
        if let Some(slot) = at_entries {
            self.ranking.policy.prefetch(slot);
            self.ranking.slots().prefetch(slot.index());
        }
        if let Some(point) = self.filed_in(at_point, resources) {
            prefetch(point.as_ptr());
        }
        if let Some(point) = self.filed_in(at_run, resources) {
            prefetch(point.run().as_ptr());
        }
        if let Some(run) = self.filed_in(at_arrays, resources).map(Ref::run) {
            run.arrays(resources.guard).into_iter().for_each(|arrays| prefetch(arrays.as_ptr()));
        }
        let next = self.filed_in(at_next, resources).map(|point| {
            let run = point.run();
            NextVictim {
                point: point.link(),
                run: run.link(),
                parent: run.parent().map(Ref::link),
                arrays: run.arrays(resources.guard).map(Ref::link),
            }
        });
        self.upcoming.next = next;
    }

    /// Prefetches the data that a turn uses first: the evictor's own fields, and the rest if
    /// another thread had the last turn.
    pub(in crate::cache) fn take_over(&mut self, near: usize, resources: Resources<'_>) {
        let shard = &**self;
        let (written, end) = (&raw const shard.ranking.policy, (&raw const *shard).wrapping_add(1));
        prefetch_bytes_to_write(written.cast(), end.addr() - written.addr());
        if std::mem::replace(&mut self.near, near) == near {
            return;
        }
        prefetch_to_write(&raw const **self.totals);
        resources.queues.of(self.id).prefetch();
        self.ranking.prefetch_ends();
        if let Some(NextVictim { point, run, parent, arrays }) = self.upcoming.next {
            prefetch_to_write(point.as_ptr());
            prefetch_to_write(run.as_ptr());
            parent.into_iter().for_each(|parent| prefetch_to_write(parent.as_ptr()));
            arrays.into_iter().for_each(|arrays| prefetch(arrays.as_ptr().cast::<[u64; 16]>()));
        }
    }

    /// The point filed in `slot`, which may have been reused since it was named. The point is
    /// alive, because only the evictor kills points.
    fn filed_in<'g>(&self, slot: Option<CandidateId>, resources: Resources<'g>) -> Option<Ref<'g, Point>> {
        Some(self.ranking.at(slot?)?.get(resources.guard))
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
