//! Insert: publishes one new run at a point with one compare-and-swap, or makes one run longer.
//!
//! An insert starts at a leased boundary and compares the tokens beyond it. It uses blocks that
//! other threads have published there meanwhile, and attaches the rest where the tokens diverge: at
//! a boundary, or at a new point inside a block. It never attaches a run behind tokens that it has
//! not compared.
//!
//! Of two inserts of one sequence one is published. The other returns the canonical blocks, and its
//! own blocks stay in its reservation. The lease on the parent point is given up only after the
//! child is counted.
//!
//! The memory for a new run's arrays is cold: it was last touched when its previous node was
//! evicted. So it is prefetched before the walk, and written last, after the run and its point:
//! later writes, and every read-modify-write, would wait for it.

use crate::block::{BlockId, BlockLayout};
use crate::key::Token;
use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::prefetch_to_write;

use super::arrays::Arrays;
use super::fingerprint::fingerprint;
use super::growth::{continues_with, count_child, discount_child, grow, may_grow_at, room};
use super::hot::StripeRef;
use super::lease::{HeldLease, LeaseContext, Refused, lease_again, lease_at, release};
use super::map::Place;
use super::point::Point;
use super::run::{Beginning, Run};
use super::shard::ShardId;
use super::walk::{Position, Reached, walk};

/// Maximum number of child runs of a point, far below the limit of its word.
const MAX_CHILDREN: u64 = if cfg!(radixkv_tiny) { 4 } else { 1 << 24 };

/// The sequence to insert, and the blocks for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewTokens<'a> {
    /// The whole sequence, cut to whole blocks.
    pub(crate) tokens: &'a [Token],
    /// Blocks for the tokens beyond the lease.
    pub(crate) blocks: &'a [BlockId],
    pub(crate) layout: BlockLayout,
    pub(crate) now: u64,
    /// How many of the blocks were charged to a reservation of the namespace. The new run takes
    /// over the charge, up to its number of blocks.
    pub(crate) charged: usize,
}

/// The outcome of an insert.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Published<'g> {
    /// The lease on the point at the sequence's end.
    pub(crate) tip: HeldLease<'g>,
    /// Number of the caller's leading blocks whose contents other threads had published first.
    pub(crate) duplicates: usize,
    /// Whether the tip is the end of a run that this insert published or lengthened.
    pub(crate) fresh: bool,
}

/// Nothing was inserted, because a point has too many child runs or leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyBranches;

/// The point that the insert has reached, leased by the caller or by the insert itself.
struct Tip<'g> {
    point: Ref<'g, Point>,
    ours: Option<HeldLease<'g>>,
}

impl<'g> Tip<'g> {
    fn advance(&mut self, held: HeldLease<'g>, context: LeaseContext<'_>) {
        self.release(context);
        *self = Self { point: held.point, ours: Some(held) };
    }

    fn release(&self, context: LeaseContext<'_>) {
        if let Some(held) = self.ours {
            _ = release(held, context);
        }
    }
}

/// Inserts the tokens beyond `from`, on which the caller holds a lease.
pub(crate) fn insert<'g>(
    from: Ref<'g, Point>,
    sequence: NewTokens<'_>,
    context: LeaseContext<'_>,
    guard: &'g Guard<'g>,
) -> Result<Published<'g>, TooManyBranches> {
    let mut at = Tip { point: from, ours: None };
    let layout = sequence.layout;
    let used = |at: &Tip<'_>| layout.blocks(at.point.end()) - layout.blocks(from.end());
    // Prefetches for all blocks, because in most cases all are new.
    Arrays::prefetch(&sequence.tokens[from.end()..], sequence.blocks, guard);
    loop {
        let reached = walk(at.point, sequence.tokens, guard);
        let boundary = reached.boundary(layout);
        if boundary.end() > at.point.end() {
            match lease_at(boundary, context, guard) {
                Ok(held) => at.advance(held, context),
                // Trimmed meanwhile; the next walk stops earlier.
                Err(Refused::Shorter(_)) => {}
                // `Gone` is impossible: a space whose root is dead has no leased point, and one is
                // leased here.
                Err(Refused::Full | Refused::Gone) => {
                    at.release(context);
                    return Err(TooManyBranches);
                }
            }
            continue;
        }
        if at.point.end() == sequence.tokens.len() {
            let tip = at.ours.or_else(|| lease_again(at.point, context)).ok_or(TooManyBranches)?;
            return Ok(Published { tip, duplicates: used(&at), fresh: false });
        }
        let beyond = NewTokens { blocks: &sequence.blocks[used(&at)..], ..sequence };
        match publish(&at, reached, beyond, context, guard) {
            Ok(Some(tip)) => {
                let duplicates = used(&at);
                at.release(context);
                return Ok(Published { tip, duplicates, fresh: true });
            }
            Ok(None) => {}
            Err(error) => {
                at.release(context);
                return Err(error);
            }
        }
    }
}

/// Publishes the rest of the sequence where the walk stopped; `None` if another thread changed that
/// position meanwhile.
fn publish<'g>(
    at: &Tip<'g>,
    reached: Reached<'g>,
    sequence: NewTokens<'_>,
    context: LeaseContext<'_>,
    guard: &'g Guard<'g>,
) -> Result<Option<HeldLease<'g>>, TooManyBranches> {
    if reached.end == at.point.end() {
        return hang(at.point, sequence, context, guard);
    }
    // The tokens diverge inside a block: the branch needs its own point there.
    let position = Position { run: reached.run, depth: reached.depth };
    match lease_at(position, context, guard) {
        Ok(branch) => {
            let hung = hang(branch.point, sequence, context, guard);
            _ = release(branch, context);
            hung
        }
        Err(Refused::Shorter(_)) => Ok(None),
        Err(Refused::Full | Refused::Gone) => Err(TooManyBranches),
    }
}

/// Publishes the tokens beyond `branch`, on which the caller holds a lease: in place if the run
/// ends there and has room, or else as a child run.
fn hang<'g>(
    branch: Ref<'g, Point>,
    sequence: NewTokens<'_>,
    context: LeaseContext<'_>,
    guard: &'g Guard<'g>,
) -> Result<Option<HeldLease<'g>>, TooManyBranches> {
    // Other threads may have written both lines; they arrive while the run is made.
    prefetch_to_write(&raw const branch.word);
    context.queues.of(context.shard).prefetch();
    let tokens = &sequence.tokens[branch.end()..];
    let first = tokens[0];
    let (there, place) = branch.as_ref().children.get_to_change(first, guard);
    if there.is_some_and(|run| run.word().len() > 0) {
        return Ok(None);
    }
    // Relaxed: a bound with a wide margin.
    if branch.word.load(Relaxed).children() >= MAX_CHILDREN {
        return Err(TooManyBranches);
    }
    let charged = sequence.charged.min(sequence.blocks.len()) as u32;
    let may_grow = may_grow_at(branch, guard);
    // Since the walk, the run may have grown and then lost its room.
    if !may_grow && continues_with(branch, first, guard) {
        return Ok(None);
    }
    let tip = match may_grow.then(|| grow(branch, tokens, sequence.blocks, (charged, sequence.now), guard)).flatten() {
        Some(tip) => tip,
        None if may_grow && !count_child(branch, first, guard) => return Ok(None),
        None => match hang_run(branch, (there, place), sequence, (charged, context.shard), may_grow, guard) {
            Some(tip) => tip,
            None => return Ok(None),
        },
    };
    context.queues.push(tip);
    Ok(Some(HeldLease { point: tip, counted_on: StripeRef::word(context.stripe) }))
}

/// Attaches a run at `place` instead of `there`, which is `None` or dead, and counts it as a child
/// of `branch` unless it already `is_counted`. Returns the new run's end point. `None` if another
/// thread was first; then the run is not counted.
fn hang_run<'g>(
    branch: Ref<'g, Point>,
    (there, place): (Option<Ref<'g, Run>>, Place<'g, Run>),
    sequence: NewTokens<'_>,
    (charged, shard): (u32, ShardId),
    is_counted: bool,
    guard: &'g Guard<'g>,
) -> Option<Ref<'g, Point>> {
    let tokens = &sequence.tokens[branch.end()..];
    let room = room(branch, is_counted, [tokens.len(), sequence.blocks.len()], sequence.layout, guard);
    let start = branch.end();
    let first_end = sequence.layout.end_of(sequence.layout.blocks(start) + 1);
    let fingerprint = fingerprint(&sequence.tokens[..first_end], sequence.layout);
    let beginning = Beginning { parent: branch, start, born: sequence.now, fingerprint, charged, room, shard };
    let run = Run::new(beginning, tokens, sequence.blocks, guard);
    match branch.as_ref().children.insert_at(place, there, run, guard) {
        Ok(run) => {
            crate::sync::failpoint!("insert::linked");
            if !is_counted {
                // Counted while the branch is leased, and before the lease on the end can be given
                // up.
                let counted = branch.word.add_child();
                debug_assert!(counted, "child runs overflow their count");
            }
            crate::sync::failpoint!("insert::counted");
            Some(run.as_ref().points.get(tokens.len() as u32, guard).expect("a leased end point stays"))
        }
        Err((run, _)) => {
            Run::discard(run, guard);
            if is_counted {
                discount_child(branch);
            }
            None
        }
    }
}
