//! Memory from the system that it may give as one large page.
//!
//! The nodes' slabs and the pages of the evictor's tables are parts of regions. It is here because both use it, and because how large
//! a large page is depends on the machine.
#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr::NonNull;

#[cfg(target_os = "linux")]
use memmap2::{Advice, UncheckedAdvice};
use memmap2::{MmapMut, MmapOptions};

/// Memory of [`Region::BYTES`] bytes that begins at a multiple of them.
#[derive(Debug)]
pub(crate) struct Region {
    mapping: MmapMut,
    /// Where it begins in the mapping.
    offset: usize,
}

impl Region {
    /// What the system may give as one page.
    pub(crate) const BYTES: usize = 2 << 20;

    /// A new region, in a large page if it `may_be_large` and the system has one. Nothing if the system gives no memory, and in models.
    pub(crate) fn map(may_be_large: bool) -> Option<Self> {
        if cfg!(any(radixkv_loom, radixkv_shuttle, miri)) {
            return None;
        }
        // Twice as much, so that a whole region fits in wherever it begins. What is not touched costs nothing.
        let mapping = MmapOptions::new().len(2 * Self::BYTES).no_reserve_swap().map_anon().ok()?;
        let offset = mapping.as_ptr().addr().next_multiple_of(Self::BYTES) - mapping.as_ptr().addr();
        if may_be_large {
            #[cfg(target_os = "linux")]
            // Only a wish: refused where there are none.
            let _ = mapping.advise_range(Advice::HugePage, offset, Self::BYTES);
        }
        Some(Self { mapping, offset })
    }

    /// The address of a byte of it.
    pub(crate) fn at(&self, byte: usize) -> NonNull<u8> {
        let start = self.mapping.as_ptr().cast_mut().wrapping_add(self.offset + byte);
        NonNull::new(start).expect("a mapping is not at address zero")
    }

    /// Gives the system back the memory of these bytes, whole small pages; a large page is in small ones from then on. They are zero
    /// when they are used again.
    ///
    /// # Safety
    ///
    /// Nothing in them is used any more, and what is used there later is written first.
    pub(crate) unsafe fn give_back(&self, bytes: Range<usize>) {
        #[cfg(target_os = "linux")]
        if !bytes.is_empty() {
            let start = self.offset + bytes.start;
            // SAFETY: as the caller promised.
            let advised = unsafe { self.mapping.unchecked_advise_range(UncheckedAdvice::DontNeed, start, bytes.len()) };
            debug_assert!(advised.is_ok(), "a part of the mapping: {advised:?}");
        }
        #[cfg(not(target_os = "linux"))]
        let _ = bytes;
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle, miri))))]
mod tests {
    use super::*;

    #[test]
    fn a_region_begins_where_a_large_page_may_and_what_is_given_back_is_there_again() {
        for may_be_large in [false, true] {
            let region = Region::map(may_be_large).expect("the system gives memory");
            assert_eq!(region.at(0).addr().get() % Region::BYTES, 0);
            let [first, last] = [0, Region::BYTES - 1].map(|byte| region.at(byte));
            // SAFETY: both lie in the region, which nothing else uses.
            unsafe { first.write(7) };
            // SAFETY: as above.
            unsafe { last.write(9) };
            // SAFETY: what lies there is not used any more.
            unsafe { region.give_back(0..Region::BYTES / 2) };
            // SAFETY: as above.
            let left = unsafe { last.read() };
            assert_eq!(left, 9);
            #[cfg(target_os = "linux")]
            {
                // SAFETY: as above; the system has it zeroed.
                let given_back = unsafe { first.read() };
                assert_eq!(given_back, 0);
            }
        }
    }
}
