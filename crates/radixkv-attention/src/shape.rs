//! Shapes that do not fit.

use std::fmt;

use super::MAX_GROUP;
use radixkv::BlockId;

/// What is wrong with the shape of a layout, a batch or a buffer. Nothing has been computed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ShapeError {
    /// A size of the layout is zero.
    Zero {
        /// Which.
        what: &'static str,
    },
    /// Elements of a head are taken by fours: pad the head.
    HeadDim {
        /// Elements of a head.
        head_dim: usize,
    },
    /// Ids or addresses cannot name all of it: use fewer blocks.
    TooLarge {
        /// Blocks asked for.
        blocks: usize,
    },
    /// The query heads are not 1 to [`MAX_GROUP`] for each head of keys and values.
    Heads {
        /// Query heads.
        query_heads: usize,
        /// Heads of keys and values.
        kv_heads: usize,
    },
    /// The softmax scale is infinite or not a number.
    Scale {
        /// The scale given.
        scale: f32,
    },
    /// An array or a buffer has another length than the rest of the batch asks for.
    Length {
        /// Which.
        what: &'static str,
        /// Its length.
        given: usize,
        /// What it must be.
        needed: usize,
    },
    /// Offsets go down.
    Descending {
        /// Which offsets.
        what: &'static str,
        /// Where: the next one is smaller.
        index: usize,
    },
    /// Offsets do not begin at 0 or do not end with what they point into.
    Span {
        /// Which offsets.
        what: &'static str,
        /// The first of them.
        first: u32,
        /// The last of them.
        last: u32,
        /// Where the last should be.
        end: usize,
    },
    /// A row's slot lies beyond the last block.
    Slot {
        /// The row.
        row: usize,
        /// Its slot.
        slot: u64,
        /// Slots of the layout.
        slots: u64,
    },
    /// A sequence has more rows than tokens: count its rows among its context.
    Context {
        /// The sequence.
        sequence: usize,
        /// Tokens it attends to.
        context: usize,
        /// Its rows.
        rows: usize,
    },
    /// A block table ends before its sequence's context: append its blocks first.
    Table {
        /// The sequence.
        sequence: usize,
        /// Blocks of its table.
        blocks: usize,
        /// Blocks that its context lies in.
        needed: usize,
    },
    /// A block table names a block that the layout has not.
    Block {
        /// The sequence.
        sequence: usize,
        /// The block.
        block: BlockId,
        /// Blocks of the layout.
        blocks: usize,
    },
    /// Decoding takes one row a sequence: use `extend` for more.
    DecodeRows {
        /// The sequence.
        sequence: usize,
        /// Its rows.
        rows: usize,
    },
    /// The batch does not keep its rows' keys and values: prepare it with `save_kv`, or use `extend`.
    NotKept,
    /// There is no such layer.
    Layer {
        /// The layer.
        layer: usize,
        /// Layers of the layout.
        layers: usize,
    },
    /// The storage has another layout than the batch was prepared for, or the sharing is of another batch.
    Foreign,
    /// A sequence is in no group, or in two, or is none of the batch.
    Group {
        /// The sequence.
        sequence: usize,
    },
    /// A group's sequences do not share so many tokens, or they end where the backend's rule lets none end.
    Shared {
        /// The group.
        group: usize,
        /// Tokens it is said to share.
        tokens: usize,
    },
    /// A block to be copied, or its destination, is beyond the layout.
    CopyRange {
        /// The block.
        block: BlockId,
        /// Blocks of the layout.
        blocks: usize,
    },
    /// A block is written and also read, or written twice, by one call: copy in several calls.
    CopyOverlap {
        /// The block.
        block: BlockId,
    },
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Zero { what } => write!(f, "{what} is 0"),
            Self::HeadDim { head_dim } => write!(f, "a head of {head_dim} elements is not a multiple of 4"),
            Self::TooLarge { blocks } => write!(f, "{blocks} blocks are more than ids or addresses can name"),
            Self::Heads { query_heads, kv_heads } => {
                write!(f, "{query_heads} query heads are not 1 to {MAX_GROUP} for each of {kv_heads} kv heads")
            }
            Self::Scale { scale } => write!(f, "a softmax scale of {scale} is not finite"),
            Self::Length { what, given, needed } => write!(f, "{what}: {given} elements given, {needed} needed"),
            Self::Descending { what, index } => write!(f, "{what} go down after index {index}"),
            Self::Span { what, first, last, end } => {
                write!(f, "{what} go from {first} to {last}, not from 0 to {end}")
            }
            Self::Slot { row, slot, slots } => write!(f, "slot {slot} of row {row} is beyond {slots} slots"),
            Self::Context { sequence, context, rows } => {
                write!(f, "sequence {sequence} has {rows} rows and a context of {context} tokens")
            }
            Self::Table { sequence, blocks, needed } => {
                write!(f, "the table of sequence {sequence} has {blocks} blocks, its context lies in {needed}")
            }
            Self::Block { sequence, block, blocks } => {
                write!(f, "the table of sequence {sequence} names block {block} of {blocks}")
            }
            Self::DecodeRows { sequence, rows } => write!(f, "sequence {sequence} has {rows} rows, decoding takes 1"),
            Self::NotKept => f.write_str("the batch does not keep its keys and values"),
            Self::Layer { layer, layers } => write!(f, "layer {layer} of {layers}"),
            Self::Foreign => f.write_str("storage, batch and sharing do not belong together"),
            Self::Group { sequence } => write!(f, "sequence {sequence} is not in exactly one group"),
            Self::Shared { group, tokens } => write!(f, "group {group} cannot share its first {tokens} tokens"),
            Self::CopyRange { block, blocks } => write!(f, "block {block} of {blocks} cannot be copied"),
            Self::CopyOverlap { block } => write!(f, "block {block} is written and used again by one call"),
        }
    }
}

impl std::error::Error for ShapeError {}
