//! Finds the block beyond a boundary that shares the longest prefix with a sequence. A partial hit
//! (`cache::matching::partial`) copies that block.
//!
//! A block is found by its end, on the run that has its last token. All blocks that continue from
//! the depth where the tokens diverge agree on the same number of tokens, so the first one found is
//! used. Smaller depths are searched only if no such block is left: all were evicted, but the
//! branch point, which kept its own run at this length, is not dead yet.

use std::ops::RangeInclusive;

use smallvec::SmallVec;

use crate::key::{Token, common_prefix};
use crate::reclaim::{Guard, Ref};

use super::point::Point;
use super::run::Run;
use super::walk::Position;

/// A block that was found without a lease. A lease on `end` proves it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nearest<'g> {
    /// Where the block ends.
    pub(crate) end: Position<'g>,
    /// Number of tokens beyond the boundary that agree.
    pub(crate) agreed: usize,
}

/// The part of one run that agrees, from the depth where the path enters the run to the depth where
/// it leaves it.
struct Piece<'g> {
    run: Ref<'g, Run>,
    from: u32,
    to: u32,
}

/// Finds the block from `from`, a leased boundary, to `end` that shares the longest prefix with
/// `tokens`, the whole sequence. Returns `None` if fewer than `least` tokens agree.
pub(crate) fn nearest<'g>(
    from: Ref<'g, Point>,
    end: usize,
    tokens: &[Token],
    least: usize,
    guard: &'g Guard<'_>,
) -> Option<Nearest<'g>> {
    let wanted = &tokens[..end.min(tokens.len())];
    for piece in agreeing(from, wanted, guard).into_iter().rev() {
        for depth in (piece.from..=piece.to).rev() {
            let agreed = piece.run.start() + depth as usize - from.end();
            if agreed < least {
                return None;
            }
            // Only the first iteration for a run searches deeper than `depth`; later ones search
            // only `depth` itself.
            let last = if depth == piece.to { present(piece.run, guard) } else { depth };
            let found = block_beyond(piece.run, depth..=last, end, guard);
            if let Some(end) = found {
                return Some(Nearest { end, agreed });
            }
        }
    }
    None
}

/// The runs along which `tokens` agree beyond `from`, in order.
fn agreeing<'g>(from: Ref<'g, Point>, tokens: &[Token], guard: &'g Guard<'_>) -> SmallVec<[Piece<'g>; 4]> {
    let mut pieces = SmallVec::new();
    let (mut run, mut depth, mut end) = (from.run(), from.depth(), from.end());
    loop {
        let rest = if run.is_trunk() { &[] } else { run.tokens(guard).get(depth as usize..).unwrap_or(&[]) };
        let agreed = common_prefix(rest, &tokens[end..]);
        let to = depth + agreed as u32;
        pieces.push(Piece { run, from: depth, to });
        end += agreed;
        let next = tokens.get(end).copied();
        let child = next.and_then(|next| run.as_ref().points.get(to, guard)?.as_ref().children.get(next, guard));
        // A dead run is absent.
        let Some(child) = child.filter(|child| child.word().len() > 0) else {
            return pieces;
        };
        (run, depth) = (child, 0);
    }
}

/// Finds a block that ends at `end`, on `run` or on any run attached to it at these depths,
/// directly or through others.
fn block_beyond<'g>(
    run: Ref<'g, Run>,
    depths: RangeInclusive<u32>,
    end: usize,
    guard: &'g Guard<'_>,
) -> Option<Position<'g>> {
    // Runs that end before the block does, each with the depths at which to search its points.
    let mut short = SmallVec::<[(Ref<'g, Run>, RangeInclusive<u32>); 2]>::new();
    let mut found = block_on(run, end, guard);
    short.push((run, depths));
    while let (None, Some((run, depths))) = (found, short.pop()) {
        for point in depths.filter_map(|depth| run.as_ref().points.get(depth, guard)) {
            point.as_ref().children.seek(guard, &mut |child| {
                found = block_on(child, end, guard);
                if found.is_none() {
                    short.push((child, 0..=present(child, guard)));
                }
                found.is_some()
            });
            if found.is_some() {
                break;
            }
        }
    }
    found
}

/// The end of the block on `run` itself, if the run is that long.
fn block_on<'g>(run: Ref<'g, Run>, end: usize, guard: &'g Guard<'_>) -> Option<Position<'g>> {
    let depth = end.checked_sub(run.start())? as u32;
    (1..=present(run, guard)).contains(&depth).then_some(Position { run, depth })
}

/// The length of the run as lookups see it.
fn present(run: Ref<'_, Run>, guard: &Guard<'_>) -> u32 {
    run.word().len().min(run.shown(guard))
}
