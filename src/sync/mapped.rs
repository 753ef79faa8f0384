//! Memory that a table has from the system, and gives back as soon as it is freed.
//!
//! A heap keeps what is freed between other things that live on. The evictor's tables come and go by the megabyte, so each of their
//! larger pages is a mapping of its own, or part of a region that several share: there a processor finds them without many steps. It
//! is here because whether there are mappings depends on the build.
//!
//! # Invariants
//!
//! - **MP1** The items are `len` initialised values, in the mapping or in a part of the region that no other has, or else in a box that
//!   was leaked.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use memmap2::{MmapMut, MmapOptions};

use super::{Arc, Region};

/// Smaller ones come from the global allocator, which gives and takes them faster than the system.
const SMALLEST: usize = 4 << 10;

/// Values in memory of their own.
pub(crate) struct Mapped<T> {
    items: NonNull<[T]>,
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    Boxed,
    Mapping(#[expect(dead_code, reason = "unmapped when it is dropped")] MmapMut),
    Part(Arc<Region>, Range<usize>),
}

// SAFETY: MP1: it owns the values, as a box does.
unsafe impl<T: Send> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T: Copy> Mapped<T> {
    /// How many mappings of `len` values are parts of one region; none if they would not lie at the bounds of the system's pages.
    pub(crate) const fn parts(len: usize) -> usize {
        let bytes = size_of::<T>() * len;
        if bytes == 0 || bytes % SMALLEST != 0 { 0 } else { Region::BYTES / bytes }
    }

    /// `len` times `value`. From the global allocator where the system gives no mapping.
    pub(crate) fn filled(value: T, len: usize) -> Self {
        let bytes = size_of::<T>() * len;
        let mapping = (has_mappings() && bytes >= SMALLEST).then(|| MmapOptions::new().len(bytes).map_anon().ok());
        let Some(mut mapping) = mapping.flatten() else {
            let items = NonNull::from(Box::leak(vec![value; len].into_boxed_slice()));
            return Self { items, memory: Memory::Boxed };
        };
        let first = NonNull::new(mapping.as_mut_ptr()).expect("a mapping is not at address zero");
        // SAFETY: the mapping has room for `len` values, and begins where a page of the system begins.
        unsafe { Self::fill(first, value, len, Memory::Mapping(mapping)) }
    }

    /// The same as part `at` of the region that `beside` is a part of, or of a new one. No other mapping may be that part.
    pub(crate) fn filled_part(value: T, len: usize, at: usize, beside: Option<&Self>) -> Self {
        assert!(at < Self::parts(len), "a part of a region");
        let shared = beside.and_then(|beside| match &beside.memory {
            Memory::Part(region, _) => Some(Arc::clone(region)),
            Memory::Boxed | Memory::Mapping(_) => None,
        });
        let region = shared.or_else(|| if has_mappings() { Region::map(true).map(Arc::new) } else { None });
        let Some(region) = region else { return Self::filled(value, len) };
        let bytes = size_of::<T>() * len;
        let first = region.at(at * bytes);
        // SAFETY: the part lies in the region, and begins where a page of the system begins.
        unsafe { Self::fill(first, value, len, Memory::Part(region, at * bytes..(at + 1) * bytes)) }
    }

    /// # Safety
    ///
    /// `memory` has room for `len` values at `first`, which nothing else uses, and which is a multiple of [`SMALLEST`].
    unsafe fn fill(first: NonNull<u8>, value: T, len: usize, memory: Memory) -> Self {
        let first = first.cast::<T>();
        for at in 0..len {
            // SAFETY: as the caller promised; where a page of the system begins any value is aligned.
            unsafe { first.as_ptr().wrapping_add(at).write(value) };
        }
        Self { items: NonNull::slice_from_raw_parts(first, len), memory }
    }
}

const fn has_mappings() -> bool {
    !cfg!(any(radixkv_loom, radixkv_shuttle, radixkv_heap, miri))
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
        match &self.memory {
            Memory::Boxed => {
                // SAFETY: MP1: leaked by `filled`, and dropped once.
                drop(unsafe { Box::from_raw(self.items.as_ptr()) });
            }
            Memory::Mapping(_) => {}
            Memory::Part(region, bytes) => {
                // SAFETY: MP1: no other has this part, and the next one fills it first.
                unsafe { region.give_back(bytes.clone()) };
            }
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
            assert_eq!(matches!(mapped.memory, Memory::Mapping(_)), len >= 512 && has_mappings());
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
        assert_eq!((mapped.len(), matches!(mapped.memory, Memory::Boxed), Mapped::<()>::parts(3)), (3, true, 0));
    }

    #[test]
    fn parts_of_one_region_lie_side_by_side_and_come_and_go_alone() {
        const LEN: usize = 1 << 12;
        const PARTS: usize = Mapped::<u64>::parts(LEN);
        assert_eq!((PARTS, Mapped::<[u8; 3]>::parts(LEN), Mapped::<u8>::parts(1)), (64, 170, 0));
        let first = Mapped::filled_part(0, LEN, 0, None);
        let mut parts: Vec<_> =
            (0..PARTS).map(|at| Some(Mapped::filled_part(at as u64, LEN, at, Some(&first)))).skip(1).collect();
        for at in (0..parts.len()).step_by(2) {
            parts[at] = None;
        }
        drop(first);
        let beside = parts[1].take().expect("kept");
        for at in (0..parts.len()).step_by(2) {
            parts[at] = Some(Mapped::filled_part(7, LEN, at + 1, Some(&beside)));
        }
        if has_mappings() {
            let [one, other] = [2, 3].map(|at| parts[at].as_ref().map(|part| part.as_ptr().addr()));
            assert_eq!(other, one.map(|one| one + LEN * size_of::<u64>()));
        }
        for (at, part) in parts.iter().enumerate().filter_map(|(at, part)| part.as_ref().map(|part| (at, part))) {
            let value = if at % 2 == 0 { 7 } else { at as u64 + 1 };
            assert!(part.iter().all(|item| *item == value), "{at}");
        }
    }
}
