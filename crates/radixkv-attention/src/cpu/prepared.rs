//! A checked batch ([`Prepared`]), its shared prefixes ([`CpuCascade`]), and the checks of each
//! operation against them.
//!
//! `operations` makes both; `call` and `apart` follow their [`Plan`].

use super::RANGE_TOKENS;
use super::storage::CpuKv;
use crate::backend::Output;
use crate::batch::{Batch, Tables};
use crate::layout::{Half, Layout};
use crate::plan::Sharing;
use crate::scoring::Scoring;
use crate::shape::ShapeError;
use radixkv::BlockId;

/// The most queries of one head and one sequence that are computed at once: with their sums they
/// fit into the L2 cache.
const TILE_QUERIES: usize = 256;

/// A checked batch, from [`Cpu::prepare`](crate::Backend::prepare).
///
/// ```
/// use radixkv_attention::cpu::{Cpu, CpuError, Prepared};
/// use radixkv_attention::{Backend, Batch, Layout};
///
/// /// Checked once, and used in every layer of one step; it owns what it needs of the batch.
/// fn prepare(layout: &Layout, batch: &Batch<'_>) -> Result<Prepared, CpuError> {
///     Cpu.prepare(layout, batch)
/// }
/// ```
#[derive(Debug)]
pub struct Prepared {
    pub(super) layout: Layout,
    query_heads: usize,
    scale: f32,
    window: Option<u32>,
    soft_cap: Option<f32>,
    sinks: Vec<f32>,
    alibi_slopes: Vec<f32>,
    trees: Vec<u32>,
    blocks: Vec<BlockId>,
    offsets: Vec<u32>,
    pub(super) contexts: Vec<u32>,
    rows: Vec<u32>,
    pub(super) save_kv: bool,
    pub(super) slots: Vec<u64>,
    /// The plan without sharing: one piece for each sequence.
    pub(super) alone: Plan,
}

/// Shared prefixes that were checked against a batch, from
/// [`Cpu::prepare_cascade`](crate::Backend::prepare_cascade). It remembers its batch, and is
/// refused with another one.
#[derive(Debug)]
pub struct CpuCascade {
    layout: Layout,
    blocks: Vec<BlockId>,
    offsets: Vec<u32>,
    contexts: Vec<u32>,
    pub(super) plan: Plan,
}

/// Which rows are computed together.
#[derive(Debug)]
pub(super) struct Plan {
    /// The sequences of all pieces.
    pub(super) sequences: Vec<u32>,
    /// Each has all rows of its sequences, however many; [`cut`](Self::cut) divides them.
    pub(super) pieces: Vec<Piece>,
    /// The most rows of a sequence that are computed at once.
    tile: usize,
}

/// Rows that are computed together: some rows of one sequence, or the rows of several sequences
/// with a shared prefix.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// Indices into the plan's sequences.
    pub(super) sequences: std::ops::Range<usize>,
    /// Indices into the rows of each of these sequences.
    pub(super) rows: std::ops::Range<usize>,
    /// Number of ranges, from the first one on, that all of these sequences have in the same
    /// blocks.
    pub(super) shared_ranges: usize,
}

impl Plan {
    /// A piece for the rows of each sequence; none for a sequence without rows.
    fn alone(batch: &Batch<'_>, layout: &Layout) -> Self {
        let sequences: Vec<u32> = (0..batch.len() as u32).collect();
        let pieces = (0..batch.len()).map(|sequence| Piece {
            sequences: sequence..sequence + 1,
            rows: 0..batch.rows_of(sequence).len(),
            shared_ranges: 0,
        });
        let pieces = pieces.filter(|piece| !piece.rows.is_empty()).collect();
        Self { pieces, sequences, tile: (TILE_QUERIES / (batch.query_heads / layout.kv_heads)).max(1) }
    }

    /// A piece for each group.
    fn shared(sharing: &Sharing) -> Self {
        let mut plan = Self { sequences: Vec::new(), pieces: Vec::new(), tile: 1 };
        for group in &sharing.groups {
            let first = plan.sequences.len();
            plan.sequences.extend_from_slice(&group.sequences);
            let sequences = first..plan.sequences.len();
            plan.pieces.push(Piece { sequences, rows: 0..1, shared_ranges: group.shared_tokens / RANGE_TOKENS });
        }
        plan
    }

    /// The pieces, where a piece of many rows is divided into several.
    pub(super) fn cut(&self) -> impl Iterator<Item = Piece> + '_ {
        self.pieces.iter().flat_map(|piece| {
            let rows = piece.rows.clone().step_by(self.tile);
            rows.map(|first| Piece { rows: first..piece.rows.end.min(first + self.tile), ..piece.clone() })
        })
    }

    /// Number of pieces that [`cut`](Self::cut) returns.
    pub(super) fn cut_pieces(&self) -> usize {
        self.pieces.iter().map(|piece| piece.rows.len().div_ceil(self.tile)).sum()
    }
}

impl CpuCascade {
    pub(super) fn new(layout: &Layout, batch: &Batch<'_>, sharing: &Sharing) -> Result<Self, ShapeError> {
        batch.check(layout)?;
        batch.check_decode()?;
        sharing.check(batch.tables, batch.contexts, layout.block_size)?;
        if let Some(group) = sharing.groups.iter().position(|group| group.shared_tokens % RANGE_TOKENS != 0) {
            return Err(ShapeError::Shared { group, tokens: sharing.groups[group].shared_tokens });
        }
        Ok(Self {
            layout: *layout,
            blocks: batch.tables.blocks.to_vec(),
            offsets: batch.tables.offsets.to_vec(),
            contexts: batch.contexts.to_vec(),
            plan: Plan::shared(sharing),
        })
    }

    /// Checks that it was prepared from this batch.
    pub(super) fn check(&self, batch: &Prepared) -> Result<(), ShapeError> {
        let same = self.layout == batch.layout
            && self.contexts == batch.contexts
            && self.offsets == batch.offsets
            && self.blocks == batch.blocks;
        if same { Ok(()) } else { Err(ShapeError::Foreign) }
    }
}

impl Prepared {
    pub(super) fn new(layout: &Layout, batch: &Batch<'_>) -> Result<Self, ShapeError> {
        batch.check(layout)?;
        Ok(Self {
            layout: *layout,
            query_heads: batch.query_heads,
            scale: batch.scale,
            window: batch.scoring.window,
            soft_cap: batch.scoring.soft_cap,
            sinks: batch.scoring.sinks.to_vec(),
            alibi_slopes: batch.scoring.alibi_slopes.to_vec(),
            trees: batch.scoring.trees.to_vec(),
            blocks: batch.tables.blocks.to_vec(),
            offsets: batch.tables.offsets.to_vec(),
            contexts: batch.contexts.to_vec(),
            rows: batch.rows.to_vec(),
            save_kv: batch.save_kv,
            slots: batch.slots.to_vec(),
            alone: Plan::alone(batch, layout),
        })
    }

    pub(super) fn batch(&self) -> Batch<'_> {
        Batch {
            query_heads: self.query_heads,
            scale: self.scale,
            scoring: Scoring {
                window: self.window,
                soft_cap: self.soft_cap,
                sinks: &self.sinks,
                alibi_slopes: &self.alibi_slopes,
                trees: &self.trees,
            },
            tables: Tables { blocks: &self.blocks, offsets: &self.offsets },
            contexts: &self.contexts,
            rows: &self.rows,
            save_kv: self.save_kv,
            slots: &self.slots,
        }
    }

    /// Checks that the batch was prepared for the layout of `kv`, the layer exists, and each buffer
    /// has the required length: `buffers` are name, length, and elements of a row.
    pub(super) fn check(
        &self,
        kv: &CpuKv,
        layer: usize,
        buffers: &[(&'static str, usize, usize)],
    ) -> Result<(), ShapeError> {
        let layers = self.layout.layers;
        if *kv.layout() != self.layout {
            return Err(ShapeError::Foreign);
        }
        if layer >= layers {
            return Err(ShapeError::Layer { layer, layers });
        }
        let rows = self.batch().total_rows();
        for &(what, given, row_elements) in buffers {
            // No buffer is as long as a length that overflows.
            let needed = rows.saturating_mul(row_elements);
            if given != needed {
                return Err(ShapeError::Length { what, given, needed });
            }
        }
        Ok(())
    }

    /// Checks new keys and values.
    pub(super) fn check_new<E>(&self, kv: &CpuKv, layer: usize, keys: &[E], values: &[E]) -> Result<(), ShapeError> {
        let row = |half| self.layout.appended_elements(half);
        self.check(kv, layer, &[("keys", keys.len(), row(Half::Keys)), ("values", values.len(), row(Half::Values))])
    }

    pub(super) fn check_attention<E>(
        &self,
        kv: &CpuKv,
        layer: usize,
        queries: &[E],
        out: &Output<&mut [E], &mut [f32]>,
    ) -> Result<(), ShapeError> {
        let row = |dim| self.query_heads.saturating_mul(dim);
        let Layout { head_dim, value_dim, .. } = self.layout;
        let buffers = [("queries", queries.len(), row(head_dim)), ("output", out.rows.len(), row(value_dim))];
        self.check(kv, layer, &buffers)?;
        match &out.lse {
            Some(lse) => self.check(kv, layer, &[("lse", lse.len(), self.query_heads)]),
            None => Ok(()),
        }
    }
}
