//! A run's tokens and block ids in one allocation.
//!
//! Layout: header, block ids, padding, tokens. Tokens start on a cache line where there are enough of them for it to
//! matter, so that comparing them reads no line twice. The allocation itself has no such alignment, for which allocators take
//! a slower path: it has room to move the tokens up to the next line.
//!
//! # Invariants
//!
//! - **A1** An `Arrays` is made by [`Arrays::allocate`] alone, which initialises every token and block id; nothing
//!   writes them afterwards, and it never shows more tokens than it has. A pointer to one keeps the provenance of its whole allocation.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;

use crate::block::BlockId;
use crate::key::Token;
use crate::reclaim::{Canary, Guard, Node, Own, Ref};
use crate::sync::gauge::{AtomicU32, Relaxed};

/// From this many tokens on, alignment to a cache line is worth the padding.
const ALIGN_FROM: usize = 256;
const CACHE_LINE: usize = 64;

/// A draft names the arrays.
const NAMED: u32 = 1;
/// They are named, and have left the tree.
const LEFT: u32 = 2;

/// The header; the arrays after it are reached through [`Arrays::tokens`] and [`Arrays::blocks`].
#[derive(Debug)]
pub(crate) struct Arrays {
    canary: Canary,
    tokens: u32,
    blocks: u32,
    /// Tokens that walks compare: all, or fewer once blocks were invalidated.
    shown: AtomicU32,
    /// What the evictor notes of drafts that name it (`evictor::drafts`).
    drafts: AtomicU32,
    /// Offset of the tokens in words: in bytes, that of the longest run of blocks of one token would not fit.
    tokens_at: u32,
}

/// What is allocated, and where the tokens may begin in it; in bytes.
struct Parts {
    layout: Layout,
    /// Behind the block ids.
    tokens_from: usize,
    tokens_align: usize,
}

impl Parts {
    fn of(tokens: usize, blocks: usize) -> Self {
        let tokens_align = if tokens >= ALIGN_FROM { CACHE_LINE } else { align_of::<Token>() };
        // A multiple of a token's alignment, as every address in the allocation that tokens are moved up to.
        let tokens_from = size_of::<Arrays>() + blocks * size_of::<BlockId>();
        let size = tokens_from + (tokens_align - align_of::<Token>()) + tokens * size_of::<Token>();
        let layout =
            Layout::from_size_align(size, align_of::<Arrays>()).expect("a run is shorter than the address space");
        Self { layout, tokens_from, tokens_align }
    }

    /// Where the tokens begin in an allocation at this address, in words from its start.
    fn tokens_at(&self, address: usize) -> u32 {
        let offset = (address + self.tokens_from).next_multiple_of(self.tokens_align) - address;
        u32::try_from(offset / size_of::<Token>()).expect("a run has no more tokens than depths can name")
    }
}

impl Arrays {
    /// Copies `tokens` and `blocks` into an allocation of their own.
    pub(crate) fn allocate<'g>(tokens: &[Token], blocks: &[BlockId], guard: &'g Guard<'g>) -> Own<'g, Self> {
        let parts = Parts::of(tokens.len(), blocks.len());
        // Not empty: the header is part of it.
        let start = guard.allocate(parts.layout);
        let tokens_at = parts.tokens_at(start.addr().get());
        let header = Self {
            canary: Canary::new(),
            tokens: tokens.len() as u32,
            blocks: blocks.len() as u32,
            shown: AtomicU32::new(tokens.len() as u32),
            drafts: AtomicU32::new(0),
            tokens_at,
        };
        let node = start.cast::<Self>();
        // SAFETY: the allocation starts with room for the header, aligned for it.
        unsafe { node.write(header) };
        copy_to(start, size_of::<Self>(), blocks);
        copy_to(start, tokens_at as usize * size_of::<Token>(), tokens);
        Own::from_raw(node, guard)
    }
}

/// Copies `items` to `offset` bytes after `start`, inside the allocation that `Parts` laid out for them.
fn copy_to(start: NonNull<u8>, offset: usize, items: &[u32]) {
    // SAFETY: the offset lies inside the allocation.
    let target = unsafe { start.add(offset) }.cast::<u32>();
    // SAFETY: source and target hold `items.len()` words each, aligned, and do not overlap.
    unsafe { target.copy_from_nonoverlapping(NonNull::from(items).cast(), items.len()) };
}

/// `len` words at `offset` bytes after the header.
fn words<'g>(arrays: Ref<'g, Arrays>, offset: usize, len: usize) -> &'g [u32] {
    let first = arrays.as_ptr().cast::<u8>().wrapping_add(offset).cast::<u32>().cast_const();
    // SAFETY: A1: initialised by `allocate` and never written since; the reference protects the allocation for `'g`.
    unsafe { std::slice::from_raw_parts(first, len) }
}

impl<'g> Ref<'g, Arrays> {
    #[inline]
    pub(crate) fn tokens(self) -> &'g [Token] {
        words(self, self.tokens_at as usize * size_of::<Token>(), self.tokens as usize)
    }

    #[inline]
    pub(crate) fn blocks(self) -> &'g [BlockId] {
        words(self, size_of::<Arrays>(), self.blocks as usize)
    }

    /// The tokens that walks compare.
    #[inline]
    pub(crate) fn shown_tokens(self) -> &'g [Token] {
        words(self, self.tokens_at as usize * size_of::<Token>(), self.shown() as usize)
    }

    #[inline]
    pub(crate) fn shown(self) -> u32 {
        // Relaxed: a walk that begins after the call that hid tokens sees that; an earlier one may see more.
        self.shown.load(Relaxed)
    }

    /// Shows the first `tokens` alone. The evictor's.
    pub(crate) fn show(self, tokens: u32) {
        // Relaxed: as in `shown`.
        self.shown.store(tokens.min(self.tokens), Relaxed);
    }

    /// Notes that a draft names it, until [`unname`](Self::unname). The evictor's, as the next two.
    pub(crate) fn name(self) {
        self.drafts.store(NAMED, Relaxed);
    }

    /// Notes that it has left the tree; whether a draft names it.
    pub(crate) fn leave(self) -> bool {
        // Relaxed, here as in the others: the evictor alone reads and writes it.
        let is_named = self.drafts.load(Relaxed) & NAMED != 0;
        if is_named {
            self.drafts.store(NAMED | LEFT, Relaxed);
        }
        is_named
    }

    /// Notes that no draft names it any more; whether it has left the tree.
    pub(crate) fn unname(self) -> bool {
        let has_left = self.drafts.load(Relaxed) & LEFT != 0;
        self.drafts.store(0, Relaxed);
        has_left
    }

    pub(crate) fn len_tokens(self) -> usize {
        self.tokens as usize
    }
}

// SAFETY: the layout is that of `allocate`, computed from the lengths in the header; nothing is to be dropped.
unsafe impl Node for Arrays {
    fn bytes(&self) -> usize {
        self.layout().size()
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }

    fn layout(&self) -> Layout {
        Parts::of(self.tokens as usize, self.blocks as usize).layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_any_run_lie_within_its_allocation() {
        for (tokens, blocks) in [(0, 0), (1, 0), (1, 1), (3, 2), (5, 3), (255, 7), (256, 0), (257, 1), (1000, 999)] {
            let parts = Parts::of(tokens, blocks);
            for address in (0..=2 * CACHE_LINE).step_by(align_of::<Arrays>()) {
                let tokens_at = parts.tokens_at(address) as usize * size_of::<Token>();
                assert!(
                    tokens_at >= size_of::<Arrays>() + blocks * size_of::<BlockId>(),
                    "{tokens}, {blocks} at {address}"
                );
                assert!(
                    tokens_at + tokens * size_of::<Token>() <= parts.layout.size(),
                    "{tokens}, {blocks} at {address}"
                );
            }
        }
    }

    #[test]
    fn no_more_is_shown_than_there_is() {
        let domain = crate::reclaim::Domain::new();
        let local = domain.register();
        let guard = local.pin();
        let arrays = Arrays::allocate(&[7, 8, 9], &[1], &guard).publish();
        for (asked, shown) in [(3, 3), (4, 3), (u32::MAX, 3), (1, 1), (0, 0), (2, 2)] {
            arrays.show(asked);
            assert_eq!(
                (arrays.shown(), arrays.shown_tokens().len(), arrays.tokens().len()),
                (shown, shown as usize, 3)
            );
        }
        guard.retire(arrays);
    }

    /// Nothing is allocated: the longest sequence alone takes eight gigabytes.
    #[test]
    fn the_longest_run_of_the_smallest_blocks_has_a_layout() {
        let longest = crate::cache::MAX_TOKENS;
        for len in [1 << 28, (1 << 30) - 6, (1 << 30) - 4, longest - 1, longest] {
            let parts = Parts::of(len, len);
            for address in (0..=CACHE_LINE).step_by(align_of::<Arrays>()) {
                let tokens_at = parts.tokens_at(address) as usize * size_of::<Token>();
                assert!(
                    (parts.tokens_from..=parts.layout.size() - len * size_of::<Token>()).contains(&tokens_at),
                    "{len}"
                );
                assert_eq!((address + tokens_at) % CACHE_LINE, 0, "{len} at {address}");
            }
        }
    }
}
