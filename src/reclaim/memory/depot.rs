//! The depot of one size class: the slabs with free slots, and the slots that threads have freed.
//!
//! Slots move in bulk: a magazine is filled with several at once, and a batch of garbage is
//! returned as chains. A chain that is long enough for a magazine is kept whole in one of a few
//! places and becomes the next magazine; its slots are not touched. Other freed slots are pushed on
//! a stack; the lock holder, or the next thread to take the lock, sorts them into their slabs. No
//! thread waits for another: if the lock stays busy, a thread that needs slots takes a new slab.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E20 | `take_back`, `keep` | `sort_in`, `take_kept` | accesses by a slot's last user happen before its next use |

use std::ptr::NonNull;

use super::Memory;
use super::class::Class;
use super::segment::Stock;
use super::slab::{Chain, Magazine, Slab, SlabRef, Slot, set_next};
use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sync::{Mutex, MutexGuard, model_size, spin_loop};

/// Number of places for chains that are kept whole.
const KEPT: usize = model_size(8, 1);

/// How often a thread tries the lock before it takes a new slab.
const PATIENCE: usize = model_size(100, 1);

/// The depot of one class.
#[derive(Debug)]
pub(super) struct Depot {
    class: Class,
    /// The first slots of chains that are kept whole.
    kept: [AtomicPtr<Slot>; KEPT],
    /// The stack of freed slots that are not sorted into their slabs yet.
    returned: AtomicPtr<Slot>,
    /// The list of slabs with free slots.
    slabs: Mutex<Slabs>,
}

#[derive(Debug)]
struct Slabs {
    first: *mut Slab,
}

// SAFETY: a list of slabs is an address; the headers belong to the holder of the lock around it
// (S3).
unsafe impl Send for Slabs {}

impl Depot {
    pub(super) fn new(class: Class) -> Self {
        Self {
            class,
            kept: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            returned: AtomicPtr::new(std::ptr::null_mut()),
            slabs: Mutex::new(Slabs { first: std::ptr::null_mut() }),
        }
    }

    /// Returns a filled magazine, from a new slab if no slots are free or another thread has the
    /// lock.
    #[cold]
    pub(super) fn fill(&self, home: &Memory) -> Magazine {
        if let Some(kept) = self.take_kept() {
            return Magazine::of(kept);
        }
        if let Some(mut slabs) = self.patiently() {
            self.sort_in(&mut slabs, &home.stock);
            if let Some(slab) = SlabRef::from_ptr(slabs.first) {
                let magazine = slab.hand_out(self.class.load(), self.class);
                if slab.is_exhausted(self.class) {
                    slabs.remove(slab);
                }
                return magazine;
            }
        }
        let (memory, source) = home.stock.take();
        // Without the lock: writing the header is the first access to the memory, and its page
        // fault may take a while.
        let slab = SlabRef::make(memory, source, NonNull::from(home));
        let magazine = slab.hand_out(self.class.load(), self.class);
        match self.patiently() {
            Some(mut slabs) => {
                slabs.add(slab);
                magazine
            }
            None => slab.join_rest(magazine, self.class),
        }
    }

    fn patiently(&self) -> Option<MutexGuard<'_, Slabs>> {
        for _ in 0..PATIENCE {
            if let Some(slabs) = self.slabs.try_lock() {
                return Some(slabs);
            }
            spin_loop();
        }
        None
    }

    /// Takes a chain that was kept whole, if there is one.
    fn take_kept(&self) -> Option<Chain> {
        // Relaxed: a cheap check before the swap. Acquire: E20.
        let mut filled = self.kept.iter().filter(|place| !place.load(Relaxed).is_null());
        let first = filled.find_map(|place| NonNull::new(place.swap(std::ptr::null_mut(), Acquire)))?;
        Some(Chain::from_first(first.as_ptr()))
    }

    /// Keeps a chain whole; false if it is too short or no place is free.
    fn keep(&self, chain: &Chain) -> bool {
        let place_in = |place: &AtomicPtr<Slot>| {
            // Relaxed: a cheap check before the compare-and-swap. Release: E20.
            place.load(Relaxed).is_null()
                && place.compare_exchange(std::ptr::null_mut(), chain.first, Release, Relaxed).is_ok()
        };
        chain.len >= self.class.fewest_kept() && self.kept.iter().any(place_in)
    }

    /// Takes back a chain of slots that nothing uses.
    pub(super) fn take_back(&self, chain: Chain, stock: &Stock) {
        if chain.is_empty() || self.keep(&chain) {
            return;
        }
        self.push(chain);
        // If another thread has the lock and has already emptied the stack, the next lock holder
        // sorts these slots in.
        if let Some(mut slabs) = self.slabs.try_lock() {
            self.sort_in(&mut slabs, stock);
        }
    }

    /// Sorts the slots of whole chains into their slabs. It takes at most `KEPT` chains, so that it
    /// ends even while other threads free slots.
    pub(super) fn keep_none(&self, stock: &Stock) {
        for mut kept in (0..KEPT).map_while(|_| self.take_kept()) {
            // `last` of a kept chain is unknown, so its slots are chained again.
            let mut chain = Chain::empty();
            std::iter::from_fn(|| kept.pop()).for_each(|slot| chain.push(slot));
            self.push(chain);
        }
        if let Some(mut slabs) = self.slabs.try_lock() {
            self.sort_in(&mut slabs, stock);
        }
    }

    /// Pushes a chain on the stack of unsorted slots.
    fn push(&self, chain: Chain) {
        // Relaxed: the compare-and-swap checks it.
        let mut head = self.returned.load(Relaxed);
        loop {
            set_next(chain.last, head);
            // Release: E20.
            match self.returned.compare_exchange_weak(head, chain.first, Release, Relaxed) {
                Ok(_) => break,
                Err(seen) => head = seen,
            }
        }
    }

    /// Sorts freed slots into their slabs, and gives slabs without a used slot to the stock.
    fn sort_in(&self, slabs: &mut Slabs, stock: &Stock) {
        // Relaxed: a hint; slots pushed later wait for the next call.
        if self.returned.load(Relaxed).is_null() {
            return;
        }
        // Acquire: E20.
        let first = self.returned.swap(std::ptr::null_mut(), Acquire);
        let mut chain = Chain::from_first(first);
        while let Some(slot) = chain.pop() {
            let slab = SlabRef::of(slot.as_ptr());
            let empty = slab.take_back(slot);
            if !slab.header().listed {
                slabs.add(slab);
            }
            if empty {
                slabs.remove(slab);
                let (memory, source) = slab.memory();
                if !stock.give_back(memory, source) {
                    slabs.add(slab);
                }
            }
        }
    }

    /// Gives all slabs back. No slot may be in use.
    pub(super) fn close(&mut self, stock: &Stock) {
        self.keep_none(stock);
    }
}

impl Slabs {
    fn add(&mut self, slab: SlabRef) {
        let header = slab.header();
        (header.before, header.after, header.listed) = (std::ptr::null_mut(), self.first, true);
        if let Some(after) = SlabRef::from_ptr(self.first) {
            after.header().before = slab.as_ptr();
        }
        self.first = slab.as_ptr();
    }

    fn remove(&mut self, slab: SlabRef) {
        let header = slab.header();
        header.listed = false;
        let (before, after) = (header.before, header.after);
        match SlabRef::from_ptr(before) {
            Some(before) => before.header().after = after,
            None => self.first = after,
        }
        if let Some(after) = SlabRef::from_ptr(after) {
            after.header().before = before;
        }
    }
}
