//! Path snapshots: pieces of the tree as they are at one moment, to be read later for listings and
//! batches of evicted prefixes.
//!
//! A trim shortens a run, and may replace its arrays by smaller ones. So a path snapshot keeps
//! pointers to the arrays, and only one for each piece is copied under the evictor's lock. The
//! contents of arrays never change, though more may be appended. They are read under a guard that
//! was pinned before the path snapshot was taken, and still is.

use std::collections::HashMap;
use std::ops::Range;

use smallvec::SmallVec;

use crate::block::{BlockId, BlockLayout};
use crate::key::Token;
use crate::reclaim::{Guard, Link, Ref};

use super::arrays::Arrays;
use super::run::Run;

/// Pieces of sequences, each with the piece that it follows.
#[derive(Debug, Default)]
pub(crate) struct PathSnapshot {
    pieces: Vec<Piece>,
    taken: HashMap<Link<Run>, PieceId>,
}

/// The number of a piece in a path snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PieceId(usize);

#[derive(Debug, Clone, Copy)]
struct Piece {
    arrays: Option<Link<Arrays>>,
    start: usize,
    layout: BlockLayout,
    /// The piece that it follows, and the depth on that piece where it begins.
    parent: Option<(PieceId, u32)>,
}

impl PathSnapshot {
    /// Makes room for this many runs.
    pub(crate) fn reserve(&mut self, runs: usize) {
        self.pieces.reserve(runs);
        self.taken.reserve(runs);
    }

    /// Adds a run and all its ancestors, each only once. Only the evictor calls it.
    pub(crate) fn take(&mut self, run: Ref<'_, Run>, layout: BlockLayout, guard: &Guard<'_>) -> PieceId {
        let (mut at, mut last, mut below) = (run, None, None);
        loop {
            if let Some(&known) = self.taken.get(&at.link()) {
                self.follow(below, known);
                return last.unwrap_or(known);
            }
            let id = PieceId(self.pieces.len());
            let arrays = at.arrays(guard).map(Ref::link);
            self.pieces.push(Piece { arrays, start: at.start(), layout, parent: None });
            self.taken.insert(at.link(), id);
            self.follow(below, id);
            last = last.or(Some(id));
            match at.parent().filter(|parent| !parent.run().is_trunk()) {
                Some(parent) => (at, below) = (parent.run(), Some((id, parent.depth()))),
                None => return last.unwrap_or(id),
            }
        }
    }

    fn follow(&mut self, below: Option<(PieceId, u32)>, parent: PieceId) {
        if let Some((below, depth)) = below {
            self.pieces[below.0].parent = Some((parent, depth));
        }
    }

    /// Appends the tokens from `from` to `to` of a piece's sequence, counted from the beginning of
    /// the sequence.
    pub(crate) fn append_tokens(
        &self,
        id: PieceId,
        from: usize,
        to: usize,
        tokens: &mut Vec<Token>,
        guard: &Guard<'_>,
    ) {
        tokens.reserve(to - from);
        // The last part first.
        let mut parts = SmallVec::<[&[Token]; 4]>::new();
        let (mut piece, mut to) = (&self.pieces[id.0], to);
        loop {
            let reach = from.max(piece.start).min(to);
            if let Some(arrays) = piece.arrays(guard) {
                parts.push(&arrays.tokens()[reach - piece.start..to - piece.start]);
            }
            to = reach;
            match piece.parent {
                Some((parent, _)) if to > from => piece = &self.pieces[parent.0],
                _ => break,
            }
        }
        parts.into_iter().rev().for_each(|part| tokens.extend_from_slice(part));
    }

    /// The blocks that end between these depths of a piece.
    pub(crate) fn blocks<'g>(&self, id: PieceId, at: Range<u32>, guard: &'g Guard<'_>) -> &'g [BlockId] {
        let piece = &self.pieces[id.0];
        let ended = |depth: u32| piece.layout.blocks(piece.start + depth as usize) - piece.layout.blocks(piece.start);
        piece.arrays(guard).map_or(&[], |arrays| &arrays.blocks()[ended(at.start)..ended(at.end)])
    }

    /// The tokens of a piece between these depths.
    pub(crate) fn tokens<'g>(&self, id: PieceId, at: Range<u32>, guard: &'g Guard<'_>) -> &'g [Token] {
        self.pieces[id.0].arrays(guard).map_or(&[], |arrays| &arrays.tokens()[at.start as usize..at.end as usize])
    }

    /// The last block that ends at or before `depth` of a piece, on the piece or on one that it
    /// follows.
    pub(crate) fn block_before(&self, id: PieceId, depth: u32, guard: &Guard<'_>) -> Option<BlockId> {
        let mut at = Some((id, depth));
        while let Some((id, depth)) = at {
            if let Some(last) = self.blocks(id, 0..depth, guard).last() {
                return Some(*last);
            }
            at = self.pieces[id.0].parent;
        }
        None
    }
}

impl Piece {
    fn arrays<'g>(&self, guard: &'g Guard<'_>) -> Option<Ref<'g, Arrays>> {
        self.arrays.map(|arrays| arrays.get(guard))
    }
}
