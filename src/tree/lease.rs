//! Leasing a point: finding or creating it, proving it, giving it back.
//!
//! A lease on a *proven* point at depth `j` is the proof that every token and block up to `j` is in place, on its run
//! and through fixed parents on the whole path, for as long as it is held.
//!
//! A point that does not exist yet is published `NEW`, then proved by a bump of the run word (run.rs): if the run is
//! still long enough, `NEW` is cleared; if not, the lease is taken back and the run's length says where to look next.
//! Whoever leases a point that is still `NEW` proves it as well: he must not believe what its creator has not shown.

use crate::block::BlockSize;
use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::Ordering::Acquire;

use super::point::{Point, Statistics};
use super::queue::Queue;
use super::run::Run;
use super::walk::{Place, place};
use super::word::{Abandoned, Leased, Word};

/// Why a place could not be leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The run ends before it: at this depth when it was looked at.
    Shorter(u32),
    /// The point holds as many leases as it can count.
    Full,
    /// The space was detached and its root has gone: start in the namespace's present one.
    Gone,
}

/// Leases the point at `at`, creating it if need be. The caller holds one lease on what is returned.
#[inline]
pub(crate) fn lease_at<'g>(at: Place<'g>, queue: &Queue, guard: &'g Guard<'g>) -> Result<Ref<'g, Point>, Refused> {
    let points = &at.run.as_ref().points;
    let mut found = points.get(at.depth, guard);
    loop {
        if let Some(point) = found {
            match point.word.lease() {
                Leased::Proven { push } => {
                    if push {
                        queue.push(point);
                    }
                    return Ok(point);
                }
                Leased::Unproven => return prove(at.run, point, queue, guard),
                Leased::Full => return Err(Refused::Full),
                Leased::Dead if at.run.is_trunk() => {
                    // Acquire: E11 (word.rs); else nothing would keep the lookup from starting here again.
                    let _ = point.word.load(Acquire);
                    return Err(Refused::Gone);
                }
                Leased::Dead => {}
            }
        }
        let new = Point::new(at.run.link(), at.depth, Word::unproven(), Statistics::stamped(0), guard);
        match points.insert(found, new, guard) {
            Ok(point) => return prove(at.run, point, queue, guard),
            Err((_, instead)) => found = instead,
        }
    }
}

/// Proves a `NEW` point that the caller holds a lease on, or takes the lease back.
#[cold]
fn prove<'g>(
    run: Ref<'g, Run>,
    point: Ref<'g, Point>,
    queue: &Queue,
    guard: &'g Guard<'g>,
) -> Result<Ref<'g, Point>, Refused> {
    crate::sync::point!("lease::published");
    let len = run.bump().len();
    crate::sync::point!("lease::bumped");
    // Depth zero lies on no run: an insert asks for it where a run died while it walked there, and walks again.
    if (1..=len).contains(&point.depth()) {
        if point.word.prove() {
            queue.push(point);
        }
        return Ok(point);
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
/// [`Refused::Gone`] alone.
///
/// # Panics
///
/// If even the root holds as many leases as it can count.
pub(crate) fn lease_deepest<'g>(
    mut at: Place<'g>,
    block_size: BlockSize,
    queue: &Queue,
    guard: &'g Guard<'g>,
) -> Result<Ref<'g, Point>, Refused> {
    loop {
        let end = match lease_at(at, queue, guard) {
            Ok(point) => return Ok(point),
            Err(Refused::Gone) => return Err(Refused::Gone),
            Err(Refused::Shorter(len)) => at.run.start() + len as usize,
            Err(Refused::Full) => {
                assert!(at.end() > 0, "a namespace's root holds {} leases", super::word::MAX_LEASES);
                at.end() - 1
            }
        };
        at = place(at.run, end / block_size * block_size);
    }
}

/// Takes one more lease on a point that the caller holds one on. False if it counts no more.
pub(crate) fn lease_again(point: Ref<'_, Point>, queue: &Queue) -> bool {
    match point.word.lease() {
        Leased::Proven { push } => {
            if push {
                queue.push(point);
            }
            true
        }
        Leased::Full => false,
        Leased::Unproven | Leased::Dead => {
            unreachable!("a held lease keeps its point, and was proved")
        }
    }
}

/// Gives a lease back. Needs no pin: the point is touched again only for the push, which owns a reference.
#[inline]
pub(crate) fn release(point: Ref<'_, Point>, queue: &Queue) {
    if point.word.release() {
        queue.push(point);
    }
}
