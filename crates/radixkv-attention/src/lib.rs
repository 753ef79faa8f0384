//! Attention over paged keys and values: the storage that block ids name, and what an engine computes over it.
//!
//! The cache hands out block ids and never sees a key. Here is the memory that they index ([`Layout`]) and the
//! operations of one step of an engine on it, behind a trait ([`Backend`]) that a processor and a GPU both implement. A
//! step's batch is prepared once and then run for every layer:
//!
//! ```text
//! prepare(batch)                    block tables, contexts, slots: checked, and where the device finds them
//! for each layer
//!     extend(q, k, v)               chunks of prompts: appends them and attends causally
//!  or append(k, v), decode(q)       one row a sequence
//!  or append(k, v), cascade(q)      one row a sequence; what sequences share is read once
//! ```
//!
//! [`plan`] finds what the sequences of a batch share, from their block tables alone.
//!
//! # Sums
//!
//! The CPU backend sums in one order, whatever the batch, the chunks, the block size, the threads and the sharing: over
//! ranges of [`RANGE`] tokens at fixed places of the sequence, merged from left to right. So a sequence's output has
//! the same bits whoever is computed beside it and whatever came out of the cache. A GPU backend promises closeness,
//! not bits.

mod batch;
pub mod cpu;
pub mod element;
mod layout;
pub mod plan;
mod shape;

pub use batch::{Batch, Tables};
pub use layout::{Dtype, Half, Layout, Order};
pub use shape::ShapeError;

use std::error::Error;

use plan::{Rule, Sharing};
use radixkv::BlockId;

/// Tokens of a range that the CPU backend sums by itself: `64 i..64 (i + 1)` of each sequence.
pub const RANGE: usize = 64;

/// Most query heads to a head of keys and values.
pub const MAX_GROUP: usize = 16;

/// What a batch's rows bring: each `[rows, heads, head_dim]`, without gaps; keys and values have fewer heads than
/// queries.
#[derive(Debug, Clone, Copy)]
pub struct Qkv<R> {
    /// `[rows, query heads, head_dim]`
    pub queries: R,
    /// `[rows, kv heads, head_dim]`
    pub keys: R,
    /// `[rows, kv heads, head_dim]`
    pub values: R,
}

/// Where an operation writes.
#[derive(Debug)]
pub struct Output<R, L> {
    /// `[rows, query heads, head_dim]`, without gaps.
    pub rows: R,
    /// If asked for: the natural logarithm of the sum of `exp(scale * q . k)` over the context, `[rows, query heads]`.
    pub lse: Option<L>,
}

/// Paged attention on some device.
///
/// Several threads may work on one storage at once: every operation takes it by shared reference. Who may write a block
/// is the cache's affair: the holder of its reservation alone, before it is inserted; and a block is read under a
/// lease, or by its holder. A backend does not check this. On the CPU a caller that breaks it reads wrong numbers, and
/// nothing worse happens.
///
/// Where a device queues its work, the operations of one backend run in the order in which they were called.
///
/// Each operation checks its layer and the lengths of its buffers before it computes; after an error nothing has been
/// written.
pub trait Backend {
    /// Keys and values of all layers, laid out as a [`Layout`] says.
    type Kv;
    /// A batch that was checked, where the device finds it; good for every layer of one step.
    type Prepared;
    /// What the sequences of a prepared batch share, where the device finds it.
    type Cascade;
    /// Rows to be read.
    type Rows<'a>;
    /// Rows to be written.
    type RowsMut<'a>;
    /// Log-sum-exps to be written: `f32`.
    type LseMut<'a>;
    /// Why an operation failed: a shape, or the device.
    type Error: Error + From<ShapeError> + Send + Sync + 'static;

    /// Memory for keys and values, zero at first.
    ///
    /// # Errors
    ///
    /// If the layout is empty, not one that the backend computes on, or larger than memory.
    fn allocate(&self, layout: Layout) -> Result<Self::Kv, Self::Error>;

    /// Checks a batch against the layout and brings it to the device.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with the batch.
    fn prepare(&self, layout: &Layout, batch: &Batch<'_>) -> Result<Self::Prepared, Self::Error>;

    /// Writes each row's keys and values into its slot, rounded to the storage's element type (to nearest, ties to
    /// even).
    ///
    /// # Errors
    ///
    /// If the batch keeps nothing ([`Batch::save_kv`]), or `keys` or `values` are not `[rows, kv heads, head_dim]`.
    fn append(
        &self,
        kv: &Self::Kv,
        layer: usize,
        batch: &Self::Prepared,
        keys: Self::Rows<'_>,
        values: Self::Rows<'_>,
    ) -> Result<(), Self::Error>;

    /// Attention of one row a sequence, over its whole context, which has been appended.
    ///
    /// # Errors
    ///
    /// If a sequence has not exactly one row, the batch keeps nothing, or a buffer has another length.
    fn decode(
        &self,
        kv: &Self::Kv,
        layer: usize,
        batch: &Self::Prepared,
        queries: Self::Rows<'_>,
        out: Output<Self::RowsMut<'_>, Self::LseMut<'_>>,
    ) -> Result<(), Self::Error>;

    /// Causal attention of each sequence's rows, the last ones of its context, over all that precedes them and
    /// themselves.
    ///
    /// If the batch says so ([`Batch::save_kv`]) the rows' keys and values are appended first. Otherwise they are read
    /// from where they are, rounded as if they had been appended, and no block is written: the outputs are the same.
    ///
    /// # Errors
    ///
    /// If a buffer has another length than the batch says.
    fn extend(
        &self,
        kv: &Self::Kv,
        layer: usize,
        batch: &Self::Prepared,
        new: Qkv<Self::Rows<'_>>,
        out: Output<Self::RowsMut<'_>, Self::LseMut<'_>>,
    ) -> Result<(), Self::Error>;

    /// When sharing pays on this backend, and at which token counts a shared prefix may end.
    fn rule(&self, layout: &Layout) -> Rule;

    /// Checks what sequences of the batch share, as [`plan::share`] found it, and brings it to the device.
    ///
    /// # Errors
    ///
    /// If a sequence of the batch has not exactly one row, or the groups are not of this batch.
    fn prepare_cascade(
        &self,
        layout: &Layout,
        batch: &Batch<'_>,
        sharing: &Sharing,
    ) -> Result<Self::Cascade, Self::Error>;

    /// [`decode`](Self::decode) that reads the prefix of each group once for all its sequences, then each one's rest,
    /// and merges the two.
    ///
    /// `batch` and `cascade` were prepared from the same batch.
    ///
    /// # Errors
    ///
    /// As `decode`.
    fn cascade(
        &self,
        kv: &Self::Kv,
        layer: usize,
        batch: &Self::Prepared,
        cascade: &Self::Cascade,
        queries: Self::Rows<'_>,
        out: Output<Self::RowsMut<'_>, Self::LseMut<'_>>,
    ) -> Result<(), Self::Error>;

    /// Copies blocks, in all layers: `(from, to)` each. For copy-on-write and partial hits.
    ///
    /// # Errors
    ///
    /// If a block is beyond the layout, or one that is written is also read, or written twice, by the same call.
    fn copy_blocks(&self, kv: &Self::Kv, pairs: &[(BlockId, BlockId)]) -> Result<(), Self::Error>;
}
