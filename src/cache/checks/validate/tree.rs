//! Checks the tree: the evictor has processed every change, and every space, run and point is where
//! its links say.

use smallvec::SmallVec;

use crate::cache::checks::violation::{Place, Violation, broken, ensure};
use crate::cache::evictor::{Evictor, Resources};
use crate::cache::inner::Inner;
use crate::reclaim::Ref;
use crate::sync::atomic::Ordering::Acquire;
use crate::tree::{Point, Run, Snapshot, Space, sort_by_depth};

/// Checks that the evictor has no work left.
pub(super) fn check_rest(evictor: &Evictor<'_>, resources: Resources<'_>) -> Result<(), Violation> {
    let has_backlog = evictor.shards().any(|shard| !shard.is_worked_off());
    ensure(resources.queues.are_empty() && !has_backlog, "the evictor's queue is not empty after it was drained", "")?;
    let (points, blocks) = evictor
        .shards()
        .fold((0, 0), |(points, blocks), shard| (points + shard.revisit.len(), blocks + shard.freed.len()));
    ensure(
        points == 0 && blocks == 0,
        "the evictor left work behind",
        format_args!("{points} points not ranked, {blocks} blocks not returned"),
    )
}

/// The trees in which lookups start, and detached trees that are still held.
pub(super) fn spaces<'g>(
    inner: &Inner,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
) -> Result<Vec<Ref<'g, Space>>, Violation> {
    let mut spaces = inner.namespaces.spaces(resources.guard);
    ensure(!spaces.iter().any(|space| space.is_detached()), "a namespace's tree is detached", "")?;
    let detached = evictor.common.detached.iter().map(|space| space.get(resources.guard));
    spaces.extend(detached.clone());
    let all_detached = detached.clone().all(|space| space.is_detached());
    ensure(all_detached, "a tree in the list of detached ones is not detached", "")?;
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
) -> Result<(), Violation> {
    let ends = space.root(resources.guard).zip(space.trunk(resources.guard));
    let (root, trunk) = ends.ok_or_else(|| broken("a tree has no root on its trunk", ""))?;
    let planted = trunk.is_trunk() && trunk.space() == space && trunk.word().len() == 0;
    let rooted = trunk.as_ref().points.get(0, resources.guard) == Some(root);
    ensure(planted && rooted, "a tree has no root on its trunk", "")?;
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
) -> Result<(), Violation> {
    let len = run.word().len();
    check_arrays(run, len, resources)?;
    let is_hidden = run.shown(resources.guard) < len;
    let listed = evictor.common.listeners.hidden.contains(run);
    ensure(is_hidden == listed, "a run is partly invalidated and not listed as such, or the reverse", Place::of(run))?;
    let points = points_of(run, resources);
    for &point in &points {
        check_point(run, len, point, resources)?;
        check_children(point, evictor, resources, runs)?;
    }
    let ended = points.last().is_some_and(|last| last.depth() == len);
    ensure(ended, "a run does not end in a point", format_args!("{}, length {len}", Place::of(run)))
}

fn check_arrays(run: Ref<'_, Run>, len: u32, resources: Resources<'_>) -> Result<(), Violation> {
    let at = Place::of(run);
    let (tokens, blocks) = match run.arrays(resources.guard) {
        Some(arrays) => (arrays.tokens(), arrays.blocks()),
        None => (&[][..], &[][..]),
    };
    ensure(
        tokens.len() >= len as usize,
        "a run is longer than its tokens",
        format_args!("{at}, length {len}, {} tokens", tokens.len()),
    )?;
    let expected = run.blocks_to(tokens.len() as u32, resources.layout_of(run));
    ensure(
        blocks.len() == expected,
        "a run does not hold one block for each block boundary",
        format_args!("{at}, {} blocks, {expected} boundaries", blocks.len()),
    )?;
    let first = tokens.first().copied().unwrap_or(run.first());
    ensure(
        first == run.first(),
        "a run is indexed under another token than its first one",
        format_args!("{at}, its first token is {first}"),
    )
}

/// Checks a point's position and its word.
fn check_point(run: Ref<'_, Run>, len: u32, point: Ref<'_, Point>, resources: Resources<'_>) -> Result<(), Violation> {
    let at = Place::on(run, point.depth());
    // Acquire: as the evictor reads it.
    let word = point.word.load(Acquire);
    ensure(!word.is_dead(), "a dead point was not unlinked", at)?;
    ensure(!word.is_new(), "a point was never confirmed to be on its run", at)?;
    // A root in use has the mark but is never queued.
    let is_standing_root = run.is_trunk() && !run.space().is_detached();
    ensure(word.is_queued() == is_standing_root, "a point is wrongly marked as queued, or is an unmarked root", at)?;
    ensure(resources.hot.agree(point), "a point and its slot for hot points disagree", at)?;
    ensure(point.run() == run, "a point links to another run than the one it is on", at)?;
    let least = u32::from(!run.is_trunk());
    ensure(
        (least..=len).contains(&point.depth()),
        "a point is outside its run",
        format_args!("{at}, run length {len}"),
    )?;
    let found = run.as_ref().points.get(point.depth(), resources.guard);
    ensure(found == Some(point), "a point is not found by its depth", at)?;
    if point.end() != resources.layout_of(run).boundary(point.end()) {
        ensure(word.leases() == 0, "a point inside a block is leased", format_args!("{at}, {} leases", word.leases()))?;
        ensure(word.children() > 0, "a point inside a block has no child run", at)?;
    }
    let is_hidden = point.depth() == len && word.is_idle() && point.is_hidden(resources.guard);
    ensure(!is_hidden, "an idle point beyond an invalidated block was not freed", at)?;
    ensure(!is_leftover(run, len, point, word), "an idle point of a detached tree was not freed", at)
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
) -> Result<(), Violation> {
    let run = point.run();
    let at = Place::on(run, point.depth());
    let children = children_of(point, evictor, resources);
    for &child in &children {
        check_child(point, child, evictor, resources)?;
    }
    // A root's permanent child is removed when its space is detached.
    let permanent = u64::from(run.is_trunk() && !run.space().is_detached());
    // Acquire: as above.
    let counted = point.word.load(Acquire).children();
    let hanging = children.len() as u64 + permanent;
    ensure(
        counted == hanging,
        "a point's count of child runs is wrong",
        format_args!("{at}, {counted} recorded, {hanging} found"),
    )?;
    runs.extend_from_slice(&children);
    Ok(())
}

/// Checks the beginning of a run against the point that it is attached to.
fn check_child<'g>(
    point: Ref<'g, Point>,
    child: Ref<'g, Run>,
    evictor: &Evictor<'_>,
    resources: Resources<'g>,
) -> Result<(), Violation> {
    let run = Place::of(child);
    ensure(child.parent() == Some(point), "a run links to another parent than the point it is attached to", run)?;
    let found = point.as_ref().children.get(child.first(), resources.guard);
    let is_severed = evictor.common.listeners.hidden.severed_from(point).any(|severed| severed == child.link());
    ensure((found == Some(child)) != is_severed, "a run is not found by its first token", run)?;
    let end = point.end();
    ensure(
        child.start() == end,
        "a run does not start where its parent point ends",
        format_args!("{run}, the parent point ends at {end}"),
    )?;
    ensure(child.space() == point.run().space(), "a run links to another tree than the one it is in", run)?;
    ensure(child.word().len() > 0, "a run of length 0 was not unlinked", run)?;
    let next = point.run().tokens(resources.guard).get(point.depth() as usize);
    let own = next == Some(&child.first()) && !is_severed;
    ensure(
        !own,
        "a point has a child run that begins with its own run's next token",
        format_args!("{}, token {}", Place::on(point.run(), point.depth()), child.first()),
    )
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
