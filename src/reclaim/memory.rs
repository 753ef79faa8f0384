//! The allocator of the index's nodes: slots of fixed sizes in slabs that belong to one cache.
//!
//! An index allocates and frees three nodes per run. They are small and have few sizes; all threads
//! allocate them, and any thread may collect the garbage and free them in batches. So each
//! participant has a *magazine* of free slots per size, which it uses without a lock. When it frees
//! a batch from its own *bay* (`epoch`), it keeps the slots for its next magazines. The *depot* of
//! a size fills magazines and takes batches back. The *stock* cuts slabs out of segments, each of
//! which the system may back with one large page, and returns empty ones. Nodes are close together
//! and separate from other data.
//!
//! | file | holds |
//! |---|---|
//! | `class` | the sizes of slots |
//! | `slab` | a slab: its header and its slots; chains and magazines of free ones |
//! | `depot` | slabs with free slots; freed slots |
//! | `segment` | memory from the system |
//!
//! Nodes larger than 4 KiB, the arrays of long runs, come from the global allocator. A point is one
//! cache line and a run two, and their slots begin on a line, so that threads that use neighbouring
//! nodes do not share lines.
//!
//! # Memory that is returned to the system
//!
//! A slab without nodes is returned to its segment, and an empty segment to the system. A bounded
//! number of empty slabs keep their memory (`segment`). Chains that depots keep whole are sorted
//! into their slabs when much of the slabs' memory is unused. When nothing is cached any more, an
//! eviction, a clear, `settle` and the end of a session also take back the magazines of idle
//! participants (`Inner::reclaim`).
//!
//! With `--cfg radixkv_heap` all nodes come from the global allocator, which sanitizers can check.
//!
//! # Invariants
//!
//! - **S1** A slot contains a node, or it is free and in exactly one magazine, chain or slab. A
//!   chain belongs to a depot, to the magazines that keep it as a spare, or to the thread that is
//!   freeing. A retired node in a bay is still in its slot. The [`Memory`] outlives its slots.
//! - **S2** The first word of a free slot in a chain or slab points to the next free slot. Only the
//!   thread that owns the slot's magazine, chain or slab touches it.
//! - **S3** The header of a slab belongs to the holder of its depot's lock, or, before the slab is
//!   listed, to the thread that made it. Its `home` never changes.
//! - **S4** A slab's memory is returned only when none of its slots is in use, so no pointer leads
//!   into it.

mod class;
mod depot;
mod segment;
mod slab;

use std::alloc::{Layout, dealloc};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use class::{CLASSES, Class};
use depot::Depot;
use segment::{Stock, allocate};
use slab::{Chain, Magazine, SlabRef};

use crate::sync::prefetch_bytes;

/// Maximum spare slots of each size that a participant keeps, in magazines.
const SPARE: usize = 4;

/// Maximum bytes of a slot to prefetch: more would evict other data from the L1 cache.
const PREFETCHED: usize = 2048;

/// The memory of one cache's nodes.
#[derive(Debug)]
pub(crate) struct Memory {
    depots: [CachePadded<Depot>; CLASSES],
    stock: Stock,
}

// SAFETY: S1, S3: its pointers lead to slots and headers, which belong to the thread that took them
// or holds the depot's lock.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new() -> Self {
        Self { depots: Class::all().map(|class| CachePadded::new(Depot::new(class))), stock: Stock::new() }
    }

    /// Sorts the slots of whole chains into their slabs: a slab with a slot in a chain cannot be
    /// returned to the system.
    pub(crate) fn sort_in(&self) {
        self.depots.iter().for_each(|depot| depot.keep_none(&self.stock));
    }

    /// Returns memory that an idle cache does not need to the system.
    pub(crate) fn cool_down(&self) {
        self.sort_in();
        self.stock.cool_down();
    }

    /// Bytes of the stock's memory.
    pub(crate) fn slab_bytes(&self) -> usize {
        self.stock.bytes()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Self { depots, stock } = self;
        depots.iter_mut().for_each(|depot| depot.close(stock));
    }
}

/// The free slots of one participant: a magazine per size.
#[derive(Debug)]
pub(crate) struct Magazines {
    each: Box<RefCell<[Magazine; CLASSES]>>,
    /// Slots that the owner has freed, for the next magazines.
    spare: RefCell<Option<Box<[Chain; CLASSES]>>>,
    /// Whether a magazine was filled since all were last emptied.
    filled: Cell<bool>,
}

// SAFETY: S1: its slots belong to its owner, which one thread uses at a time.
unsafe impl Send for Magazines {}

impl Magazines {
    pub(crate) fn new() -> Self {
        let each = Box::new(RefCell::new(std::array::from_fn(|_| Magazine::empty())));
        Self { each, spare: RefCell::new(None), filled: Cell::new(false) }
    }

    /// Allocates memory for a node of this layout, which is not empty. If no slot is left, calls
    /// `free`, which frees the owner's ripe garbage. Lock-free, except for calls to the system.
    #[inline]
    pub(crate) fn allocate(&self, layout: Layout, memory: &Memory, free: impl FnOnce()) -> NonNull<u8> {
        let Some(class) = Class::of(layout) else {
            return allocate(layout);
        };
        let taken = self.each.borrow_mut()[class.index()].take(class);
        taken.unwrap_or_else(|| self.refill(class, memory, free))
    }

    /// Prefetches the slot that the next node of this layout gets, if the magazine has one.
    #[inline]
    pub(crate) fn prefetch(&self, layout: Layout) {
        if let Some(class) = Class::of(layout) {
            prefetch_bytes(self.each.borrow()[class.index()].next(), layout.size().min(PREFETCHED));
        }
    }

    /// Fills the magazine of a size and takes a slot from it.
    #[cold]
    #[inline(never)]
    fn refill(&self, class: Class, memory: &Memory, free: impl FnOnce()) -> NonNull<u8> {
        self.filled.set(true);
        let mut spare = self.take_spare(class);
        if spare.is_empty() {
            free();
            spare = self.take_spare(class);
        }
        let magazine = &mut self.each.borrow_mut()[class.index()];
        *magazine = Magazine::of(spare);
        loop {
            if let Some(slot) = magazine.take(class) {
                return slot;
            }
            *magazine = memory.depots[class.index()].fill(memory);
        }
    }

    fn take_spare(&self, class: Class) -> Chain {
        let mut spare = self.spare.borrow_mut();
        spare.as_mut().map_or_else(Chain::empty, |spare| std::mem::replace(&mut spare[class.index()], Chain::empty()))
    }

    /// Keeps a chain of freed slots for the next magazine; returns it if there are enough spare
    /// slots.
    fn keep(&self, class: Class, chain: Chain) -> Option<Chain> {
        let mut all = self.spare.borrow_mut();
        let all = all.get_or_insert_with(|| Box::new(std::array::from_fn(|_| Chain::empty())));
        let spare = &mut all[class.index()];
        if spare.len + chain.len > SPARE * class.most_kept() {
            return Some(chain);
        }
        self.filled.set(true);
        spare.join(chain);
        None
    }

    /// Gives all slots back to the depots; false if no magazine was filled since the last call.
    pub(crate) fn empty_out(&self, memory: &Memory) -> bool {
        if !self.filled.replace(false) {
            return false;
        }
        for (class, magazine) in Class::all().into_iter().zip(&mut *self.each.borrow_mut()) {
            memory.depots[class.index()].take_back(magazine.empty_out(class), &memory.stock);
            memory.depots[class.index()].take_back(self.take_spare(class), &memory.stock);
        }
        true
    }
}

/// Memory of freed nodes, collected by size so that depots take it back in chains.
#[derive(Debug)]
pub(crate) struct Freed<'m> {
    memory: &'m Memory,
    /// Gets the slots first, while it has room.
    keeps: Option<&'m Magazines>,
    chains: [Chain; CLASSES],
}

impl<'m> Freed<'m> {
    pub(crate) fn new(memory: &'m Memory, keeps: Option<&'m Magazines>) -> Self {
        Self { memory, keeps, chains: std::array::from_fn(|_| Chain::empty()) }
    }

    /// Adds the memory of one freed node.
    ///
    /// # Safety
    ///
    /// It was allocated with this layout in the same cache's memory, and nothing uses it.
    #[inline]
    pub(crate) unsafe fn add(&mut self, node: NonNull<u8>, layout: Layout) {
        match Class::of(layout) {
            Some(class) => {
                let chain = &mut self.chains[class.index()];
                chain.push(node);
                if chain.len == class.most_kept() {
                    self.take_back(class);
                }
            }
            // SAFETY: as the caller promised.
            None => unsafe { dealloc(node.as_ptr(), layout) },
        }
    }

    /// Gives a chain to the magazines, or back to its depot.
    #[cold]
    fn take_back(&mut self, class: Class) {
        let chain = std::mem::replace(&mut self.chains[class.index()], Chain::empty());
        let left = match self.keeps {
            Some(magazines) if !chain.is_empty() => magazines.keep(class, chain),
            _ => Some(chain),
        };
        if let Some(chain) = left {
            self.memory.depots[class.index()].take_back(chain, &self.memory.stock);
        }
    }
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        Class::all().into_iter().for_each(|class| self.take_back(class));
    }
}

/// Frees the memory of one node.
///
/// # Safety
///
/// It was allocated with this layout by [`Magazines::allocate`], and nothing uses it.
pub(crate) unsafe fn free(node: NonNull<u8>, layout: Layout) {
    match Class::of(layout) {
        Some(class) => {
            let home = SlabRef::of(node.as_ptr()).home();
            let mut chain = Chain::empty();
            chain.push(node);
            home.depots[class.index()].take_back(chain, &home.stock);
        }
        // SAFETY: as the caller promised.
        None => unsafe { dealloc(node.as_ptr(), layout) },
    }
}
