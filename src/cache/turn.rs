//! A *turn* is one bounded hold of the lock of each shard of the evictor, or of one
//! ([`LockMode::One`]), followed by the work that needs no lock. A turn of one leaves waiters and
//! the sink to turns of all.

use super::evictor::{DeadRuns, Evictor, ForSink, Resources, SharedOutlet};
use super::inner::Inner;
use super::line::publications::Publication;
use super::session::Near;
use crate::reclaim::{Guard, Local};
use crate::sync::UnmapsLater;
use crate::tree::ShardId;

/// Which locks a turn takes, and how long a thread waits for them.
#[derive(Debug, Clone, Copy)]
pub(super) enum LockMode<'a> {
    /// Waits for the locks of all shards.
    Waits,
    /// Takes the locks of all shards, unless another thread has one.
    Tries,
    /// Waits for the locks of all shards until another thread has served its published request.
    Publishes(&'a Publication<'a>),
    /// Waits for the lock of one shard.
    One(ShardId),
}

/// The work of a turn under the lock; returns whether a waiting thread gets the lock next. A trait
/// object, so that the code of a turn is compiled only once.
type Work<'a> = &'a mut dyn FnMut(&mut Evictor<'_>, Resources<'_>) -> bool;

/// The work left to do without the lock.
#[derive(Default)]
struct AfterTurn {
    /// Whether a lease on a retained prefix was released.
    has_released: bool,
    for_sink: Option<Box<(SharedOutlet, ForSink)>>,
}

impl Inner {
    /// Runs `work` under the evictor's lock, in the context `near`; `is_fair` says of its result
    /// whether a waiting thread gets the lock next. Returns `None` if the lock was busy or the
    /// request was already served. After the lock is released it unlinks dead runs, unmaps memory
    /// that tables have freed, hands garbage over (which may free some), wakes a waiter if blocks
    /// may have become available, and calls the eviction sink. Freeing takes time, and wakers and
    /// sinks are the caller's code, so none of this runs under the lock.
    pub(super) fn turn<R>(
        &self,
        near: Near<'_>,
        mode: LockMode<'_>,
        work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R,
        is_fair: impl Fn(&R) -> bool,
    ) -> Option<R> {
        let (mut work, mut result) = (Some(work), None);
        self.turn_with(near, mode, &mut |evictor, resources| {
            result = work.take().map(|work| work(evictor, resources));
            result.as_ref().is_some_and(&is_fair)
        });
        result
    }

    fn turn_with(&self, near: Near<'_>, mode: LockMode<'_>, work: Work<'_>) {
        // The garbage of a turn of all is with a lent participant: `reclaim` reaches those.
        let own = near.own.filter(|_| matches!(mode, LockMode::One(_)));
        let lent = own.is_none().then(|| self.idle.lend(near.slot, || self.domain.register()));
        let Some(participant) = own.or(lent.as_deref()) else { unreachable!("there is one or the other") };
        let kept = participant.keep_garbage();
        let unmapping = UnmapsLater::begin();
        let dead = DeadRuns::default();
        let Some((evictor, guard)) = self.lock_pinned(participant, mode) else { return };
        let unlinking = dead.unlink_by(&guard, &self.seen);
        let resources = self.resources(&guard, &dead);
        let is_of_all = !matches!(mode, LockMode::One(_));
        let AfterTurn { has_released, for_sink } = self.with_evictor(near.slot, is_of_all, evictor, resources, work);
        // First: from here on the blocks are in reservations, which give them back after a panic.
        let give = for_sink.map(|left| left.0.gather(left.1, &guard));
        drop(unlinking);
        drop(guard);
        drop(kept);
        drop(unmapping);
        participant.hand_over_if_much();
        drop(lent);
        if has_released {
            self.ring();
        }
        if let Some(give) = give {
            give();
        }
    }

    /// The part of a turn that is under the lock.
    fn with_evictor(
        &self,
        near: usize,
        is_of_all: bool,
        mut evictor: Evictor<'_>,
        resources: Resources<'_>,
        work: Work<'_>,
    ) -> AfterTurn {
        evictor.take_over(near, resources);
        evictor.begin_turn(is_of_all);
        let is_fair = work(&mut evictor, resources);
        evictor.return_freed(resources);
        let after = if is_of_all { self.end_turn_of_all(&mut evictor, resources) } else { AfterTurn::default() };
        if is_fair {
            evictor.unlock_fairly();
        }
        after
    }

    fn end_turn_of_all(&self, evictor: &mut Evictor<'_>, resources: Resources<'_>) -> AfterTurn {
        evictor.publish_due(resources);
        if self.shards.get() > 1 {
            evictor.note_heads(&self.heads, self.time.now(), resources);
        }
        let has_released = std::mem::take(&mut evictor.common.has_released);
        AfterTurn { has_released, for_sink: evictor.take_for_sink(&self.kept) }
    }

    /// Takes the locks, with a guard that was pinned before: pinning sometimes frees garbage, which
    /// takes longer than most turns. A thread that sleeps for a lock is not pinned meanwhile, and
    /// pins after it gets the lock.
    fn lock_pinned<'a, 'p>(&'a self, participant: &'p Local, mode: LockMode<'_>) -> Option<(Evictor<'a>, Guard<'p>)> {
        let guard = participant.pin();
        let shard = if let LockMode::One(shard) = mode { Some(shard) } else { None };
        let evictor = match mode {
            LockMode::Tries => Some(self.evictor.try_lock()?),
            LockMode::Waits | LockMode::One(_) => self.evictor.lock_awake(shard, || false),
            LockMode::Publishes(publication) => self.evictor.lock_awake(shard, || publication.is_served()),
        };
        if let Some(evictor) = evictor {
            return Some((evictor, guard));
        }
        drop(guard);
        if matches!(mode, LockMode::Publishes(publication) if publication.is_served()) {
            return None;
        }
        let evictor = self.evictor.lock_asleep(shard);
        Some((evictor, participant.pin()))
    }
}
