//! Words of the storage, read by vectors, and memory asked for ahead.
//!
//! # Invariants
//!
//! - **X1** A function is called only where the processor has the instructions that it is compiled for.
//! - **X2** Every load and store lies inside its slice.
//! - **X3** Other threads may write the words meanwhile. To the language a load of a vector is a relaxed load of each of its
//!   words: the compiler does not look into the instruction, and the processor reads a word that lies at a multiple of its
//!   size at once.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Copies words that other threads may write.
#[inline(always)]
pub(super) fn copy_words(from: &[AtomicU64], to: &mut [u64]) {
    // Relaxed: the cache orders it, by the edge from the insertion of the block to the lease on it.
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.load(Relaxed));
}

/// As [`copy_words`], by vectors. Called only where the processor has AVX (X1).
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
#[target_feature(enable = "avx")]
pub(super) fn copy_words_avx(from: &[AtomicU64], to: &mut [u64]) {
    use core::arch::x86_64::__m256i;

    let (mut from, mut to) = (from.chunks_exact(8), to.chunks_exact_mut(8));
    for (from, to) in from.by_ref().zip(to.by_ref()) {
        let (mut _low, mut _high): (__m256i, __m256i);
        // SAFETY: X2, both chunks have eight words; X3.
        unsafe {
            core::arch::asm!(
                "vmovdqu {low}, [{from}]",
                "vmovdqu {high}, [{from} + 32]",
                "vmovdqu [{to}], {low}",
                "vmovdqu [{to} + 32], {high}",
                from = in(reg) from.as_ptr(),
                to = in(reg) to.as_mut_ptr(),
                low = out(ymm_reg) _low,
                high = out(ymm_reg) _high,
                options(nostack, preserves_flags),
            );
        }
    }
    copy_words(from.remainder(), to.into_remainder());
}

/// As [`copy_words`]: an interpreter knows no such instructions.
#[cfg(all(target_arch = "x86_64", miri))]
#[target_feature(enable = "avx")]
pub(super) fn copy_words_avx(from: &[AtomicU64], to: &mut [u64]) {
    copy_words(from, to);
}

/// Asks for the cache line at an address. A hint: it reads and changes nothing.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(super) fn ask(at: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

    // SAFETY: the instruction takes any address, and SSE is part of x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
}

/// Does nothing: there is no such instruction for all processors of this kind.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) fn ask(_at: *const u8) {}
