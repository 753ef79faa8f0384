//! Vectors of sixteen numbers, and products of matrices of such vectors.
//!
//! Each element of a product is one chain of fused multiply-adds over the inner dimension in its
//! order, from zero. Rows and columns are independent chains, so how many of them are computed at
//! once changes no bit. The products of rows with rows, which are the scores, have sixteen chains
//! each: see `scores`.

use super::hints::Run;

/// Numbers of a vector, for every processor.
pub(in super::super) const LANES: usize = 16;

/// Sixteen numbers: one vector of the processor, or a few smaller ones.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Lanes(pub(super) [f32; LANES]);

/// A matrix by rows, which begin `stride` numbers apart.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Rows<'a> {
    pub(in super::super) numbers: &'a [f32],
    pub(in super::super) stride: usize,
}

impl<'a> Rows<'a> {
    /// The rows from `row` on.
    #[inline(always)]
    pub(super) fn from(self, row: usize) -> Self {
        Self { numbers: &self.numbers[row * self.stride..], ..self }
    }

    /// The vectors of a row, which must be whole vectors.
    #[inline(always)]
    pub(super) fn vectors(self, row: usize) -> &'a [[f32; LANES]] {
        let numbers = &self.numbers[row * self.stride..][..self.stride];
        bytemuck::cast_slice(numbers)
    }
}

/// Vectors of a row.
pub(super) trait Vectors: Copy {
    /// `N` vectors from `first` on.
    fn vectors<const N: usize>(&self, first: usize) -> [Lanes; N];
}

/// Rows to multiply with, in any kind of memory.
pub(super) trait Matrix: Copy {
    type Row: Vectors;
    /// One row, of `vectors` vectors.
    fn row(self, row: usize, vectors: usize) -> Self::Row;
    /// The first `count` rows.
    fn rows(self, count: usize) -> impl Iterator<Item = Self::Row>;
}

impl Vectors for &[f32] {
    #[inline(always)]
    fn vectors<const N: usize>(&self, first: usize) -> [Lanes; N] {
        let numbers = &self[first * LANES..][..N * LANES];
        std::array::from_fn(|n| Lanes::load(&numbers[n * LANES..]))
    }
}

impl<'a> Matrix for Rows<'a> {
    type Row = &'a [f32];

    #[inline(always)]
    fn row(self, row: usize, vectors: usize) -> &'a [f32] {
        &self.numbers[row * self.stride..][..vectors * LANES]
    }

    #[inline(always)]
    fn rows(self, count: usize) -> impl Iterator<Item = &'a [f32]> {
        self.numbers.chunks_exact(self.stride).take(count)
    }
}

impl Lanes {
    pub(super) const ZERO: Self = Self([0.0; LANES]);

    #[inline(always)]
    pub(super) fn load(numbers: &[f32]) -> Self {
        let mut lanes = [0.0; LANES];
        lanes.copy_from_slice(&numbers[..LANES]);
        Self(lanes)
    }

    #[inline(always)]
    pub(super) fn map(mut self, of: impl Fn(f32) -> f32) -> Self {
        self.0.iter_mut().for_each(|number| *number = of(*number));
        self
    }

    /// Combines two vectors lane by lane.
    #[inline(always)]
    pub(super) fn zip(mut self, other: Self, both: impl Fn(f32, f32) -> f32) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(number, other)| *number = both(*number, other));
        self
    }

    /// Adds the products of `a` and the lanes of `b`.
    #[inline(always)]
    pub(super) fn add_product(mut self, a: f32, b: Self) -> Self {
        for (sum, b) in self.0.iter_mut().zip(b.0) {
            *sum = a.mul_add(b, *sum);
        }
        self
    }

    /// Adds the products of `a` and `b`, lane by lane.
    #[inline(always)]
    pub(super) fn add_products(mut self, a: Self, b: Self) -> Self {
        for (sum, (a, b)) in self.0.iter_mut().zip(a.0.into_iter().zip(b.0)) {
            *sum = a.mul_add(b, *sum);
        }
        self
    }

    /// Folds all lanes into one number: eight and eight, four and four, and so on.
    #[inline(always)]
    pub(super) fn in_halves(self, both: impl Fn(f32, f32) -> f32) -> f32 {
        let eight: [f32; 8] = std::array::from_fn(|i| both(self.0[i], self.0[i + 8]));
        let four: [f32; 4] = std::array::from_fn(|i| both(eight[i], eight[i + 4]));
        both(both(four[0], four[2]), both(four[1], four[3]))
    }
}

/// The larger of two; the first one if neither is larger.
#[inline(always)]
pub(super) fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// Transposes sixteen rows.
#[inline(always)]
pub(super) fn turned(rows: &[Lanes; LANES]) -> [Lanes; LANES] {
    std::array::from_fn(|i| Lanes(std::array::from_fn(|row| rows[row].0[i])))
}

/// Multiplies `rows x inner` by `inner x columns`, where `columns` is a multiple of [`LANES`]; `N`
/// vectors of a row of `b` stay in registers. With `MORE` the chains continue from the contents of
/// `out`. `asks` returns what is prefetched meanwhile, for a number of vectors of `out` and a
/// number of steps.
#[inline(always)]
pub(super) fn product<const N: usize, const MORE: bool>(
    a: Rows<'_>,
    rows: usize,
    b: impl Matrix,
    [inner, columns]: [usize; 2],
    out: &mut [f32],
    out_stride: usize,
    mut asks: impl FnMut(usize, usize) -> Run,
) {
    let mut column = 0;
    while column + N * LANES <= columns {
        strip::<N, MORE>(a, rows, b, [inner, column], &mut out[column..], out_stride, &mut asks);
        column += N * LANES;
    }
    while column < columns {
        strip::<1, MORE>(a, rows, b, [inner, column], &mut out[column..], out_stride, &mut asks);
        column += LANES;
    }
}

/// The product with `N` vectors of columns, from one column on: six rows at a time, then the rows
/// that are left.
#[inline(always)]
fn strip<const N: usize, const MORE: bool>(
    a: Rows<'_>,
    rows: usize,
    b: impl Matrix,
    inner_and_column: [usize; 2],
    out: &mut [f32],
    out_stride: usize,
    asks: &mut impl FnMut(usize, usize) -> Run,
) {
    let mut row = 0;
    while row < rows {
        let left = rows - row;
        let a = Rows { numbers: &a.numbers[row * a.stride..], ..a };
        let out = &mut out[row * out_stride..];
        let done = match left {
            1 => tile::<1, N, MORE>(a, b, inner_and_column, out, out_stride, asks),
            2..=3 => tile::<2, N, MORE>(a, b, inner_and_column, out, out_stride, asks),
            4..=5 | 8 => tile::<4, N, MORE>(a, b, inner_and_column, out, out_stride, asks),
            _ => tile::<6, N, MORE>(a, b, inner_and_column, out, out_stride, asks),
        };
        row += done;
    }
}

/// `M` rows times `N` vectors of columns, all sums in registers; returns `M`.
#[inline(always)]
fn tile<const M: usize, const N: usize, const MORE: bool>(
    a: Rows<'_>,
    b: impl Matrix,
    [inner, column]: [usize; 2],
    out: &mut [f32],
    out_stride: usize,
    asks: &mut impl FnMut(usize, usize) -> Run,
) -> usize {
    let mut run = asks(M * N, inner);
    let rows: [&[f32]; M] = std::array::from_fn(|m| &a.numbers[m * a.stride..][..inner]);
    let mut sums = [[Lanes::ZERO; N]; M];
    if MORE {
        for (m, sums) in sums.iter_mut().enumerate() {
            let out = &out[m * out_stride..];
            sums.iter_mut().enumerate().for_each(|(n, sums)| *sums = Lanes::load(&out[n * LANES..]));
        }
    }
    for (k, row) in b.rows(inner).enumerate() {
        run.step();
        let row: [Lanes; N] = row.vectors(column / LANES);
        for m in 0..M {
            let element = rows[m][k];
            for n in 0..N {
                sums[m][n] = sums[m][n].add_product(element, row[n]);
            }
        }
    }
    for (m, sums) in sums.iter().enumerate() {
        for (n, sums) in sums.iter().enumerate() {
            out[m * out_stride + n * LANES..][..LANES].copy_from_slice(&sums.0);
        }
    }
    M
}
