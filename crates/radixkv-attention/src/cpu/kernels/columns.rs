//! Products of many queries with the keys of a range, which are turned into columns before.
//!
//! A product is that of `scores`, to the bit: sixteen chains of fused multiply-adds, added in halves. There a vector holds the
//! sixteen chains of one product, and adding them takes as many shuffles as additions. Here it holds one chain of the
//! products with sixteen keys, and whole vectors are added. By the count of instructions, what turning the keys takes is won
//! back from about forty queries on.

use super::super::RANGE_TOKENS;
use super::hints::Hints;
use super::lanes::{LANES, Lanes, Rows};
use super::rows::Ops;
use super::scores::UNITS_OF_PRODUCTS;

/// Products of `M` queries with `V` vectors of keys, or parts of them.
type Sums<const M: usize, const V: usize> = [[Lanes; V]; M];

/// Turns [`LANES`] rows of so many elements into columns, whose elements lie [`RANGE_TOKENS`] apart.
#[inline(always)]
pub(super) fn turn<O: Ops>(ops: O, keys: &[f32], elements: usize, columns: &mut [f32]) {
    for first in (0..elements).step_by(LANES) {
        let rows: [Lanes; LANES] = std::array::from_fn(|row| Lanes::load(&keys[row * elements + first..]));
        for (column, to) in ops.turn(&rows).iter().zip(columns[first * RANGE_TOKENS..].chunks_mut(RANGE_TOKENS)) {
            to[..LANES].copy_from_slice(&column.0);
        }
    }
}

/// The products of `count` queries of so many elements with all keys of a range, to rows of [`RANGE_TOKENS`]: `M` queries with
/// `V` vectors of keys at a time.
#[inline(always)]
pub(super) fn products<const M: usize, const V: usize>(
    queries: Rows<'_>,
    columns: &[f32],
    [count, elements]: [usize; 2],
    out: &mut [f32],
    hints: &mut Hints,
) {
    let mut query = 0;
    while query < count {
        let done = if count - query >= M { M } else { 1 };
        let (queries, out) = (queries.from(query), &mut out[query * RANGE_TOKENS..]);
        for first in (0..RANGE_TOKENS).step_by(V * LANES) {
            if done == M {
                tile::<M, V>(queries, columns, first, elements, out);
            } else {
                tile::<1, V>(queries, columns, first, elements, out);
            }
            hints.step(done * V * UNITS_OF_PRODUCTS);
        }
        query += done;
    }
}

/// The products of `M` queries with `V` vectors of keys, from the key `first` on.
#[inline(always)]
fn tile<const M: usize, const V: usize>(
    queries: Rows<'_>,
    columns: &[f32],
    first: usize,
    elements: usize,
    out: &mut [f32],
) {
    let queries: [&[[f32; LANES]]; M] = std::array::from_fn(|m| queries.vectors(m));
    let columns = &columns[..elements * RANGE_TOKENS];
    let sums: Sums<M, V> = add(eight(queries, columns, [0, first]), eight(queries, columns, [1, first]));
    for (m, sums) in sums.iter().enumerate() {
        for (v, sum) in sums.iter().enumerate() {
            out[m * RANGE_TOKENS + first + v * LANES..][..LANES].copy_from_slice(&sum.0);
        }
    }
}

/// Every second chain from that of `lane` on, added.
#[inline(always)]
fn eight<const M: usize, const V: usize>(
    queries: [&[[f32; LANES]]; M],
    columns: &[f32],
    [lane, first]: [usize; 2],
) -> Sums<M, V> {
    add(four(queries, columns, [lane, first]), four(queries, columns, [lane + 2, first]))
}

/// Every fourth one.
#[inline(always)]
fn four<const M: usize, const V: usize>(
    queries: [&[[f32; LANES]]; M],
    columns: &[f32],
    [lane, first]: [usize; 2],
) -> Sums<M, V> {
    add(two(queries, columns, [lane, first]), two(queries, columns, [lane + 4, first]))
}

/// Every eighth one.
#[inline(always)]
fn two<const M: usize, const V: usize>(
    queries: [&[[f32; LANES]]; M],
    columns: &[f32],
    [lane, first]: [usize; 2],
) -> Sums<M, V> {
    add(chain(queries, columns, [lane, first]), chain(queries, columns, [lane + 8, first]))
}

/// One chain of each product, all in registers.
#[inline(always)]
fn chain<const M: usize, const V: usize>(
    queries: [&[[f32; LANES]]; M],
    columns: &[f32],
    [lane, first]: [usize; 2],
) -> Sums<M, V> {
    let mut sums = [[Lanes::ZERO; V]; M];
    for (i, columns) in columns.chunks_exact(LANES * RANGE_TOKENS).enumerate() {
        let column = &columns[lane * RANGE_TOKENS + first..][..V * LANES];
        let keys: [Lanes; V] = std::array::from_fn(|v| Lanes::load(&column[v * LANES..]));
        for m in 0..M {
            for v in 0..V {
                sums[m][v] = sums[m][v].add_product(queries[m][i][lane], keys[v]);
            }
        }
    }
    sums
}

#[inline(always)]
fn add<const M: usize, const V: usize>(mut a: Sums<M, V>, b: Sums<M, V>) -> Sums<M, V> {
    for m in 0..M {
        for v in 0..V {
            a[m][v] = a[m][v].zip(b[m][v], |a, b| a + b);
        }
    }
    a
}
