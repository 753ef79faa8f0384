//! Snapshots of a tier's content, for saving it.

use std::{collections::HashMap, ops::Range, sync::Arc};

use radixkv::{NamespaceName, Token};

use crate::{
    host_match::HostMatch,
    index::{Index, RunId},
    offload::Offload,
    tier::{HostTier, State},
};

/// The content of a tier at one moment: its blocks with their sequences, in the order of their last
/// use; made by [`HostTier::snapshot`].
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let tier = radixkv_host::HostTier::builder(2, 8).block_bytes(8).build()?;
/// # let space = cache.default_namespace().name();
/// # tier.offload().reserve(&space, &[1, 2, 3, 4], 2).publish();
/// let snapshot = tier.snapshot();
/// for held in snapshot.held() {
///     let tokens = snapshot.sequence(held.piece);
///     // What is there still; the bytes stay as they are while this lives.
///     let blocks = snapshot.pin(held.piece, &tokens, held.blocks.clone());
///     assert_eq!((blocks.tokens(), blocks.bytes(0).len()), (2..4, 8));
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HostSnapshot {
    /// An offload that began with the snapshot: it tells which namespaces were cleared since.
    moment: Offload,
    pieces: Vec<HostPiece>,
    held: Vec<HeldBlocks>,
}

/// A segment of a sequence in a [`HostSnapshot`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostPiece {
    /// The namespace of the sequence.
    pub namespace: NamespaceName,
    /// The piece that this one follows, whose sequence has at least `start` tokens; `None` if this
    /// piece begins the sequence. Its index is smaller.
    pub parent: Option<usize>,
    /// Tokens of the sequence before this piece.
    pub start: usize,
    /// The tokens of this piece.
    pub tokens: Vec<Token>,
}

/// Consecutive blocks of a sequence; the first one was used most recently.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldBlocks {
    /// The index of the piece in which the blocks end.
    pub piece: usize,
    /// The block numbers within the sequence.
    pub blocks: Range<usize>,
}

impl HostSnapshot {
    /// The segments of sequences, each after its parent.
    pub fn pieces(&self) -> &[HostPiece] {
        &self.pieces
    }

    /// The blocks that the tier held, least recently used first.
    pub fn held(&self) -> &[HeldBlocks] {
        &self.held
    }

    /// The tokens of a sequence from its beginning to the end of this piece.
    ///
    /// # Panics
    ///
    /// If there is no such piece.
    pub fn sequence(&self, piece: usize) -> Vec<Token> {
        let (mut path, mut next) = (Vec::new(), Some(piece));
        while let Some(piece) = next {
            path.push(&self.pieces[piece]);
            next = self.pieces[piece].parent;
        }
        let mut tokens = Vec::new();
        for piece in path.into_iter().rev() {
            tokens.truncate(piece.start);
            tokens.extend(&piece.tokens);
        }
        tokens
    }

    /// Pins the blocks of a piece's sequence that the tier still holds, up to the first missing
    /// one; none if the namespace was cleared since the snapshot, or is kept out. Counts as a use,
    /// but not as a lookup: the blocks become the most recently used, the first one the most
    /// recent. A caller that pins all of [`held`](Self::held) in order leaves the order of use
    /// unchanged.
    ///
    /// `tokens` is the sequence at least up to the last of the blocks.
    ///
    /// # Panics
    ///
    /// If there is no such piece.
    pub fn pin(&self, piece: usize, tokens: &[Token], blocks: Range<usize>) -> HostMatch {
        let (tier, namespace) = (self.moment.tier(), &self.pieces[piece].namespace);
        let mut state = tier.inner.lock();
        let mut found = match self.moment.allows(&state, namespace) {
            true => state.blocks_from(namespace, tokens, blocks.start),
            false => Vec::new(),
        };
        found.truncate(blocks.len());
        for &(block, _) in &found {
            state.slots.pin(block);
        }
        drop(state);
        HostMatch::new(Arc::clone(&tier.inner), blocks.start.saturating_mul(tier.block_size()), found)
    }
}

impl HostTier {
    /// Takes a snapshot of the tier's content. Holds the tier's lock while it copies the tokens of
    /// all cached blocks.
    pub fn snapshot(&self) -> HostSnapshot {
        let mut state = self.inner.lock();
        let (pieces, held) = state.pieces_and_held();
        HostSnapshot { moment: self.begin_offload(&mut state), pieces, held }
    }
}

impl State {
    fn pieces_and_held(&self) -> (Vec<HostPiece>, Vec<HeldBlocks>) {
        let (mut pieces, mut held, mut numbers) = (Vec::new(), Vec::<HeldBlocks>::new(), HashMap::new());
        for (_, place) in self.slots.cached() {
            let (run, block) = (place.run(), place.number());
            let piece = add_piece(&mut pieces, &mut numbers, &self.index, run);
            match held.last_mut() {
                // The blocks of one arrival are listed from the deepest one to the first one.
                Some(last) if last.piece == piece && last.blocks.start == block + 1 => last.blocks.start = block,
                _ => held.push(HeldBlocks { piece, blocks: block..block + 1 }),
            }
        }
        (pieces, held)
    }
}

/// The index of a run's piece; adds the piece and its ancestors if they are missing.
fn add_piece(pieces: &mut Vec<HostPiece>, numbers: &mut HashMap<RunId, usize>, index: &Index, run: RunId) -> usize {
    let (mut missing, mut next, mut parent) = (Vec::new(), Some(run), None);
    while let Some(run) = next {
        if let Some(&number) = numbers.get(&run) {
            parent = Some(number);
            break;
        }
        let piece = index.piece(run);
        next = piece.parent;
        // The root of a namespace has no tokens, so it has no piece.
        if !piece.tokens.is_empty() {
            missing.push((run, piece));
        }
    }
    for (run, piece) in missing.into_iter().rev() {
        numbers.insert(run, pieces.len());
        let namespace = piece.namespace.clone();
        pieces.push(HostPiece { namespace, parent, start: piece.start, tokens: piece.tokens.to_vec() });
        parent = Some(pieces.len() - 1);
    }
    parent.expect("a block belongs to a run with tokens")
}
