//! Checks the ranking: every idle end of a run is filed once, under its present stats (a silent one
//! may be filed too early), and nothing else is filed. A slot has a due time exactly if time
//! changes its candidate's stats without a use.

use super::tree::points_of;
use crate::cache::checks::violation::{Place, Violation, broken, ensure, ensure_equal};
use crate::cache::evictor::{Evictor, Ranking, Resources, Shard};
use crate::policy::{CandidateEntry, CandidateStats, Policy};
use crate::reclaim::Ref;
use crate::sync::atomic::Ordering::Acquire;
use crate::tree::{Point, Run};

/// Checks the policy and its slots against the points of `runs`.
pub(super) fn check(runs: &[Ref<'_, Run>], evictor: &Evictor<'_>, resources: Resources<'_>) -> Result<(), Violation> {
    evictor.shards().try_for_each(|shard| check_shard(shard, runs, evictor, resources))
}

fn check_shard(
    shard: &Shard,
    runs: &[Ref<'_, Run>],
    evictor: &Evictor<'_>,
    resources: Resources<'_>,
) -> Result<(), Violation> {
    let (mut candidates, mut moments) = (0, 0);
    for &run in runs.iter().filter(|run| run.shard() == shard.id) {
        for point in points_of(run, resources) {
            if check_point(point, evictor, resources)? {
                candidates += 1;
                moments += usize::from(evictor.candidate_stats(point, resources).1.is_some());
            }
        }
    }
    let ranking = &shard.ranking;
    let due = ranking.due.count();
    let recorded = due.ok_or_else(|| broken("the evictor's list of future rank changes contradicts itself", ""))?;
    ensure_equal(recorded, moments, "the number of future rank changes is wrong")?;
    ensure(ranking.policy.is_sound(), "the policy's structure is broken", "")?;
    ensure_equal(ranking.policy.len(), candidates, "the policy's number of candidates is wrong")?;
    check_incoming(ranking)?;
    // While candidates are being sorted, the order may lack some of them.
    if let Some(order) = ranking.aging.order().filter(|_| !evictor.is_sorting()) {
        ensure(order.is_sound(), "the policy's structure is broken", "")?;
        ensure_equal(order.len(), candidates, "the number of candidates ordered by last use is wrong")?;
    }
    let occupied = ranking.slots().iter().count();
    ensure_equal(occupied, candidates, "the number of slots that lead to a candidate is wrong")?;
    check_vacant(ranking, occupied)
}

/// Checks that a point is filed correctly; returns whether it is a candidate.
fn check_point(point: Ref<'_, Point>, evictor: &Evictor<'_>, resources: Resources<'_>) -> Result<bool, Violation> {
    let at = Place::on(point.run(), point.depth());
    let slot = point.account.get(&evictor.owner).candidate;
    let slot = match (is_candidate(point, evictor, resources), slot) {
        (false, None) => return Ok(false),
        (false, Some(_)) => return Err(broken("a candidate of the policy is not the idle end of a run", at)),
        (true, None) => return Err(broken("an idle end of a run is not a candidate of the policy", at)),
        (true, Some(slot)) => slot,
    };
    let ranking = &evictor.of(point.run()).ranking;
    let leads_back = ranking.at(slot) == Some(point.link());
    ensure(leads_back, "a candidate's slot does not lead back to it", format_args!("{at}, slot {}", slot.index()))?;
    let entry = evictor.entry(point);
    let (stats, until) = evictor.candidate_stats(point, resources);
    // Acquire: as the evictor reads it.
    let is_silent = point.word.load(Acquire).is_silent();
    let is_filed = |policy: &Policy| {
        // A namespace that has just got a quota is still being sorted into its group.
        let unsorted =
            evictor.is_sorting() && policy.is_filed(slot, stats, CandidateEntry { group: None, ..entry }, is_silent);
        unsorted || policy.is_filed(slot, stats, entry, is_silent)
    };
    ensure(is_filed(&ranking.policy), "the policy ranks a point by outdated statistics", at)?;
    if let Some(incoming) = &ranking.exchange.incoming {
        let moved = slot.index() < incoming.moved;
        ensure(!moved || is_filed(&incoming.policy), "the incoming policy ranks a point by outdated statistics", at)?;
    }
    let by_age = CandidateStats { demoted: false, ..stats };
    let is_aging = |order: &Policy| evictor.is_sorting() || order.is_filed(slot, by_age, entry, is_silent);
    ensure(ranking.aging.order().is_none_or(is_aging), "a candidate is misplaced in the order by last use", at)?;
    ensure(ranking.due.at(slot) == until, "a candidate's next rank change has a wrong time", at)?;
    Ok(true)
}

/// Whether `point` is the idle end of its run, and has whole blocks beyond the point below it.
fn is_candidate(point: Ref<'_, Point>, evictor: &Evictor<'_>, resources: Resources<'_>) -> bool {
    let run = point.run();
    // Acquire: as the evictor reads it.
    let idle = point.word.load(Acquire).is_idle();
    let below = evictor.point_below(point).map_or(0, |below| below.depth());
    let has_blocks =
        run.blocks_to(point.depth(), resources.layout_of(run)) > run.blocks_to(below, resources.layout_of(run));
    idle && has_blocks && !run.is_trunk() && run.word().len() == point.depth()
}

/// The incoming policy has exactly the candidates of the slots that were moved; `check_point` has
/// found them there.
fn check_incoming(ranking: &Ranking) -> Result<(), Violation> {
    let Some(incoming) = &ranking.exchange.incoming else {
        return Ok(());
    };
    ensure(incoming.policy.is_sound(), "the policy's structure is broken", "")?;
    let moved = ranking.slots().iter().filter(|(slot, _)| *slot < incoming.moved).count();
    ensure_equal(incoming.policy.len(), moved, "the incoming policy's number of candidates is wrong")
}

/// Each slot without a candidate is recorded as vacant exactly once.
fn check_vacant(ranking: &Ranking, occupied: usize) -> Result<(), Violation> {
    let mut met = vec![false; ranking.slots().len()];
    for slot in ranking.vacant().iter() {
        let slot = slot.index();
        let empty = slot < met.len() && ranking.slots().get(slot).is_none();
        ensure(
            empty && !std::mem::replace(&mut met[slot], true),
            "a slot is recorded as vacant twice, or while it is in use",
            format_args!("slot {slot}"),
        )?;
    }
    let recorded = ranking.vacant().len();
    ensure_equal(recorded, met.len() - occupied, "the number of vacant slots is wrong")
}
