//! What [`PrefixCache::validate`](crate::PrefixCache::validate) reports: the first broken invariant of a cache, with the
//! place and the numbers.
//!
//! `validate` compares everything that the cache keeps twice: the tree with its own links and lengths, every cached
//! block with the pool (a block is free, reserved or cached in one place), and the evictor's counts, candidates and
//! deadlines with the tree.
//!
//! **When to call it.** In tests, after the threads have stopped; and in an engine at rest, when a wrong answer is
//! suspected. While other threads use the cache, a change that is half done may be reported as a violation.
//!
//! **Cost.** It walks the whole index and holds the evictor's lock meanwhile: time and memory are linear in cached
//! blocks, runs and points. It repairs nothing and changes nothing but what [`settle`](crate::PrefixCache::settle)
//! would.
//!
//! **What a violation means.** A bug of this crate, or memory that something else wrote over. Report it, and build a
//! new cache: no verb repairs one.
//!
//! # Examples
//!
//! ```
//! use radixkv::PrefixCache;
//! use radixkv::diagnostics::Violation;
//!
//! let cache = PrefixCache::builder(16, 64).build()?;
//! match cache.validate() {
//!     Ok(()) => {}
//!     Err(Violation::BlockTwice { run, block }) => eprintln!("block {block} is cached twice, again by {run}"),
//!     Err(violation) => eprintln!("{violation}"),
//! }
//! # Ok::<_, radixkv::BuildError>(())
//! ```

use std::fmt;

use crate::block::BlockId;
use crate::key::Token;
use crate::reclaim::Ref;
use crate::tree::Run;

/// Names a run by where it starts and its first token: two runs that hang on one point never begin with the same token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunAt {
    /// Depth of its first token from the namespace's root.
    pub start: usize,
    /// Its first token; 0 for the run of length 0 that carries a root.
    pub first: Token,
}

/// Names a point by its run and its depth there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PointAt {
    /// The run that it stands on.
    pub run: RunAt,
    /// Depth on that run, in tokens.
    pub depth: u32,
}

/// A number that the evictor keeps, and the number that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatch {
    /// What the evictor has on record.
    pub recorded: usize,
    /// What was counted one by one.
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
    /// `Ok` if both are the same, else the violation.
    pub(in crate::cache) fn settle(self, violation: impl FnOnce(Self) -> Violation) -> Result<(), Violation> {
        if self.recorded == self.found { Ok(()) } else { Err(violation(self)) }
    }
}

impl fmt::Display for RunAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the run from {} on with first token {}", self.start, self.first)
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

/// A broken invariant of a cache: a bug of this crate, or memory that something else wrote over. Report it, and build a
/// new cache. The reference has a violation of its own.
///
/// # Examples
///
/// ```
/// use radixkv::diagnostics::Violation;
///
/// /// What a bug report needs: the sentence for a person, and the variant with its numbers.
/// fn report(violation: Violation) -> String {
///     format!("{violation} ({violation:?})")
/// }
/// let violation = Violation::VacantSlot { slot: 7 };
/// assert!(report(violation).starts_with("slot 7 is noted as vacant twice"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The evictor's queue holds entries after it was drained.
    QueueNotEmpty,
    /// The evictor left work behind.
    Unfinished {
        /// Points that it had not ranked again.
        points: usize,
        /// Blocks that it had not given back to the pool.
        blocks: usize,
    },
    /// A namespace's tree is marked as detached.
    NamespaceDetached,
    /// A tree in the list of detached ones is not marked as detached.
    SpaceNotDetached,
    /// A tree has no trunk, or its trunk does not hold its root.
    NoRoot,
    /// The end of a run in a detached tree, or the root of the tree, has no lease and no child and is still there.
    IdleInDetached(PointAt),
    /// The end of a run lies beyond an invalidated block, has no lease and no child, and is still there.
    IdleHidden(PointAt),
    /// A run of which a part is hidden is not in the evictor's list of them, or the reverse.
    HiddenRun(RunAt),
    /// The evictor's list of runs of which a part is hidden names others than there are.
    HiddenCount(Mismatch),
    /// A dead point was not unlinked.
    DeadPoint(PointAt),
    /// A point is still marked as new: no thread has proved that it lies on its run.
    NewPoint(PointAt),
    /// A point is marked as queued and is not in the queue.
    QueuedPoint(PointAt),
    /// A point is marked as hot, but its slot belongs to another point or is idle; or it has a slot but no mark.
    HotPoint(PointAt),
    /// A point's own link names another run than the one it stands on.
    PointOnOtherRun(PointAt),
    /// A point stands before its run's first token or beyond its end.
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
    /// No run hangs on a point inside a block.
    StrayBranch(PointAt),
    /// A point counts more or fewer child runs than hang on it.
    ChildCount {
        /// The point.
        point: PointAt,
        /// The number in its word.
        counted: u64,
        /// The runs that hang on it, plus the permanent child of a root.
        hanging: u64,
    },
    /// A run that hangs on a point begins with the token that continues the point's own run.
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
    /// A run does not hold one block for each block boundary that its tokens pass.
    BlockCount {
        /// The run.
        run: RunAt,
        /// Blocks that it holds.
        blocks: usize,
        /// Boundaries that it passes.
        expected: usize,
    },
    /// A run stands under another token than its first one.
    FirstToken {
        /// The run, by the token that it stands under.
        run: RunAt,
        /// The first of its tokens.
        token: Token,
    },
    /// A run is not found by its first token.
    RunMisplaced(RunAt),
    /// A run's own link names another parent than the point it hangs on.
    WrongParent(RunAt),
    /// A run does not start where its parent point ends.
    WrongStart {
        /// The run.
        run: RunAt,
        /// Depth of the parent point from the namespace's root.
        end: usize,
    },
    /// A run's own link names another tree than the one it hangs in.
    WrongSpace(RunAt),
    /// The pool's bitmap has free blocks that do not exist.
    BitsBeyond {
        /// Bits that are set beyond the last block.
        bits: usize,
        /// Blocks of the pool.
        capacity: usize,
    },
    /// The pool counts more or fewer free blocks than its bitmap holds.
    FreeCount {
        /// The count.
        counted: usize,
        /// Bits that are set.
        set: usize,
    },
    /// A block of an external pool is marked twice: as one that the engine has, and as one that it is to take back.
    FreeTwice {
        /// The block.
        block: BlockId,
    },
    /// Free and cached blocks are more than there are.
    Conservation {
        /// Free blocks.
        free: usize,
        /// Cached and not protected, on record.
        evictable: usize,
        /// Cached and protected, on record.
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
    /// A block is cached in two places.
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
    /// A run is not in the accounts.
    RunUnregistered(RunAt),
    /// The evictor does not know a point.
    PointUnknown(PointAt),
    /// The evictor's list of a run's points is not the points of the run by depth.
    PointList {
        /// The run.
        run: RunAt,
        /// Points on the list.
        listed: usize,
        /// Points that should be.
        live: usize,
    },
    /// The evictor counts a point as leased and it is not, or the other way round.
    LeaseAccount {
        /// The point.
        point: PointAt,
        /// Leases that it holds.
        leases: u64,
    },
    /// The evictor counts more or fewer active child runs of a point than it has.
    ActiveChildren(PointAt, Mismatch),
    /// The evictor does not count a run as protected up to its deepest active point.
    ProtectedDepth {
        /// The run.
        run: RunAt,
        /// Depth on record.
        recorded: u32,
        /// Depth of its deepest active point.
        deepest: u32,
    },
    /// Runs of one tree.
    SpaceRuns(Mismatch),
    /// Cached blocks of one namespace.
    NamespaceCached(Mismatch),
    /// Protected blocks of one namespace.
    NamespaceProtected(Mismatch),
    /// A namespace has candidates and more blocks cached than its quota, and the evictor has not noted it.
    QuotaMissed {
        /// Blocks cached.
        cached: usize,
        /// Blocks too many.
        excess: usize,
    },
    /// Evictable blocks.
    EvictableTotal(Mismatch),
    /// Protected blocks.
    ProtectedTotal(Mismatch),
    /// Runs of all trees.
    RunTotal(Mismatch),
    /// Points of all trees.
    PointTotal(Mismatch),
    /// The blocks that were inserted are not those that are cached and those that have gone.
    Flow {
        /// Blocks inserted.
        inserted: u64,
        /// Blocks that were evicted, dropped for their age, or cleared.
        gone: u64,
        /// Blocks cached now.
        cached: usize,
    },
    /// An idle end of a run is not filed with the policy.
    NotFiled(PointAt),
    /// A point is filed with the policy, but is not the idle end of a run.
    WronglyFiled(PointAt),
    /// A point's slot does not lead back to it.
    WrongSlot {
        /// The point.
        point: PointAt,
        /// Its slot.
        slot: usize,
    },
    /// A point is not filed under its present standing.
    StaleStanding(PointAt),
    /// A point's slot has been moved to the incoming policy, and is not filed there under its present standing.
    NotMoved(PointAt),
    /// A candidate is not filed under its last use.
    NotAging(PointAt),
    /// The policy's structure is broken.
    UnsoundPolicy,
    /// Candidates that the policy holds.
    FiledCount(Mismatch),
    /// Candidates that the incoming policy holds.
    MovedCount(Mismatch),
    /// Candidates in the order by last use.
    AgingCount(Mismatch),
    /// Slots that lead to a point.
    SlotCount(Mismatch),
    /// A slot is noted as vacant twice, or while it is taken.
    VacantSlot {
        /// The slot.
        slot: usize,
    },
    /// Slots noted as vacant.
    VacantCount(Mismatch),
    /// Retentions that sessions asked for were not taken in.
    NotesLeft {
        /// Notes waiting.
        notes: usize,
    },
    /// The evictor has recorded a wrong time for the next change of a candidate's rank.
    WrongMoment(PointAt),
    /// Candidates whose standing time alone will change.
    MomentCount(Mismatch),
    /// The evictor's list of future rank changes contradicts itself.
    UnsoundMoments,
    /// A point is recorded as retained, but has no lease or is in a detached tree.
    NotRetained(PointAt),
    /// Points recorded as retained.
    RetainedCount(Mismatch),
    /// The record of what is retained contradicts itself.
    UnsoundRetained,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::QueueNotEmpty => f.write_str("the queue is not empty after it was drained"),
            Self::Unfinished { points, blocks } => {
                write!(f, "the evictor left {points} points unranked and {blocks} blocks not given back")
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
                    "a namespace has {cached} blocks, {excess} more than its quota, and the evictor has not noted it"
                )
            }
            Self::SpaceRuns(counts) => write!(f, "runs of one tree: {counts}"),
            Self::HiddenCount(counts) => write!(f, "runs of which a part is hidden: {counts}"),
            Self::RunTotal(counts) => write!(f, "runs: {counts}"),
            Self::PointTotal(counts) => write!(f, "points: {counts}"),
            Self::Flow { inserted, gone, cached } => {
                write!(f, "{cached} blocks are cached and {gone} have gone of {inserted} inserted")
            }
            Self::UnsoundPolicy => f.write_str("the policy's structure is broken"),
            Self::FiledCount(counts) => write!(f, "candidates filed with the policy: {counts}"),
            Self::MovedCount(counts) => write!(f, "candidates filed with the incoming policy: {counts}"),
            Self::AgingCount(counts) => write!(f, "candidates ordered by last use: {counts}"),
            Self::SlotCount(counts) => write!(f, "slots that lead to a candidate: {counts}"),
            Self::VacantSlot { slot } => write!(f, "slot {slot} is noted as vacant twice, or while it is taken"),
            Self::VacantCount(counts) => write!(f, "vacant slots: {counts}"),
            Self::NotesLeft { notes } => write!(f, "{notes} requests to retain a prefix were not taken in"),
            Self::MomentCount(counts) => write!(f, "candidates on the list of future rank changes: {counts}"),
            Self::UnsoundMoments => f.write_str("the evictor's list of future rank changes contradicts itself"),
            Self::RetainedCount(counts) => write!(f, "retained points: {counts}"),
            Self::UnsoundRetained => f.write_str("the record of retained points contradicts itself"),
            _ => self.fmt_point(f),
        }
    }
}

impl Violation {
    /// What concerns one point.
    fn fmt_point(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IdleInDetached(point) => {
                write!(f, "{point} of a detached tree has no lease and no child, and was not freed")
            }
            Self::IdleHidden(point) => {
                write!(f, "{point} lies beyond an invalidated block, has no lease and no child, and was not freed")
            }
            Self::DeadPoint(point) => write!(f, "{point} is dead and still linked"),
            Self::NewPoint(point) => write!(f, "{point} was never proved"),
            Self::QueuedPoint(point) => write!(f, "{point} is marked as queued and is not in the queue"),
            Self::HotPoint(point) => write!(f, "{point} and its slot for hot points disagree"),
            Self::PointOnOtherRun(point) => write!(f, "{point} names another run"),
            Self::PointOutside { point, len } => write!(f, "{point} lies outside the run's length of {len}"),
            Self::PointMisplaced(point) => write!(f, "{point} is not found by its depth"),
            Self::LeasedInBlock { point, leases } => write!(f, "{point} holds {leases} leases inside a block"),
            Self::StrayBranch(point) => write!(f, "{point} lies inside a block and no run hangs on it"),
            Self::ChildCount { point, counted, hanging } => {
                write!(f, "{point} counts {counted} child runs, {hanging} hang on it")
            }
            Self::SameToken(point, token) => {
                write!(f, "{point} has a child run that begins with the run's own next token {token}")
            }
            Self::PointUnknown(point) => write!(f, "{point} is not known to the evictor"),
            Self::LeaseAccount { point, leases } => {
                write!(f, "{point} has {leases} leases, the evictor counts it otherwise")
            }
            Self::ActiveChildren(point, counts) => write!(f, "active child runs of {point}: {counts}"),
            Self::NotFiled(point) => write!(f, "{point} is a candidate and is not filed"),
            Self::WronglyFiled(point) => write!(f, "{point} is filed and is no candidate"),
            Self::WrongSlot { point, slot } => write!(f, "{point} has slot {slot}, which does not lead to it"),
            Self::WrongMoment(point) => write!(f, "{point} is on the list of future rank changes with a wrong time"),
            Self::NotRetained(point) => {
                write!(f, "{point} is recorded as retained, but has no lease or is in a detached tree")
            }
            Self::StaleStanding(point) => write!(f, "{point} is not filed under its present standing"),
            Self::NotAging(point) => write!(f, "{point} is not filed under its last use"),
            Self::NotMoved(point) => write!(f, "{point} is not filed with the incoming policy"),
            _ => self.fmt_run(f),
        }
    }

    /// What concerns one run, its blocks or the pool.
    fn fmt_run(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoEnd { run, len } => write!(f, "{run} does not end in a point at depth {len}"),
            Self::HiddenRun(run) => write!(f, "{run} is hidden in part and not listed as such, or the reverse"),
            Self::EmptyRun(run) => write!(f, "{run} has length 0 and is still linked"),
            Self::TokensMissing { run, len, tokens } => {
                write!(f, "{run} has length {len} and holds {tokens} tokens")
            }
            Self::BlockCount { run, blocks, expected } => {
                write!(f, "{run} holds {blocks} blocks for {expected} boundaries")
            }
            Self::FirstToken { run, token } => write!(f, "{run} begins with token {token}"),
            Self::RunMisplaced(run) => write!(f, "{run} is not found by its first token"),
            Self::WrongParent(run) => write!(f, "{run} names another parent"),
            Self::WrongStart { run, end } => write!(f, "{run} hangs on a point that ends at {end}"),
            Self::WrongSpace(run) => write!(f, "{run} names another tree"),
            Self::RunUnregistered(run) => write!(f, "{run} is not in the accounts"),
            Self::PointList { run, listed, live } => {
                write!(f, "{run} has {live} points and a list of {listed} that is not theirs by depth")
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
                write!(f, "{bits} blocks are free beyond a capacity of {capacity}")
            }
            Self::FreeCount { counted, set } => write!(f, "{counted} free blocks counted, {set} marked"),
            Self::FreeTwice { block } => {
                write!(f, "block {block} is marked twice: as held by the engine, and as waiting for take_evicted")
            }
            Self::Conservation { free, evictable, protected, capacity } => write!(
                f,
                "{free} free, {evictable} evictable and {protected} protected blocks exceed a capacity of {capacity}"
            ),
            _ => unreachable!("named above"),
        }
    }
}

impl std::error::Error for Violation {}

/// `Ok` if it holds, else `violation`.
pub(in crate::cache) fn ensure(holds: bool, violation: impl FnOnce() -> Violation) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(violation()) }
}
