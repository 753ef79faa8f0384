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
mod tests;
