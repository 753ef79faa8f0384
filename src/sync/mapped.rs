//! Slices for large tables, whose memory comes directly from the system and returns to it on drop.
//!
//! A heap cannot return freed memory between allocations that are still in use. The evictor's
//! tables grow and shrink by megabytes, so each of their larger pages is its own mapping. This is
//! in `sync` because only some builds have mappings.
//!
//! # Invariants
//!
//! - **MP1** The items are `len` initialised values, in the mapping if there is one, or else in a
//!   leaked box.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use memmap2::{MmapMut, MmapOptions};

/// Smaller allocations come from the global allocator, which is faster than the system.
const SMALLEST: usize = 4 << 10;

thread_local! {
    static UNMAPPING: Unmapping = const { Unmapping { later: Cell::new(false), dropped: RefCell::new(ManuallyDrop::new(Vec::new())) } };
}

/// A thread's dropped mappings.
struct Unmapping {
    /// Whether the thread has an [`UnmapsLater`], which keeps them.
    later: Cell<bool>,
    /// The mappings kept; empty when the thread ends.
    dropped: RefCell<ManuallyDrop<Vec<MmapMut>>>,
}

/// While this exists, its thread keeps the mappings that it drops; they are unmapped when this is
/// dropped. For a thread that is about to hold a lock, because unmapping takes some microseconds.
#[derive(Debug)]
pub(crate) struct UnmapsLater {
    /// Bound to its thread.
    thread: PhantomData<*const ()>,
}

impl UnmapsLater {
    /// Begins to keep mappings; `None` if this thread already does.
    #[inline]
    pub(crate) fn begin() -> Option<Self> {
        let is_first = UNMAPPING.with(|unmapping| !unmapping.later.replace(true));
        is_first.then(|| Self { thread: PhantomData })
    }
}

impl Drop for UnmapsLater {
    #[inline]
    fn drop(&mut self) {
        UNMAPPING.with(|Unmapping { later, dropped }| {
            later.set(false);
            if !dropped.borrow().is_empty() {
                // Taken out first, so that the cell is not borrowed while they are unmapped.
                let dropped = std::mem::take(&mut **dropped.borrow_mut());
                drop(dropped);
            }
        });
    }
}

/// A slice of values, in its own mapping if it is large.
pub(crate) struct Mapped<T> {
    items: NonNull<[T]>,
    mapping: Option<MmapMut>,
}

// SAFETY: MP1: it owns the values, as a box does.
unsafe impl<T: Send> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T: Copy> Mapped<T> {
    /// Makes `len` copies of `value`. They come from the global allocator if they are small or the
    /// system gives no mapping.
    pub(crate) fn filled(value: T, len: usize) -> Self {
        let wanted = !cfg!(any(radixkv_loom, radixkv_shuttle, radixkv_heap, miri)) && size_of::<T>() * len >= SMALLEST;
        let mapping = wanted.then(|| MmapOptions::new().len(size_of::<T>() * len).map_anon().ok()).flatten();
        let Some(mut mapping) = mapping else {
            let items = NonNull::from(Box::leak(vec![value; len].into_boxed_slice()));
            return Self { items, mapping: None };
        };
        let first = NonNull::new(mapping.as_mut_ptr().cast::<T>()).expect("a mapping is not at address zero");
        for at in 0..len {
            // SAFETY: the mapping has room for `len` values, and begins at a page of the system,
            // which aligns any value.
            unsafe { first.as_ptr().wrapping_add(at).write(value) };
        }
        Self { items: NonNull::slice_from_raw_parts(first, len), mapping: Some(mapping) }
    }
}

impl<T> Deref for Mapped<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: MP1.
        unsafe { self.items.as_ref() }
    }
}

impl<T> DerefMut for Mapped<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: MP1.
        unsafe { self.items.as_mut() }
    }
}

impl<T> Drop for Mapped<T> {
    /// Values in a mapping are `Copy` and need no drop.
    fn drop(&mut self) {
        let Some(mapping) = self.mapping.take() else {
            // SAFETY: MP1: leaked by `filled`, and dropped once.
            drop(unsafe { Box::from_raw(self.items.as_ptr()) });
            return;
        };
        UNMAPPING.with(|Unmapping { later, dropped }| {
            if later.get() {
                dropped.borrow_mut().push(mapping);
            }
        });
    }
}

impl<T: fmt::Debug> fmt::Debug for Mapped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
