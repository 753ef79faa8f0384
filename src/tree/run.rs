//! A run: an edge of the tree with the tokens and blocks of a part of one inserted sequence.
//!
//! The parent point, the start and the tokens never change. The length falls when eviction trims
//! the run. It rises when tokens are appended in place (growth.rs), but never after it has fallen.
//! At length zero the run is dead and stays dead.
//!
//! # The run word
//!
//! `version:32 | length:32`. A thread that creates a point, or leases one that is still `NEW`, must
//! prove it: it bumps the version and checks the point's depth against the length that the bump
//! returned. The trimmer (one at a time) loads the word, kills idle points from the end, and swaps
//! the length against the loaded word. If a bump came in between, the swap fails and the trimmer
//! looks again. So either the trimmer's scan sees the point, or the creator sees the shorter
//! length.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E6 | `bump` after publishing the point | the trimmer's `word` load and failed `shorten` | the scan sees the point |
//! | E7 | `shorten` | `bump`, `word` | a thread that sees the shorter length sees the points dead (margin) |
//! | E22 | `lengthen` | `bump`, the `word` load | a thread that sees the longer length sees the tokens (margin for leases, which come through the points' map, E1) |
//! | E23 | `bump` after counting a child | `word` load before the look at the children, failed `lengthen` | a run does not grow beside a child with the same token |
#![allow(unsafe_code)]

use std::num::NonZeroU32;
use std::ops::Range;
use std::{iter, ptr};

use crate::block::{BlockId, BlockLayout};
use crate::key::Token;
use crate::reclaim::{Canary, Guard, Link, Node, Own, Ref};
use crate::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::{OwnerCell, prefetch};

use super::arrays::{Arrays, Room};
use super::known::KnownPoints;
use super::map::Keyed;
use super::pieces::Pieces;
use super::point::Point;
use super::points::Points;
use super::shard::ShardId;
use super::space::Space;
use super::word::Word;

const BUMP: u64 = 1 << if cfg!(radixkv_tiny) { 62 } else { 32 };
const LENGTH: u64 = (1 << 32) - 1;

/// Bytes of a run's arrays that are prefetched when a walk enters it.
const AHEAD: usize = 512;

/// If a trim leaves at least one in this many tokens of the arrays unused, the arrays are copied
/// into smaller ones.
const SLACK: usize = 4;

/// An edge of the tree, or the *trunk* of a namespace: a run without tokens whose only point is the
/// root.
///
/// It fills two cache lines of its own; the fields that lookups read come first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Run {
    word: AtomicU64,
    arrays: AtomicPtr<Arrays>,
    /// The points on the run by depth, including its end.
    pub(crate) points: Points,
    /// The point that the run is attached to. Its count of children, which includes this run, keeps
    /// it alive. `None` for a trunk.
    parent: Option<Link<Point>>,
    /// Kept alive until the last run of the space is freed.
    space: Link<Space>,
    shard: ShardId,
    start: u32,
    first: Token,
    born: u64,
    /// Fingerprint of the run's first block.
    fingerprint: u64,
    /// The evictor's data on the run.
    pub(crate) account: OwnerCell<RunAccount>,
    canary: Canary,
}

#[cfg(not(any(radixkv_loom, radixkv_shuttle, radixkv_chaos)))]
const _: () = assert!(size_of::<Run>() == 2 * 64);

/// The evictor's data on a run.
#[derive(Debug, Default)]
pub(crate) struct RunAccount {
    /// Depth up to which the run's blocks are in the accounts; until the run is registered, the
    /// length with which it was published.
    pub(crate) len: u32,
    /// The pieces appended in place that are in the accounts.
    pub(crate) pieces: Pieces,
    /// Number of the run among the runs and pieces of its shard, in the order of insertion. Among
    /// equal ranks in a shard the smallest serial is evicted first.
    pub(crate) serial: u64,
    /// Number of runs and pieces from the trunk to this run, both included. `None` until the run is
    /// in the accounts.
    pub(crate) level: Option<NonZeroU32>,
    /// Depth of the run's deepest active point, or zero if it has none.
    pub(crate) protected: u32,
    /// Blocks of the run that are charged to reservations of its namespace until it is registered.
    pub(crate) charged: u32,
    /// The points of the run that the evictor knows.
    pub(crate) points: KnownPoints,
}

impl RunAccount {
    #[inline]
    pub(crate) fn is_registered(&self) -> bool {
        self.level.is_some()
    }

    /// The parts in which the run was inserted: the serial and the depths of each. The part that
    /// the run was published with comes first.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u64, Range<u32>)> {
        let starts = self.pieces.starts().map(|(start, _)| start);
        let serials = self.pieces.starts().map(|(_, serial)| serial);
        let ends = starts.clone().chain([self.len]);
        let at = iter::once(0).chain(starts).zip(ends).map(|(start, end)| start..end);
        iter::once(self.serial).chain(serials).zip(at)
    }

    /// Number of runs and pieces from the trunk to the one that ends at `depth`, both included.
    #[inline]
    pub(crate) fn level_at(&self, depth: u32) -> Option<NonZeroU32> {
        self.level.map(|level| level.saturating_add(self.pieces.up_to(depth)))
    }
}

/// The run word at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunWord(u64);

impl RunWord {
    #[inline]
    pub(crate) fn len(self) -> u32 {
        (self.0 & LENGTH) as u32
    }

    /// The same version with another length.
    fn with_len(self, len: u32) -> Self {
        Self((self.0 & !LENGTH) | u64::from(len))
    }
}

/// The place and the attributes of a new run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning<'g> {
    pub(crate) parent: Ref<'g, Point>,
    /// Depth from the namespace's root, in tokens.
    pub(crate) start: usize,
    /// Time of the insert.
    pub(crate) born: u64,
    /// Fingerprint of its first block.
    pub(crate) fingerprint: u64,
    /// How many of its blocks were charged to a reservation of its namespace.
    pub(crate) charged: u32,
    /// Room to append in place, if more is likely to follow.
    pub(crate) room: Option<Room>,
    pub(crate) shard: ShardId,
}

impl Run {
    /// Makes a run with its end point, which has one lease and is marked as queued.
    pub(crate) fn new<'g>(
        at: Beginning<'g>,
        tokens: &[Token],
        blocks: &[BlockId],
        guard: &'g Guard<'g>,
    ) -> Own<'g, Self> {
        let len = tokens.len() as u32;
        let run = Self {
            word: AtomicU64::new(tokens.len() as u64),
            arrays: AtomicPtr::new(ptr::null_mut()),
            points: Points::new(),
            parent: Some(at.parent.link()),
            space: at.parent.run().space,
            born: at.born,
            fingerprint: at.fingerprint,
            start: at.start as u32,
            first: tokens[0],
            shard: at.shard,
            account: OwnerCell::new(RunAccount { charged: at.charged, len, ..RunAccount::default() }),
            canary: Canary::new(),
        };
        let run = Own::new(run, guard);
        run.points.begin_with(Point::new(run.as_ref().link(), len, Word::end_of_new_run(), at.born, guard));
        // Allocated last: this memory is cold, so every later write would wait for it.
        let arrays = match at.room {
            Some(room) => Arrays::with_room(room, tokens, blocks, guard),
            None => Arrays::allocate(tokens, blocks, guard),
        };
        // Relaxed: ordered by the publication of the run.
        run.arrays.store(arrays.publish().as_ptr(), Relaxed);
        run
    }

    /// Makes the trunk of `space`, with the root.
    pub(crate) fn trunk<'g>(space: Link<Space>, guard: &'g Guard<'g>) -> Own<'g, Self> {
        let run = Self {
            word: AtomicU64::new(0),
            arrays: AtomicPtr::new(Arrays::allocate(&[], &[], guard).publish().as_ptr()),
            points: Points::new(),
            parent: None,
            space,
            born: 0,
            fingerprint: 0,
            start: 0,
            first: 0,
            shard: ShardId::FIRST,
            account: OwnerCell::new(RunAccount { level: Some(NonZeroU32::MIN), ..RunAccount::default() }),
            canary: Canary::new(),
        };
        let run = Own::new(run, guard);
        run.points.begin_with(Point::root(run.as_ref().link(), guard));
        run
    }

    /// Frees a run that was not published, and its end point.
    pub(crate) fn discard<'g>(run: Own<'g, Self>, guard: &'g Guard<'g>) {
        let unpublished = run.as_ref();
        let mut end = None;
        unpublished.as_ref().points.for_each(guard, &mut |point| end = Some(point));
        if let Some(end) = end {
            unpublished.as_ref().points.remove(end, guard);
            guard.retire(end);
        }
        unpublished.retire_arrays(guard);
    }

    /// Depth of its first token from the namespace's root.
    #[inline]
    pub(crate) fn start(&self) -> usize {
        self.start as usize
    }

    /// The shard whose evictor the run belongs to.
    #[inline]
    pub(crate) fn shard(&self) -> ShardId {
        self.shard
    }

    pub(crate) fn first(&self) -> Token {
        self.first
    }

    pub(crate) fn born(&self) -> u64 {
        self.born
    }

    /// The fingerprint of its first block.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(crate) fn is_trunk(&self) -> bool {
        self.parent.is_none()
    }

    /// The run word.
    #[inline]
    pub(crate) fn word(&self) -> RunWord {
        // Acquire: E6 and E23 for the thread that changes the length, E7 and E22 for every thread.
        RunWord(self.word.load(Acquire))
    }

    /// Announces a published point that needs its proof, or a counted child. Returns the word
    /// before.
    pub(crate) fn bump(&self) -> RunWord {
        // Release: E6, E23. Acquire: E22, and E7, which is margin: a thread that finds a dead point
        // afterwards leases it by a read-modify-write, which sees the newest word.
        RunWord(self.word.fetch_add(BUMP, AcqRel))
    }

    /// Makes the run end at `len`, unless another thread bumped it since `seen`.
    ///
    /// # Errors
    ///
    /// The present word. The trimmer then looks at the points again.
    pub(crate) fn shorten(&self, seen: RunWord, len: u32) -> Result<(), RunWord> {
        // Release: E7; see `bump`. Acquire: E6 on failure; on success the load of `seen` already
        // acquired it.
        match self.word.compare_exchange(seen.0, seen.with_len(len).0, AcqRel, Acquire) {
            Ok(_) => Ok(()),
            Err(found) => Err(RunWord(found)),
        }
    }

    /// Lengthens the run to end at `len`, unless another thread bumped it since `seen`.
    ///
    /// # Errors
    ///
    /// The present word. The appender then looks at the children again.
    pub(crate) fn lengthen(&self, seen: RunWord, len: u32) -> Result<(), RunWord> {
        let longer = seen.with_len(len).0.wrapping_add(BUMP);
        // Release: E22. Acquire: E23 on failure; on success the load of `seen` already acquired it.
        match self.word.compare_exchange(seen.0, longer, AcqRel, Acquire) {
            Ok(_) => Ok(()),
            Err(found) => Err(RunWord(found)),
        }
    }

    /// Number of the run's blocks that end at or before `depth`. A block belongs to the run that
    /// has its last token.
    #[inline]
    pub(crate) fn blocks_to(&self, depth: u32, layout: BlockLayout) -> usize {
        if depth == 0 {
            return 0;
        }
        let start = self.start();
        layout.blocks(start + depth as usize) - layout.blocks(start)
    }

    /// Replaces the run's arrays.
    #[cfg(test)]
    pub(crate) fn replace_arrays<'g>(&'g self, tokens: &[Token], blocks: &[BlockId], guard: &'g Guard<'g>) {
        let new = Arrays::allocate(tokens, blocks, guard).publish();
        // Release: as `shrink`.
        self.arrays.store(new.as_ptr(), Release);
    }

    /// Copies the arrays into smaller ones, without room to grow, if a trim to `len` leaves too
    /// much of them unused. Returns the old arrays. The trimmer calls it after it has shortened the
    /// run.
    #[must_use = "the old arrays must be retired"]
    pub(crate) fn shrink<'g>(&'g self, len: u32, layout: BlockLayout, guard: &'g Guard<'g>) -> Option<Ref<'g, Arrays>> {
        // Relaxed: only the evictor replaces them, and it reached the run by E1, which orders the
        // first ones.
        let old = Ref::from_ptr(self.arrays.load(Relaxed), guard)?;
        let keep = len as usize;
        let room = old.room().tokens as usize;
        if len == 0 || room - keep < room.div_ceil(SLACK) {
            return None;
        }
        let blocks = &old.blocks()[..self.blocks_to(len, layout)];
        let new = Arrays::allocate(&old.tokens()[..keep], blocks, guard).publish();
        new.show(old.shown());
        // Release: a reader finds the copy initialised. Readers use the shorter of the arrays and
        // the run's length.
        self.arrays.store(new.as_ptr(), Release);
        Some(old)
    }
}

impl<'g> Ref<'g, Run> {
    /// The point that the run is attached to; counting this run as a child keeps it alive.
    #[inline]
    pub(crate) fn parent(self) -> Option<Ref<'g, Point>> {
        let run = self.as_ref();
        run.parent.map(|parent| parent.get(run))
    }

    #[inline]
    pub(crate) fn space(self) -> Ref<'g, Space> {
        let run = self.as_ref();
        run.space.get(run)
    }

    /// The arrays as they are now: at least as long as the run.
    #[inline]
    pub(crate) fn arrays(self, guard: &'g Guard<'_>) -> Option<Ref<'g, Arrays>> {
        // Acquire: pairs with the store in `shrink`; for the first arrays, with the map's E1.
        Ref::from_ptr(self.arrays.load(Acquire), guard)
    }

    /// Prefetches the data that a walk reads next in a cold run: the beginning of its arrays, and
    /// its end point if the run has no other.
    #[inline]
    pub(crate) fn prefetch(self) {
        // Models have nothing to prefetch, and would explore the loads.
        if cfg!(not(any(radixkv_loom, radixkv_shuttle))) {
            // Relaxed, here and in `points`: hints.
            prefetch(self.arrays.load(Relaxed).cast::<[u64; AHEAD / size_of::<u64>()]>());
            self.as_ref().points.prefetch();
        }
    }

    /// Depth up to which walks compare: less than the length if blocks were invalidated.
    #[inline]
    pub(crate) fn shown(self, guard: &'g Guard<'_>) -> u32 {
        self.arrays(guard).map_or(0, |arrays| arrays.shown())
    }

    /// Limits walks to the tokens before `depth`. Only the evictor calls it.
    pub(crate) fn show(self, depth: u32, guard: &'g Guard<'_>) {
        if let Some(arrays) = self.arrays(guard) {
            arrays.show(depth);
        }
    }

    /// The present tokens, for comparison. They prove nothing: only a lease does.
    #[inline]
    pub(crate) fn tokens(self, guard: &'g Guard<'_>) -> &'g [Token] {
        let len = self.word().len() as usize;
        self.arrays(guard).map_or(&[], |arrays| arrays.shown_tokens(len))
    }

    /// Retires the arrays of a run that is being retired.
    pub(crate) fn retire_arrays(self, guard: &Guard<'_>) {
        if let Some(arrays) = self.arrays(guard) {
            guard.retire(arrays);
        }
    }

    /// The block ids in the arrays; those below a leased depth are final.
    #[inline]
    pub(crate) fn block_ids(self, guard: &'g Guard<'_>) -> &'g [BlockId] {
        self.arrays(guard).map_or(&[][..], |arrays| arrays.blocks())
    }
}

// SAFETY: a run is a `Box`; dropping it frees its map's branches and follows no other pointer. Its
// arrays are separate nodes, freed beside it.
unsafe impl Node for Run {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.points.branch_bytes()
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }
}

impl Keyed for Run {
    fn key(&self) -> u32 {
        self.first
    }
}
