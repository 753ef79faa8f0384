//! The details of a [`Violation`](crate::Violation): which invariant of a cache does not hold,
//! where, and with which numbers (feature `diagnostics`).
//!
//! `validate` compares everything that the cache keeps twice: the tree with its own links and
//! lengths, every cached block with the pool (a block is free, reserved or cached in one place),
//! and the evictor's counts, candidates and deadlines with the tree.
//!
//! **When to call it.** In tests, after the threads have stopped; and in an engine at rest, when a
//! wrong answer is suspected. While other threads use the cache, a change that is half done may be
//! reported as a violation.
//!
//! **Cost.** It walks the whole index and holds the evictor's lock meanwhile: time and memory are
//! linear in cached blocks, runs and points. It changes only what
//! [`settle`](crate::PrefixCache::settle) would change.
//!
//! **What a violation means.** A bug of this crate, or memory that other code overwrote. Report it,
//! and build a new cache: no method repairs one.
//!
//! # Examples
//!
//! ```
//! # #[cfg(feature = "diagnostics")] {
//! use radixkv::PrefixCache;
//! use radixkv::diagnostics::BrokenInvariant;
//!
//! let cache = PrefixCache::builder(16, 64).build()?;
//! match cache.validate().map_err(|violation| violation.details()) {
//!     Ok(()) => {}
//!     Err(BrokenInvariant::BlockTwice { run, block }) => eprintln!("block {block} is cached twice, again by {run}"),
//!     Err(broken) => eprintln!("{broken}"),
//! }
//! # }
//! # Ok::<_, radixkv::BuildError>(())
//! ```

use std::fmt;

use crate::block::BlockId;
use crate::key::Token;
use crate::reclaim::Ref;
use crate::tree::Run;

/// Identifies a run by its start and its first token: no two child runs of a point begin with the
/// same token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunAt {
    /// Depth of its first token from the namespace's root.
    pub start: usize,
    /// Its first token; 0 for the run of length 0 that carries a root.
    pub first: Token,
}

/// Identifies a point by its run and its depth on that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PointAt {
    /// The run that the point is on.
    pub run: RunAt,
    /// Depth on that run, in tokens.
    pub depth: u32,
}

/// A count that the evictor keeps, and the count that validation found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatch {
    /// The count that the evictor keeps.
    pub recorded: usize,
    /// The count that validation found.
    pub found: usize,
}

impl RunAt {
    pub(in crate::cache) fn of(run: Ref<'_, Run>) -> Self {
        Self { start: run.start(), first: run.first() }
    }
}

impl PointAt {
    pub(in crate::cache) fn on(run: Ref<'_, Run>, depth: u32) -> Self {
        Self { run: RunAt::of(run), depth }
    }
}

impl Mismatch {
    /// `Ok` if both counts are equal, else the violation.
    pub(in crate::cache) fn settle(
        self,
        violation: impl FnOnce(Self) -> BrokenInvariant,
    ) -> Result<(), BrokenInvariant> {
        if self.recorded == self.found { Ok(()) } else { Err(violation(self)) }
    }
}

impl fmt::Display for RunAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the run that starts at {} with token {}", self.start, self.first)
    }
}

impl fmt::Display for PointAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the point at depth {} of {}", self.depth, self.run)
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} recorded, {} found", self.recorded, self.found)
    }
}

/// An invariant of a cache that does not hold; returned by
/// [`Violation::details`](crate::Violation::details).
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "diagnostics")] {
/// use radixkv::diagnostics::BrokenInvariant;
///
/// /// What a bug report needs: the sentence for a person, and the variant with its numbers.
/// fn report(broken: BrokenInvariant) -> String {
///     format!("{broken} ({broken:?})")
/// }
/// let broken = BrokenInvariant::VacantSlot { slot: 7 };
/// assert!(report(broken).starts_with("slot 7 is recorded as vacant twice"));
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokenInvariant {
    /// The evictor's queue holds entries after it was drained.
    QueueNotEmpty,
    /// The evictor left work behind.
    Unfinished {
        /// Points that were not ranked again.
        points: usize,
        /// Blocks that were not returned to the pool.
        blocks: usize,
    },
    /// A namespace's tree is marked as detached.
    NamespaceDetached,
    /// A tree in the list of detached ones is not marked as detached.
    SpaceNotDetached,
    /// A tree has no trunk, or its trunk does not hold its root.
    NoRoot,
    /// In a detached tree, the end of a run or the root has no lease and no child, and was not
    /// freed.
    IdleInDetached(PointAt),
    /// The end of a run is beyond an invalidated block, has no lease and no child, and was not
    /// freed.
    IdleHidden(PointAt),
    /// A partly invalidated run is not in the evictor's list of such runs, or the reverse.
    HiddenRun(RunAt),
    /// The length of the evictor's list of partly invalidated runs, or the number of them that the
    /// namespaces count, is wrong.
    HiddenCount(Mismatch),
    /// A dead point was not unlinked.
    DeadPoint(PointAt),
    /// A point is still marked as new: no thread has confirmed that it is on its run.
    NewPoint(PointAt),
    /// A point outside the queue is marked as queued, or a root in use is not.
    QueuedPoint(PointAt),
    /// A point is marked as hot, but its slot belongs to another point or is idle; or it has a slot
    /// but no mark.
    HotPoint(PointAt),
    /// A point's own link names another run than the one it is on.
    PointOnOtherRun(PointAt),
    /// A point is before its run's first token or beyond the run's end.
    PointOutside {
        /// The point.
        point: PointAt,
        /// Length of its run.
        len: u32,
    },
    /// A point is not found by its depth.
    PointMisplaced(PointAt),
    /// A lease is held inside a block.
    LeasedInBlock {
        /// The point.
        point: PointAt,
        /// Leases that it holds.
        leases: u64,
    },
    /// A point inside a block has no child run.
    StrayBranch(PointAt),
    /// A point's count of child runs differs from the number of its child runs.
    ChildCount {
        /// The point.
        point: PointAt,
        /// The number in its word.
        counted: u64,
        /// The child runs found, plus the permanent child of a root.
        hanging: u64,
    },
    /// A child run begins with the token that continues the point's own run.
    SameToken(PointAt, Token),
    /// A run does not end in a point.
    NoEnd {
        /// The run.
        run: RunAt,
        /// Its length.
        len: u32,
    },
    /// A run of length zero was not unlinked.
    EmptyRun(RunAt),
    /// A run is longer than its tokens.
    TokensMissing {
        /// The run.
        run: RunAt,
        /// Its length.
        len: u32,
        /// Tokens that it holds.
        tokens: usize,
    },
    /// A run does not hold one block for each block boundary within its tokens.
    BlockCount {
        /// The run.
        run: RunAt,
        /// Blocks that it holds.
        blocks: usize,
        /// Block boundaries within its tokens.
        expected: usize,
    },
    /// A run is indexed under another token than its first one.
    FirstToken {
        /// The run, with the token that it is indexed under.
        run: RunAt,
        /// The first of its tokens.
        token: Token,
    },
    /// A run is not found by its first token.
    RunMisplaced(RunAt),
    /// A run's own link names another parent than the point it is attached to.
    WrongParent(RunAt),
    /// A run does not start where its parent point ends.
    WrongStart {
        /// The run.
        run: RunAt,
        /// Depth of the parent point from the namespace's root.
        end: usize,
    },
    /// A run's own link names another tree than the one it is in.
    WrongSpace(RunAt),
    /// The pool's bitmap has free blocks that do not exist.
    BitsBeyond {
        /// Bits that are set beyond the last block.
        bits: usize,
        /// Blocks of the pool.
        capacity: usize,
    },
    /// The pool's count of free blocks differs from the bits set in its bitmap.
    FreeCount {
        /// The count.
        counted: usize,
        /// Bits that are set.
        set: usize,
    },
    /// A block of an external pool is marked both as held by the engine and as evicted.
    FreeTwice {
        /// The block.
        block: BlockId,
    },
    /// Free and cached blocks exceed the capacity.
    Conservation {
        /// Free blocks.
        free: usize,
        /// Evictable blocks, by the evictor's count.
        evictable: usize,
        /// Protected blocks, by the evictor's count.
        protected: usize,
        /// Blocks of the cache.
        capacity: usize,
    },
    /// A run holds a block that does not exist.
    BlockOutside {
        /// The run.
        run: RunAt,
        /// The block.
        block: BlockId,
        /// Blocks of the cache.
        capacity: usize,
    },
    /// A block is cached twice.
    BlockTwice {
        /// The second run that holds it.
        run: RunAt,
        /// The block.
        block: BlockId,
    },
    /// A cached block is free.
    BlockFree {
        /// The run that holds it.
        run: RunAt,
        /// The block.
        block: BlockId,
    },
    /// A run is not registered with the evictor.
    RunUnregistered(RunAt),
    /// The evictor does not know a point.
    PointUnknown(PointAt),
    /// The evictor's list of a run's points differs from the run's points in order of depth.
    PointList {
        /// The run.
        run: RunAt,
        /// Points on the list.
        listed: usize,
        /// Points of the run.
        live: usize,
    },
    /// The evictor counts an unleased point as leased, or a leased one as unleased.
    LeaseAccount {
        /// The point.
        point: PointAt,
        /// Leases that it holds.
        leases: u64,
    },
    /// The evictor's count of a point's active child runs is wrong.
    ActiveChildren(PointAt, Mismatch),
    /// The evictor's protected depth of a run is not the depth of the run's deepest active point.
    ProtectedDepth {
        /// The run.
        run: RunAt,
        /// The depth that the evictor keeps.
        recorded: u32,
        /// Depth of its deepest active point.
        deepest: u32,
    },
    /// The number of cached blocks of one namespace is wrong.
    NamespaceCached(Mismatch),
    /// The number of protected blocks of one namespace is wrong.
    NamespaceProtected(Mismatch),
    /// A namespace with candidates exceeds its quota, and the evictor has not recorded it.
    QuotaMissed {
        /// Blocks cached.
        cached: usize,
        /// Blocks beyond the quota.
        excess: usize,
    },
    /// The number of evictable blocks is wrong.
    EvictableTotal(Mismatch),
    /// The number of protected blocks is wrong.
    ProtectedTotal(Mismatch),
    /// The number of runs of all trees is wrong.
    RunTotal(Mismatch),
    /// The number of points of all trees is wrong.
    PointTotal(Mismatch),
    /// The inserted blocks are not the sum of the cached and the removed blocks.
    Flow {
        /// Blocks inserted.
        inserted: u64,
        /// Blocks that were removed, for any reason.
        gone: u64,
        /// Blocks cached now.
        cached: usize,
    },
    /// An idle end of a run is not a candidate of the policy.
    NotFiled(PointAt),
    /// A candidate of the policy is not the idle end of a run.
    WronglyFiled(PointAt),
    /// A point's slot does not lead back to it.
    WrongSlot {
        /// The point.
        point: PointAt,
        /// Its slot.
        slot: usize,
    },
    /// The policy ranks a point by outdated statistics.
    StaleStanding(PointAt),
    /// A point was moved to the incoming policy, which ranks it by outdated statistics.
    NotMoved(PointAt),
    /// A candidate's position in the order by last use does not match its last use.
    NotAging(PointAt),
    /// The policy's structure is broken.
    UnsoundPolicy,
    /// The number of the policy's candidates is wrong.
    FiledCount(Mismatch),
    /// The number of the incoming policy's candidates is wrong.
    MovedCount(Mismatch),
    /// The number of candidates in the order by last use is wrong.
    AgingCount(Mismatch),
    /// The number of slots that lead to a point is wrong.
    SlotCount(Mismatch),
    /// A slot is recorded as vacant twice, or while it is in use.
    VacantSlot {
        /// The slot.
        slot: usize,
    },
    /// The number of vacant slots is wrong.
    VacantCount(Mismatch),
    /// Retentions that sessions requested were not processed.
    NotesLeft {
        /// Unprocessed requests.
        notes: usize,
    },
    /// The evictor has recorded a wrong time for the next change of a candidate's rank.
    WrongMoment(PointAt),
    /// The number of candidates whose rank will change with time is wrong.
    MomentCount(Mismatch),
    /// The evictor's list of future rank changes contradicts itself.
    UnsoundMoments,
    /// A point is recorded as retained, but has no lease or is in a detached tree.
    NotRetained(PointAt),
    /// The number of retained points is wrong.
    RetainedCount(Mismatch),
    /// The record of retained points contradicts itself.
    UnsoundRetained,
}

impl fmt::Display for BrokenInvariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::QueueNotEmpty => f.write_str("the evictor's queue is not empty after it was drained"),
            Self::Unfinished { points, blocks } => {
                write!(f, "the evictor left {points} points unranked and did not return {blocks} blocks")
            }
            Self::NamespaceDetached => f.write_str("a namespace's tree is detached"),
            Self::SpaceNotDetached => f.write_str("a tree in the list of detached ones is not detached"),
            Self::NoRoot => f.write_str("a tree has no root on its trunk"),
            Self::EvictableTotal(counts) => write!(f, "evictable blocks: {counts}"),
            Self::ProtectedTotal(counts) => write!(f, "protected blocks: {counts}"),
            Self::NamespaceCached(counts) => write!(f, "cached blocks of one namespace: {counts}"),
            Self::NamespaceProtected(counts) => write!(f, "protected blocks of one namespace: {counts}"),
            Self::QuotaMissed { cached, excess } => {
                write!(
                    f,
                    "a namespace has {cached} blocks, {excess} beyond its quota, and the evictor has not recorded it"
                )
            }
            Self::HiddenCount(counts) => write!(f, "partly invalidated runs: {counts}"),
            Self::RunTotal(counts) => write!(f, "runs: {counts}"),
            Self::PointTotal(counts) => write!(f, "points: {counts}"),
            Self::Flow { inserted, gone, cached } => {
                write!(f, "{inserted} blocks were inserted, {cached} are cached and {gone} were removed")
            }
            Self::UnsoundPolicy => f.write_str("the policy's structure is broken"),
            Self::FiledCount(counts) => write!(f, "candidates of the policy: {counts}"),
            Self::MovedCount(counts) => write!(f, "candidates of the incoming policy: {counts}"),
            Self::AgingCount(counts) => write!(f, "candidates ordered by last use: {counts}"),
            Self::SlotCount(counts) => write!(f, "slots that lead to a candidate: {counts}"),
            Self::VacantSlot { slot } => write!(f, "slot {slot} is recorded as vacant twice, or while it is in use"),
            Self::VacantCount(counts) => write!(f, "vacant slots: {counts}"),
            Self::NotesLeft { notes } => write!(f, "{notes} requests to retain a prefix were not processed"),
            Self::MomentCount(counts) => write!(f, "candidates on the list of future rank changes: {counts}"),
            Self::UnsoundMoments => f.write_str("the evictor's list of future rank changes contradicts itself"),
            Self::RetainedCount(counts) => write!(f, "retained points: {counts}"),
            Self::UnsoundRetained => f.write_str("the record of retained points contradicts itself"),
            _ => self.fmt_point(f),
        }
    }
}

impl BrokenInvariant {
    /// Formats invariants that concern one point.
    fn fmt_point(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IdleInDetached(point) => {
                write!(f, "{point} of a detached tree has no lease and no child, and was not freed")
            }
            Self::IdleHidden(point) => {
                write!(f, "{point} is beyond an invalidated block, has no lease and no child, and was not freed")
            }
            Self::DeadPoint(point) => write!(f, "{point} is dead and still linked"),
            Self::NewPoint(point) => write!(f, "{point} was never confirmed to be on its run"),
            Self::QueuedPoint(point) => write!(f, "{point} is wrongly marked as queued, or is an unmarked root"),
            Self::HotPoint(point) => write!(f, "{point} and its slot for hot points disagree"),
            Self::PointOnOtherRun(point) => write!(f, "{point} links to another run"),
            Self::PointOutside { point, len } => write!(f, "{point} is outside the run's length of {len}"),
            Self::PointMisplaced(point) => write!(f, "{point} is not found by its depth"),
            Self::LeasedInBlock { point, leases } => write!(f, "{point} holds {leases} leases inside a block"),
            Self::StrayBranch(point) => write!(f, "{point} is inside a block and has no child run"),
            Self::ChildCount { point, counted, hanging } => {
                write!(f, "{point} counts {counted} child runs, {hanging} are attached to it")
            }
            Self::SameToken(point, token) => {
                write!(f, "{point} has a child run that begins with the run's own next token {token}")
            }
            Self::PointUnknown(point) => write!(f, "{point} is not known to the evictor"),
            Self::LeaseAccount { point, leases } => {
                write!(f, "{point} has {leases} leases, which the evictor's count contradicts")
            }
            Self::ActiveChildren(point, counts) => write!(f, "active child runs of {point}: {counts}"),
            Self::NotFiled(point) => write!(f, "{point} should be a candidate of the policy and is not"),
            Self::WronglyFiled(point) => write!(f, "{point} is a candidate of the policy and should not be"),
            Self::WrongSlot { point, slot } => write!(f, "{point} has slot {slot}, which does not lead to it"),
            Self::WrongMoment(point) => write!(f, "{point} is on the list of future rank changes with a wrong time"),
            Self::NotRetained(point) => {
                write!(f, "{point} is recorded as retained, but has no lease or is in a detached tree")
            }
            Self::StaleStanding(point) => write!(f, "the policy ranks {point} by outdated statistics"),
            Self::NotAging(point) => write!(f, "{point} is misplaced in the order by last use"),
            Self::NotMoved(point) => write!(f, "the incoming policy ranks {point} by outdated statistics"),
            _ => self.fmt_run(f),
        }
    }

    /// Formats invariants that concern one run, its blocks or the pool.
    fn fmt_run(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoEnd { run, len } => write!(f, "{run} does not end in a point at depth {len}"),
            Self::HiddenRun(run) => write!(f, "{run} is partly invalidated and not listed as such, or the reverse"),
            Self::EmptyRun(run) => write!(f, "{run} has length 0 and is still linked"),
            Self::TokensMissing { run, len, tokens } => {
                write!(f, "{run} has length {len} and holds {tokens} tokens")
            }
            Self::BlockCount { run, blocks, expected } => {
                write!(f, "{run} holds {blocks} blocks for {expected} block boundaries")
            }
            Self::FirstToken { run, token } => write!(f, "{run} begins with token {token}"),
            Self::RunMisplaced(run) => write!(f, "{run} is not found by its first token"),
            Self::WrongParent(run) => write!(f, "{run} links to another parent"),
            Self::WrongStart { run, end } => write!(f, "{run} is attached to a point that ends at {end}"),
            Self::WrongSpace(run) => write!(f, "{run} links to another tree"),
            Self::RunUnregistered(run) => write!(f, "{run} is not registered with the evictor"),
            Self::PointList { run, listed, live } => {
                write!(f, "{run} has {live} points, the evictor lists {listed}, or in another order")
            }
            Self::ProtectedDepth { run, recorded, deepest } => {
                write!(f, "{run} is counted as protected up to depth {recorded}, but is active up to {deepest}")
            }
            Self::BlockOutside { run, block, capacity } => {
                write!(f, "{run} holds block {block} of a cache of {capacity}")
            }
            Self::BlockTwice { run, block } => write!(f, "{run} holds block {block}, which is cached already"),
            Self::BlockFree { run, block } => write!(f, "{run} holds block {block}, which is free"),
            Self::BitsBeyond { bits, capacity } => {
                write!(f, "{bits} blocks beyond the capacity of {capacity} are marked as free")
            }
            Self::FreeCount { counted, set } => write!(f, "{counted} free blocks counted, {set} marked"),
            Self::FreeTwice { block } => {
                write!(f, "block {block} is marked both as held by the engine and as waiting for take_evicted")
            }
            Self::Conservation { free, evictable, protected, capacity } => write!(
                f,
                "{free} free, {evictable} evictable and {protected} protected blocks exceed the capacity of {capacity}"
            ),
            _ => unreachable!("named above"),
        }
    }
}

impl std::error::Error for BrokenInvariant {}

/// `Ok` if the invariant holds, else `violation`.
pub(in crate::cache) fn ensure(
    holds: bool,
    violation: impl FnOnce() -> BrokenInvariant,
) -> Result<(), BrokenInvariant> {
    if holds { Ok(()) } else { Err(violation()) }
}
