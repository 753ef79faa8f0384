//! An allocator without locks: a thread that is stopped inside it holds up no other.
//!
//! Each thread takes memory from lists of its own, one for each power of two, and from a chunk of
//! its own where they are empty. What another thread has allocated goes to the lists of the thread
//! that frees it; a list that grows long leaves a batch in a place from which any thread takes it,
//! by one read-modify-write. Nothing goes back to the system but what was too large for a chunk.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed},
};

const CHUNK: usize = 4 << 20;
/// The smallest piece, and how many sizes there are: up to half a chunk.
const SMALLEST: usize = 16;
const SIZES: usize = 18;
/// Up to here a piece is aligned to its size: slabs of the index are, and find their header by it.
const MOST_ALIGNED: usize = 64 << 10;

/// Pieces that go to another thread at once.
const BATCH: usize = 32;
/// Batches of one size that may wait.
const PLACES: usize = 64;

/// A free piece: its first word leads to the next one.
struct Piece {
    next: *mut Piece,
}

/// One thread's free pieces, and the rest of its chunk.
struct Own {
    free: [Cell<*mut Piece>; SIZES],
    count: [Cell<usize>; SIZES],
    next: Cell<*mut u8>,
    left: Cell<usize>,
}

thread_local!(static OWN: Own = const {
    Own {
        free: [const { Cell::new(null_mut()) }; SIZES],
        count: [const { Cell::new(0) }; SIZES],
        next: Cell::new(null_mut()),
        left: Cell::new(0),
    }
});

/// Batches on their way from one thread to another, by size.
static BATCHES: [[AtomicPtr<Piece>; PLACES]; SIZES] = [const { [const { AtomicPtr::new(null_mut()) }; PLACES] }; SIZES];

pub struct Arena;

// SAFETY: a piece is in one list or with one user, is as large and as aligned as its size says, and
// stays mapped.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match size_of(layout) {
            Some(size) => OWN.with(|own| own.take(size)),
            None => map(layout.size()),
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match size_of(layout) {
            Some(size) => OWN.with(|own| own.put(memory.cast(), size)),
            None => {
                // SAFETY: mapped by `alloc` with this length.
                unsafe { libc::munmap(memory.cast(), layout.size()) };
            }
        }
    }
}

/// Which list serves the layout; none if it is larger than they are.
fn size_of(layout: Layout) -> Option<usize> {
    assert!(layout.align() <= MOST_ALIGNED, "no piece has such an alignment");
    let bytes = layout.size().max(layout.align()).max(SMALLEST).next_power_of_two();
    let size = (bytes / SMALLEST).trailing_zeros() as usize;
    (size < SIZES).then_some(size)
}

fn map(bytes: usize) -> *mut u8 {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: asks for new memory, wherever there is some.
    let memory = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    if memory == libc::MAP_FAILED { null_mut() } else { memory.cast() }
}

impl Own {
    fn take(&self, size: usize) -> *mut u8 {
        if self.free[size].get().is_null() && !self.fetch(size) {
            return self.cut(SMALLEST << size);
        }
        let piece = self.free[size].get();
        // SAFETY: a piece in the list is free and this thread's.
        self.free[size].set(unsafe { (*piece).next });
        self.count[size].set(self.count[size].get() - 1);
        piece.cast()
    }

    /// Cuts a new piece off the chunk; what is left of an old one is let go of.
    fn cut(&self, bytes: usize) -> *mut u8 {
        let gap = self.next.get().align_offset(bytes.min(MOST_ALIGNED));
        if self.left.get() < gap + bytes {
            self.next.set(map(CHUNK));
            self.left.set(if self.next.get().is_null() { 0 } else { CHUNK });
            return if self.left.get() == 0 { null_mut() } else { self.cut(bytes) };
        }
        let piece = self.next.get().wrapping_add(gap);
        self.next.set(piece.wrapping_add(bytes));
        self.left.set(self.left.get() - gap - bytes);
        piece
    }

    fn put(&self, piece: *mut Piece, size: usize) {
        // SAFETY: freed just now, and no smaller than a pointer.
        unsafe { piece.write(Piece { next: self.free[size].get() }) };
        self.free[size].set(piece);
        self.count[size].set(self.count[size].get() + 1);
        let count = self.count[size].get();
        if count >= 2 * BATCH && count % BATCH == 0 {
            self.leave(size);
        }
    }

    /// Leaves the first pieces of a list to others, if a place is empty.
    fn leave(&self, size: usize) {
        let Some(place) = BATCHES[size].iter().find(|place| place.load(Relaxed).is_null()) else {
            return;
        };
        let first = self.free[size].get();
        let mut last = first;
        for _ in 1..BATCH {
            // SAFETY: the list has more pieces than a batch.
            last = unsafe { (*last).next };
        }
        // SAFETY: as above.
        let rest = unsafe { (*last).next };
        // SAFETY: as above.
        unsafe { (*last).next = null_mut() };
        if place.compare_exchange(null_mut(), first, AcqRel, Relaxed).is_ok() {
            self.free[size].set(rest);
            self.count[size].set(self.count[size].get() - BATCH);
        } else {
            // SAFETY: as above; the batch is still this thread's.
            unsafe { (*last).next = rest };
        }
    }

    /// Takes a batch that another thread has left.
    fn fetch(&self, size: usize) -> bool {
        let filled = BATCHES[size].iter().filter(|place| !place.load(Relaxed).is_null());
        let batch = filled.map(|place| place.swap(null_mut(), Acquire)).find(|batch| !batch.is_null());
        if let Some(batch) = batch {
            self.free[size].set(batch);
            self.count[size].set(BATCH);
        }
        batch.is_some()
    }
}
