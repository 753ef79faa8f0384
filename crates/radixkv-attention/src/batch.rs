//! The sequences and rows of one step ([`Batch`]), their block tables ([`Tables`]), and their
//! checks.
//!
//! An engine makes a batch for every step; [`Backend::prepare`](crate::Backend::prepare) checks it.

use crate::layout::Layout;
use crate::scoring::Scoring;
use crate::shape::{MAX_GQA_GROUP, MAX_LATENT_HEADS, ShapeError};
use radixkv::BlockId;

/// The block tables of several sequences, concatenated.
///
/// A plain struct: two arrays that an engine already has, borrowed for one step.
///
/// ```
/// use radixkv_attention::Tables;
///
/// // Two sequences whose first blocks are the same.
/// let tables = Tables { blocks: &[3, 5, 3, 1], offsets: &[0, 2, 4] };
/// assert_eq!(tables.len(), 2);
/// assert_eq!(tables.blocks_of(1), [3, 1]);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    /// Block ids. Block `i` of a sequence holds its tokens `i * block_size..(i + 1) * block_size`.
    pub blocks: &'a [BlockId],
    /// The offset in `blocks` of each sequence's first block, then the end of the last sequence's
    /// blocks: one element more than there are sequences.
    pub offsets: &'a [u32],
}

/// The sequences of a step and the rows that it computes for them, in flat arrays.
///
/// A plain struct without a constructor: an engine makes one for every step, no field has a
/// default, and a literal names arrays of the same type (`contexts` and `rows`), which could be
/// swapped by mistake as arguments. Common schedulers produce these arrays: block tables, context
/// lengths, cumulative row counts, a slot mapping.
///
/// ```
/// use radixkv_attention::{Batch, Dtype, Layout, Order, Scoring, Tables};
///
/// let layout =
///     Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype: Dtype::Bf16, order: Order::Nhd };
/// // Two sequences: one decodes its 18th token, of the other the tokens 30..33 are prefilled.
/// let batch = Batch {
///     query_heads: 8,
///     scale: 0.125,
///     scoring: Scoring::default(),
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
    /// Query heads: a multiple of the layout's `kv_heads`, 1 to [`MAX_GQA_GROUP`] times as many;
    /// over latent vectors 1 to [`MAX_LATENT_HEADS`].
    pub query_heads: usize,
    /// The factor of `q . k` before the softmax; usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Sliding window, soft-cap, slopes, sinks and trees; [`Scoring::default`] for none.
    pub scoring: Scoring<'a>,
    /// Block tables.
    pub tables: Tables<'a>,
    /// Tokens that each sequence attends to, including its rows of this step.
    pub contexts: &'a [u32],
    /// The index of each sequence's first row, then the end of the last sequence's rows: one
    /// element more than there are sequences. The rows of a sequence are the last tokens of its
    /// context.
    pub rows: &'a [u32],
    /// Whether the rows' keys and values are kept in blocks. If not, the block tables need no
    /// blocks for the rows, and the batch is only for [`extend`](crate::Backend::extend).
    pub save_kv: bool,
    /// With `save_kv`, the slot of each row: `block * block_size + offset in the block`, as the
    /// sequence's block table gives it. Otherwise empty.
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

    /// The block table of one sequence.
    ///
    /// # Panics
    ///
    /// If there is no such sequence, or its offsets are outside the blocks.
    pub fn blocks_of(&self, sequence: usize) -> &'a [BlockId] {
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

    /// Number of rows of all sequences.
    pub fn total_rows(&self) -> usize {
        self.rows.last().map_or(0, |end| *end as usize)
    }

    /// The rows of one sequence, as indices into the batch's rows.
    ///
    /// # Panics
    ///
    /// If there is no such sequence.
    ///
    /// ```
    /// # use radixkv_attention::{Batch, Scoring, Tables};
    /// # let tables = Tables { blocks: &[3, 5, 3, 1, 0], offsets: &[0, 2, 5] };
    /// # let (query_heads, scale, contexts, save_kv, slots) = (8, 0.125, &[18, 33], true, &[81, 30, 31, 0]);
    /// let batch = Batch { rows: &[0, 1, 4], query_heads, scale, scoring: Scoring::default(), tables, contexts, save_kv, slots };
    /// assert_eq!((batch.rows_of(0), batch.rows_of(1), batch.total_rows()), (0..1, 1..4, 4));
    /// ```
    pub fn rows_of(&self, sequence: usize) -> std::ops::Range<usize> {
        self.rows[sequence] as usize..self.rows[sequence + 1] as usize
    }

    /// Checks that a [`Backend`](crate::Backend) can compute the batch over storage of this layout:
    /// arrays have the required lengths, slots and blocks are inside the layout, tables cover the
    /// contexts, each row has the slot that its table gives, and no two rows have the same slot.
    /// Allocates.
    ///
    /// # Errors
    ///
    /// The first error found.
    ///
    /// ```
    /// # use radixkv_attention::{Batch, Dtype, Layout, Order, ShapeError, Scoring, Tables};
    /// # let (dtype, order) = (Dtype::F16, Order::Nhd);
    /// # let layout = Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype, order };
    /// # let (query_heads, scale, contexts, save_kv, slots) = (8, 0.125, &[18], true, &[81]);
    /// let tables = Tables { blocks: &[3], offsets: &[0, 1] }; // one block, but 18 tokens
    /// let batch = Batch { rows: &[0, 1], query_heads, scale, scoring: Scoring::default(), tables, contexts, save_kv, slots };
    /// assert_eq!(batch.check(&layout), Err(ShapeError::Table { sequence: 0, blocks: 1, needed: 2 }));
    /// ```
    pub fn check(&self, layout: &Layout) -> Result<(), ShapeError> {
        layout.check()?;
        let (query_heads, kv_heads) = (self.query_heads, layout.kv_heads);
        if !layout.has_values() {
            if query_heads == 0 || query_heads > MAX_LATENT_HEADS {
                return Err(ShapeError::LatentHeads { query_heads });
            }
        } else if query_heads == 0 || query_heads % kv_heads != 0 || query_heads / kv_heads > MAX_GQA_GROUP {
            return Err(ShapeError::Heads { query_heads, kv_heads });
        }
        if !self.scale.is_finite() {
            return Err(ShapeError::Scale { scale: self.scale });
        }
        self.scoring.check(layout, query_heads)?;
        self.check_offsets("table offsets", self.tables.offsets, self.tables.blocks.len())?;
        self.check_offsets("row offsets", self.rows, self.total_rows())?;
        self.check_trees()?;
        self.check_slots(layout)?;
        (0..self.len()).try_for_each(|sequence| self.check_sequence(layout, sequence))?;
        self.check_places(layout)
    }

    /// Checks that every sequence has one row, and that keys and values are kept, as
    /// [`decode`](crate::Backend::decode) requires.
    ///
    /// # Errors
    ///
    /// [`ShapeError::NotKept`], or [`ShapeError::DecodeRows`] with the first sequence that does not
    /// have one row.
    ///
    /// # Panics
    ///
    /// If `rows` has fewer elements than there are sequences plus one: call [`check`](Self::check)
    /// first.
    ///
    /// ```
    /// # use radixkv_attention::{Batch, ShapeError, Scoring, Tables};
    /// # let tables = Tables { blocks: &[3, 5, 3, 1, 0], offsets: &[0, 2, 5] };
    /// # let (query_heads, scale, contexts, save_kv, slots) = (8, 0.125, &[18, 33], true, &[81, 30, 31, 0]);
    /// let batch = Batch { rows: &[0, 1, 4], query_heads, scale, scoring: Scoring::default(), tables, contexts, save_kv, slots };
    /// assert_eq!(batch.check_decode(), Err(ShapeError::DecodeRows { sequence: 1, rows: 3 }));
    /// ```
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

    /// Checks that the mask of each row has the row's own bit, and no bit of a later row.
    fn check_trees(&self) -> Result<(), ShapeError> {
        let (given, needed) = (self.scoring.trees.len(), self.total_rows());
        if given == 0 {
            return Ok(());
        }
        if given != needed {
            return Err(ShapeError::Length { what: "tree masks", given, needed });
        }
        if !self.scoring.alibi_slopes.is_empty() || self.scoring.window.is_some_and(|window| window < 32) {
            return Err(ShapeError::TreeScoring);
        }
        for rows in (0..self.len()).map(|sequence| self.rows_of(sequence)) {
            let is_wrong = |row: &usize| {
                let index = row - rows.start;
                index >= 32 || self.scoring.trees[*row] >> index != 1
            };
            if let Some(row) = rows.clone().find(is_wrong) {
                return Err(ShapeError::Tree { row });
            }
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

    /// Checks that each row has the slot that its table gives, and that no two rows have the same
    /// slot. The tables were checked before.
    fn check_places(&self, layout: &Layout) -> Result<(), ShapeError> {
        if !self.save_kv {
            return Ok(());
        }
        for sequence in 0..self.len() {
            let (rows, table) = (self.rows_of(sequence), self.tables.blocks_of(sequence));
            let first = self.contexts[sequence] as usize - rows.len();
            for (row, token) in rows.zip(first..) {
                let (block, offset) = (table[token / layout.block_size], token % layout.block_size);
                let (slot, needed) = (self.slots[row], u64::from(block) * layout.block_size as u64 + offset as u64);
                if slot != needed {
                    return Err(ShapeError::Place { row, slot, needed });
                }
            }
        }
        let mut slots = self.slots.to_vec();
        slots.sort_unstable();
        match slots.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ShapeError::SlotTwice { slot: pair[0] }),
            None => Ok(()),
        }
    }

    fn check_sequence(&self, layout: &Layout, sequence: usize) -> Result<(), ShapeError> {
        let (context, rows) = (self.contexts[sequence] as usize, self.rows_of(sequence).len());
        if context < rows {
            return Err(ShapeError::Context { sequence, context, rows });
        }
        let stored = if self.save_kv { context } else { context - rows };
        let (needed, table) = (stored.div_ceil(layout.block_size), self.tables.blocks_of(sequence));
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
mod tests;
