//! Memory that a table has from the system, and gives back as soon as it is freed.
//!
//! A heap keeps what is freed between other things that live on. The evictor's tables come and go by the megabyte, so each of their
//! larger pages is a mapping of its own. It is here because whether there are mappings depends on the build.
//!
//! # Invariants
//!
//! - **MP1** The items are `len` initialised values, in the mapping if there is one, or else in a box that was leaked.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use memmap2::{MmapMut, MmapOptions};

/// Smaller ones come from the global allocator, which gives and takes them faster than the system.
const SMALLEST: usize = 4 << 10;

/// Values in memory of their own.
pub(crate) struct Mapped<T> {
    items: NonNull<[T]>,
    mapping: Option<MmapMut>,
}

// SAFETY: MP1: it owns the values, as a box does.
unsafe impl<T: Send> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T: Copy> Mapped<T> {
    /// `len` times `value`. From the global allocator where the system gives no mapping.
    pub(crate) fn filled(value: T, len: usize) -> Self {
        let wanted = !cfg!(any(radixkv_loom, radixkv_shuttle, radixkv_heap, miri)) && size_of::<T>() * len >= SMALLEST;
        let mapping = wanted.then(|| MmapOptions::new().len(size_of::<T>() * len).map_anon().ok()).flatten();
        let Some(mut mapping) = mapping else {
            let items = NonNull::from(Box::leak(vec![value; len].into_boxed_slice()));
            return Self { items, mapping: None };
        };
        let first = NonNull::new(mapping.as_mut_ptr().cast::<T>()).expect("a mapping is not at address zero");
        for at in 0..len {
            // SAFETY: the mapping has room for `len` values, and begins where a page of the system begins, which aligns any value.
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
    /// What lies in a mapping goes with it; it is `Copy`, and has nothing to drop.
    fn drop(&mut self) {
        if self.mapping.is_none() {
            // SAFETY: MP1: leaked by `filled`, and dropped once.
            drop(unsafe { Box::from_raw(self.items.as_ptr()) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Mapped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_there_and_can_be_changed() {
        for len in [0, 1, 512, 10_000] {
            let mut mapped = Mapped::filled(Some((7_u64, 1_u8)), len);
            assert_eq!(mapped.mapping.is_some(), len >= 512 && !cfg!(any(radixkv_heap, miri)));
            assert!(mapped.len() == len && mapped.iter().all(|item| *item == Some((7, 1))));
            if let Some(last) = mapped.last_mut() {
                *last = None;
                assert_eq!(mapped.iter().filter(|item| item.is_none()).count(), 1);
            }
        }
    }

    #[test]
    fn values_without_a_size_need_no_memory() {
        let mapped = Mapped::filled((), 3);
        assert_eq!((mapped.len(), mapped.mapping.is_none()), (3, true));
    }
}
