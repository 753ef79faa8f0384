//! A point: a depth on a run that has a lease, child runs or statistics.

use std::alloc::Layout;
use std::iter;

use crate::policy::CandidateId;
use crate::reclaim::{Canary, Guard, Link, Node, Own, Ref};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::sync::{HandedOver, OwnerCell, model_size};

use super::map::{Keyed, Map};
use super::marks::{Marked, Marks};
use super::run::Run;
use super::word::Word;

/// A point. Its run and its depth never change.
///
/// It fills a cache line of its own, so that threads at neighbouring points do not disturb each
/// other. The field order allows a root's word to be on another cache line than the fields that
/// walks read (see `root`).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Point {
    /// The next entry in the queue. Owned by the thread that set `QUEUED` (word.rs, E4).
    pub(crate) link: HandedOver<Point>,
    pub(crate) word: Word,
    pub(crate) statistics: Statistics,
    pub(crate) marks: Marks,
    /// Runs that branch off here, by their first token.
    pub(crate) children: Map<Run>,
    /// The run outlives its points. Not used once the point is removed from its run.
    run: Link<Run>,
    /// The evictor's data on the point.
    pub(crate) account: OwnerCell<PointAccount>,
    canary: Canary,
}

/// The evictor's data on a point. The point is *active* if it is `LEASED` or has an active child
/// run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PointAccount {
    /// `KNOWN` and `LEASED`; above them, the number of child runs that are accounted as active.
    bits: u32,
    /// The point's id in the ranking.
    pub(crate) candidate: Option<CandidateId>,
}

/// The point is in its run's list of known points.
const KNOWN: u32 = 1;
/// The word had a lease when the point was last taken out of the queue.
const LEASED: u32 = 1 << 1;
/// One active child.
const CHILD: u32 = 1 << 2;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Number of different offsets from a cache line among slots of a root's size.
const SLOTS_TRIED: usize = model_size(4, 1);

/// The memory of a root: a quarter of a cache line more than other points have, so that slots of
/// that size have four different offsets from a cache line.
const ROOT: Layout = match Layout::from_size_align(size_of::<Point>() + LINE / 4, align_of::<Point>()) {
    Ok(layout) => layout,
    Err(_) => panic!("a size and an alignment"),
};

#[cfg(not(any(radixkv_loom, radixkv_shuttle, radixkv_chaos)))]
const _: () = assert!(size_of::<Point>() == LINE);

impl PointAccount {
    pub(crate) fn is_active(self) -> bool {
        self.bits & !KNOWN != 0
    }

    pub(crate) fn is_known(self) -> bool {
        self.bits & KNOWN != 0
    }

    pub(crate) fn is_leased(self) -> bool {
        self.bits & LEASED != 0
    }

    pub(crate) fn active_children(self) -> usize {
        (self.bits / CHILD) as usize
    }

    pub(crate) fn set_known(&mut self, known: bool) {
        self.set(KNOWN, known);
    }

    pub(crate) fn set_leased(&mut self, leased: bool) {
        self.set(LEASED, leased);
    }

    /// Adds a child run that has become active, or subtracts one that has become inactive.
    pub(crate) fn count_child(&mut self, active: bool) {
        self.bits = if active { self.bits + CHILD } else { self.bits - CHILD };
    }

    fn set(&mut self, flag: u32, on: bool) {
        self.bits = if on { self.bits | flag } else { self.bits & !flag };
    }
}

impl Point {
    pub(crate) fn new<'g>(run: Link<Run>, depth: u32, word: Word, now: u64, guard: &'g Guard<'g>) -> Own<'g, Self> {
        let point = Self {
            word,
            link: HandedOver::null(),
            statistics: Statistics { depth, ..Statistics::stamped(now) },
            marks: Marks::none(),
            children: Map::new(),
            run,
            account: OwnerCell::new(PointAccount::default()),
            canary: Canary::new(),
        };
        if depth == 0 { Own::with_layout(point, ROOT, guard) } else { Own::new(point, guard) }
    }

    /// Makes a root. Every walk reads it, and its word is written by lookups that miss and by runs
    /// that are attached or removed. So the word is in another cache line than the rest, if one of
    /// the tried slots allows that.
    pub(crate) fn root<'g>(run: Link<Run>, guard: &'g Guard<'g>) -> Own<'g, Self> {
        let mut tried: [Own<'g, Self>; SLOTS_TRIED] =
            std::array::from_fn(|_| Self::new(run, 0, Word::root(), 0, guard));
        let lies_apart = |point: &Own<'g, Self>| (&raw const point.statistics).addr() % LINE == 0;
        let best = tried.iter().position(lies_apart).unwrap_or(0);
        tried.swap(0, best);
        let [root, ..] = tried;
        root
    }

    /// Depth on its own run, in tokens.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.statistics.depth
    }

    /// The statistics and marks at this moment.
    pub(crate) fn tally(&self, guard: &Guard<'_>) -> Tally {
        Tally { marked: self.marks.made(guard).copied(), ..self.statistics.tally() }
    }

    /// Adds the statistics and marks of a dead point, which flow down to this one.
    pub(crate) fn take_in(&self, tally: Tally, guard: &Guard<'_>) {
        self.statistics.take_in(tally);
        if let Some(marked) = tally.marked {
            self.marks.join(marked, guard);
        }
    }
}

impl<'g> Ref<'g, Point> {
    /// The point's run. It lives at least as long as the point.
    #[inline]
    pub(crate) fn run(self) -> Ref<'g, Run> {
        let point = self.as_ref();
        point.run.get(point)
    }

    /// Whether walks do not reach the point, because a block before it on its run was invalidated.
    #[inline]
    pub(crate) fn is_hidden(self, guard: &Guard<'_>) -> bool {
        self.depth() > self.run().shown(guard)
    }

    /// Whether a block before the point was invalidated, on its run or on one before it. A run that
    /// was attached to a hidden point is hidden only when the evictor takes it into the accounts.
    #[inline]
    pub(crate) fn is_invalidated(self, guard: &Guard<'_>) -> bool {
        self.is_hidden(guard) || self.run().space().hidden_runs().load(Relaxed) > 0 && self.is_beyond_hidden(guard)
    }

    #[cold]
    fn is_beyond_hidden(self, guard: &Guard<'_>) -> bool {
        iter::successors(self.run().parent(), |point| point.run().parent()).any(|point| point.is_hidden(guard))
    }

    /// Whether lookups can no longer find the point, because its space was detached or a block
    /// before it was invalidated.
    #[inline]
    pub(crate) fn is_cut_off(self, guard: &Guard<'_>) -> bool {
        self.run().space().is_detached() || self.is_invalidated(guard)
    }

    /// Depth from the namespace's root, in tokens.
    #[inline]
    pub(crate) fn end(self) -> usize {
        self.run().start() + self.depth() as usize
    }
}

#[allow(unsafe_code)]
// SAFETY: `Point::new` allocates by the depth, as `layout` does, and the depth never changes;
// dropping a point frees its map's branches and its marks and follows no other pointer.
unsafe impl Node for Point {
    fn bytes(&self) -> usize {
        self.layout().size() + self.children.branch_bytes() + self.marks.bytes()
    }

    #[inline]
    fn layout(&self) -> Layout {
        if self.depth() == 0 { ROOT } else { Layout::new::<Self>() }
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }
}

impl Keyed for Point {
    fn key(&self) -> u32 {
        self.depth()
    }
}

/// The statistics at a point by which the cache's policies rank it. (The reference program keeps
/// statistics for each block instead.) Hits start at one, for the insert.
#[derive(Debug)]
pub(crate) struct Statistics {
    last: AtomicU64,
    /// Signed: a use that was counted on the point or a stripe may be taken back on the other.
    hits: AtomicU32,
    /// Depth of the point, stored here because the space would be padding otherwise. Zero on a
    /// stripe.
    depth: u32,
}

/// The maximum number of hits, about two billion.
const MOST_HITS: i32 = i32::MAX - (1 << 24);

/// Statistics at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) last: u64,
    pub(crate) hits: i64,
    /// `None` if nothing was marked, as at most points.
    pub(crate) marked: Option<Marked>,
}

impl Tally {
    /// The tally of a point that was never touched; adds nothing to another.
    pub(crate) const NONE: Self = Self { last: 0, hits: 1, marked: None };

    /// The sum of both, as if one flowed into the other.
    pub(crate) fn joined(self, other: Self) -> Self {
        Self {
            last: self.last.max(other.last),
            hits: self.hits + other.hits - 1,
            marked: match (self.marked, other.marked) {
                (Some(own), Some(other)) => Some(own.joined(other)),
                (own, other) => own.or(other),
            },
        }
    }
}

impl Statistics {
    pub(crate) fn stamped(now: u64) -> Self {
        Self { last: AtomicU64::new(now), hits: AtomicU32::new(1), depth: 0 }
    }

    /// Counts a use at `now`.
    #[inline]
    pub(crate) fn touch(&self, now: u64) {
        self.stamp(now);
        self.count();
    }

    /// Counts a use without its time.
    #[inline]
    pub(crate) fn count(&self) {
        // Relaxed: a count; the release of the lease publishes it to the evictor (word.rs, E3).
        if self.hits.fetch_add(1, Relaxed) as i32 >= MOST_HITS {
            self.move_on();
        }
    }

    /// Sets the time of the last use without counting one; writes only if the time grows.
    #[inline]
    pub(crate) fn stamp(&self, now: u64) {
        // Relaxed: as the count. Of two racing stamps the earlier may stay; they differ by a few
        // instructions.
        if self.last.load(Relaxed) < now {
            self.last.store(now, Relaxed);
        }
    }

    /// Takes a use back, because its request continues to a deeper point.
    pub(crate) fn move_on(&self) {
        // Relaxed: as the count.
        self.hits.fetch_sub(1, Relaxed);
    }

    fn take_in(&self, tally: Tally) {
        // Relaxed: only the evictor moves statistics and ranks by them; touches race with it as
        // they do with each other.
        if tally.last > self.last.load(Relaxed) {
            self.last.fetch_max(tally.last, Relaxed);
        }
        if tally.hits != 1 {
            let room = i64::from(MOST_HITS) - self.signed_hits();
            self.hits.fetch_add((tally.hits - 1).min(room) as u32, Relaxed);
        }
    }

    /// Moves everything that was counted here, on a stripe of a closed slot, to `other`. Nothing is
    /// counted here meanwhile.
    pub(crate) fn flow_to(&self, other: &Self) {
        // Relaxed: the stripes were summed before (hot.rs, E13).
        other.take_in(self.tally());
        self.last.store(Tally::NONE.last, Relaxed);
        self.hits.store(Tally::NONE.hits as u32, Relaxed);
    }

    pub(super) fn tally(&self) -> Tally {
        Tally { last: self.last(), hits: self.signed_hits(), marked: None }
    }

    fn signed_hits(&self) -> i64 {
        // Relaxed, here and below: the evictor has the edge of the change (word.rs, E3).
        i64::from(self.hits.load(Relaxed) as i32)
    }

    pub(crate) fn hits(&self) -> u64 {
        self.signed_hits().max(0) as u64
    }

    pub(crate) fn last(&self) -> u64 {
        self.last.load(Relaxed)
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle, radixkv_chaos))))]
mod tests;
