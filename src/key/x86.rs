//! Comparison with vector instructions: as fast as the best `memcmp`, and it also finds the
//! position of the difference.
//!
//! AVX-512 compares 256 bytes at a time, in inline assembly, because the intrinsics are newer than
//! the oldest supported compiler. AVX2 compares the rest, or everything on processors without
//! AVX-512. On processors with it, AVX2 also compares sequences that fit the second-level cache but
//! not the first, in small strides: smaller loads use the caches better (by a seventh on Zen 5).
//!
//! # Invariants
//!
//! - **V1** A function is called only if the processor has the instructions that it uses.
//! - **V2** Both slices have the same length, and every load is within it.
#![allow(unsafe_code)]
// Since Rust 1.87 the intrinsics are safe inside such functions; earlier compilers need a block for
// each call.
#![allow(unused_unsafe)]

use core::arch::asm;
use core::arch::x86_64::{
    __m256i, _mm256_cmpeq_epi32, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256, _mm256_setzero_si256,
    _mm256_testz_si256, _mm256_xor_si256,
};
use core::ops::Range;

use super::token::Token;

/// Tokens in a 32-byte vector.
const LANES: usize = 8;
/// Tokens compared between two branches of the AVX2 loop.
const STRIDE: usize = 8 * LANES;
/// Tokens compared between two branches of the AVX-512 loop.
const WIDE: usize = 64;
/// Lengths of two sequences that fit the second-level cache together, but not the first.
const SECOND_CACHE: Range<usize> = 7 << 10..48 << 10;
/// Tokens compared between two branches at these lengths.
const NARROW: usize = 4 * LANES;

/// Length of the common prefix of `a` and `b`, which have the same length; `None` if the processor
/// has no AVX2.
#[inline]
pub(super) fn common_prefix(a: &[Token], b: &[Token]) -> Option<usize> {
    debug_assert_eq!(a.len(), b.len());
    if !std::arch::is_x86_feature_detected!("avx2") {
        return None;
    }
    let wide = a.len() >= WIDE && std::arch::is_x86_feature_detected!("avx512f");
    // SAFETY: V1, just tested.
    Some(unsafe { agreed(a, b, wide) })
}

/// Number of agreeing tokens. Uses AVX-512, or small strides (see above), only if `wide`, which
/// requires AVX-512 (V1) and at least one stride.
#[target_feature(enable = "avx2")]
unsafe fn agreed(a: &[Token], b: &[Token], wide: bool) -> usize {
    let bulk = match wide {
        // SAFETY: V1.
        true if SECOND_CACHE.contains(&a.len()) => unsafe { vectors_by::<NARROW>(a, b) },
        // SAFETY: V1, the caller's promise.
        true => unsafe { strides(a, b) },
        false => 0,
    };
    // SAFETY: V1.
    bulk + unsafe { vectors(&a[bulk..], &b[bulk..]) }
}

/// Number of agreeing tokens in whole strides of `WIDE`. Requires AVX-512 (V1) and at least one
/// stride.
///
/// The assembly ends without a `vzeroupper`, which would clear the upper halves of all sixteen
/// registers without the compiler knowing. The compiler inserts one where necessary if it knows
/// that 32-byte registers were used. So they are declared as clobbered here, which includes the
/// 64-byte registers that contain them.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn strides(a: &[Token], b: &[Token]) -> usize {
    let end = a.len().min(b.len()) / WIDE * WIDE * size_of::<Token>();
    let mut at = 0_usize;
    // SAFETY: V1. Loads are below `end`, which both slices reach (V2); registers and flags are
    // declared.
    unsafe {
        asm!(
            "2:",
            "vmovdqu64 zmm0, [{a} + {at}]",
            "vmovdqu64 zmm1, [{a} + {at} + 64]",
            "vmovdqu64 zmm2, [{a} + {at} + 128]",
            "vmovdqu64 zmm3, [{a} + {at} + 192]",
            "vpxorq zmm0, zmm0, [{b} + {at}]",
            "vpxorq zmm1, zmm1, [{b} + {at} + 64]",
            "vpxorq zmm2, zmm2, [{b} + {at} + 128]",
            "vpxorq zmm3, zmm3, [{b} + {at} + 192]",
            "vpternlogq zmm0, zmm1, zmm2, 0xfe",
            "vporq zmm0, zmm0, zmm3",
            "vptestmq k1, zmm0, zmm0",
            "kortestw k1, k1",
            "jnz 3f",
            "add {at}, 256",
            "cmp {at}, {end}",
            "jb 2b",
            "3:",
            a = in(reg) a.as_ptr(),
            b = in(reg) b.as_ptr(),
            end = in(reg) end,
            at = inout(reg) at,
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, out("k1") _,
            options(nostack, readonly),
        );
    }
    at / size_of::<Token>()
}

#[target_feature(enable = "avx2")]
unsafe fn vectors(a: &[Token], b: &[Token]) -> usize {
    let len = a.len().min(b.len());
    // SAFETY: V1.
    let mut at = unsafe { vectors_by::<STRIDE>(a, b) };
    while at + LANES <= len {
        // SAFETY: V1.
        let equal = unsafe { _mm256_cmpeq_epi32(load(a, at), load(b, at)) };
        // SAFETY: V1.
        let mask = unsafe { _mm256_movemask_epi8(equal) };
        if mask != -1 {
            return at + (!mask).trailing_zeros() as usize / size_of::<Token>();
        }
        at += LANES;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(x, y)| x == y).count()
}

/// Number of agreeing tokens in whole strides of `TOKENS`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn vectors_by<const TOKENS: usize>(a: &[Token], b: &[Token]) -> usize {
    let len = a.len().min(b.len());
    let mut at = 0;
    while at + TOKENS <= len {
        // SAFETY: the processor has AVX2 (V1).
        let mut different = unsafe { _mm256_setzero_si256() };
        for lane in 0..TOKENS / LANES {
            let (x, y) = (load(a, at + lane * LANES), load(b, at + lane * LANES));
            // SAFETY: V1.
            let pair = unsafe { _mm256_xor_si256(x, y) };
            // SAFETY: V1.
            different = unsafe { _mm256_or_si256(different, pair) };
        }
        // SAFETY: V1.
        if unsafe { _mm256_testz_si256(different, different) } == 0 {
            break;
        }
        at += TOKENS;
    }
    at
}

/// Loads the vector of tokens that begins at `at`. The caller has AVX2 (V1) and keeps `at + LANES`
/// within the slice (V2).
#[inline(always)]
fn load(tokens: &[Token], at: usize) -> __m256i {
    debug_assert!(at + LANES <= tokens.len());
    let first = tokens.as_ptr().wrapping_add(at).cast::<__m256i>();
    // SAFETY: V1, V2; the load needs no alignment.
    unsafe { _mm256_loadu_si256(first) }
}
