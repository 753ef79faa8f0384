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
// Compiled only where the intrinsics are stable (`kernels::x86`).
#![allow(clippy::incompatible_msrv)]

#[rustversion::since(1.89)]
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::*;
#[rustversion::since(1.89)]
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::AtomicU64;

/// Reads vectors of elements, as many as are whole, by a load that widens them; returns how many elements.
#[rustversion::since(1.89)]
#[cfg(target_arch = "x86_64")]
macro_rules! reader {
    (
        $(#[$about:meta])*
        $name:ident: $features:literal, $words:literal words by $load:literal to $class:ident $vector:ty,
        $lanes:literal by $store:ident, $widen:expr
    ) => {
        $(#[$about])*
        #[inline]
        #[target_feature(enable = $features)]
        pub(in super::super) fn $name(from: &[AtomicU64], scale: f32, to: &mut [f32]) -> usize {
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
    };
}

#[rustversion::since(1.89)]
#[cfg(target_arch = "x86_64")]
mod readers {
    use super::*;

    reader!(
        /// Elements of `f32`, by AVX-512.
        f32_avx512: "avx512f", 8 words by "vmovups" to zmm_reg __m512, 16 by _mm512_storeu_ps, |loaded, _| loaded
    );
    reader!(
        /// Elements of `f16`, by AVX-512.
        f16_avx512: "avx512f", 4 words by "vcvtph2ps" to zmm_reg __m512, 16 by _mm512_storeu_ps, |loaded, _| loaded
    );
    reader!(
        /// Elements of `bf16`, by AVX-512.
        bf16_avx512: "avx512f", 4 words by "vpmovzxwd" to zmm_reg __m512i, 16 by _mm512_storeu_ps,
        |loaded, _| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(loaded))
    );
    reader!(
        /// Integers times their scale, by AVX-512.
        i8_avx512: "avx512f", 2 words by "vpmovsxbd" to zmm_reg __m512i, 16 by _mm512_storeu_ps,
        |loaded, scale| _mm512_mul_ps(_mm512_cvtepi32_ps(loaded), _mm512_set1_ps(scale))
    );
    reader!(
        /// Elements of `f32`, by AVX2.
        f32_avx2: "avx2", 4 words by "vmovups" to ymm_reg __m256, 8 by _mm256_storeu_ps, |loaded, _| loaded
    );
    reader!(
        /// Elements of `f16`, by AVX2.
        f16_avx2: "avx2,f16c", 2 words by "vcvtph2ps" to ymm_reg __m256, 8 by _mm256_storeu_ps, |loaded, _| loaded
    );
    reader!(
        /// Elements of `bf16`, by AVX2.
        bf16_avx2: "avx2", 2 words by "vpmovzxwd" to ymm_reg __m256i, 8 by _mm256_storeu_ps,
        |loaded, _| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(loaded))
    );
    reader!(
        /// Integers times their scale, by AVX2.
        i8_avx2: "avx2", 1 words by "vpmovsxbd" to ymm_reg __m256i, 8 by _mm256_storeu_ps,
        |loaded, scale| _mm256_mul_ps(_mm256_cvtepi32_ps(loaded), _mm256_set1_ps(scale))
    );
}

#[rustversion::since(1.89)]
#[cfg(target_arch = "x86_64")]
pub(super) use readers::*;

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
