//! The ranking: every idle end of a run is filed once, under its present standing, and nothing else is.

use super::{Mismatch, PointAt, Violation, ensure, points_of};
use crate::cache::evictor::{Evictor, Ranking, Works, standing};
use crate::reclaim::Ref;
use crate::sync::atomic::Ordering::Acquire;
use crate::tree::{Point, Run};

/// Checks the policy, its slots, and the points of `runs` against them.
pub(super) fn check(runs: &[Ref<'_, Run>], evictor: &Evictor, works: Works<'_>) -> Result<(), Violation> {
    let mut candidates = 0;
    for &run in runs {
        for point in points_of(run, works) {
            candidates += usize::from(check_point(point, evictor, works)?);
        }
    }
    let ranking = &evictor.ranking;
    ensure(ranking.policy.is_sound(), || Violation::UnsoundPolicy)?;
    Mismatch { recorded: ranking.policy.len(), found: candidates }.settle(Violation::FiledCount)?;
    let occupied = ranking.slots().iter().flatten().count();
    Mismatch { recorded: occupied, found: candidates }.settle(Violation::SlotCount)?;
    check_vacant(ranking, occupied)
}

/// Checks whether a point stands in the ranking as it should; whether it is a candidate.
fn check_point(point: Ref<'_, Point>, evictor: &Evictor, works: Works<'_>) -> Result<bool, Violation> {
    let at = PointAt::on(point.run(), point.depth());
    let slot = point.account.get(&evictor.owner).slot;
    let slot = match (is_candidate(point, evictor, works), slot) {
        (false, None) => return Ok(false),
        (false, Some(_)) => return Err(Violation::WronglyFiled(at)),
        (true, None) => return Err(Violation::NotFiled(at)),
        (true, Some(slot)) => slot,
    };
    let ranking = &evictor.ranking;
    ensure(ranking.at(slot) == Some(point.link()), || Violation::WrongSlot { point: at, slot: slot.index() })?;
    let current = ranking.policy.is_filed(slot, standing(point));
    ensure(current, || Violation::StaleStanding(at))?;
    Ok(true)
}

/// Whether `point` is the idle end of its run, with whole blocks of its own.
fn is_candidate(point: Ref<'_, Point>, evictor: &Evictor, works: Works<'_>) -> bool {
    let run = point.run();
    // Acquire: as the evictor reads it.
    let idle = point.word.load(Acquire).is_idle();
    let below = evictor.point_below(point).map_or(0, |below| below.depth());
    let has_blocks = run.blocks_to(point.depth(), works.block_size) > run.blocks_to(below, works.block_size);
    idle && has_blocks && !run.is_trunk() && run.word().len() == point.depth()
}

/// Each slot without a candidate is vacant once.
fn check_vacant(ranking: &Ranking, occupied: usize) -> Result<(), Violation> {
    let mut met = vec![false; ranking.slots().len()];
    for slot in ranking.vacant() {
        let slot = slot.index();
        let empty = ranking.slots().get(slot).is_some_and(|candidate| candidate.is_none());
        ensure(empty && !std::mem::replace(&mut met[slot], true), || Violation::VacantSlot { slot })?;
    }
    let recorded = ranking.vacant().len();
    Mismatch { recorded, found: met.len() - occupied }.settle(Violation::VacantCount)
}
