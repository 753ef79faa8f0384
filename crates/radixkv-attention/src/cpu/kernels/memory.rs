//! Vector loads from the words of the storage, and prefetching.
//!
//! # Invariants
//!
//! - **X1** A function is called only where the processor has the instructions that it is compiled
//!   for.
//! - **X2** Every load and store is inside its slice.
//! - **X3** Other threads may write the words meanwhile. To the language a load of a vector is a
//!   relaxed load of each of its words: the compiler does not look into the instruction, and the
//!   processor reads an aligned word in one access.
#![allow(unsafe_code)]
// Compiled only where the intrinsics are stable (`kernels::x86`).
#![allow(clippy::incompatible_msrv)]

/// Readers of each level, by the type of elements.
#[rustversion::since(1.89)]
#[cfg(target_arch = "x86_64")]
mod readers {
    use core::arch::x86_64::*;
    use std::sync::atomic::AtomicU64;

    /// The readers of a level. Each reads all whole vectors of elements, by a load that widens
    /// them, and returns the number of elements read; integers are multiplied by their scale.
    macro_rules! readers {
        (
            $level:ident by $features:literal, $lanes:literal elements by $store:ident:
            $($dtype:ident: $words:literal words by $load:literal to $class:ident $vector:ty, $widen:expr;)*
        ) => {
            pub(in super::super) mod $level {
                use super::*;

                $(
                    #[inline]
                    #[target_feature(enable = $features)]
                    pub(in super::super::super) fn $dtype(from: &[AtomicU64], scale: f32, to: &mut [f32]) -> usize {
                        let elements = to.len() / $lanes * $lanes;
                        for (from, to) in from.chunks_exact($words).zip(to.chunks_exact_mut($lanes)) {
                            let loaded: $vector;
                            // SAFETY: X2, a chunk; X3.
                            unsafe {
                                core::arch::asm!(
                                    concat!($load, " {loaded}, [{from}]"),
                                    loaded = out($class) loaded,
                                    from = in(reg) from.as_ptr(),
                                    options(nostack, preserves_flags, readonly),
                                );
                            }
                            let widened = $widen(loaded, scale);
                            // SAFETY: X2, a chunk.
                            unsafe { $store(to.as_mut_ptr(), widened) };
                        }
                        elements
                    }
                )*
            }
        };
    }

    readers! {
        avx512 by "avx512f", 16 elements by _mm512_storeu_ps:
        f32: 8 words by "vmovups" to zmm_reg __m512, |loaded, _| loaded;
        f16: 4 words by "vcvtph2ps" to zmm_reg __m512, |loaded, _| loaded;
        bf16: 4 words by "vpmovzxwd" to zmm_reg __m512i, |loaded, _| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(loaded));
        i8: 2 words by "vpmovsxbd" to zmm_reg __m512i,
            |loaded, scale| _mm512_mul_ps(_mm512_cvtepi32_ps(loaded), _mm512_set1_ps(scale));
    }
    readers! {
        avx2 by "avx2,f16c", 8 elements by _mm256_storeu_ps:
        f32: 4 words by "vmovups" to ymm_reg __m256, |loaded, _| loaded;
        f16: 2 words by "vcvtph2ps" to ymm_reg __m256, |loaded, _| loaded;
        bf16: 2 words by "vpmovzxwd" to ymm_reg __m256i, |loaded, _| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(loaded));
        i8: 1 words by "vpmovsxbd" to ymm_reg __m256i,
            |loaded, scale| _mm256_mul_ps(_mm256_cvtepi32_ps(loaded), _mm256_set1_ps(scale));
    }
}

#[rustversion::since(1.89)]
#[cfg(target_arch = "x86_64")]
pub(super) use readers::{avx2, avx512};

/// Prefetches the cache line at an address. This is a hint: it reads and changes nothing.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(super) fn ask(at: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    // SAFETY: the instruction takes any address, and SSE is part of x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

/// Does nothing: not all processors of this kind have such an instruction.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) fn ask(_at: *const u8) {}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::super::rows::StoredRows;
    use super::super::{Hints, LANES, Level};
    use crate::layout::Dtype;

    /// Two pages; the second one must not be read.
    struct Fenced {
        first: *mut libc::c_void,
        page: usize,
    }

    impl Fenced {
        fn new() -> Self {
            // SAFETY: it has no requirements.
            let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: new memory, at an address that the system chooses.
            let first = unsafe { libc::mmap(std::ptr::null_mut(), 2 * page, access, kind, -1, 0) };
            assert_ne!(first, libc::MAP_FAILED);
            // SAFETY: the second page of this memory, to which nothing points.
            let failed = unsafe { libc::mprotect(first.wrapping_byte_add(page), page, libc::PROT_NONE) };
            assert_eq!(failed, 0);
            Self { first, page }
        }

        /// The last words of the first page.
        fn words(&self, count: usize) -> &[AtomicU64] {
            let first = self.first.wrapping_byte_add(self.page - count * size_of::<AtomicU64>());
            // SAFETY: they are in the page, at multiples of their size, were zeroed, and are
            // written only as atomics.
            unsafe { std::slice::from_raw_parts(first.cast(), count) }
        }
    }

    impl Drop for Fenced {
        fn drop(&mut self) {
            // SAFETY: the memory that was mapped; no words are borrowed from it.
            unsafe { libc::munmap(self.first, 2 * self.page) };
        }
    }

    #[test]
    fn no_level_reads_beyond_the_words() {
        let (fenced, dice) = (Fenced::new(), &mut fastrand::Rng::with_seed(1));
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I8, Dtype::E4m3] {
            let each = size_of::<u64>() / dtype.bytes();
            for elements in (each..=6 * LANES).step_by(each) {
                // Two rows, the first of which is followed by words of another head.
                let stride = elements / each + dice.usize(..4);
                let words = fenced.words(stride + elements / each);
                words.iter().for_each(|word| word.store(dice.u64(..), Relaxed));
                let read = |level: Level| {
                    let mut to = vec![7.0_f32; 2 * elements];
                    let rows = StoredRows { dtype, words, stride, elements, scales: &[0.5, 3.0], to_stride: elements };
                    level.read(rows, &mut to, &mut Hints::default());
                    to
                };
                let numbers =
                    |level| read(level).into_iter().map(|it| if it.is_nan() { None } else { Some(it.to_bits()) });
                for level in Level::all() {
                    assert!(numbers(level).eq(numbers(Level::Plain)), "{level:?}: {elements} elements of {dtype}");
                }
            }
        }
    }
}
