//! Checks the evictor's accounts of runs and points against the tree, and recounts its totals.
//!
//! Each account is checked only against its neighbours (a point's against its word and child runs,
//! a run's against its points). The tree is finite and the words are the truth, so accounts that
//! agree everywhere are right everywhere.

use std::collections::HashMap;

use super::tree::{children_of, points_of};
use crate::cache::checks::diagnostics::{BrokenInvariant, Mismatch, PointAt, RunAt, ensure};
use crate::cache::evictor::{Evictor, Resources, Totals};
use crate::reclaim::Ref;
use crate::sync::atomic::Ordering::Acquire;
use crate::tree::{NamespaceAccount, Point, Run};

/// Checks the accounts of `runs`, which are ordered by space, each with the trunk first.
pub(super) fn check(
    runs: &[Ref<'_, Run>],
    evictor: &Evictor<'_>,
    resources: Resources<'_>,
) -> Result<(), BrokenInvariant> {
    let mut found = Totals::default();
    let mut namespaces = HashMap::new();
    for space in runs.chunk_by(|_, next| !next.is_trunk()) {
        let Some((trunk, runs)) = space.split_first() else {
            continue;
        };
        check_trunk(*trunk, evictor, resources)?;
        let (evictable, protected) = (found.evictable, found.protected);
        for &run in runs {
            check_run(run, &mut found, evictor, resources)?;
        }
        let account = &trunk.space().as_ref().account;
        let (_, of_it) = namespaces.entry(std::ptr::from_ref(&**account)).or_insert((account, (0, 0)));
        of_it.0 += found.evictable + found.protected - evictable - protected;
        of_it.1 += found.protected - protected;
        found.runs += runs.len();
    }
    for (account, (cached, protected)) in namespaces.into_values() {
        check_holdings(account, [cached, protected], evictor)?;
    }
    check_totals(&evictor.totals_of_all(), &found)
}

/// Checks a namespace's account over all its spaces, and that the evictor has noted it if it
/// exceeds its quota.
fn check_holdings(account: &NamespaceAccount, found: [usize; 2], evictor: &Evictor<'_>) -> Result<(), BrokenInvariant> {
    let [cached, protected] = found;
    Mismatch { recorded: account.cached(), found: cached }.settle(BrokenInvariant::NamespaceCached)?;
    Mismatch { recorded: account.protected(), found: protected }.settle(BrokenInvariant::NamespaceProtected)?;
    let group = account.group.get(&evictor.owner).filter(|group| {
        let has_candidates = evictor.choose_of(*group).is_some();
        has_candidates && account.excess() > 0 && evictor.common.listeners.quotas.limited.contains_key(group)
    });
    let noted = group.is_none_or(|group| evictor.common.listeners.quotas.is_noted(group));
    ensure(noted, || BrokenInvariant::QuotaMissed { cached, excess: account.excess() })
}

fn check_totals(recorded: &Totals, found: &Totals) -> Result<(), BrokenInvariant> {
    let total = |recorded, found| Mismatch { recorded, found };
    total(recorded.evictable, found.evictable).settle(BrokenInvariant::EvictableTotal)?;
    total(recorded.protected, found.protected).settle(BrokenInvariant::ProtectedTotal)?;
    total(recorded.runs, found.runs).settle(BrokenInvariant::RunTotal)?;
    total(recorded.points, found.points).settle(BrokenInvariant::PointTotal)?;
    let cached = found.evictable + found.protected;
    let (inserted, evicted) = (recorded.inserted, recorded.evicted);
    let gone = evicted + recorded.aged + recorded.cleared + recorded.invalidated;
    let flows = inserted.checked_sub(gone) == Some(cached as u64);
    ensure(flows, || BrokenInvariant::Flow { inserted, gone, cached })
}

/// Checks that the evictor keeps no list of points for a trunk and files no root.
fn check_trunk<'g>(
    trunk: Ref<'g, Run>,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
) -> Result<(), BrokenInvariant> {
    let listed = trunk.account.with(&evictor.owner, |account| account.points.len());
    ensure(listed == 0, || BrokenInvariant::PointList { run: RunAt::of(trunk), listed, live: 0 })?;
    points_of(trunk, resources).into_iter().try_for_each(|root| check_active_children(root, evictor, resources))
}

/// Checks a run's account and adds it to `found`.
fn check_run<'g>(
    run: Ref<'g, Run>,
    found: &mut Totals,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
) -> Result<(), BrokenInvariant> {
    let at = RunAt::of(run);
    let whole = run.word().len();
    let registered = run.account.with(&evictor.owner, |account| account.is_registered() && account.len == whole);
    ensure(registered, || BrokenInvariant::RunUnregistered(at))?;
    let points = points_of(run, resources);
    for &point in &points {
        check_point(point, evictor, resources)?;
    }
    check_list(run, &points, evictor)?;
    // Acquire: as the evictor reads it. The words decide, because a silent lease protects as well
    // as one in the accounts.
    let is_active = |point: &&Ref<'_, Point>| {
        point.account.get(&evictor.owner).is_active() || point.word.load(Acquire).leases() > 0
    };
    let active = points.iter().rev().find(is_active);
    let deepest = active.map_or(0, |point| point.depth());
    let recorded = run.account.with(&evictor.owner, |account| account.protected);
    ensure(recorded == deepest, || BrokenInvariant::ProtectedDepth { run: at, recorded, deepest })?;
    let protected = run.blocks_to(deepest, resources.layout_of(run));
    found.protected += protected;
    found.evictable += run.blocks_to(run.word().len(), resources.layout_of(run)) - protected;
    found.points += points.len();
    Ok(())
}

fn check_point<'g>(
    point: Ref<'g, Point>,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
) -> Result<(), BrokenInvariant> {
    let at = PointAt::on(point.run(), point.depth());
    let account = point.account.get(&evictor.owner);
    ensure(account.is_known(), || BrokenInvariant::PointUnknown(at))?;
    // Acquire: as the evictor reads it.
    let word = point.word.load(Acquire);
    let (leases, is_told) = (word.leases(), word.leases() > 0 && !word.is_silent());
    ensure(account.is_leased() == is_told, || BrokenInvariant::LeaseAccount { point: at, leases })?;
    check_active_children(point, evictor, resources)
}

fn check_active_children<'g>(
    point: Ref<'g, Point>,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
) -> Result<(), BrokenInvariant> {
    let recorded = point.account.get(&evictor.owner).active_children();
    let is_active = |run: &Ref<'_, Run>| run.account.with(&evictor.owner, |account| account.protected > 0);
    let found = children_of(point, evictor, resources).iter().filter(|&run| is_active(run)).count();
    let at = PointAt::on(point.run(), point.depth());
    Mismatch { recorded, found }.settle(|counts| BrokenInvariant::ActiveChildren(at, counts))
}

/// Checks the evictor's list by address, because wrong entries may point to freed memory.
fn check_list(run: Ref<'_, Run>, points: &[Ref<'_, Point>], evictor: &Evictor<'_>) -> Result<(), BrokenInvariant> {
    run.account.with(&evictor.owner, |account| {
        let same = account.points.iter().eq(points.iter().map(|point| point.link()));
        let (listed, live) = (account.points.len(), points.len());
        ensure(same, || BrokenInvariant::PointList { run: RunAt::of(run), listed, live })
    })
}
