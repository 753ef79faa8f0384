//! Checks the tree: the evictor has processed every change, and every space, run and point is where
//! its links say.

use smallvec::SmallVec;

use crate::cache::checks::diagnostics::{BrokenInvariant, PointAt, RunAt, ensure};
use crate::cache::evictor::{Evictor, Resources};
use crate::cache::inner::Inner;
use crate::reclaim::Ref;
use crate::sync::atomic::Ordering::Acquire;
use crate::tree::{Point, Run, Snapshot, Space, sort_by_depth};

/// Checks that the evictor has no work left.
pub(super) fn check_rest(evictor: &Evictor<'_>, resources: Resources<'_>) -> Result<(), BrokenInvariant> {
    let has_backlog = evictor.shards().any(|shard| !shard.is_worked_off());
    ensure(resources.queues.are_empty() && !has_backlog, || BrokenInvariant::QueueNotEmpty)?;
    let (points, blocks) = evictor
        .shards()
        .fold((0, 0), |(points, blocks), shard| (points + shard.revisit.len(), blocks + shard.freed.len()));
    ensure(points == 0 && blocks == 0, || BrokenInvariant::Unfinished { points, blocks })
}

/// The trees in which lookups start, and detached trees that are still held.
pub(super) fn spaces<'g>(
    inner: &Inner,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
) -> Result<Vec<Ref<'g, Space>>, BrokenInvariant> {
    let mut spaces = inner.namespaces.spaces(resources.guard);
    ensure(!spaces.iter().any(|space| space.is_detached()), || BrokenInvariant::NamespaceDetached)?;
    let detached = evictor.common.detached.iter().map(|space| space.get(resources.guard));
    spaces.extend(detached.clone());
    ensure(detached.clone().all(|space| space.is_detached()), || BrokenInvariant::SpaceNotDetached)?;
    Ok(spaces)
}

/// Checks the tree of `space` and appends its runs: the trunk, then parents before children.
///
/// A run is followed only from the parent that it names, so this ends even if links are wrong.
pub(super) fn walk<'g>(
    space: Ref<'g, Space>,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
    runs: &mut Vec<Ref<'g, Run>>,
) -> Result<(), BrokenInvariant> {
    let (root, trunk) = space.root(resources.guard).zip(space.trunk(resources.guard)).ok_or(BrokenInvariant::NoRoot)?;
    let planted = trunk.is_trunk() && trunk.space() == space && trunk.word().len() == 0;
    let rooted = trunk.as_ref().points.get(0, resources.guard) == Some(root);
    ensure(planted && rooted, || BrokenInvariant::NoRoot)?;
    let mut at = runs.len();
    runs.push(trunk);
    while let Some(&run) = runs.get(at) {
        check_run(run, evictor, resources, runs)?;
        at += 1;
    }
    Ok(())
}

/// Checks a run and its points, and appends the runs that are attached to them.
fn check_run<'g>(
    run: Ref<'g, Run>,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
    runs: &mut Vec<Ref<'g, Run>>,
) -> Result<(), BrokenInvariant> {
    let len = run.word().len();
    check_arrays(run, len, resources)?;
    let is_hidden = run.shown(resources.guard) < len;
    ensure(is_hidden == evictor.common.listeners.hidden.contains(run), || BrokenInvariant::HiddenRun(RunAt::of(run)))?;
    let points = points_of(run, resources);
    for &point in &points {
        check_point(run, len, point, resources)?;
        check_children(point, evictor, resources, runs)?;
    }
    let ended = points.last().is_some_and(|last| last.depth() == len);
    ensure(ended, || BrokenInvariant::NoEnd { run: RunAt::of(run), len })
}

fn check_arrays(run: Ref<'_, Run>, len: u32, resources: Resources<'_>) -> Result<(), BrokenInvariant> {
    let at = RunAt::of(run);
    let (tokens, blocks) = match run.arrays(resources.guard) {
        Some(arrays) => (arrays.tokens(), arrays.blocks()),
        None => (&[][..], &[][..]),
    };
    ensure(tokens.len() >= len as usize, || BrokenInvariant::TokensMissing { run: at, len, tokens: tokens.len() })?;
    let expected = run.blocks_to(tokens.len() as u32, resources.layout_of(run));
    ensure(blocks.len() == expected, || BrokenInvariant::BlockCount { run: at, blocks: blocks.len(), expected })?;
    match tokens.first() {
        Some(&token) if token != run.first() => Err(BrokenInvariant::FirstToken { run: at, token }),
        _ => Ok(()),
    }
}

/// Checks a point's position and its word.
fn check_point(
    run: Ref<'_, Run>,
    len: u32,
    point: Ref<'_, Point>,
    resources: Resources<'_>,
) -> Result<(), BrokenInvariant> {
    let at = PointAt::on(run, point.depth());
    // Acquire: as the evictor reads it.
    let word = point.word.load(Acquire);
    ensure(!word.is_dead(), || BrokenInvariant::DeadPoint(at))?;
    ensure(!word.is_new(), || BrokenInvariant::NewPoint(at))?;
    // A root in use has the mark but is never queued.
    let is_standing_root = run.is_trunk() && !run.space().is_detached();
    ensure(word.is_queued() == is_standing_root, || BrokenInvariant::QueuedPoint(at))?;
    ensure(resources.hot.agree(point), || BrokenInvariant::HotPoint(at))?;
    ensure(point.run() == run, || BrokenInvariant::PointOnOtherRun(at))?;
    let least = u32::from(!run.is_trunk());
    ensure((least..=len).contains(&point.depth()), || BrokenInvariant::PointOutside { point: at, len })?;
    let found = run.as_ref().points.get(point.depth(), resources.guard);
    ensure(found == Some(point), || BrokenInvariant::PointMisplaced(at))?;
    if point.end() != resources.layout_of(run).boundary(point.end()) {
        ensure(word.leases() == 0, || BrokenInvariant::LeasedInBlock { point: at, leases: word.leases() })?;
        ensure(word.children() > 0, || BrokenInvariant::StrayBranch(at))?;
    }
    let is_hidden = point.depth() == len && word.is_idle() && point.is_hidden(resources.guard);
    ensure(!is_hidden, || BrokenInvariant::IdleHidden(at))?;
    ensure(!is_leftover(run, len, point, word), || BrokenInvariant::IdleInDetached(at))
}

/// Whether an end, or a root, of a detached space is idle, so that it should have been freed.
fn is_leftover(run: Ref<'_, Run>, len: u32, point: Ref<'_, Point>, word: Snapshot) -> bool {
    point.depth() == len && word.is_idle() && run.space().is_detached()
}

/// Checks the runs that are attached to `point`, and appends them.
fn check_children<'g>(
    point: Ref<'g, Point>,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
    runs: &mut Vec<Ref<'g, Run>>,
) -> Result<(), BrokenInvariant> {
    let run = point.run();
    let at = PointAt::on(run, point.depth());
    let children = children_of(point, evictor, resources);
    for &child in &children {
        check_child(point, child, evictor, resources)?;
    }
    // A root's permanent child is removed when its space is detached.
    let permanent = u64::from(run.is_trunk() && !run.space().is_detached());
    // Acquire: as above.
    let counted = point.word.load(Acquire).children();
    let hanging = children.len() as u64 + permanent;
    ensure(counted == hanging, || BrokenInvariant::ChildCount { point: at, counted, hanging })?;
    runs.extend_from_slice(&children);
    Ok(())
}

/// Checks the beginning of a run against the point that it is attached to.
fn check_child<'g>(
    point: Ref<'g, Point>,
    child: Ref<'g, Run>,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
) -> Result<(), BrokenInvariant> {
    let run = RunAt::of(child);
    ensure(child.parent() == Some(point), || BrokenInvariant::WrongParent(run))?;
    let found = point.as_ref().children.get(child.first(), resources.guard);
    let is_severed = evictor.common.listeners.hidden.severed_from(point).any(|severed| severed == child.link());
    ensure((found == Some(child)) != is_severed, || BrokenInvariant::RunMisplaced(run))?;
    let end = point.end();
    ensure(child.start() == end, || BrokenInvariant::WrongStart { run, end })?;
    ensure(child.space() == point.run().space(), || BrokenInvariant::WrongSpace(run))?;
    ensure(child.word().len() > 0, || BrokenInvariant::EmptyRun(run))?;
    let next = point.run().tokens(resources.guard).get(point.depth() as usize);
    let own = next == Some(&child.first()) && !is_severed;
    ensure(!own, || BrokenInvariant::SameToken(PointAt::on(point.run(), point.depth()), child.first()))
}

/// Number of partly hidden runs.
pub(super) fn hidden(runs: &[Ref<'_, Run>], resources: Resources<'_>) -> usize {
    runs.iter().filter(|run| run.shown(resources.guard) < run.word().len()).count()
}

/// The points of `run`, by depth.
pub(super) fn points_of<'g>(run: Ref<'g, Run>, resources: Resources<'g>) -> SmallVec<[Ref<'g, Point>; 4]> {
    let mut points = SmallVec::new();
    run.as_ref().points.for_each(resources.guard, &mut |point| points.push(point));
    sort_by_depth(&mut points);
    points
}

/// The child runs of `point`, with severed (`listeners::invalidation`) but without dead ones, which
/// are unlinked only at the end of the turn in which they die.
pub(super) fn children_of<'g>(
    point: Ref<'g, Point>,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
) -> SmallVec<[Ref<'g, Run>; 4]> {
    let mut children = SmallVec::new();
    let has_died =
        |run: Ref<'_, Run>| run.account.with(&evictor.owner, |account| account.is_registered() && account.len == 0);
    point
        .as_ref()
        .children
        .for_each(resources.guard, &mut |run| children.extend(Some(run).filter(|run| !has_died(*run))));
    children.extend(evictor.common.listeners.hidden.severed_from(point).map(|run| run.get(resources.guard)));
    children
}
