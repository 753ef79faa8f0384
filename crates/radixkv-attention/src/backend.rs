//! The trait for paged attention on a device ([`Backend`]), and the buffers of its operations.
//!
//! Engines call the trait; [`cpu`](crate::cpu) and the package `radixkv-cuda` implement it.

use std::error::Error;

use crate::batch::Batch;
use crate::layout::Layout;
use crate::plan::{Rule, Sharing};
use crate::shape::ShapeError;
use radixkv::BlockId;

/// Queries, keys and values of a batch's rows, stored without gaps. Keys and values may have fewer
/// heads than queries.
///
/// A plain struct, like all arguments of an operation: a literal names every field, and none has a
/// default.
///
/// ```
/// use radixkv_attention::Qkv;
///
/// // Two rows, 4 query heads, 2 heads of keys and values, 8 elements a head.
/// let (queries, keys, values) = ([0.5; 2 * 4 * 8], [0.1; 2 * 2 * 8], [0.2; 2 * 2 * 8]);
/// let new = Qkv { queries: &queries[..], keys: &keys[..], values: &values[..] };
/// assert_eq!(new.queries.len(), 2 * new.keys.len());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Qkv<R> {
    /// `[rows, query heads, head_dim]`
    pub queries: R,
    /// `[rows, kv heads, head_dim]`
    pub keys: R,
    /// `[rows, kv heads, value_dim]`; empty for latent vectors
    /// ([`Order::Latent`](crate::Order::Latent)).
    pub values: R,
}

/// The buffers that an operation writes to.
///
/// A plain struct: a literal names both fields, and neither has a default.
///
/// ```
/// use radixkv_attention::Output;
///
/// let (mut rows, mut lse) = ([0.0; 2 * 4 * 8], [0.0; 2 * 4]);
/// let with_lse = Output { rows: &mut rows[..], lse: Some(&mut lse[..]) };
/// # drop(with_lse);
/// let without: Output<_, &mut [f32]> = Output { rows: &mut rows[..], lse: None };
/// # drop(without);
/// ```
#[derive(Debug)]
pub struct Output<R, L> {
    /// `[rows, query heads, value_dim]`, without gaps.
    pub rows: R,
    /// Log-sum-exps, `[rows, query heads]`, or `None`: the natural logarithm of the sum of
    /// `exp(scale * q . k)` over the context. The batch's [`Scoring`](crate::Scoring) is applied to
    /// the scores first, and a sink counts in the sum.
    pub lse: Option<L>,
}

/// A backend for paged attention on a device.
///
/// Several threads may use one storage concurrently: every operation takes it by shared reference.
/// The cache decides who may access a block: the thread that holds the block's reservation writes
/// it, until the block is inserted; a reader holds a lease on the block, or its reservation. A
/// backend does not check this. On the CPU, a caller that breaks this rule reads wrong numbers, but
/// causes no other harm.
///
/// If a device queues its work, the operations of one backend run in the order of the calls.
///
/// Each operation checks its layer and the lengths of its buffers before it computes; after an
/// error nothing has been written.
///
/// # Examples
///
/// One layer of a decode step, for any backend whose rows are slices of `f32`, such as
/// [`Cpu`](crate::cpu::Cpu):
///
/// ```
/// use radixkv_attention::{Backend, Batch, Output};
///
/// /// Appends the keys and values of one layer, and decodes.
/// fn decode_layer<B>(
///     backend: &B, kv: &B::Kv, layer: usize, batch: &B::Prepared, [queries, keys, values]: [&[f32]; 3], out: &mut [f32],
/// ) -> Result<(), B::Error>
/// where
///     B: for<'a> Backend<Rows<'a> = &'a [f32], RowsMut<'a> = &'a mut [f32], LseMut<'a> = &'a mut [f32]>,
/// {
///     backend.append(kv, layer, batch, keys, values)?;
///     backend.decode(kv, layer, batch, queries, Output { rows: out, lse: None })
/// }
/// ```
pub trait Backend {
    /// The storage for keys and values of all layers, laid out as a [`Layout`] describes.
    type Kv;
    /// A batch that was checked and copied to the device; it serves every layer of one step.
    type Prepared;
    /// The shared prefixes of a batch, checked and copied to the device.
    type Cascade;
    /// Rows that an operation reads.
    type Rows<'a>;
    /// Rows that an operation writes.
    type RowsMut<'a>;
    /// Log-sum-exps that an operation writes: `f32`.
    type LseMut<'a>;
    /// Why an operation failed: a shape does not fit, or the device reported an error.
    type Error: Error + From<ShapeError> + Send + Sync + 'static;

    /// Allocates memory for keys and values, filled with zeros.
    ///
    /// # Errors
    ///
    /// If the layout is invalid ([`Layout::check`]), the backend does not support it, or there is
    /// too little memory.
    ///
    /// ```
    /// use radixkv_attention::{Backend, Dtype, Layout, Order, cpu::Cpu};
    ///
    /// let (dtype, order) = (Dtype::F32, Order::Nhd);
    /// let kv = Cpu.allocate(Layout { layers: 2, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype, order })?;
    /// assert_eq!(kv.layout().bytes(), 2 * 2 * 8 * 16 * 2 * 64 * 4);
    /// # Ok::<_, radixkv_attention::cpu::CpuError>(())
    /// ```
    fn allocate(&self, layout: Layout) -> Result<Self::Kv, Self::Error>;

    /// Checks a batch against the layout and copies it to the device.
    ///
    /// # Errors
    ///
    /// The first error found in the batch, or the device's error.
    ///
    /// ```
    /// # use radixkv_attention::{cpu::{Cpu, CpuError}, plan::share, *};
    /// # let (dtype, order) = (Dtype::F32, Order::Nhd);
    /// # let layout = Layout { layers: 1, blocks: 8, block_size: 64, kv_heads: 1, head_dim: 4, value_dim: 4, dtype, order };
    /// # let tables = Tables { blocks: &[3, 0, 3, 1], offsets: &[0, 2, 4] };
    /// # let (contexts, rows, slots) = (&[65, 65], &[0, 1, 2], &[0, 64]);
    /// # let batch = Batch { query_heads: 1, scale: 0.5, scoring: Scoring::default(), tables, contexts, rows, save_kv: true, slots };
    /// let prepared = Cpu.prepare(&layout, &batch)?; // once a step
    /// let short = Batch { slots: &slots[..1], ..batch };
    /// let error = ShapeError::Length { what: "slots", given: 1, needed: 2 };
    /// assert_eq!(Cpu.prepare(&layout, &short).err(), Some(error.into()));
    /// # Ok::<_, CpuError>(())
    /// ```
    fn prepare(&self, layout: &Layout, batch: &Batch<'_>) -> Result<Self::Prepared, Self::Error>;

    /// Writes each row's keys and values into its slot, rounded to the storage's element type (to
    /// nearest, ties to even).
    ///
    /// # Errors
    ///
    /// If the batch does not keep keys and values ([`Batch::save_kv`]), `keys` do not have the
    /// shape `[rows, kv heads, head_dim]`, or `values` not the shape `[rows, kv heads, value_dim]`;
    /// for latent vectors `values` must be empty.
    ///
    /// ```
    /// # use radixkv_attention::{cpu::{Cpu, CpuError}, plan::share, *};
    /// # let (dtype, order) = (Dtype::F32, Order::Nhd);
    /// # let layout = Layout { layers: 1, blocks: 8, block_size: 64, kv_heads: 1, head_dim: 4, value_dim: 4, dtype, order };
    /// # let tables = Tables { blocks: &[3, 0, 3, 1], offsets: &[0, 2, 4] };
    /// # let (contexts, rows, slots) = (&[65, 65], &[0, 1, 2], &[0, 64]);
    /// # let batch = Batch { query_heads: 1, scale: 0.5, scoring: Scoring::default(), tables, contexts, rows, save_kv: true, slots };
    /// # let (kv, prepared) = (Cpu.allocate(layout)?, Cpu.prepare(&layout, &batch)?);
    /// let (keys, values) = ([0.1; 2 * 4], [0.2; 2 * 4]); // two rows
    /// Cpu.append(&kv, 0, &prepared, &keys, &values)?;
    /// # Ok::<_, CpuError>(())
    /// ```
    fn append(
        &self,
        kv: &Self::Kv,
        layer: usize,
        batch: &Self::Prepared,
        keys: Self::Rows<'_>,
        values: Self::Rows<'_>,
    ) -> Result<(), Self::Error>;

    /// Computes attention for one row of each sequence over the sequence's whole context, which has
    /// been appended before.
    ///
    /// # Errors
    ///
    /// If a sequence has not exactly one row, the batch does not keep keys and values, or a buffer
    /// has the wrong length.
    ///
    /// ```
    /// # use radixkv_attention::{cpu::{Cpu, CpuError}, plan::share, *};
    /// # let (dtype, order) = (Dtype::F32, Order::Nhd);
    /// # let layout = Layout { layers: 1, blocks: 8, block_size: 64, kv_heads: 1, head_dim: 4, value_dim: 4, dtype, order };
    /// # let tables = Tables { blocks: &[3, 0, 3, 1], offsets: &[0, 2, 4] };
    /// # let (contexts, rows, slots) = (&[65, 65], &[0, 1, 2], &[0, 64]);
    /// # let batch = Batch { query_heads: 1, scale: 0.5, scoring: Scoring::default(), tables, contexts, rows, save_kv: true, slots };
    /// # let (kv, prepared) = (Cpu.allocate(layout)?, Cpu.prepare(&layout, &batch)?);
    /// let (queries, mut rows, mut lse) = ([0.1; 2 * 4], [0.0; 2 * 4], [0.0; 2]);
    /// let out = Output { rows: &mut rows[..], lse: Some(&mut lse[..]) };
    /// Cpu.decode(&kv, 0, &prepared, &queries, out)?;
    /// assert!((lse[0] - 65_f32.ln()).abs() < 1e-6); // 65 keys of zeros: all scores are 0
    /// # Ok::<_, CpuError>(())
    /// ```
    fn decode(
        &self,
        kv: &Self::Kv,
        layer: usize,
        batch: &Self::Prepared,
        queries: Self::Rows<'_>,
        out: Output<Self::RowsMut<'_>, Self::LseMut<'_>>,
    ) -> Result<(), Self::Error>;

    /// Computes causal attention for the rows of each sequence, which are the last tokens of its
    /// context: each row attends to all tokens up to itself.
    ///
    /// With [`Batch::save_kv`] the rows' keys and values are appended first. Otherwise they are
    /// read from `new`, rounded as if they had been appended, and no block is written. The outputs
    /// are the same in both cases.
    ///
    /// # Errors
    ///
    /// If a buffer does not have the length that the batch requires.
    ///
    /// ```
    /// # use radixkv_attention::{cpu::{Cpu, CpuError}, plan::share, *};
    /// # let (dtype, order) = (Dtype::F32, Order::Nhd);
    /// # let layout = Layout { layers: 1, blocks: 8, block_size: 64, kv_heads: 1, head_dim: 4, value_dim: 4, dtype, order };
    /// # let tables = Tables { blocks: &[3, 0, 3, 1], offsets: &[0, 2, 4] };
    /// # let (contexts, rows, slots) = (&[65, 65], &[0, 1, 2], &[0, 64]);
    /// # let batch = Batch { query_heads: 1, scale: 0.5, scoring: Scoring::default(), tables, contexts, rows, save_kv: true, slots };
    /// # let (kv, prepared) = (Cpu.allocate(layout)?, Cpu.prepare(&layout, &batch)?);
    /// let (queries, keys, values, mut out) = ([0.1; 8], [0.2; 8], [0.3; 8], [0.0; 8]);
    /// let new = Qkv { queries: &queries[..], keys: &keys[..], values: &values[..] };
    /// Cpu.extend(&kv, 0, &prepared, new, Output { rows: &mut out[..], lse: None })?;
    /// # Ok::<_, CpuError>(())
    /// ```
    fn extend(
        &self,
        kv: &Self::Kv,
        layer: usize,
        batch: &Self::Prepared,
        new: Qkv<Self::Rows<'_>>,
        out: Output<Self::RowsMut<'_>, Self::LseMut<'_>>,
    ) -> Result<(), Self::Error>;

    /// Returns when a shared prefix is worth a separate group on this backend, and at which token
    /// counts it may end: an argument of [`plan::share`](crate::plan::share).
    ///
    /// ```
    /// # use radixkv_attention::{cpu::{Cpu, CpuError}, plan::share, *};
    /// # let (dtype, order) = (Dtype::F32, Order::Nhd);
    /// # let layout = Layout { layers: 1, blocks: 8, block_size: 64, kv_heads: 1, head_dim: 4, value_dim: 4, dtype, order };
    /// # let tables = Tables { blocks: &[3, 0, 3, 1], offsets: &[0, 2, 4] };
    /// # let (contexts, rows, slots) = (&[65, 65], &[0, 1, 2], &[0, 64]);
    /// # let batch = Batch { query_heads: 1, scale: 0.5, scoring: Scoring::default(), tables, contexts, rows, save_kv: true, slots };
    /// let sharing = share(tables, contexts, layout.block_size, Cpu.rule(&layout));
    /// assert_eq!(sharing.saved_tokens(), 64);
    /// # Ok::<_, CpuError>(())
    /// ```
    fn rule(&self, layout: &Layout) -> Rule;

    /// Checks the shared prefixes that [`plan::share`](crate::plan::share) found for the batch, and
    /// copies them to the device.
    ///
    /// # Errors
    ///
    /// If a sequence of the batch has not exactly one row, or the groups do not belong to this
    /// batch.
    ///
    /// ```
    /// # use radixkv_attention::{cpu::{Cpu, CpuError}, plan::share, *};
    /// # let (dtype, order) = (Dtype::F32, Order::Nhd);
    /// # let layout = Layout { layers: 1, blocks: 8, block_size: 64, kv_heads: 1, head_dim: 4, value_dim: 4, dtype, order };
    /// # let tables = Tables { blocks: &[3, 0, 3, 1], offsets: &[0, 2, 4] };
    /// # let (contexts, rows, slots) = (&[65, 65], &[0, 1, 2], &[0, 64]);
    /// # let batch = Batch { query_heads: 1, scale: 0.5, scoring: Scoring::default(), tables, contexts, rows, save_kv: true, slots };
    /// let sharing = share(tables, contexts, layout.block_size, Cpu.rule(&layout));
    /// let cascade = Cpu.prepare_cascade(&layout, &batch, &sharing)?; // once a step
    /// # Ok::<_, CpuError>(())
    /// ```
    fn prepare_cascade(
        &self,
        layout: &Layout,
        batch: &Batch<'_>,
        sharing: &Sharing,
    ) -> Result<Self::Cascade, Self::Error>;

    /// As [`decode`](Self::decode), but reads the prefix of each group once for all its sequences,
    /// then the rest of each sequence, and merges the two.
    ///
    /// `batch` and `cascade` were prepared from the same batch.
    ///
    /// # Errors
    ///
    /// As `decode`; also if the backend detects that `batch` and `cascade` come from different
    /// batches.
    ///
    /// ```
    /// # use radixkv_attention::{cpu::{Cpu, CpuError}, plan::share, *};
    /// # let (dtype, order) = (Dtype::F32, Order::Nhd);
    /// # let layout = Layout { layers: 1, blocks: 8, block_size: 64, kv_heads: 1, head_dim: 4, value_dim: 4, dtype, order };
    /// # let tables = Tables { blocks: &[3, 0, 3, 1], offsets: &[0, 2, 4] };
    /// # let (contexts, rows, slots) = (&[65, 65], &[0, 1, 2], &[0, 64]);
    /// # let batch = Batch { query_heads: 1, scale: 0.5, scoring: Scoring::default(), tables, contexts, rows, save_kv: true, slots };
    /// # let (kv, prepared) = (Cpu.allocate(layout)?, Cpu.prepare(&layout, &batch)?);
    /// # let sharing = share(tables, contexts, layout.block_size, Cpu.rule(&layout));
    /// let cascade = Cpu.prepare_cascade(&layout, &batch, &sharing)?;
    /// let (queries, mut out) = ([0.1; 2 * 4], [0.0; 2 * 4]);
    /// Cpu.cascade(&kv, 0, &prepared, &cascade, &queries, Output { rows: &mut out, lse: None })?;
    /// # Ok::<_, CpuError>(())
    /// ```
    fn cascade(
        &self,
        kv: &Self::Kv,
        layer: usize,
        batch: &Self::Prepared,
        cascade: &Self::Cascade,
        queries: Self::Rows<'_>,
        out: Output<Self::RowsMut<'_>, Self::LseMut<'_>>,
    ) -> Result<(), Self::Error>;

    /// Copies blocks in all layers, one for each pair `(from, to)`: for copy-on-write and partial
    /// hits.
    ///
    /// # Errors
    ///
    /// If a block is beyond the layout, or a block is written twice, or written and read, by the
    /// same call.
    ///
    /// ```
    /// use radixkv_attention::{Backend, Dtype, Layout, Order, ShapeError, cpu::Cpu};
    ///
    /// let (dtype, order) = (Dtype::F32, Order::Nhd);
    /// let kv = Cpu.allocate(Layout { layers: 1, blocks: 4, block_size: 16, kv_heads: 1, head_dim: 4, value_dim: 4, dtype, order })?;
    /// Cpu.copy_blocks(&kv, &[(0, 1), (0, 2)])?;
    /// let overlap = Cpu.copy_blocks(&kv, &[(0, 1), (1, 2)]); // is 2 a copy of the old 1, or of the new one?
    /// assert_eq!(overlap, Err(ShapeError::CopyOverlap { block: 1 }.into()));
    /// # Ok::<_, radixkv_attention::cpu::CpuError>(())
    /// ```
    fn copy_blocks(&self, kv: &Self::Kv, pairs: &[(BlockId, BlockId)]) -> Result<(), Self::Error>;
}
