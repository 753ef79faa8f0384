//! Checks the evictor's accounts of runs and points against the tree, and recounts its totals.
//!
//! Each account is checked only against its neighbours (a point's against its word and child runs,
//! a run's against its points). The tree is finite and the words are the truth, so accounts that
//! agree everywhere are right everywhere.

use std::collections::HashMap;

use super::tree::{children_of, points_of};
use crate::cache::checks::violation::{Place, Violation, ensure, ensure_equal};
use crate::cache::evictor::{Evictor, Resources};
use crate::cache::numbers::stats::{Stats, Total};
use crate::reclaim::Ref;
use crate::sync::atomic::Ordering::Acquire;
use crate::tree::{NamespaceAccount, Point, Run};

/// Checks the accounts of `runs`, which are ordered by space, each with the trunk first.
pub(super) fn check(runs: &[Ref<'_, Run>], evictor: &Evictor<'_>, resources: Resources<'_>) -> Result<(), Violation> {
    let mut found = Stats::default();
    let mut namespaces = HashMap::new();
    for space in runs.chunk_by(|_, next| !next.is_trunk()) {
        let Some((trunk, runs)) = space.split_first() else {
            continue;
        };
        check_trunk(*trunk, evictor, resources)?;
        let (evictable, protected) = (found.evictable_blocks, found.protected_blocks);
        for &run in runs {
            check_run(run, &mut found, evictor, resources)?;
        }
        let account = &trunk.space().as_ref().account;
        let (_, of_it) = namespaces.entry(std::ptr::from_ref(&**account)).or_insert((account, (0, 0)));
        of_it.0 += found.evictable_blocks + found.protected_blocks - evictable - protected;
        of_it.1 += found.protected_blocks - protected;
        found.runs += runs.len();
    }
    for (account, (cached, protected)) in namespaces.into_values() {
        check_holdings(account, [cached, protected], evictor)?;
    }
    check_totals(&found, evictor)
}

/// Checks a namespace's account over all its spaces, and that the evictor has noted it if it
/// exceeds its quota.
fn check_holdings(account: &NamespaceAccount, found: [usize; 2], evictor: &Evictor<'_>) -> Result<(), Violation> {
    let [cached, protected] = found;
    ensure_equal(account.cached(), cached, "a namespace's count of cached blocks is wrong")?;
    ensure_equal(account.protected(), protected, "a namespace's count of protected blocks is wrong")?;
    let group = account.group.get(&evictor.owner).filter(|group| {
        let has_candidates = evictor.choose_of(*group).is_some();
        has_candidates && account.excess() > 0 && evictor.common.listeners.quotas.limited.contains_key(group)
    });
    let noted = group.is_none_or(|group| evictor.common.listeners.quotas.is_noted(group));
    ensure(
        noted,
        "the evictor has not recorded that a namespace exceeds its quota",
        format_args!("{cached} cached, {} beyond the quota", account.excess()),
    )
}

fn check_totals(found: &Stats, evictor: &Evictor<'_>) -> Result<(), Violation> {
    let sum = |total| evictor.shards().map(|shard| shard.totals.get(total)).sum::<u64>();
    let (evictable, protected) = (evictor.evictable(), evictor.sum(|shard| shard.protected));
    ensure_equal(evictable, found.evictable_blocks, "the count of evictable blocks is wrong")?;
    ensure_equal(protected, found.protected_blocks, "the count of protected blocks is wrong")?;
    ensure_equal(sum(Total::Runs) as usize, found.runs, "the count of runs is wrong")?;
    ensure_equal(sum(Total::Points) as usize, found.points, "the count of points is wrong")?;
    let cached = found.evictable_blocks + found.protected_blocks;
    let inserted = sum(Total::Inserted);
    let gone = [Total::Evicted, Total::Aged, Total::Cleared, Total::Invalidated].map(sum).iter().sum();
    let flows = inserted.checked_sub(gone) == Some(cached as u64);
    ensure(
        flows,
        "the inserted blocks are not the sum of the cached and the removed blocks",
        format_args!("{inserted} inserted, {cached} cached, {gone} removed"),
    )
}

/// Checks that the evictor keeps no list of points for a trunk and files no root.
fn check_trunk<'g>(trunk: Ref<'g, Run>, evictor: &Evictor<'_>, resources: Resources<'g>) -> Result<(), Violation> {
    check_list(trunk, &[], evictor)?;
    points_of(trunk, resources).into_iter().try_for_each(|root| check_active_children(root, evictor, resources))
}

/// Checks a run's account and adds it to `found`.
fn check_run<'g>(
    run: Ref<'g, Run>,
    found: &mut Stats,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
) -> Result<(), Violation> {
    let at = Place::of(run);
    let whole = run.word().len();
    let registered = run.account.with(&evictor.owner, |account| account.is_registered() && account.len == whole);
    ensure(registered, "a run is not registered with the evictor", at)?;
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
    ensure(
        recorded == deepest,
        "a run's protected depth is not that of its deepest active point",
        format_args!("{at}, {recorded} recorded, {deepest} found"),
    )?;
    let protected = run.blocks_to(deepest, resources.layout_of(run));
    found.protected_blocks += protected;
    found.evictable_blocks += run.blocks_to(run.word().len(), resources.layout_of(run)) - protected;
    found.points += points.len();
    Ok(())
}

fn check_point<'g>(point: Ref<'g, Point>, evictor: &Evictor<'_>, resources: Resources<'g>) -> Result<(), Violation> {
    let at = Place::on(point.run(), point.depth());
    let account = point.account.get(&evictor.owner);
    ensure(account.is_known(), "a point is not known to the evictor", at)?;
    // Acquire: as the evictor reads it.
    let word = point.word.load(Acquire);
    let (leases, is_told) = (word.leases(), word.leases() > 0 && !word.is_silent());
    ensure(
        account.is_leased() == is_told,
        "the evictor's account of a point's leases is wrong",
        format_args!("{at}, {leases} leases"),
    )?;
    check_active_children(point, evictor, resources)
}

fn check_active_children<'g>(
    point: Ref<'g, Point>,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
) -> Result<(), Violation> {
    let recorded = point.account.get(&evictor.owner).active_children();
    let is_active = |run: &Ref<'_, Run>| run.account.with(&evictor.owner, |account| account.protected > 0);
    let found = children_of(point, evictor, resources).iter().filter(|&run| is_active(run)).count();
    let at = Place::on(point.run(), point.depth());
    ensure(
        recorded == found,
        "a point's count of active child runs is wrong",
        format_args!("{at}, {recorded} recorded, {found} found"),
    )
}

/// Checks the evictor's list by address, because wrong entries may point to freed memory.
fn check_list(run: Ref<'_, Run>, points: &[Ref<'_, Point>], evictor: &Evictor<'_>) -> Result<(), Violation> {
    run.account.with(&evictor.owner, |account| {
        let same = account.points.iter().eq(points.iter().map(|point| point.link()));
        let (listed, live) = (account.points.len(), points.len());
        ensure(
            same,
            "the evictor's list of a run's points differs from its points in order of depth",
            format_args!("{}, {listed} listed, {live} found", Place::of(run)),
        )
    })
}
