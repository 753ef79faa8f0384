//! Reads a path from its tip towards the root through fixed parents: the blocks of a leased path,
//! or the tokens of a path that cannot be trimmed meanwhile.

use std::ops::Range;

use smallvec::SmallVec;

use crate::block::{BlockId, BlockLayout};
use crate::key::Token;
use crate::reclaim::{Guard, Ref};

use super::point::Point;
use super::run::Run;

/// Appends the ids of the path's blocks, from block number `first`, in order. The caller holds a
/// lease on `tip`.
pub(crate) fn append_blocks(
    tip: Ref<'_, Point>,
    first: usize,
    layout: BlockLayout,
    blocks: &mut Vec<BlockId>,
    guard: &Guard<'_>,
) {
    let total = layout.blocks(tip.end()).saturating_sub(first);
    if total == 0 {
        return;
    }
    blocks.reserve(total);
    // Runs that have blocks from `first` on, each with the depth at which the path leaves it; the
    // last run first.
    let mut pieces = SmallVec::<[(Ref<'_, Run>, u32); 16]>::new();
    let (mut run, mut depth) = (tip.run(), tip.depth());
    while layout.blocks(run.start()) > first {
        pieces.push((run, depth));
        let Some(parent) = run.parent() else { break };
        (run, depth) = (parent.run(), parent.depth());
    }
    let skip = first - layout.blocks(run.start());
    let held = run.blocks_to(depth, layout);
    blocks.extend_from_slice(&run.block_ids(guard)[skip.min(held)..held]);
    for (run, depth) in pieces.into_iter().rev() {
        blocks.extend_from_slice(&run.block_ids(guard)[..run.blocks_to(depth, layout)]);
    }
}

/// Appends the tokens of `run`'s sequence between these depths, counted from the beginning of the
/// sequence. The caller is the evictor, or has a lease on the run.
pub(crate) fn append_tokens(run: Ref<'_, Run>, depths: Range<usize>, tokens: &mut Vec<Token>, guard: &Guard<'_>) {
    let Range { start: from, end: mut to } = depths;
    tokens.reserve(to - from);
    // The last piece first.
    let mut pieces = SmallVec::<[&[Token]; 4]>::new();
    let mut run = run;
    loop {
        let reach = from.max(run.start()).min(to);
        pieces.push(&run.tokens(guard)[reach - run.start()..to - run.start()]);
        to = reach;
        match run.parent() {
            Some(parent) if to > from => run = parent.run(),
            _ => break,
        }
    }
    pieces.into_iter().rev().for_each(|piece| tokens.extend_from_slice(piece));
}
