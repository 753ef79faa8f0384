//! Inserting: one run published under one point, with one compare-and-swap, or one run made longer.
//!
//! An insert starts at a leased boundary, compares the tokens beyond it, uses the blocks that other threads have published
//! there in the meantime, and hangs the rest where the tokens part: at a boundary, or at a mid-block point made for the
//! branch. It never hangs a run under a point whose tokens it has not compared.
//!
//! Of two inserts of one sequence one is published. The other returns the canonical blocks, and its
//! own blocks stay in its reservation. The lease on the parent is given up only after the child is
//! counted.
//!
//! The slot of a new run's arrays was last read when its node was evicted, so it is prefetched
//! before the walk. The arrays are written last, after the run and its point: later writes, and
//! every read-modify-write, would wait for that memory.

use crate::block::{BlockId, Grid};
use crate::key::Token;
use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::prefetch_to_write;

use super::arrays::Arrays;
use super::fingerprint::fingerprint;
use super::growth::{count_child, discount_child, grow, may_grow_at, room};
use super::hot::StripeRef;
use super::lease::{HeldLease, Ledger, Refused, lease_again, lease_at, release};
use super::map::Place;
use super::point::Point;
use super::run::{Beginning, Run};
use super::walk::{Position, Reached, walk};

/// Child runs of a point at most; far below what its word can count.
const MAX_CHILDREN: u64 = if cfg!(radixkv_tiny) { 4 } else { 1 << 24 };

/// What is to be inserted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewTokens<'a> {
    /// The whole sequence, cut to whole blocks.
    pub(crate) tokens: &'a [Token],
    /// Blocks for what lies beyond the lease.
    pub(crate) blocks: &'a [BlockId],
    pub(crate) grid: Grid,
    pub(crate) now: u64,
    /// How many of the blocks were charged to a reservation of the namespace; the new run takes over as many as it has.
    pub(crate) charged: usize,
}

/// A finished insert.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Published<'g> {
    /// The lease on the point at the sequence's end.
    pub(crate) tip: HeldLease<'g>,
    /// Leading blocks of the caller's whose contents other threads had published first.
    pub(crate) duplicates: usize,
    /// The tip is the end of a run that this insert published, or made longer.
    pub(crate) fresh: bool,
}

/// Why nothing was inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyBranches;

/// A point that the insert has come to: leased by the caller, or by the insert itself on the way.
struct Tip<'g> {
    point: Ref<'g, Point>,
    ours: Option<HeldLease<'g>>,
}

impl<'g> Tip<'g> {
    fn advance(&mut self, held: HeldLease<'g>, ledger: Ledger<'_>) {
        self.let_go(ledger);
        *self = Self { point: held.point, ours: Some(held) };
    }

    fn let_go(&self, ledger: Ledger<'_>) {
        if let Some(held) = self.ours {
            _ = release(held, ledger);
        }
    }
}

/// Inserts what lies beyond `from`, on which the caller holds a lease.
pub(crate) fn insert<'g>(
    from: Ref<'g, Point>,
    sequence: NewTokens<'_>,
    ledger: Ledger<'_>,
    guard: &'g Guard<'g>,
) -> Result<Published<'g>, TooManyBranches> {
    let mut at = Tip { point: from, ours: None };
    let grid = sequence.grid;
    let used = |at: &Tip<'_>| grid.blocks(at.point.end()) - grid.blocks(from.end());
    // In most cases all of them are new.
    Arrays::prefetch(&sequence.tokens[from.end()..], sequence.blocks, guard);
    loop {
        let reached = walk(at.point, sequence.tokens, guard);
        let boundary = reached.boundary(grid);
        if boundary.end() > at.point.end() {
            match lease_at(boundary, ledger, guard) {
                Ok(held) => at.advance(held, ledger),
                // Trimmed meanwhile; the next walk stops earlier.
                Err(Refused::Shorter(_)) => {}
                // `Gone` cannot be: a space whose root has gone has no leased point, and one is leased here.
                Err(Refused::Full | Refused::Gone) => {
                    at.let_go(ledger);
                    return Err(TooManyBranches);
                }
            }
            continue;
        }
        if at.point.end() == sequence.tokens.len() {
            let tip = at.ours.or_else(|| lease_again(at.point, ledger)).ok_or(TooManyBranches)?;
            return Ok(Published { tip, duplicates: used(&at), fresh: false });
        }
        let beyond = NewTokens { blocks: &sequence.blocks[used(&at)..], ..sequence };
        match publish(&at, reached, beyond, ledger, guard) {
            Ok(Some(tip)) => {
                let duplicates = used(&at);
                at.let_go(ledger);
                return Ok(Published { tip, duplicates, fresh: true });
            }
            Ok(None) => {}
            Err(error) => {
                at.let_go(ledger);
                return Err(error);
            }
        }
    }
}

/// Hangs the rest of the sequence where the walk stopped; nothing if another thread changed that position meanwhile.
fn publish<'g>(
    at: &Tip<'g>,
    reached: Reached<'g>,
    sequence: NewTokens<'_>,
    ledger: Ledger<'_>,
    guard: &'g Guard<'g>,
) -> Result<Option<HeldLease<'g>>, TooManyBranches> {
    if reached.end == at.point.end() {
        return hang(at.point, sequence, ledger, guard);
    }
    // Tokens part inside a block: the branch needs a point of its own there.
    let position = Position { run: reached.run, depth: reached.depth };
    match lease_at(position, ledger, guard) {
        Ok(branch) => {
            let hung = hang(branch.point, sequence, ledger, guard);
            _ = release(branch, ledger);
            hung
        }
        Err(Refused::Shorter(_)) => Ok(None),
        Err(Refused::Full | Refused::Gone) => Err(TooManyBranches),
    }
}

/// Publishes the tokens beyond `branch`, on which the caller holds a lease: in place, if its run ends there and has room, or else
/// as a child.
fn hang<'g>(
    branch: Ref<'g, Point>,
    sequence: NewTokens<'_>,
    ledger: Ledger<'_>,
    guard: &'g Guard<'g>,
) -> Result<Option<HeldLease<'g>>, TooManyBranches> {
    // Other threads have written both since; they come while the run is made.
    prefetch_to_write(&raw const branch.word);
    ledger.queue.prefetch();
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
    let tip = match may_grow.then(|| grow(branch, tokens, sequence.blocks, (charged, sequence.now), guard)).flatten() {
        Some(tip) => tip,
        None if may_grow && !count_child(branch, first, guard) => return Ok(None),
        None => match hang_run(branch, (there, place), sequence, charged, may_grow, guard) {
            Some(tip) => tip,
            None => return Ok(None),
        },
    };
    ledger.queue.push(tip);
    Ok(Some(HeldLease { point: tip, counted_on: StripeRef::word(ledger.stripe) }))
}

/// Hangs a run at `place` instead of `there`, which is nothing or dead; its end, or nothing if another thread was first. It `is_counted`
/// as a child already, or will be.
fn hang_run<'g>(
    branch: Ref<'g, Point>,
    (there, place): (Option<Ref<'g, Run>>, Place<'g, Run>),
    sequence: NewTokens<'_>,
    charged: u32,
    is_counted: bool,
    guard: &'g Guard<'g>,
) -> Option<Ref<'g, Point>> {
    let tokens = &sequence.tokens[branch.end()..];
    let room = room(branch, is_counted, [tokens.len(), sequence.blocks.len()], sequence.grid, guard);
    let start = branch.end();
    let first_end = sequence.grid.end_of(sequence.grid.blocks(start) + 1);
    let fingerprint = fingerprint(&sequence.tokens[..first_end], sequence.grid);
    let beginning = Beginning { parent: branch, start, born: sequence.now, fingerprint, charged, room };
    let run = Run::new(beginning, tokens, sequence.blocks, guard);
    match branch.as_ref().children.insert_at(place, there, run, guard) {
        Ok(run) => {
            crate::sync::failpoint!("insert::linked");
            if !is_counted {
                // Counted while the lease on the branch is held, and before the end's lease can be given up.
                let counted = branch.word.add_child();
                debug_assert!(counted, "child runs overflow their count");
            }
            crate::sync::failpoint!("insert::counted");
            Some(run.as_ref().points.get(tokens.len() as u32, guard).expect("a leased end stays"))
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
