//! Sixteen rows of sixteen numbers, turned into columns, and half-precision numbers widened, by instructions that the
//! compiler does not find by itself.
//!
//! # Invariants
//!
//! - **X1** A function is called only where the processor has the instructions that it is compiled for.
//! - **X2** Every load and store lies inside its slice.
#![allow(unsafe_code)]
// Compiled only where the intrinsics are stable (`kernels::x86`).
#![allow(clippy::incompatible_msrv)]

#[rustversion::since(1.89)]
use core::arch::x86_64::*;

#[rustversion::since(1.89)]
use super::super::RANGE_TOKENS;
#[rustversion::since(1.89)]
use super::lanes::LANES;

/// Numbers of a 32-byte vector.
#[rustversion::since(1.89)]
const HALF: usize = LANES / 2;

/// Writes rows, [`LANES`] of them, to columns; returns the elements done, the rest are less than a vector.
#[rustversion::since(1.89)]
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose_avx512(from: &[f32], to: &mut [f32]) -> usize {
    let elements = from.len() / LANES;
    let done = elements / LANES * LANES;
    for first in (0..done).step_by(LANES) {
        let rows: [__m512; LANES] = std::array::from_fn(|row| {
            let row = &from[row * elements + first..][..LANES];
            // SAFETY: X2, the slice above.
            unsafe { _mm512_loadu_ps(row.as_ptr()) }
        });
        for (i, column) in turn_avx512(rows).into_iter().enumerate() {
            let to = &mut to[(first + i) * RANGE_TOKENS..][..LANES];
            // SAFETY: X2, the slice above.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), column) };
        }
    }
    done
}

#[rustversion::since(1.89)]
#[inline]
#[target_feature(enable = "avx512f")]
fn turn_avx512(rows: [__m512; LANES]) -> [__m512; LANES] {
    let mut pairs = [_mm512_setzero_pd(); LANES];
    for (pair, rows) in pairs.chunks_exact_mut(2).zip(rows.chunks_exact(2)) {
        pair[0] = _mm512_castps_pd(_mm512_unpacklo_ps(rows[0], rows[1]));
        pair[1] = _mm512_castps_pd(_mm512_unpackhi_ps(rows[0], rows[1]));
    }
    let mut fours = rows;
    for (four, pairs) in fours.chunks_exact_mut(4).zip(pairs.chunks_exact(4)) {
        four[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(pairs[0], pairs[2]));
        four[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pairs[0], pairs[2]));
        four[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pairs[1], pairs[3]));
        four[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pairs[1], pairs[3]));
    }
    // Quarters of sixteen bytes: the even ones, then the odd ones, twice.
    let mut eights = rows;
    for (eight, fours) in eights.chunks_exact_mut(8).zip(fours.chunks_exact(8)) {
        for i in 0..4 {
            eight[i] = _mm512_shuffle_f32x4::<0x88>(fours[i], fours[i + 4]);
            eight[i + 4] = _mm512_shuffle_f32x4::<0xdd>(fours[i], fours[i + 4]);
        }
    }
    let mut columns = rows;
    for i in 0..8 {
        columns[i] = _mm512_shuffle_f32x4::<0x88>(eights[i], eights[i + 8]);
        columns[i + 8] = _mm512_shuffle_f32x4::<0xdd>(eights[i], eights[i + 8]);
    }
    columns
}

/// As [`transpose_avx512`].
#[rustversion::since(1.89)]
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn transpose_avx2(from: &[f32], to: &mut [f32]) -> usize {
    let elements = from.len() / LANES;
    let done = elements / HALF * HALF;
    for (first, token) in (0..done).step_by(HALF).flat_map(|first| [(first, 0), (first, HALF)]) {
        let rows: [__m256; HALF] = std::array::from_fn(|row| {
            let row = &from[(token + row) * elements + first..][..HALF];
            // SAFETY: X2, the slice above.
            unsafe { _mm256_loadu_ps(row.as_ptr()) }
        });
        for (i, column) in turn_avx2(rows).into_iter().enumerate() {
            let to = &mut to[(first + i) * RANGE_TOKENS + token..][..HALF];
            // SAFETY: X2, the slice above.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), column) };
        }
    }
    done
}

#[rustversion::since(1.89)]
#[inline]
#[target_feature(enable = "avx2")]
fn turn_avx2(rows: [__m256; HALF]) -> [__m256; HALF] {
    let mut fours = rows;
    for (four, rows) in fours.chunks_exact_mut(4).zip(rows.chunks_exact(4)) {
        let (low, high) = (_mm256_unpacklo_ps(rows[0], rows[1]), _mm256_unpackhi_ps(rows[0], rows[1]));
        let (low_next, high_next) = (_mm256_unpacklo_ps(rows[2], rows[3]), _mm256_unpackhi_ps(rows[2], rows[3]));
        four[0] = _mm256_shuffle_ps::<0x44>(low, low_next);
        four[1] = _mm256_shuffle_ps::<0xee>(low, low_next);
        four[2] = _mm256_shuffle_ps::<0x44>(high, high_next);
        four[3] = _mm256_shuffle_ps::<0xee>(high, high_next);
    }
    let mut columns = rows;
    for i in 0..4 {
        columns[i] = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
        columns[i + 4] = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
    }
    columns
}

/// Reads elements of `f16`; returns how many, the rest are less than a vector.
#[rustversion::since(1.89)]
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn widen_f16_avx512(from: &[u16], to: &mut [f32]) -> usize {
    for (from, to) in from.chunks_exact(LANES).zip(to.chunks_exact_mut(LANES)) {
        // SAFETY: X2, a chunk.
        let halves = unsafe { _mm256_loadu_si256(from.as_ptr().cast()) };
        let wide = _mm512_cvtph_ps(halves);
        // SAFETY: X2, a chunk.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), wide) };
    }
    from.len() / LANES * LANES
}

/// As [`widen_f16_avx512`].
#[rustversion::since(1.89)]
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn widen_f16_avx2(from: &[u16], to: &mut [f32]) -> usize {
    for (from, to) in from.chunks_exact(HALF).zip(to.chunks_exact_mut(HALF)) {
        // SAFETY: X2, a chunk.
        let halves = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
        let wide = _mm256_cvtph_ps(halves);
        // SAFETY: X2, a chunk.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), wide) };
    }
    from.len() / HALF * HALF
}
