//! The depot of one size: the slabs that have slots to give, and the slots that threads have freed.
//!
//! Slots move in bulk: a magazine is filled with some at once, and a batch of garbage comes back as one chain. A thread waits
//! for no other one. Freed slots are pushed on a stack, and the thread that has the lock, or the next one to take it, sorts
//! them into their slabs. A thread that needs slots while another one has the lock takes a new slab.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E20 | `take_back` | `sort_in` | what a node's last user did to a slot comes before its next user |

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

/// Bytes of slots that a magazine is filled with at most, and how many slots.
const LOAD: usize = 4096;
const SLOTS: usize = model_size(64, 1);

/// How often a thread looks for the lock before it takes a new slab.
const PATIENCE: usize = model_size(100, 1);

/// The depot of one class.
#[derive(Debug)]
pub(super) struct Depot {
    class: Class,
    /// Freed slots that are not sorted into their slabs yet.
    returned: AtomicPtr<Slot>,
    /// The first of the slabs with slots to give.
    slabs: Mutex<Slabs>,
}

#[derive(Debug)]
struct Slabs {
    first: *mut Slab,
}

// SAFETY: a list of slabs is an address; its headers belong to the thread that has the lock around it (S3).
unsafe impl Send for Slabs {}

impl Depot {
    pub(super) fn new(class: Class) -> Self {
        Self {
            class,
            returned: AtomicPtr::new(std::ptr::null_mut()),
            slabs: Mutex::new(Slabs { first: std::ptr::null_mut() }),
        }
    }

    /// Some slots; a new slab if there are none or another thread has the lock.
    #[cold]
    pub(super) fn fill(&self, home: &Memory) -> Magazine {
        if let Some(mut slabs) = self.patiently() {
            self.sort_in(&mut slabs, &home.stock);
            if let Some(slab) = SlabRef::from_ptr(slabs.first) {
                let magazine = slab.hand_out(self.load(), self.class);
                if slab.is_exhausted(self.class) {
                    slabs.remove(slab);
                }
                return magazine;
            }
        }
        let (memory, source) = home.stock.take();
        // Writing the header is the first use of the memory, which may take the system a while: under no lock.
        let slab = SlabRef::make(memory, source, NonNull::from(home));
        let magazine = slab.hand_out(self.load(), self.class);
        match self.patiently() {
            Some(mut slabs) => {
                slabs.add(slab);
                magazine
            }
            None => slab.join_rest(magazine, self.class),
        }
    }

    fn load(&self) -> usize {
        (LOAD / self.class.size()).clamp(1, SLOTS)
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

    /// Takes a chain of slots back that nothing uses.
    pub(super) fn take_back(&self, chain: Chain, stock: &Stock) {
        if chain.is_empty() {
            return;
        }
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
        // A thread that has the lock now may be past its look: then the next one to take it sorts them in.
        if let Some(mut slabs) = self.slabs.try_lock() {
            self.sort_in(&mut slabs, stock);
        }
    }

    /// Gives freed slots to their slabs, and slabs without a slot in use to the stock.
    fn sort_in(&self, slabs: &mut Slabs, stock: &Stock) {
        // Relaxed: a hint; what comes later waits for the next look.
        if self.returned.load(Relaxed).is_null() {
            return;
        }
        // Acquire: E20.
        let first = self.returned.swap(std::ptr::null_mut(), Acquire);
        let mut chain = Chain { first, last: first };
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

    /// Gives back what is in the depot when nothing is in use any more.
    pub(super) fn close(&mut self, stock: &Stock) {
        let depot = &*self;
        if let Some(mut slabs) = depot.slabs.try_lock() {
            depot.sort_in(&mut slabs, stock);
        }
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
