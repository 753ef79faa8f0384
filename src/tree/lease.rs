//! Leasing a point: finds or creates the point, proves it, and gives the lease back.
//!
//! A lease on a *proven* point at depth `j` guarantees that every token and block up to `j` stays
//! in place, on the point's run and on the whole path through fixed parents, as long as the lease
//! is held.
//!
//! A point that does not exist yet is published `NEW`, then proved by a bump of the run word
//! (run.rs). If the run is still long enough, `NEW` is cleared. If not, the lease is taken back,
//! and the run's length tells where to look next. A thread that leases a point that is still `NEW`
//! proves it as well, because the creator's proof may still fail.
//!
//! That thread must bump the word. Reading the length is not enough: if the creator has not bumped
//! yet, it might later take back a point that has been leased.

use crate::block::BlockLayout;
use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::Ordering::Acquire;

use super::hot::{HotPoints, StripeRef};
use super::point::Point;
use super::queue::Queues;
use super::run::Run;
use super::shard::ShardId;
use super::walk::{Position, position};
use super::word::{Abandoned, Leased, Released, Word};

/// The places where a thread counts its leases and reports their changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseContext<'a> {
    pub(crate) queues: &'a Queues,
    /// The shard that the thread's new runs belong to.
    pub(crate) shard: ShardId,
    pub(crate) hot: &'a HotPoints,
    /// The thread's stripe in the slots of hot points.
    pub(crate) stripe: u8,
}

/// A lease, with the place where it is counted.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(crate) struct HeldLease<'g> {
    pub(crate) point: Ref<'g, Point>,
    pub(crate) counted_on: StripeRef,
}

/// Why a position could not be leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The run is too short: it had this length.
    Shorter(u32),
    /// The point holds as many leases as it can count.
    Full,
    /// The space was detached and its root is dead: start again in the namespace's present space.
    Gone,
}

/// The outcome of an attempt to lease a point that was found.
enum Attempt<'g> {
    Held(HeldLease<'g>),
    /// A lease is held in the word, but the point must be proved.
    Unproven,
    Dead,
    Full,
}

/// Leases `point` unless it is dead or full.
#[inline(always)]
fn attempt<'g>(point: Ref<'g, Point>, context: LeaseContext<'_>) -> Attempt<'g> {
    loop {
        match point.word.lease() {
            Leased::Proven { push, at_once } => {
                if push {
                    context.queues.push(point);
                }
                if !at_once {
                    context.hot.inflate(point);
                }
                return Attempt::Held(HeldLease { point, counted_on: StripeRef::word(context.stripe) });
            }
            Leased::Open(slot) => {
                if let Some(counted_on) = context.hot.enter(&point.word, slot, context.stripe) {
                    return Attempt::Held(HeldLease { point, counted_on });
                }
            }
            Leased::Unproven => return Attempt::Unproven,
            Leased::Dead => return Attempt::Dead,
            Leased::Full => return Attempt::Full,
        }
    }
}

/// Leases the point at `at`, creating it if necessary.
#[inline(always)]
pub(crate) fn lease_at<'g>(
    at: Position<'g>,
    context: LeaseContext<'_>,
    guard: &'g Guard<'g>,
) -> Result<HeldLease<'g>, Refused> {
    let points = &at.run.as_ref().points;
    let mut found = points.get(at.depth, guard);
    loop {
        if let Some(point) = found {
            match attempt(point, context) {
                Attempt::Held(held) => return Ok(held),
                Attempt::Unproven => return prove(at.run, point, context, guard),
                Attempt::Full => return Err(Refused::Full),
                Attempt::Dead if at.run.is_trunk() => {
                    // Acquire: E11 (word.rs). Without it the lookup that starts again might find
                    // the same root.
                    let _ = point.word.load(Acquire);
                    return Err(Refused::Gone);
                }
                Attempt::Dead => {}
            }
        }
        let new = Point::new(at.run.link(), at.depth, Word::unproven(), 0, guard);
        match points.insert(found, new, guard) {
            Ok(point) => return prove(at.run, point, context, guard),
            Err((_, instead)) => found = instead,
        }
    }
}

/// Proves a `NEW` point on which the caller holds a lease, or takes the lease back.
#[cold]
fn prove<'g>(
    run: Ref<'g, Run>,
    point: Ref<'g, Point>,
    context: LeaseContext<'_>,
    guard: &'g Guard<'g>,
) -> Result<HeldLease<'g>, Refused> {
    crate::sync::failpoint!("lease::published");
    let len = run.bump().len();
    crate::sync::failpoint!("lease::bumped");
    // Depth zero is on no run. An insert asks for it if the run died during its walk, and then
    // walks again.
    if (1..=len).contains(&point.depth()) {
        if point.word.prove() {
            context.queues.push(point);
        }
        return Ok(HeldLease { point, counted_on: StripeRef::word(context.stripe) });
    }
    if point.word.abandon() == Abandoned::Dead {
        run.as_ref().points.remove(point, guard);
        guard.retire(point);
    }
    Err(Refused::Shorter(len))
}

/// Leases the deepest block boundary at or before `at` that is still in place.
///
/// # Errors
///
/// [`Refused::Gone`], or [`Refused::Full`] if even the root has as many leases as it can count.
pub(crate) fn lease_deepest<'g>(
    mut at: Position<'g>,
    layout: BlockLayout,
    context: LeaseContext<'_>,
    guard: &'g Guard<'g>,
) -> Result<HeldLease<'g>, Refused> {
    loop {
        let end = match lease_at(at, context, guard) {
            Ok(held) => return Ok(held),
            Err(Refused::Gone) => return Err(Refused::Gone),
            Err(Refused::Shorter(len)) => at.run.start() + len as usize,
            Err(Refused::Full) if at.end() == 0 => return Err(Refused::Full),
            Err(Refused::Full) => at.end() - 1,
        };
        at = position(at.run, layout.boundary(end));
    }
}

/// Takes one more lease on a point that the caller has leased; `None` if the point can count no
/// more.
///
/// On a hot point, this checks the word after counting, as for any lease. Without the check, a sum
/// of the stripes could miss the new count, and then also the old one, if the old lease is released
/// before its stripe is summed.
pub(crate) fn lease_again<'g>(point: Ref<'g, Point>, context: LeaseContext<'_>) -> Option<HeldLease<'g>> {
    match attempt(point, context) {
        Attempt::Held(held) => Some(held),
        Attempt::Full => None,
        Attempt::Unproven | Attempt::Dead => {
            unreachable!("a held lease keeps its point alive and proved")
        }
    }
}

/// Leases a point that was proved before, unless it is dead or can count no more leases.
pub(crate) fn lease_again_if_alive<'g>(point: Ref<'g, Point>, context: LeaseContext<'_>) -> Option<HeldLease<'g>> {
    let Attempt::Held(held) = attempt(point, context) else {
        return None;
    };
    Some(held)
}

/// Gives a lease back. Returns whether a thread that waits for blocks may be waiting for this
/// release. The caller need not be pinned: the point is touched again only for the push, and then
/// `QUEUED` keeps it alive.
#[inline]
pub(crate) fn release(held: HeldLease<'_>, context: LeaseContext<'_>) -> bool {
    if held.counted_on.is_striped() {
        context.hot.leave(held.counted_on);
        return true;
    }
    // Before the release, after which the run may be freed.
    let shard = context.queues.shard(held.point);
    let Released { push, is_awaited } = held.point.word.release();
    if push {
        context.queues.of(shard).push(held.point);
    }
    is_awaited
}
