//! The tokens and block ids of a run, in one allocation. Each run has one, and `growth` appends to
//! it.
//!
//! Layout: header, block ids, padding, tokens; if the run may grow, then also the state of its
//! growth and its pieces. Each part has its full room from the beginning. If there are many tokens,
//! they start on a cache line, so that comparing them reads no line twice. The allocation itself is
//! not aligned to a line, because allocators take a slower path for that. Instead it has padding,
//! so that the tokens can move up to the next line.
//!
//! # Invariants
//!
//! - **A1** Only [`Arrays::with_room`] makes an `Arrays`. Every token, block id and piece below the
//!   counts is initialised and never written again; no more tokens are shown than there are. A
//!   pointer to an `Arrays` keeps the provenance of its whole allocation.
//! - **A2** The room beyond the counts is written by the thread that has claimed it (growth.rs),
//!   which then raises the counts. A thread that reads appended entries has E22, or a lease.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;

use crate::block::BlockId;
use crate::key::Token;
use crate::reclaim::{Canary, Guard, Node, Own, Ref};
use crate::sync::gauge::{AtomicU32, Relaxed};
use crate::sync::prefetch_bytes;

/// From this many tokens on, alignment to a cache line is worth the padding.
const ALIGN_FROM: usize = 256;
const CACHE_LINE: usize = 64;
/// Bytes of the tokens that are prefetched before they are copied; the processor's own prefetcher
/// gets the rest.
const COPIED: usize = 1024;

/// Added to `drafts` for each draft that names the arrays.
const NAMED: u32 = 2;
/// Flag in `drafts`: the arrays are no longer in the tree.
const LEFT: u32 = 1;

/// The header; the arrays after it are reached through [`Arrays::tokens`] and [`Arrays::blocks`].
#[derive(Debug)]
pub(crate) struct Arrays {
    canary: Canary,
    /// Number of tokens and of block ids.
    tokens: AtomicU32,
    blocks: AtomicU32,
    /// Number of tokens that walks compare: all, or fewer once blocks were invalidated.
    shown: AtomicU32,
    room: Room,
    /// The number of event drafts that name the arrays, and `LEFT`; used by the evictor
    /// (`listeners::drafts`).
    drafts: AtomicU32,
    /// Offset of the tokens in words. In bytes it would not fit for the longest run with blocks of
    /// one token.
    tokens_at: u32,
}

/// The state of a run that may grow.
#[derive(Debug)]
struct Growth {
    /// Number of tokens when the run was published.
    first: u32,
    /// Depth up to which room was claimed by threads that append. It is beyond the run's end while
    /// one of them writes, or after one gave up. It never falls.
    claimed: AtomicU32,
    /// Number of pieces that were appended.
    pieces: AtomicU32,
}

/// The number of tokens, block ids and pieces that fit. A run with room for pieces may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) tokens: u32,
    pub(crate) blocks: u32,
    pub(crate) pieces: u32,
}

impl Room {
    /// Room for exactly these tokens and blocks, without growth.
    fn full(tokens: &[Token], blocks: &[BlockId]) -> Self {
        Self { tokens: tokens.len() as u32, blocks: blocks.len() as u32, pieces: 0 }
    }

    /// Bytes after the tokens.
    fn bytes_to_grow(self) -> usize {
        if self.pieces == 0 { 0 } else { size_of::<Growth>() + self.pieces as usize * Piece::BYTES }
    }
}

/// The part of a run that one insert appended in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Depth on the run at which the piece ends. It begins where the one before it ends.
    pub(crate) end: u32,
    /// How many of its blocks were charged to a reservation of its namespace.
    pub(crate) charged: u32,
    /// Time of the insert.
    pub(crate) born: u64,
}

impl Piece {
    const WORDS: usize = 4;
    const BYTES: usize = size_of::<[u32; Self::WORDS]>();

    fn to_words(self) -> [u32; Self::WORDS] {
        [self.end, self.charged, self.born as u32, (self.born >> 32) as u32]
    }

    fn from_words([end, charged, low, high]: [u32; Self::WORDS]) -> Self {
        Self { end, charged, born: u64::from(low) | u64::from(high) << 32 }
    }
}

/// The layout of the allocation, and where the tokens may begin in it, in bytes.
struct Parts {
    layout: Layout,
    /// Offset after the block ids.
    tokens_from: usize,
    tokens_align: usize,
}

impl Parts {
    fn of(room: Room) -> Self {
        let [tokens, blocks] = [room.tokens, room.blocks].map(|n| n as usize);
        let tokens_align = if tokens >= ALIGN_FROM { CACHE_LINE } else { align_of::<Token>() };
        // A multiple of a token's alignment, as is every address that the tokens can be moved up
        // to.
        let tokens_from = size_of::<Arrays>() + blocks * size_of::<BlockId>();
        let padding = tokens_align - align_of::<Token>();
        let size = tokens_from + padding + tokens * size_of::<Token>() + room.bytes_to_grow();
        let layout =
            Layout::from_size_align(size, align_of::<Arrays>()).expect("a run is shorter than the address space");
        Self { layout, tokens_from, tokens_align }
    }

    /// Offset of the tokens, in words, in an allocation at this address.
    fn tokens_at(&self, address: usize) -> u32 {
        let offset = (address + self.tokens_from).next_multiple_of(self.tokens_align) - address;
        u32::try_from(offset / size_of::<Token>()).expect("a run has at most u32::MAX tokens")
    }
}

impl Arrays {
    /// Copies `tokens` and `blocks` into a new allocation without room to grow.
    pub(crate) fn allocate<'g>(tokens: &[Token], blocks: &[BlockId], guard: &'g Guard<'g>) -> Own<'g, Self> {
        Self::with_room(Room::full(tokens, blocks), tokens, blocks, guard)
    }

    /// Prefetches the memory that arrays of these tokens and blocks would get, and the start of the
    /// tokens.
    #[inline]
    pub(crate) fn prefetch(tokens: &[Token], blocks: &[BlockId], guard: &Guard<'_>) {
        prefetch_bytes(tokens.as_ptr().cast(), size_of_val(tokens).min(COPIED));
        guard.prefetch(Parts::of(Room::full(tokens, blocks)).layout);
    }

    /// Copies `tokens` and `blocks` into a new allocation with `room` for at least as many.
    pub(crate) fn with_room<'g>(
        room: Room,
        tokens: &[Token],
        blocks: &[BlockId],
        guard: &'g Guard<'g>,
    ) -> Own<'g, Self> {
        debug_assert!(room.tokens as usize >= tokens.len() && room.blocks as usize >= blocks.len());
        let parts = Parts::of(room);
        // Not empty, because the header is part of it.
        let start = guard.allocate(parts.layout);
        let tokens_at = parts.tokens_at(start.addr().get());
        let header = Self {
            canary: Canary::new(),
            tokens: AtomicU32::new(tokens.len() as u32),
            blocks: AtomicU32::new(blocks.len() as u32),
            shown: AtomicU32::new(tokens.len() as u32),
            room,
            drafts: AtomicU32::new(0),
            tokens_at,
        };
        let node = start.cast::<Self>();
        // SAFETY: the allocation starts with room for the header, aligned for it.
        unsafe { node.write(header) };
        copy_to(start, size_of::<Self>(), blocks);
        copy_to(start, tokens_at as usize * size_of::<Token>(), tokens);
        if room.pieces > 0 {
            let begins = tokens.len() as u32;
            let growth = Growth { first: begins, claimed: AtomicU32::new(begins), pieces: AtomicU32::new(0) };
            let at = (tokens_at as usize + room.tokens as usize) * size_of::<Token>();
            // SAFETY: A1: `Parts` laid it out behind the room for tokens.
            let target = unsafe { start.add(at) }.cast::<Growth>();
            // SAFETY: as above; aligned to a token, which is the alignment of a `Growth`.
            unsafe { target.write(growth) };
        }
        Own::from_raw(node, guard)
    }

    /// Offset of the `Growth`, in bytes, if the run may grow.
    fn growth_at(&self) -> usize {
        (self.tokens_at as usize + self.room.tokens as usize) * size_of::<Token>()
    }

    /// Offset of the piece with this number, in bytes.
    fn piece_at(&self, number: usize) -> usize {
        self.growth_at() + size_of::<Growth>() + number * Piece::BYTES
    }

    /// The room that was allocated.
    pub(crate) fn room(&self) -> Room {
        self.room
    }

    /// Whether the run was given room to grow, used up or not.
    pub(crate) fn had_room(&self) -> bool {
        self.room.pieces > 0
    }
}

/// Copies `items` to `offset` bytes after `start`, inside the part of the allocation that `Parts`
/// laid out for them.
fn copy_to(start: NonNull<u8>, offset: usize, items: &[u32]) {
    // SAFETY: the offset is inside the allocation.
    let target = unsafe { start.add(offset) }.cast::<u32>();
    // SAFETY: source and target hold `items.len()` words each, aligned, and do not overlap.
    unsafe { target.copy_from_nonoverlapping(NonNull::from(items).cast(), items.len()) };
}

/// `len` words, `offset` bytes after the allocation's start.
fn words<'g>(arrays: Ref<'g, Arrays>, offset: usize, len: usize) -> &'g [u32] {
    debug_assert!(offset + len * size_of::<u32>() <= arrays.layout().size(), "beyond the allocation");
    let first = arrays.as_ptr().cast::<u8>().wrapping_add(offset).cast::<u32>().cast_const();
    // SAFETY: A1: initialised and never written since; the reference protects the allocation for
    // `'g`.
    unsafe { std::slice::from_raw_parts(first, len) }
}

impl<'g> Ref<'g, Arrays> {
    #[inline]
    pub(crate) fn tokens(self) -> &'g [Token] {
        words(self, self.tokens_at as usize * size_of::<Token>(), self.len_tokens())
    }

    #[inline]
    pub(crate) fn blocks(self) -> &'g [BlockId] {
        // Relaxed: A2.
        words(self, size_of::<Arrays>(), self.blocks.load(Relaxed) as usize)
    }

    /// The state of the run's growth, if the run may grow.
    fn growth(self) -> Option<&'g Growth> {
        if !self.had_room() {
            return None;
        }
        let at = self.as_ptr().cast::<u8>().wrapping_add(self.growth_at()).cast::<Growth>();
        // SAFETY: A1: the `Growth` is initialised; the reference protects the allocation for `'g`.
        Some(unsafe { &*at })
    }

    /// Whether the run may have ended at `depth` and grown beyond it, or may do so.
    pub(crate) fn may_grow_at(self, depth: u32) -> bool {
        self.growth().is_some_and(|growth| (growth.first..self.room.tokens).contains(&depth))
    }

    /// Claims the room from `from`, the run's end, up to `to`, and for one piece. False if there is
    /// not enough room, it was claimed before, or the run was ever shortened.
    pub(crate) fn claim(self, from: u32, to: u32) -> bool {
        // Relaxed: A2. The claiming thread has a lease on the end up to which the last one wrote.
        let has_room = |growth: &&Growth| to <= self.room.tokens && growth.pieces.load(Relaxed) < self.room.pieces;
        let growth = self.growth().filter(has_room);
        growth.is_some_and(|growth| growth.claimed.compare_exchange(from, to, Relaxed, Relaxed).is_ok())
    }

    /// The piece with this number. It ends no further than the run.
    pub(crate) fn piece(self, number: usize) -> Piece {
        // Relaxed: A2.
        let pieces = self.growth().map_or(0, |growth| growth.pieces.load(Relaxed));
        assert!(number < pieces as usize, "no such piece was appended");
        let words = words(self, self.piece_at(number), Piece::WORDS);
        Piece::from_words([words[0], words[1], words[2], words[3]])
    }

    /// Appends `tokens` and `blocks` as a piece. The caller has claimed the room. Returns false if
    /// the end of the run is hidden.
    pub(crate) fn append(self, piece: Piece, tokens: &[Token], blocks: &[BlockId]) -> bool {
        let growth = self.growth().expect("a run with claimed room may grow");
        let counts = [&self.tokens, &self.blocks, &growth.pieces];
        // Relaxed, here and below: A2; the thread that claimed the room before this one gave it a
        // lease.
        let [before, ids, pieces] = counts.map(|count| count.load(Relaxed) as usize);
        let grown = [before + tokens.len(), ids + blocks.len(), pieces + 1].map(|count| count as u32);
        let Room { tokens: most, blocks: most_ids, pieces: most_pieces } = self.room;
        assert!(grown[0] <= most && grown[1] <= most_ids && grown[2] <= most_pieces, "the claimed room is too small");
        let start = NonNull::new(self.as_ptr()).expect("a reference").cast::<u8>();
        copy_to(start, size_of::<Arrays>() + ids * size_of::<BlockId>(), blocks);
        copy_to(start, self.piece_at(pieces), &piece.to_words());
        copy_to(start, (self.tokens_at as usize + before) * size_of::<Token>(), tokens);
        counts.into_iter().zip(grown).for_each(|(count, grown)| count.store(grown, Relaxed));
        // Fails if a part of the run was hidden.
        self.shown.compare_exchange(before as u32, grown[0], Relaxed, Relaxed).is_ok()
    }

    /// The tokens that walks compare, at most `len`.
    #[inline]
    pub(crate) fn shown_tokens(self, len: usize) -> &'g [Token] {
        words(self, self.tokens_at as usize * size_of::<Token>(), len.min(self.shown() as usize))
    }

    #[inline]
    pub(crate) fn shown(self) -> u32 {
        // Relaxed: a walk that begins after the call that hid tokens returned sees that; an earlier
        // walk may see more.
        self.shown.load(Relaxed)
    }

    /// Limits walks to the first `tokens` tokens. Only the evictor calls it.
    pub(crate) fn show(self, tokens: u32) {
        // Relaxed: as in `shown`.
        self.shown.store(tokens.min(self.len_tokens() as u32), Relaxed);
    }

    /// Notes that one more draft names the arrays, until [`unname`](Self::unname). Only the evictor
    /// calls it and the next two.
    pub(crate) fn name(self) {
        self.drafts.store(self.drafts.load(Relaxed) + NAMED, Relaxed);
    }

    /// Notes that the arrays are no longer in the tree; returns whether a draft names them.
    pub(crate) fn leave(self) -> bool {
        // Relaxed, here and in the other two: only the evictor reads and writes it.
        let drafts = self.drafts.load(Relaxed);
        if drafts != 0 {
            self.drafts.store(drafts | LEFT, Relaxed);
        }
        drafts != 0
    }

    /// Notes that one draft fewer names the arrays. Returns whether it was the last one and they
    /// are no longer in the tree.
    pub(crate) fn unname(self) -> bool {
        let drafts = self.drafts.load(Relaxed) - NAMED;
        self.drafts.store(drafts, Relaxed);
        drafts == LEFT
    }

    #[inline]
    pub(crate) fn len_tokens(self) -> usize {
        // Relaxed: A2.
        self.tokens.load(Relaxed) as usize
    }
}

// SAFETY: the layout is that of `with_room`, computed from the room in the header; there is nothing
// to drop.
unsafe impl Node for Arrays {
    fn bytes(&self) -> usize {
        self.layout().size()
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }

    fn layout(&self) -> Layout {
        Parts::of(self.room).layout
    }
}

#[cfg(test)]
mod tests;
