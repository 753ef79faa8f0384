//! Vector operations by instructions that the compiler does not choose on its own: multiply-adds,
//! folds of the lanes of sixteen vectors, and transposition of sixteen rows.
//!
//! # Invariants
//!
//! - **X1** A function is called only where the processor has the instructions that it is compiled
//!   for.
//! - **X2** Every load and store is inside its slice.
#![allow(unsafe_code)]
// Compiled only where the intrinsics are stable (`kernels::x86`).
#![allow(clippy::incompatible_msrv)]

/// With AVX-512.
#[rustversion::since(1.89)]
pub(super) mod avx512 {
    use core::arch::x86_64::*;

    use super::super::lanes::{LANES, Lanes};

    /// Folds the lanes of each vector in halves, with the lower half as the first operand.
    macro_rules! fold {
        ($name:ident by $both:expr) => {
            #[inline]
            #[target_feature(enable = "avx512f")]
            pub(in super::super) fn $name(vectors: &[Lanes; LANES]) -> [f32; LANES] {
                // SAFETY: X2, a vector.
                let load = |i: usize| unsafe { _mm512_loadu_ps(vectors[i].0.as_ptr()) };
                // Four vectors become one: each of its quarters has the four results of one vector.
                let fours: [__m512; 4] = std::array::from_fn(|i| {
                    let [a, b, c, d] = [load(i), load(i + 4), load(i + 8), load(i + 12)];
                    let ab = $both(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
                    let cd = $both(_mm512_shuffle_f32x4::<0x44>(c, d), _mm512_shuffle_f32x4::<0xee>(c, d));
                    $both(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xdd>(ab, cd))
                });
                let twos: [__m512; 2] = std::array::from_fn(|i| {
                    let [a, b] = [fours[2 * i], fours[2 * i + 1]].map(|four| _mm512_castps_pd(four));
                    let (low, high) = (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
                    $both(_mm512_castpd_ps(low), _mm512_castpd_ps(high))
                });
                let [a, b] = twos;
                let all = $both(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b));
                let mut folded = [0.0; LANES];
                // SAFETY: X2, a vector.
                unsafe { _mm512_storeu_ps(folded.as_mut_ptr(), all) };
                folded
            }
        };
    }

    /// Adds the products of `a` and `b` to `sum`, lane by lane.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in super::super) fn add_products(mut sum: Lanes, a: Lanes, b: Lanes) -> Lanes {
        // SAFETY: X2, a vector each.
        let [loaded, a, b] = [&sum, &a, &b].map(|lanes| unsafe { _mm512_loadu_ps(lanes.0.as_ptr()) });
        let added = _mm512_fmadd_ps(a, b, loaded);
        // SAFETY: X2, a vector.
        unsafe { _mm512_storeu_ps(sum.0.as_mut_ptr(), added) };
        sum
    }

    fold!(add_lanes by _mm512_add_ps);
    // The instruction returns its second operand if the first is not larger: here the one from the
    // lower lanes.
    fold!(max_lanes by |low, high| _mm512_max_ps(high, low));

    /// Transposes sixteen rows.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in super::super) fn turn(rows: &[Lanes; LANES]) -> [Lanes; LANES] {
        // SAFETY: X2, a vector.
        let load = |i: usize| unsafe { _mm512_loadu_ps(rows[i].0.as_ptr()) };
        // First each quarter has two elements of two rows, then one element of four rows.
        let twos: [__m512d; LANES] = std::array::from_fn(|i| {
            let (a, b) = (load(i & !1), load(i | 1));
            _mm512_castps_pd(if i % 2 == 0 { _mm512_unpacklo_ps(a, b) } else { _mm512_unpackhi_ps(a, b) })
        });
        let fours: [__m512; LANES] = std::array::from_fn(|i| {
            let first = (i & !3) | (i >> 1 & 1);
            let (a, b) = (twos[first], twos[first + 2]);
            _mm512_castpd_ps(if i % 2 == 0 { _mm512_unpacklo_pd(a, b) } else { _mm512_unpackhi_pd(a, b) })
        });
        let mut columns = [Lanes::ZERO; LANES];
        for i in 0..4 {
            let [a, b, c, d] = [fours[i], fours[i + 4], fours[i + 8], fours[i + 12]];
            let (even, odd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
            let (even_below, odd_below) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
            let quarters = [
                _mm512_shuffle_f32x4::<0x88>(even, even_below),
                _mm512_shuffle_f32x4::<0x88>(odd, odd_below),
                _mm512_shuffle_f32x4::<0xdd>(even, even_below),
                _mm512_shuffle_f32x4::<0xdd>(odd, odd_below),
            ];
            for (quarter, column) in quarters.into_iter().enumerate() {
                // SAFETY: X2, a vector.
                unsafe { _mm512_storeu_ps(columns[4 * quarter + i].0.as_mut_ptr(), column) };
            }
        }
        columns
    }
}

/// With AVX2.
#[rustversion::since(1.89)]
pub(super) mod avx2 {
    use core::arch::x86_64::*;

    use super::super::lanes::{LANES, Lanes, turned};

    /// Numbers of a vector.
    const HALF: usize = LANES / 2;

    /// As for AVX-512.
    macro_rules! fold {
        ($name:ident by $both:expr) => {
            #[inline]
            #[target_feature(enable = "avx2")]
            pub(in super::super) fn $name(vectors: &[Lanes; LANES]) -> [f32; LANES] {
                let eight = |i: usize| {
                    // SAFETY: X2, half a vector.
                    let low = unsafe { _mm256_loadu_ps(vectors[i].0.as_ptr()) };
                    // SAFETY: X2, the other half.
                    let high = unsafe { _mm256_loadu_ps(vectors[i].0[HALF..].as_ptr()) };
                    $both(low, high)
                };
                let mut folded = [0.0; LANES];
                for (first, folded) in [0, HALF].into_iter().zip(folded.chunks_exact_mut(HALF)) {
                    let fours: [__m256; 4] = std::array::from_fn(|i| {
                        let (a, b) = (eight(first + i), eight(first + i + 4));
                        $both(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
                    });
                    let twos: [__m256; 2] = std::array::from_fn(|i| {
                        let [a, b] = [fours[2 * i], fours[2 * i + 1]].map(|four| _mm256_castps_pd(four));
                        let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
                        $both(_mm256_castpd_ps(low), _mm256_castpd_ps(high))
                    });
                    let [a, b] = twos;
                    let all = $both(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b));
                    // SAFETY: X2, a chunk.
                    unsafe { _mm256_storeu_ps(folded.as_mut_ptr(), all) };
                }
                folded
            }
        };
    }

    /// Adds the products of `a` and `b` to `sum`, lane by lane.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    pub(in super::super) fn add_products(mut sum: Lanes, a: Lanes, b: Lanes) -> Lanes {
        for half in [0, HALF] {
            // SAFETY: X2, half a vector each.
            let [loaded, a, b] = [&sum, &a, &b].map(|lanes| unsafe { _mm256_loadu_ps(lanes.0[half..].as_ptr()) });
            let added = _mm256_fmadd_ps(a, b, loaded);
            // SAFETY: X2, half a vector.
            unsafe { _mm256_storeu_ps(sum.0[half..].as_mut_ptr(), added) };
        }
        sum
    }

    fold!(add_lanes by _mm256_add_ps);
    fold!(max_lanes by |low, high| _mm256_max_ps(high, low));

    /// Transposes sixteen rows with the instructions that the compiler chooses.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in super::super) fn turn(rows: &[Lanes; LANES]) -> [Lanes; LANES] {
        turned(rows)
    }
}
