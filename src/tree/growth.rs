//! Growth: appends tokens in place to the run that ends where they begin.
//!
//! A conversation, a prompt in chunks and an output are inserted piece by piece. One run for each
//! piece would make a chain, and a lookup would pay for each link. So a run that is attached to the
//! end of another run gets room for more than its own tokens, and later tokens are written there:
//!
//! 1. Claim the room after the run's end. If a thread stalls or gives up after that, the room is
//!    lost, but no other thread is delayed: the others attach runs as before.
//! 2. Write tokens and ids, and publish a leased point at the new end. No other thread reaches that
//!    point before the run is longer.
//! 3. Load the run word. If the old end has a child, give up. Swap the length against the loaded
//!    word; if another thread has bumped it, look at the children again.
//!
//! A thread that attaches a child where the run may grow first counts the child, then bumps the run
//! word. If the run continues with the child's token, it attaches nothing. So either the appender
//! or that thread sees the other, by E23 or E22. Where the run may not grow any more, because it was
//! shortened after it had grown, that thread only compares the token: the run never grows again.
//!
//! The caller has a lease on the run's end, so no trim shortens the run meanwhile. A run that was
//! ever shortened does not grow, because its length no longer equals the claimed end. So a thread
//! that proves a point by the run's length (lease.rs) sees the tokens that it read.
//!
//! Without this, 32,768 tokens in 64 turns are a chain of 64 runs, and matching them takes twice
//! the instructions of matching one run. With it they are 10 runs, and 2,048 pieces are at most 24.
//! [`room`] decides the sizes. `pieces` says how the evictor treats the pieces.

use crate::block::{BlockId, BlockLayout};
use crate::key::Token;
use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::model_size;

use super::arrays::{Piece, Room};
use super::point::Point;
use super::word::Word;

/// The most room that a run gets beyond its own content, in tokens and in pieces.
const MOST_TOKENS: usize = 4096;
const MOST_PIECES: usize = 128;
/// The first run of a chain gets no room if it has this many tokens or more: comparing them costs
/// far more than finding the next run.
const MANY_TOKENS: usize = 1024;

/// The room for a run of this many tokens and blocks before it is attached to `branch`. `None`
/// unless `branch` is the end of a run (not a trunk) without other children, and the new run is
/// short or its parent run had room. The extra room is as long as the new run, or twice the parent
/// run if that had room, but at most `MOST_TOKENS`.
pub(super) fn room(
    branch: Ref<'_, Point>,
    is_counted: bool,
    [tokens, blocks]: [usize; 2],
    layout: BlockLayout,
    guard: &Guard<'_>,
) -> Option<Room> {
    let run = branch.run();
    if run.is_trunk() || run.word().len() != branch.depth() || blocks == 0 {
        return None;
    }
    // Relaxed: a hint.
    if branch.word.load(Relaxed).children() > u64::from(is_counted) {
        return None;
    }
    let had_room = run.arrays(guard).is_some_and(|arrays| arrays.had_room());
    if !had_room && tokens >= MANY_TOKENS {
        return None;
    }
    let like = if had_room { 2 * branch.depth() as usize } else { tokens };
    let more = (like.min(model_size(MOST_TOKENS, 2)) / layout.tokens()).max(1);
    Some(Room {
        tokens: u32::try_from(tokens + more * layout.tokens()).ok()?,
        blocks: (blocks + more) as u32,
        pieces: more.min(MOST_PIECES) as u32,
    })
}

/// Appends `tokens`, and the blocks that end in them, to the run that ends at `end`, on which the
/// caller holds a lease. Returns the leased point at the new end, which the caller pushes. `None`
/// if the run does not end there, has no room, or another thread was first.
pub(super) fn grow<'g>(
    end: Ref<'g, Point>,
    tokens: &[Token],
    blocks: &[BlockId],
    (charged, now): (u32, u64),
    guard: &'g Guard<'g>,
) -> Option<Ref<'g, Point>> {
    let (run, from) = (end.run(), end.depth());
    // Relaxed: a hint.
    let arrays = run.arrays(guard).filter(|_| end.word.load(Relaxed).children() == 0)?;
    let to = u32::try_from(from as usize + tokens.len()).ok()?;
    // Claimed room begins at the run's end, unless the run was shortened.
    if !arrays.claim(from, to) || run.word().len() != from {
        return None;
    }
    crate::sync::failpoint!("growth::claimed");
    if !arrays.append(Piece { end: to, charged, born: now }, tokens, blocks) {
        return None;
    }
    let new = Point::new(run.link(), to, Word::end_of_new_run(), now, guard);
    let tip = run.as_ref().points.insert(None, new, guard).ok().expect("no point is beyond the end of a run");
    crate::sync::failpoint!("growth::written");
    let mut word = run.word();
    loop {
        // Relaxed: E23, by the word.
        if end.word.load(Relaxed).children() > 0 {
            // No other thread has reached the point.
            run.as_ref().points.remove(tip, guard);
            guard.retire(tip);
            return None;
        }
        match run.lengthen(word, to) {
            Ok(()) => return Some(tip),
            Err(found) => word = found,
        }
    }
}

/// Counts a child run before it is attached to `branch`, whose run may have grown. Returns false if
/// the run continues with the child's first token: then nothing is counted, and the caller walks
/// again.
pub(super) fn count_child<'g>(branch: Ref<'g, Point>, first: Token, guard: &'g Guard<'_>) -> bool {
    let counted = branch.word.add_child();
    debug_assert!(counted, "child runs overflow their count");
    let goes_on = branch.run().bump().len() > branch.depth() && continues_with(branch, first, guard);
    if goes_on {
        discount_child(branch);
    }
    !goes_on
}

/// Whether the run continues beyond `branch` with this token. The walk may have seen a shorter run.
#[inline]
pub(super) fn continues_with(branch: Ref<'_, Point>, first: Token, guard: &Guard<'_>) -> bool {
    branch.run().tokens(guard).get(branch.depth() as usize) == Some(&first)
}

/// Whether a child must be counted before it is attached to `branch`.
pub(super) fn may_grow_at(branch: Ref<'_, Point>, guard: &Guard<'_>) -> bool {
    let run = branch.run();
    !run.is_trunk() && run.arrays(guard).is_some_and(|arrays| arrays.may_grow_at(branch.depth()))
}

/// Subtracts a child that was counted but not attached. The caller's lease holds the point, so
/// there is nothing to push.
pub(super) fn discount_child(branch: Ref<'_, Point>) {
    let removed = branch.word.remove_child();
    debug_assert!(!removed.push, "a leased point queued the end of a child");
}
