//! Products of queries with keys: rows with rows.
//!
//! A product of two rows has sixteen chains of fused multiply-adds, one for each lane, which are
//! added in halves. So keys are read in the order in which they are stored, and the number of
//! products that are computed at once changes no bit.

use super::super::RANGE_TOKENS;
use super::hints::{Hints, Run};
use super::lanes::{LANES, Lanes, Matrix, Rows, Vectors};
use super::rows::Ops;

/// Work of sixteen products, in the units of [`Hints::step`].
pub(super) const UNITS_OF_PRODUCTS: usize = 6;

/// Computes the products of `count` queries with the first `tokens` keys, rounded up to whole
/// vectors, and writes them to rows of [`RANGE_TOKENS`]. Queries and keys have `elements` elements,
/// a multiple of [`LANES`]. `N` above 1 says that the processor has registers for sixteen vectors
/// of sums or more; otherwise for four.
#[inline(always)]
pub(super) fn products<const N: usize, O: Ops>(
    ops: O,
    queries: Rows<'_>,
    keys: impl Matrix,
    [count, tokens, elements]: [usize; 3],
    out: &mut [f32],
    hints: &mut Hints,
) {
    for first in (0..tokens).step_by(LANES) {
        let mut query = 0;
        while query < count {
            let (queries, out) = (queries.from(query), &mut out[query * RANGE_TOKENS + first..]);
            query += match count - query {
                1 => sixteen_keys::<1, 8, N, O>(ops, queries, keys, [first, elements], out, hints),
                2..=3 => sixteen_keys::<2, 8, N, O>(ops, queries, keys, [first, elements], out, hints),
                _ => sixteen_keys::<4, 4, N, O>(ops, queries, keys, [first, elements], out, hints),
            };
        }
    }
}

/// The products of `M` queries with sixteen keys, `T` keys at a time; returns `M`.
#[inline(always)]
fn sixteen_keys<const M: usize, const T: usize, const N: usize, O: Ops>(
    ops: O,
    queries: Rows<'_>,
    keys: impl Matrix,
    [key, elements]: [usize; 2],
    out: &mut [f32],
    hints: &mut Hints,
) -> usize {
    let across = LANES / M;
    for first in (0..LANES).step_by(across) {
        let mut sums = [Lanes::ZERO; LANES];
        for t in (0..across).step_by(T) {
            let at = [key + first + t, elements];
            let run = hints.run(M * T * UNITS_OF_PRODUCTS / LANES, elements / LANES);
            if N > 1 {
                tile::<M, T, O>(ops, queries, keys, at, &mut sums[t..], across, run);
            } else {
                narrow::<M, T, O>(ops, queries, keys, at, &mut sums[t..], across, run);
            }
        }
        let added = ops.add_lanes(&sums);
        for (m, added) in added.chunks_exact(across).enumerate() {
            out[m * RANGE_TOKENS + first..][..across].copy_from_slice(added);
        }
    }
    M
}

/// Computes a tile in parts of at most four vectors of sums.
#[inline(always)]
fn narrow<const M: usize, const T: usize, O: Ops>(
    ops: O,
    queries: Rows<'_>,
    keys: impl Matrix,
    [key, elements]: [usize; 2],
    to: &mut [Lanes],
    across: usize,
    mut run: Run,
) {
    for t in (0..T).step_by(2) {
        if M == 1 {
            tile::<1, 2, O>(
                ops,
                queries,
                keys,
                [key + t, elements],
                &mut to[t..],
                across,
                std::mem::replace(&mut run, Run::NONE),
            );
            continue;
        }
        for m in (0..M).step_by(2) {
            tile::<2, 2, O>(
                ops,
                queries.from(m),
                keys,
                [key + t, elements],
                &mut to[m * across + t..],
                across,
                std::mem::replace(&mut run, Run::NONE),
            );
        }
    }
}

/// Computes the lanes of `M` times `T` products, all in registers, and writes them to rows of
/// `across` vectors.
#[inline(always)]
fn tile<const M: usize, const T: usize, O: Ops>(
    ops: O,
    queries: Rows<'_>,
    keys: impl Matrix,
    [key, elements]: [usize; 2],
    to: &mut [Lanes],
    across: usize,
    mut run: Run,
) {
    let vectors = elements / LANES;
    let queries: [&[[f32; LANES]]; M] = std::array::from_fn(|m| &queries.vectors(m)[..vectors]);
    let keys: [_; T] = std::array::from_fn(|t| keys.row(key + t, vectors));
    let mut sums = [[Lanes::ZERO; T]; M];
    #[allow(clippy::needless_range_loop)] // It counts along all rows at once.
    for i in 0..vectors {
        run.step();
        let keys: [Lanes; T] = std::array::from_fn(|t| keys[t].vectors::<1>(i)[0]);
        for m in 0..M {
            let query = Lanes(queries[m][i]);
            for t in 0..T {
                sums[m][t] = ops.add_products(sums[m][t], query, keys[t]);
            }
        }
    }
    for (m, sums) in sums.iter().enumerate() {
        to[m * across..][..T].copy_from_slice(sums);
    }
}
