//! Sixteen sums of lanes, by instructions that the compiler does not find by itself.
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
use super::lanes::{LANES, Lanes};

/// Numbers of a 32-byte vector.
#[rustversion::since(1.89)]
const HALF: usize = LANES / 2;

/// The lanes of each vector in halves.
#[rustversion::since(1.89)]
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn add_lanes_avx512(sums: &[Lanes; LANES]) -> [f32; LANES] {
    // SAFETY: X2, a vector.
    let load = |i: usize| unsafe { _mm512_loadu_ps(sums[i].0.as_ptr()) };
    // Four vectors become one: the four sums of each of its quarters are those of one vector.
    let fours: [__m512; 4] = std::array::from_fn(|i| {
        let [a, b, c, d] = [load(i), load(i + 4), load(i + 8), load(i + 12)];
        let ab = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
        let cd = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(c, d), _mm512_shuffle_f32x4::<0xee>(c, d));
        _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xdd>(ab, cd))
    });
    let twos: [__m512; 2] = std::array::from_fn(|i| {
        let [a, b] = [fours[2 * i], fours[2 * i + 1]].map(|four| _mm512_castps_pd(four));
        let (low, high) = (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
        _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high))
    });
    let (even, odd) = (_mm512_shuffle_ps::<0x88>(twos[0], twos[1]), _mm512_shuffle_ps::<0xdd>(twos[0], twos[1]));
    let (sum, mut added) = (_mm512_add_ps(even, odd), [0.0; LANES]);
    // SAFETY: X2, a vector.
    unsafe { _mm512_storeu_ps(added.as_mut_ptr(), sum) };
    added
}

/// As [`add_lanes_avx512`].
#[rustversion::since(1.89)]
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add_lanes_avx2(sums: &[Lanes; LANES]) -> [f32; LANES] {
    let eight = |i: usize| {
        // SAFETY: X2, half a vector.
        let low = unsafe { _mm256_loadu_ps(sums[i].0.as_ptr()) };
        // SAFETY: X2, the other half.
        let high = unsafe { _mm256_loadu_ps(sums[i].0[HALF..].as_ptr()) };
        _mm256_add_ps(low, high)
    };
    let mut added = [0.0; LANES];
    for (first, added) in [0, HALF].into_iter().zip(added.chunks_exact_mut(HALF)) {
        let fours: [__m256; 4] = std::array::from_fn(|i| {
            let (a, b) = (eight(first + i), eight(first + i + 4));
            _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
        });
        let twos: [__m256; 2] = std::array::from_fn(|i| {
            let [a, b] = [fours[2 * i], fours[2 * i + 1]].map(|four| _mm256_castps_pd(four));
            let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high))
        });
        let (even, odd) = (_mm256_shuffle_ps::<0x88>(twos[0], twos[1]), _mm256_shuffle_ps::<0xdd>(twos[0], twos[1]));
        let sum = _mm256_add_ps(even, odd);
        // SAFETY: X2, a chunk.
        unsafe { _mm256_storeu_ps(added.as_mut_ptr(), sum) };
    }
    added
}
