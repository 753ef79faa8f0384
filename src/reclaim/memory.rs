//! Memory of the index's nodes: slots of fixed sizes in slabs of the cache's own.
//!
//! An index makes and frees three nodes for each run. They are small, of few sizes, made by all
//! threads and freed in batches by whichever thread collects the garbage. So each participant has
//! a *magazine* of free slots of each size, which it uses without any lock; the *depot* of a size
//! fills magazines and takes batches back; the *stock* cuts slabs out of segments that the system
//! may give as one large page, and gives empty ones back. Nodes lie close together and apart from
//! everything else, and what a cache does not need any more goes back to the system.
//!
//! | file | holds |
//! |---|---|
//! | `class` | the sizes of slots |
//! | `slab` | a slab: its header and its slots; chains and magazines of free ones |
//! | `depot` | slabs with slots to give; slots that were freed |
//! | `segment` | memory from the system |
//!
//! Nodes of more than 4 KiB, which are the arrays of long runs, come from the global allocator. A
//! point is one cache line and a run two, and their slots begin on a line: else threads that use
//! neighbouring nodes disturb each other.
//!
//! # What goes back to the system
//!
//! A slab without a node goes back to its segment, an empty segment to the system. Empty slabs keep
//! their memory up to a bound (`segment`). Magazines that depots keep go to their slabs when slabs
//! have much more than what is in use. When nothing is cached any more, an eviction, a clear,
//! `settle` and the end of a session also take back the magazines of idle participants
//! (`Inner::reclaim`).
//!
//! With `--cfg radixkv_heap` nodes come from the global allocator, where sanitizers look.
//!
//! # Invariants
//!
//! - **S1** A slot is a node's, or it is free and in one magazine, chain or slab. The memory
//!   outlives its slots.
//! - **S2** A free slot's first word leads to the next one. Only the thread that has its magazine,
//!   chain or slab touches it.
//! - **S3** The header of a slab belongs to the thread that has the lock of its depot, and until it
//!   is listed to the thread that made it. Its `home` never changes.
//! - **S4** A slab's memory goes back when none of its slots is in use: then no address leads
//!   there.

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

/// The most of a slot that is prefetched, in bytes: more would drive other things out of the first
/// cache.
const PREFETCHED: usize = 2048;

/// The memory of one cache's nodes.
#[derive(Debug)]
pub(crate) struct Memory {
    depots: [CachePadded<Depot>; CLASSES],
    stock: Stock,
}

// SAFETY: S1, S3: the pointers in it are to slots and headers that belong to the thread that has
// them, or the depot's lock.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new() -> Self {
        Self { depots: Class::all().map(|class| CachePadded::new(Depot::new(class))), stock: Stock::new() }
    }

    /// Gives freed slots that are kept together to their slabs: each keeps one from going back to
    /// the system.
    pub(crate) fn sort_in(&self) {
        self.depots.iter().for_each(|depot| depot.keep_none(&self.stock));
    }

    /// Gives the system back what an idle cache does not need.
    pub(crate) fn cool_down(&self) {
        self.sort_in();
        self.stock.cool_down();
    }

    /// Bytes that slabs have from the system or the global allocator.
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

/// Free slots of one participant.
#[derive(Debug)]
pub(crate) struct Magazines {
    each: Box<RefCell<[Magazine; CLASSES]>>,
    /// One was filled since all were emptied.
    filled: Cell<bool>,
}

// SAFETY: S1: the slots in it belong to its owner, which is one thread at a time.
unsafe impl Send for Magazines {}

impl Magazines {
    pub(crate) fn new() -> Self {
        let each = Box::new(RefCell::new(std::array::from_fn(|_| Magazine::empty())));
        Self { each, filled: Cell::new(false) }
    }

    /// Memory for a node of this layout, which is not empty. Lock-free, but for the system.
    #[inline]
    pub(crate) fn allocate(&self, layout: Layout, memory: &Memory) -> NonNull<u8> {
        let Some(class) = Class::of(layout) else {
            return allocate(layout);
        };
        let taken = self.each.borrow_mut()[class.index()].take(class);
        taken.unwrap_or_else(|| self.refill(class, memory))
    }

    /// Prefetches the slot that the next node of this layout gets, if it is there.
    #[inline]
    pub(crate) fn prefetch(&self, layout: Layout) {
        if let Some(class) = Class::of(layout) {
            prefetch_bytes(self.each.borrow()[class.index()].next(), layout.size().min(PREFETCHED));
        }
    }

    /// A slot of a full magazine.
    #[cold]
    fn refill(&self, class: Class, memory: &Memory) -> NonNull<u8> {
        self.filled.set(true);
        let magazine = &mut self.each.borrow_mut()[class.index()];
        loop {
            *magazine = memory.depots[class.index()].fill(memory);
            if let Some(slot) = magazine.take(class) {
                return slot;
            }
        }
    }

    /// Gives all slots back; false if there are none.
    pub(crate) fn empty_out(&self, memory: &Memory) -> bool {
        if !self.filled.replace(false) {
            return false;
        }
        for (class, magazine) in Class::all().into_iter().zip(&mut *self.each.borrow_mut()) {
            memory.depots[class.index()].take_back(magazine.empty_out(class), &memory.stock);
        }
        true
    }
}

/// Memory that is being given back, collected by size.
#[derive(Debug)]
pub(crate) struct Freed<'m> {
    memory: &'m Memory,
    chains: [Chain; CLASSES],
}

impl<'m> Freed<'m> {
    pub(crate) fn new(memory: &'m Memory) -> Self {
        Self { memory, chains: std::array::from_fn(|_| Chain::empty()) }
    }

    /// Adds the memory of a node.
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

    /// Gives a chain back to its depot.
    #[cold]
    fn take_back(&mut self, class: Class) {
        let chain = std::mem::replace(&mut self.chains[class.index()], Chain::empty());
        self.memory.depots[class.index()].take_back(chain, &self.memory.stock);
    }
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        for (depot, chain) in self.memory.depots.iter().zip(&mut self.chains) {
            depot.take_back(std::mem::replace(chain, Chain::empty()), &self.memory.stock);
        }
    }
}

/// Gives the memory of one node back.
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
