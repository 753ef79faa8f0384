//! The error for a layout, a batch or a buffer whose shape does not fit ([`ShapeError`]), and the
//! limits on query heads.
//!
//! Every backend returns it from its checks, before it computes.

use std::fmt;

use crate::layout::Dtype;
use radixkv::BlockId;

/// The most query heads that may read one KV head (grouped-query attention).
pub const MAX_GQA_GROUP: usize = 16;

/// The most query heads that may read latent vectors ([`Order::Latent`](crate::Order::Latent)).
pub const MAX_LATENT_HEADS: usize = 128;

/// Why the shape of a layout, a batch or a buffer is invalid. Nothing has been computed.
///
/// ```
/// use radixkv_attention::{Dtype, Layout, Order, ShapeError};
///
/// let (dtype, order) = (Dtype::F16, Order::Nhd);
/// let layout = Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 6, value_dim: 6, dtype, order };
/// let error = ShapeError::HeadDim { head_dim: 6, multiple: 4 };
/// assert_eq!(layout.check(), Err(error));
/// assert_eq!(error.to_string(), "heads of 6 elements: pad them to a multiple of 4");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ShapeError {
    /// A size of the layout is zero.
    Zero {
        /// Which one.
        what: &'static str,
    },
    /// The size of a head is not a multiple of the required number of elements: pad the head.
    HeadDim {
        /// Elements of a head.
        head_dim: usize,
        /// The number that it must be a multiple of.
        multiple: usize,
    },
    /// The number of blocks exceeds what ids or addresses can name: use fewer.
    TooLarge {
        /// Blocks requested.
        blocks: usize,
    },
    /// The number of query heads is not 1 to [`MAX_GQA_GROUP`] times the number of KV heads.
    Heads {
        /// Query heads.
        query_heads: usize,
        /// KV heads.
        kv_heads: usize,
    },
    /// A layout of latent vectors has more than one head of keys, or values that are longer than
    /// the keys.
    Latent {
        /// KV heads.
        kv_heads: usize,
        /// Elements of a vector.
        head_dim: usize,
        /// Elements of its value.
        value_dim: usize,
    },
    /// The number of query heads over latent vectors is not 1 to [`MAX_LATENT_HEADS`].
    LatentHeads {
        /// Query heads.
        query_heads: usize,
    },
    /// The softmax scale is infinite or not a number.
    Scale {
        /// The scale given.
        scale: f32,
    },
    /// The soft-cap is not a positive, finite number.
    SoftCap {
        /// The soft-cap given.
        soft_cap: f32,
    },
    /// An ALiBi slope is infinite or not a number.
    Slope {
        /// The slope given.
        slope: f32,
    },
    /// A row's tree mask lacks the bit of the row itself, or has the bit of a later row; or more
    /// than 31 rows of its sequence precede the row.
    Tree {
        /// The row.
        row: usize,
    },
    /// A batch with tree masks also has ALiBi slopes, or a window of fewer than 32 tokens: for
    /// these, drafted tokens would need explicit positions.
    TreeScoring,
    /// A scale of keys or values is not a positive, finite number.
    KvScale {
        /// The scale given.
        scale: f32,
    },
    /// Scales are given for an element type that computes its own scales, or has none: use a type
    /// with static scales.
    NotStatic {
        /// The element type.
        dtype: Dtype,
    },
    /// An array or a buffer does not have the length that the batch or the layout requires.
    Length {
        /// Which one.
        what: &'static str,
        /// Its length.
        given: usize,
        /// The required length.
        needed: usize,
    },
    /// Offsets do not ascend.
    Descending {
        /// Which offsets.
        what: &'static str,
        /// The index of an offset whose next one is smaller.
        index: usize,
    },
    /// Offsets do not begin at 0, or do not end at the length of the array that they divide.
    Span {
        /// Which offsets.
        what: &'static str,
        /// The first of them.
        first: u32,
        /// The last of them.
        last: u32,
        /// What the last of them must be.
        end: usize,
    },
    /// A row's slot is beyond the last block.
    Slot {
        /// The row.
        row: usize,
        /// Its slot.
        slot: u64,
        /// Slots of the layout.
        slots: u64,
    },
    /// A row's slot differs from the slot in its sequence's block table: derive the slots from the
    /// tables.
    Place {
        /// The row.
        row: usize,
        /// Its slot.
        slot: u64,
        /// The slot according to the table.
        needed: u64,
    },
    /// Two rows have the same slot: give each sequence its own blocks to write to.
    SlotTwice {
        /// The slot.
        slot: u64,
    },
    /// A sequence has more rows than tokens in its context: the context includes the rows.
    Context {
        /// The sequence.
        sequence: usize,
        /// Tokens that it attends to.
        context: usize,
        /// Its rows.
        rows: usize,
    },
    /// A block table is shorter than its sequence's context: append the missing blocks to it.
    Table {
        /// The sequence.
        sequence: usize,
        /// Blocks of its table.
        blocks: usize,
        /// Blocks that its context needs.
        needed: usize,
    },
    /// A block table names a block that the layout does not have.
    Block {
        /// The sequence.
        sequence: usize,
        /// The block.
        block: BlockId,
        /// Blocks of the layout.
        blocks: usize,
    },
    /// Decoding takes one row for each sequence: use `extend` for more.
    DecodeRows {
        /// The sequence.
        sequence: usize,
        /// Its rows.
        rows: usize,
    },
    /// The batch does not keep its rows' keys and values: prepare it with `save_kv`, or use
    /// `extend`.
    NotKept,
    /// There is no such layer.
    Layer {
        /// The layer.
        layer: usize,
        /// Layers of the layout.
        layers: usize,
    },
    /// The storage's layout differs from the layout that the batch was prepared for, or the sharing
    /// belongs to another batch.
    Foreign,
    /// A sequence is in no group, or in two, or is not in the batch.
    Group {
        /// The sequence.
        sequence: usize,
    },
    /// The sequences of a group do not share that many tokens, or the backend cannot end a prefix
    /// there: plan with its own [`rule`](crate::Backend::rule).
    Shared {
        /// The group.
        group: usize,
        /// Tokens that the group is planned to share.
        tokens: usize,
    },
    /// A block to be copied, or its destination, is beyond the layout.
    CopyRange {
        /// The block.
        block: BlockId,
        /// Blocks of the layout.
        blocks: usize,
    },
    /// A block is written twice, or written and read, by one call: copy in several calls.
    CopyOverlap {
        /// The block.
        block: BlockId,
    },
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Zero { what } => write!(f, "{what} is 0: at least 1 is needed"),
            Self::HeadDim { head_dim, multiple } => {
                write!(f, "heads of {head_dim} elements: pad them to a multiple of {multiple}")
            }
            Self::TooLarge { blocks } => {
                write!(f, "{blocks} blocks requested, more than ids or addresses can name: use fewer")
            }
            Self::Heads { query_heads, kv_heads } => {
                write!(f, "{query_heads} query heads are not 1 to {MAX_GQA_GROUP} times the {kv_heads} kv heads")
            }
            Self::Latent { kv_heads, head_dim, value_dim } => write!(
                f,
                "latent vectors with {kv_heads} kv heads, and values of {value_dim} of {head_dim} elements; \
                 1 head and values that are no longer are needed"
            ),
            Self::LatentHeads { query_heads } => {
                write!(f, "{query_heads} query heads over latent vectors: 1 to {MAX_LATENT_HEADS} are possible")
            }
            Self::Scale { scale } => write!(f, "the softmax scale {scale} is not finite"),
            Self::SoftCap { soft_cap } => write!(f, "the soft-cap {soft_cap} is not positive and finite"),
            Self::Slope { slope } => write!(f, "the ALiBi slope {slope} is not finite"),
            Self::Tree { row } => {
                write!(f, "the tree mask of row {row} must have the row's own bit, none above it, and 32 bits at most")
            }
            Self::TreeScoring => {
                f.write_str("tree masks need a batch without ALiBi slopes, and a window of 32 tokens at least")
            }
            Self::KvScale { scale } => {
                write!(f, "the scale {scale} of keys or values is not positive and finite")
            }
            Self::NotStatic { dtype } => {
                write!(f, "scales given for {dtype}, which takes none; use i8-static or e4m3-static")
            }
            Self::Length { what, given, needed } => write!(f, "{what}: {given} elements given, {needed} needed"),
            Self::Descending { what, index } => write!(f, "{what} must ascend: the one after index {index} is smaller"),
            Self::Span { what, first, last, end } => {
                write!(f, "{what} begin at {first} and end at {last}, not at 0 and {end}")
            }
            Self::Slot { row, slot, slots } => write!(f, "row {row} has slot {slot}, but the layout has {slots} slots"),
            Self::Place { row, slot, needed } => {
                write!(
                    f,
                    "row {row} has slot {slot}, but by its block table {needed}; derive the slots from the tables"
                )
            }
            Self::SlotTwice { slot } => {
                write!(f, "two rows have slot {slot}; give the sequences blocks of their own to write to")
            }
            Self::Context { sequence, context, rows } => {
                write!(
                    f,
                    "sequence {sequence} has {rows} rows, but a context of {context} tokens; count the rows in it"
                )
            }
            Self::Table { sequence, blocks, needed } => {
                write!(f, "the table of sequence {sequence} has {blocks} blocks, its context needs {needed}")
            }
            Self::Block { sequence, block, blocks } => {
                write!(f, "the table of sequence {sequence} names block {block}, but the layout has {blocks} blocks")
            }
            Self::DecodeRows { sequence, rows } => {
                write!(f, "sequence {sequence} has {rows} rows, decoding takes 1; use extend")
            }
            Self::NotKept => {
                f.write_str("the batch does not keep its keys and values; prepare it with save_kv, or use extend")
            }
            Self::Layer { layer, layers } => write!(f, "layer {layer} is out of range: the layout has {layers}"),
            Self::Foreign => {
                f.write_str("the storage has another layout than the batch, or the sharing belongs to another batch")
            }
            Self::Group { sequence } => write!(f, "sequence {sequence} is not in exactly one group"),
            Self::Shared { group, tokens } => write!(
                f,
                "the sequences of group {group} cannot share {tokens} tokens; plan with the rule of the backend"
            ),
            Self::CopyRange { block, blocks } => {
                write!(f, "block {block} cannot be copied: the layout has {blocks} blocks")
            }
            Self::CopyOverlap { block } => {
                write!(f, "block {block} is written twice, or written and read, by one call; copy in several calls")
            }
        }
    }
}

impl std::error::Error for ShapeError {}
