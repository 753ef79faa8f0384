//! Products of many queries with the keys of a range, which were transposed into columns.
//!
//! A product has the same bits as in `scores`: sixteen chains of fused multiply-adds, added in
//! halves. In `scores` a vector holds the sixteen chains of one product, and adding them takes as
//! many shuffles as additions. Here a vector holds one chain of the products with sixteen keys, and
//! whole vectors are added. By the count of instructions, transposing the keys pays from about
//! forty queries on.

use super::super::RANGE_TOKENS;
use super::hints::Hints;
use super::lanes::{LANES, Lanes, Rows};
use super::rows::Ops;
use super::scores::UNITS_OF_PRODUCTS;

/// Vectors of keys whose products are computed together.
const VECTORS: usize = 2;
/// Keys in these vectors: columns hold one element of all these keys, then the next element.
const KEYS: usize = VECTORS * LANES;
/// Chains that are computed at once.
const CHAINS: usize = 2;
/// Sums that are kept while chains are added in halves: `LANES / CHAINS` is 2 to the power of this
/// number less one.
const LEVELS: usize = (LANES / CHAINS).ilog2() as usize + 1;

/// Products of `M` queries with some keys, or parts of them.
type Sums<const M: usize> = [[Lanes; VECTORS]; M];
/// Sums of each level of the tree of halves.
type Levels<const M: usize> = [Sums<M>; LEVELS];

/// Transposes [`LANES`] keys of `elements` elements, from the key `first` of a range on, into
/// columns.
#[inline(always)]
pub(super) fn turn<O: Ops>(ops: O, keys: &[f32], [first, elements]: [usize; 2], columns: &mut [f32]) {
    let columns = &mut columns[first / KEYS * KEYS * elements..][..KEYS * elements];
    for (i, columns) in columns.chunks_exact_mut(KEYS * LANES).enumerate() {
        let rows: [Lanes; LANES] = std::array::from_fn(|row| Lanes::load(&keys[row * elements + i * LANES..]));
        for (column, to) in ops.turn(&rows).iter().zip(columns.chunks_exact_mut(KEYS)) {
            to[first % KEYS..][..LANES].copy_from_slice(&column.0);
        }
    }
}

/// Computes the products of `count` queries of `elements` elements with all keys of a range, `M`
/// queries at a time, and writes them to rows of [`RANGE_TOKENS`].
#[inline(always)]
pub(super) fn products<const M: usize>(
    queries: Rows<'_>,
    columns: &[f32],
    [count, elements]: [usize; 2],
    out: &mut [f32],
    hints: &mut Hints,
) {
    // Made once: clearing them takes as long as a few products.
    let levels = &mut [[[Lanes::ZERO; VECTORS]; M]; LEVELS];
    let (one, two) = (&mut [[[Lanes::ZERO; VECTORS]]; LEVELS], &mut [[[Lanes::ZERO; VECTORS]; 2]; LEVELS]);
    for (i, columns) in columns.chunks_exact(KEYS * elements).enumerate() {
        let mut query = 0;
        while query < count {
            let (queries, out) = (queries.from(query), &mut out[query * RANGE_TOKENS + i * KEYS..]);
            let done = match count - query {
                1 => tile(queries, columns, one, out),
                left if left < M => tile(queries, columns, two, out),
                _ => tile(queries, columns, levels, out),
            };
            hints.step(done * VECTORS * UNITS_OF_PRODUCTS);
            query += done;
        }
    }
}

/// The products of `M` queries with some keys; returns `M`.
///
/// Chains are computed in the order of a depth-first walk of the tree of halves, so that only one
/// sum of each level is kept.
#[inline(always)]
fn tile<const M: usize>(queries: Rows<'_>, columns: &[f32], levels: &mut Levels<M>, out: &mut [f32]) -> usize {
    let queries: [&[[f32; LANES]]; M] = std::array::from_fn(|m| queries.vectors(m));
    for index in 0..LANES / CHAINS {
        // The lane is the index with its bits reversed.
        let lane = index.reverse_bits() >> (usize::BITS - (LANES / CHAINS).ilog2());
        let [mut sums, other] = chains::<M>(queries, columns, lane);
        add(&mut sums, &other);
        let halves = index.trailing_ones() as usize % LEVELS;
        levels[..halves].iter().for_each(|earlier| add(&mut sums, earlier));
        levels[halves] = sums;
    }
    for (m, sums) in levels[LEVELS - 1].iter().enumerate() {
        for (v, sum) in sums.iter().enumerate() {
            out[m * RANGE_TOKENS + v * LANES..][..LANES].copy_from_slice(&sum.0);
        }
    }
    M
}

/// Computes, for each product, the chain of a lane and that of the lane half a vector after it, all
/// in registers.
#[inline(always)]
fn chains<const M: usize>(queries: [&[[f32; LANES]]; M], columns: &[f32], lane: usize) -> [Sums<M>; CHAINS] {
    let mut sums = [[[Lanes::ZERO; VECTORS]; M]; CHAINS];
    for (i, columns) in columns.chunks_exact(KEYS * LANES).enumerate() {
        for (c, sums) in sums.iter_mut().enumerate() {
            let lane = lane + c * LANES / CHAINS;
            let column = &columns[lane * KEYS..][..KEYS];
            let keys: [Lanes; VECTORS] = std::array::from_fn(|v| Lanes::load(&column[v * LANES..]));
            for m in 0..M {
                for v in 0..VECTORS {
                    sums[m][v] = sums[m][v].add_product(queries[m][i][lane], keys[v]);
                }
            }
        }
    }
    sums
}

#[inline(always)]
fn add<const M: usize>(sums: &mut Sums<M>, others: &Sums<M>) {
    for (sums, others) in sums.as_flattened_mut().iter_mut().zip(others.as_flattened()) {
        *sums = sums.zip(*others, |a, b| a + b);
    }
}
