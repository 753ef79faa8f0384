//! What one step computes attention for.

use super::{Layout, MAX_GROUP, ShapeError};
use radixkv::BlockId;

/// Block tables of several sequences, one after another.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    /// Block ids; the `i`-th of a sequence holds its tokens `i * block_size..(i + 1) * block_size`.
    pub blocks: &'a [BlockId],
    /// Where each sequence's blocks begin, and the end of the last: one more than there are sequences.
    pub offsets: &'a [u32],
}

/// Sequences with the rows that a step computes for them, in flat arrays.
///
/// ```
/// use radixkv_attention::{Batch, Dtype, Layout, Order, Tables};
///
/// let layout =
///     Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, dtype: Dtype::Bf16, order: Order::Nhd };
/// // Two sequences: one decodes its 18th token, of the other the tokens 30..33 are prefilled.
/// let batch = Batch {
///     query_heads: 8,
///     scale: 0.125,
///     tables: Tables { blocks: &[3, 5, 3, 1, 0], offsets: &[0, 2, 5] },
///     contexts: &[18, 33],
///     rows: &[0, 1, 4],
///     save_kv: true,
///     slots: &[5 * 16 + 1, 16 + 14, 16 + 15, 0],
/// };
/// assert_eq!(batch.check(&layout), Ok(()));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Query heads: a multiple of the layout's `kv_heads`, 1 to [`MAX_GROUP`] times as many.
    pub query_heads: usize,
    /// What `q . k` is multiplied by before the softmax; usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Block tables.
    pub tables: Tables<'a>,
    /// Tokens that each sequence attends to, its rows of this step among them.
    pub contexts: &'a [u32],
    /// Where each sequence's rows begin, and the end of the last. A sequence's rows are the last tokens of its context.
    pub rows: &'a [u32],
    /// Whether the rows' keys and values are kept in blocks. If not, tables reach up to the rows only, and the batch is
    /// for [`extend`](super::Backend::extend) alone.
    pub save_kv: bool,
    /// If they are kept: the slot of each row, `block * block_size + offset`. Otherwise empty.
    pub slots: &'a [u64],
}

impl<'a> Tables<'a> {
    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether there is no sequence.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The blocks of a sequence.
    ///
    /// # Panics
    ///
    /// If there is no such sequence, or the offsets lie outside the blocks.
    pub fn of(&self, sequence: usize) -> &'a [BlockId] {
        &self.blocks[self.offsets[sequence] as usize..self.offsets[sequence + 1] as usize]
    }
}

impl Batch<'_> {
    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.contexts.len()
    }

    /// Whether there is no sequence.
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// Rows of all sequences.
    pub fn total_rows(&self) -> usize {
        self.rows.last().map_or(0, |end| *end as usize)
    }

    /// Rows of one sequence.
    ///
    /// # Panics
    ///
    /// If there is no such sequence.
    pub fn rows_of(&self, sequence: usize) -> std::ops::Range<usize> {
        self.rows[sequence] as usize..self.rows[sequence + 1] as usize
    }

    /// Whether every operation of a [`Backend`](super::Backend) can follow it on storage of this layout.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn check(&self, layout: &Layout) -> Result<(), ShapeError> {
        layout.check()?;
        let (query_heads, kv_heads) = (self.query_heads, layout.kv_heads);
        if query_heads == 0 || query_heads % kv_heads != 0 || query_heads / kv_heads > MAX_GROUP {
            return Err(ShapeError::Heads { query_heads, kv_heads });
        }
        if !self.scale.is_finite() {
            return Err(ShapeError::Scale { scale: self.scale });
        }
        self.check_offsets("table offsets", self.tables.offsets, self.tables.blocks.len())?;
        self.check_offsets("row offsets", self.rows, self.total_rows())?;
        self.check_slots(layout)?;
        (0..self.len()).try_for_each(|sequence| self.check_sequence(layout, sequence))
    }

    /// Whether every sequence has one row, and that one is kept: what [`decode`](super::Backend::decode) asks for.
    ///
    /// # Errors
    ///
    /// The first sequence that has not.
    pub fn check_decode(&self) -> Result<(), ShapeError> {
        if !self.save_kv {
            return Err(ShapeError::NotKept);
        }
        match (0..self.len()).find(|sequence| self.rows_of(*sequence).len() != 1) {
            Some(sequence) => Err(ShapeError::DecodeRows { sequence, rows: self.rows_of(sequence).len() }),
            None => Ok(()),
        }
    }

    fn check_offsets(&self, what: &'static str, offsets: &[u32], end: usize) -> Result<(), ShapeError> {
        let needed = self.len() + 1;
        if offsets.len() != needed {
            return Err(ShapeError::Length { what, given: offsets.len(), needed });
        }
        if let Some(index) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(ShapeError::Descending { what, index });
        }
        if offsets[0] != 0 || offsets[needed - 1] as usize != end {
            return Err(ShapeError::Span { what, first: offsets[0], last: offsets[needed - 1], end });
        }
        Ok(())
    }

    fn check_slots(&self, layout: &Layout) -> Result<(), ShapeError> {
        let needed = if self.save_kv { self.total_rows() } else { 0 };
        if self.slots.len() != needed {
            return Err(ShapeError::Length { what: "slots", given: self.slots.len(), needed });
        }
        match self.slots.iter().position(|slot| *slot >= layout.slots()) {
            Some(row) => Err(ShapeError::Slot { row, slot: self.slots[row], slots: layout.slots() }),
            None => Ok(()),
        }
    }

    fn check_sequence(&self, layout: &Layout, sequence: usize) -> Result<(), ShapeError> {
        let (context, rows) = (self.contexts[sequence] as usize, self.rows_of(sequence).len());
        if context < rows {
            return Err(ShapeError::Context { sequence, context, rows });
        }
        let stored = if self.save_kv { context } else { context - rows };
        let (needed, table) = (stored.div_ceil(layout.block_size), self.tables.of(sequence));
        if table.len() < needed {
            return Err(ShapeError::Table { sequence, blocks: table.len(), needed });
        }
        match table[..needed].iter().find(|block| **block as usize >= layout.blocks) {
            Some(&block) => Err(ShapeError::Block { sequence, block, blocks: layout.blocks }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, Order};

    const LAYOUT: Layout =
        Layout { layers: 1, blocks: 8, block_size: 4, kv_heads: 2, head_dim: 4, dtype: Dtype::F32, order: Order::Nhd };

    /// Two sequences: one row on a context of 5, three on a context of 3.
    const GOOD: Batch<'_> = Batch {
        query_heads: 4,
        scale: 0.5,
        tables: Tables { blocks: &[1, 7, 2], offsets: &[0, 2, 3] },
        contexts: &[5, 3],
        rows: &[0, 1, 4],
        save_kv: true,
        slots: &[28, 8, 9, 10],
    };

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(GOOD.check(&LAYOUT), Ok(()));
        let none = Layout { kv_heads: 0, ..LAYOUT };
        assert_eq!(GOOD.check(&none), Err(ShapeError::Zero { what: "kv_heads" }));
        let wrong = |batch: Batch<'_>, error| assert_eq!(batch.check(&LAYOUT), Err(error));
        for query_heads in [0, 3, 34] {
            wrong(Batch { query_heads, ..GOOD }, ShapeError::Heads { query_heads, kv_heads: 2 });
        }
        wrong(Batch { scale: f32::INFINITY, ..GOOD }, ShapeError::Scale { scale: f32::INFINITY });
        let tables = Tables { offsets: &[0, 3], ..GOOD.tables };
        wrong(Batch { tables, ..GOOD }, ShapeError::Length { what: "table offsets", given: 2, needed: 3 });
        let tables = Tables { offsets: &[0, 2, 2], ..GOOD.tables };
        wrong(Batch { tables, ..GOOD }, ShapeError::Span { what: "table offsets", first: 0, last: 2, end: 3 });
        wrong(Batch { rows: &[0, 5, 4], ..GOOD }, ShapeError::Descending { what: "row offsets", index: 1 });
        wrong(Batch { rows: &[], ..GOOD }, ShapeError::Length { what: "row offsets", given: 0, needed: 3 });
        wrong(Batch { slots: &[], ..GOOD }, ShapeError::Length { what: "slots", given: 0, needed: 4 });
        wrong(Batch { slots: &[28, 8, 32, 10], ..GOOD }, ShapeError::Slot { row: 2, slot: 32, slots: 32 });
        wrong(Batch { contexts: &[5, 2], ..GOOD }, ShapeError::Context { sequence: 1, context: 2, rows: 3 });
        wrong(Batch { contexts: &[9, 3], ..GOOD }, ShapeError::Table { sequence: 0, blocks: 2, needed: 3 });
        let tables = Tables { blocks: &[1, 8, 2], ..GOOD.tables };
        wrong(Batch { tables, ..GOOD }, ShapeError::Block { sequence: 0, block: 8, blocks: 8 });
    }

    #[test]
    fn rows_that_are_not_kept_need_no_block() {
        let tables = Tables { blocks: &[1], offsets: &[0, 1, 1] };
        let batch = Batch { tables, save_kv: false, slots: &[], ..GOOD };
        assert_eq!(batch.check(&LAYOUT), Ok(()));
        assert_eq!(batch.check_decode(), Err(ShapeError::NotKept));
    }

    #[test]
    fn decoding_is_one_row_a_sequence() {
        assert_eq!(GOOD.check_decode(), Err(ShapeError::DecodeRows { sequence: 1, rows: 3 }));
        let one = Batch { contexts: &[5, 3], rows: &[0, 1, 2], slots: &[28, 10], ..GOOD };
        assert_eq!((one.check(&LAYOUT), one.check_decode()), (Ok(()), Ok(())));
    }

    #[test]
    fn nothing_to_compute_is_a_batch() {
        let tables = Tables { blocks: &[], offsets: &[0] };
        let none = Batch { tables, contexts: &[], rows: &[0], slots: &[], ..GOOD };
        assert_eq!((none.check(&LAYOUT), none.check_decode()), (Ok(()), Ok(())));
    }
}
