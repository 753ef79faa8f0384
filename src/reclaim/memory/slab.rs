//! Slabs: aligned pieces of memory cut into slots of one size. Each starts with a header, which is
//! found from the address of any of its slots.
//!
//! No Rust reference to a whole slab is made, because its slots belong to other threads.

use std::ptr::{self, NonNull};

use super::Memory;
use super::class::Class;
use super::segment::{SLAB, Source};

/// Bytes reserved for the header.
const HEADER: usize = 64;

/// A free slot: its first word points to the next one.
#[derive(Debug)]
pub(super) struct Slot {
    next: *mut Slot,
}

/// A linked list of free slots of one size.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) first: *mut Slot,
    /// Valid, like `len`, only in a chain that was built by `push`.
    pub(super) last: *mut Slot,
    pub(super) len: usize,
}

impl Chain {
    pub(super) fn empty() -> Self {
        Self::from_first(ptr::null_mut())
    }

    /// The list that starts at `first`. Unless it is empty, it may only be popped.
    pub(super) fn from_first(first: *mut Slot) -> Self {
        Self { first, last: first, len: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Adds a slot that nothing uses (S2).
    #[inline]
    pub(super) fn push(&mut self, slot: NonNull<u8>) {
        let slot = slot.as_ptr().cast::<Slot>();
        if self.first.is_null() {
            self.last = slot;
        }
        set_next(slot, self.first);
        self.first = slot;
        self.len += 1;
    }

    /// Prepends another chain. Both must have been built by `push`.
    pub(super) fn join(&mut self, other: Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            self.last = other.last;
        } else {
            set_next(other.last, self.first);
        }
        self.first = other.first;
        self.len += other.len;
    }

    /// Takes the first slot off.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<NonNull<u8>> {
        let first = NonNull::new(self.first)?;
        self.first = next_of(first.as_ptr());
        Some(first.cast())
    }
}

/// The slot after `slot`, a free slot that the caller owns (S2).
#[inline]
fn next_of(slot: *mut Slot) -> *mut Slot {
    // SAFETY: S2: only the caller has the slot, and a free slot holds a link.
    unsafe { (*slot).next }
}

/// Makes `next` follow `slot`, a free slot that the caller owns (S2).
#[inline]
pub(super) fn set_next(slot: *mut Slot, next: *mut Slot) {
    // SAFETY: S2: only the caller has the slot, which is large enough and aligned for a link.
    unsafe { slot.write(Slot { next }) };
}

/// The header of a slab. All but `home` belongs to the holder of its depot's lock, or, until the
/// slab is listed, to the thread that made it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Slab {
    /// The memory whose depots take back its slots.
    home: NonNull<Memory>,
    free: *mut Slot,
    /// Offset of the first slot that was never used, in bytes from the header's start.
    fresh: u32,
    /// Slots handed out: with a node, or free in a magazine, chain or stack.
    used: u32,
    /// Whether it is in its depot's list of slabs with free slots.
    pub(super) listed: bool,
    pub(super) before: *mut Slab,
    pub(super) after: *mut Slab,
    source: Source,
}

const _: () = assert!(size_of::<Slab>() <= HEADER);

/// A pointer to a slab, through which the header's owner may use the header (S3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlabRef(NonNull<Slab>);

impl SlabRef {
    /// Writes the header of a new slab.
    pub(super) fn make(memory: NonNull<u8>, source: Source, home: NonNull<Memory>) -> Self {
        debug_assert_eq!(memory.addr().get() % SLAB, 0, "a slot finds its slab by its address");
        let slab = memory.cast::<Slab>();
        let (free, before, after) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let header = Slab { home, free, fresh: HEADER as u32, used: 0, listed: false, before, after, source };
        // SAFETY: the memory belongs to the caller, is larger than a header and aligned to its own
        // size.
        unsafe { slab.write(header) };
        Self(slab)
    }

    /// The slab that contains a slot.
    #[inline]
    pub(super) fn of(slot: *mut u8) -> Self {
        let start = slot.map_addr(|address| address & !(SLAB - 1));
        Self(NonNull::new(start.cast()).expect("a slot is not in the first page"))
    }

    pub(super) fn from_ptr(slab: *mut Slab) -> Option<Self> {
        NonNull::new(slab).map(Self)
    }

    pub(super) fn as_ptr(self) -> *mut Slab {
        self.0.as_ptr()
    }

    /// The memory that takes back its slots. Any thread that owns a slot of the slab may call this.
    #[inline]
    pub(super) fn home<'a>(self) -> &'a Memory {
        // SAFETY: S3: written before the first slot was handed out, and never again.
        let home = unsafe { (*self.as_ptr()).home };
        // SAFETY: S1: a cache's memory outlives its slots.
        unsafe { home.as_ref() }
    }

    /// The header, for the thread that may change it (S3).
    #[inline]
    pub(super) fn header<'a>(mut self) -> &'a mut Slab {
        // SAFETY: S3: the caller holds the depot's lock or is the only owner of the slab, and keeps
        // the reference no longer than that.
        unsafe { self.0.as_mut() }
    }

    /// Whether it has no free slot.
    pub(super) fn is_exhausted(self, class: Class) -> bool {
        let header = self.header();
        header.free.is_null() && header.fresh as usize + class.size() > SLAB
    }

    /// Hands out up to `n` slots: freed ones if there are any, else never-used ones.
    pub(super) fn hand_out(self, n: usize, class: Class) -> Magazine {
        let header = self.header();
        if header.free.is_null() {
            let from = header.fresh as usize;
            let slots = n.min((SLAB - from) / class.size());
            header.fresh += (slots * class.size()) as u32;
            header.used += slots as u32;
            let first = self.as_ptr().cast::<u8>().wrapping_add(from);
            return Magazine { chain: Chain::empty(), fresh: first, end: first.wrapping_add(slots * class.size()) };
        }
        let (first, mut last) = (header.free, header.free);
        let mut slots = 1;
        while slots < n && !next_of(last).is_null() {
            last = next_of(last);
            slots += 1;
        }
        header.free = next_of(last);
        set_next(last, ptr::null_mut());
        header.used += slots as u32;
        Magazine::of(Chain::from_first(first))
    }

    /// Adds the other slots of a new slab to `magazine`, which has the first ones.
    pub(super) fn join_rest(self, mut magazine: Magazine, class: Class) -> Magazine {
        let rest = self.hand_out(usize::MAX, class);
        magazine.end = magazine.end.max(rest.end);
        magazine
    }

    /// Takes a slot back; returns whether no slot of the slab is in use any more.
    pub(super) fn take_back(self, slot: NonNull<u8>) -> bool {
        let header = self.header();
        let slot = slot.as_ptr().cast::<Slot>();
        set_next(slot, header.free);
        header.free = slot;
        header.used -= 1;
        header.used == 0
    }

    /// The memory of a slab that is no longer needed, and its origin.
    pub(super) fn memory(self) -> (NonNull<u8>, Source) {
        (self.0.cast(), self.header().source)
    }
}

/// Free slots of one size for one participant: a chain of freed slots, and a range of never-used
/// ones.
#[derive(Debug)]
pub(super) struct Magazine {
    chain: Chain,
    fresh: *mut u8,
    end: *mut u8,
}

impl Magazine {
    pub(super) fn empty() -> Self {
        Self::of(Chain::empty())
    }

    /// The slots of a chain.
    pub(super) fn of(chain: Chain) -> Self {
        Self { chain, fresh: ptr::null_mut(), end: ptr::null_mut() }
    }

    #[inline]
    pub(super) fn take(&mut self, class: Class) -> Option<NonNull<u8>> {
        if let Some(slot) = self.chain.pop() {
            return Some(slot);
        }
        if self.fresh == self.end {
            return None;
        }
        let slot = NonNull::new(self.fresh);
        self.fresh = self.fresh.wrapping_add(class.size());
        slot
    }

    /// The slot that `take` returns next, if there is one.
    #[inline]
    pub(super) fn next(&self) -> *const u8 {
        if self.chain.is_empty() { self.fresh } else { self.chain.first.cast() }
    }

    /// Takes out all slots, to be given back to the depot.
    pub(super) fn empty_out(&mut self, class: Class) -> Chain {
        let mut chain = Chain::empty();
        while let Some(slot) = self.take(class) {
            chain.push(slot);
        }
        chain
    }
}
