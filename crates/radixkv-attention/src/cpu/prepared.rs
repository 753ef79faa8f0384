//! A batch that was checked, and what each operation checks against it.

use super::storage::CpuKv;
use crate::backend::Output;
use crate::batch::{Batch, Tables};
use crate::layout::Layout;
use crate::shape::ShapeError;
use radixkv::BlockId;

/// A batch that was checked, from [`Cpu::prepare`](crate::Backend::prepare).
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
    blocks: Vec<BlockId>,
    offsets: Vec<u32>,
    pub(super) contexts: Vec<u32>,
    rows: Vec<u32>,
    pub(super) save_kv: bool,
    pub(super) slots: Vec<u64>,
}

impl Prepared {
    pub(super) fn new(layout: &Layout, batch: &Batch<'_>) -> Result<Self, ShapeError> {
        batch.check(layout)?;
        Ok(Self {
            layout: *layout,
            query_heads: batch.query_heads,
            scale: batch.scale,
            blocks: batch.tables.blocks.to_vec(),
            offsets: batch.tables.offsets.to_vec(),
            contexts: batch.contexts.to_vec(),
            rows: batch.rows.to_vec(),
            save_kv: batch.save_kv,
            slots: batch.slots.to_vec(),
        })
    }

    pub(super) fn batch(&self) -> Batch<'_> {
        Batch {
            query_heads: self.query_heads,
            scale: self.scale,
            tables: Tables { blocks: &self.blocks, offsets: &self.offsets },
            contexts: &self.contexts,
            rows: &self.rows,
            save_kv: self.save_kv,
            slots: &self.slots,
        }
    }

    /// Checks that the batch was prepared for the layout of `kv`, the layer exists, and each buffer has its length:
    /// `buffers` are name, length, and elements of a row.
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
            if given != rows * row_elements {
                return Err(ShapeError::Length { what, given, needed: rows * row_elements });
            }
        }
        Ok(())
    }

    pub(super) fn check_attention(
        &self,
        kv: &CpuKv,
        layer: usize,
        queries: &[f32],
        out: &Output<&mut [f32], &mut [f32]>,
    ) -> Result<(), ShapeError> {
        let row = self.query_heads * self.layout.head_dim;
        self.check(kv, layer, &[("queries", queries.len(), row), ("output", out.rows.len(), row)])?;
        match &out.lse {
            Some(lse) => self.check(kv, layer, &[("lse", lse.len(), self.query_heads)]),
            None => Ok(()),
        }
    }
}
