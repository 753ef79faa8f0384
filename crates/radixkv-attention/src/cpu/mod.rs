//! Attention on the processor, in `f32`, with one order of sums: see the [package](crate).
//!
//! Each call computes on the calling thread and takes no lock. Calls of several threads share the storage alone.

mod call;
mod error;
mod prepared;
mod softmax;
mod storage;
mod word;

#[cfg(test)]
mod tests;

pub use error::CpuError;
pub use prepared::Prepared;
pub use softmax::RANGE_TOKENS;
pub use storage::CpuKv;

use call::AttentionCall;

use crate::backend::{Backend, Output, Qkv};
use crate::batch::Batch;
use crate::layout::{Half, Layout};
use crate::plan::{Group, Rule, Sharing};
use crate::shape::ShapeError;
use radixkv::BlockId;

/// The processor.
///
/// Rows and outputs are `f32`; keys and values are rounded to the storage's element type when they are appended.
///
/// ```
/// use radixkv_attention::cpu::Cpu;
/// use radixkv_attention::{Backend, Batch, Dtype, Layout, Order, Output, Qkv, Tables};
///
/// let (dtype, order) = (Dtype::F32, Order::Nhd);
/// let layout = Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 1, head_dim: 4, dtype, order };
/// let kv = Cpu.allocate(layout)?;
/// // A prompt of two tokens, in block 5.
/// let batch = Batch {
///     query_heads: 1,
///     scale: 0.5,
///     tables: Tables { blocks: &[5], offsets: &[0, 1] },
///     contexts: &[2],
///     rows: &[0, 2],
///     save_kv: true,
///     slots: &[5 * 16, 5 * 16 + 1],
/// };
/// let prepared = Cpu.prepare(&layout, &batch)?;
/// let values = [1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0];
/// let (new, mut out) = (Qkv { queries: &[0.0; 8][..], keys: &[0.0; 8], values: &values }, [0.0; 8]);
/// Cpu.extend(&kv, 0, &prepared, new, Output { rows: &mut out, lse: None })?;
/// assert_eq!(out, [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]); // the second row sees both, with equal weight
/// # Ok::<_, radixkv_attention::cpu::CpuError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu;

/// A group for each sequence.
fn alone(sequences: usize) -> Vec<Group> {
    (0..sequences as u32).map(|sequence| Group { sequences: vec![sequence], shared_tokens: 0 }).collect()
}

impl Backend for Cpu {
    type Kv = CpuKv;
    type Prepared = Prepared;
    type Cascade = Sharing;
    type Rows<'a> = &'a [f32];
    type RowsMut<'a> = &'a mut [f32];
    type LseMut<'a> = &'a mut [f32];
    type Error = CpuError;

    fn allocate(&self, layout: Layout) -> Result<CpuKv, CpuError> {
        CpuKv::new(layout)
    }

    fn prepare(&self, layout: &Layout, batch: &Batch<'_>) -> Result<Prepared, CpuError> {
        Ok(Prepared::new(layout, batch)?)
    }

    fn append(&self, kv: &CpuKv, layer: usize, batch: &Prepared, keys: &[f32], values: &[f32]) -> Result<(), CpuError> {
        if !batch.save_kv {
            return Err(ShapeError::NotKept.into());
        }
        let row = batch.layout.row_elements();
        batch.check(kv, layer, &[("keys", keys.len(), row), ("values", values.len(), row)])?;
        for (half, rows) in [(Half::Keys, keys), (Half::Values, values)] {
            batch.slots.iter().zip(rows.chunks_exact(row)).for_each(|(slot, row)| kv.write(layer, half, *slot, row));
        }
        Ok(())
    }

    fn decode(
        &self,
        kv: &CpuKv,
        layer: usize,
        batch: &Prepared,
        queries: &[f32],
        out: Output<&mut [f32], &mut [f32]>,
    ) -> Result<(), CpuError> {
        self.decode_groups(kv, layer, batch, &alone(batch.contexts.len()), queries, out)
    }

    fn extend(
        &self,
        kv: &CpuKv,
        layer: usize,
        batch: &Prepared,
        new: Qkv<&[f32]>,
        out: Output<&mut [f32], &mut [f32]>,
    ) -> Result<(), CpuError> {
        batch.check_attention(kv, layer, new.queries, &out)?;
        let row = batch.layout.row_elements();
        batch.check(kv, layer, &[("keys", new.keys.len(), row), ("values", new.values.len(), row)])?;
        if batch.save_kv {
            self.append(kv, layer, batch, new.keys, new.values)?;
        }
        let unkept = (!batch.save_kv).then_some((new.keys, new.values));
        let call = AttentionCall { kv, layer, batch: batch.batch(), queries: new.queries, new: unkept };
        call.run(&alone(batch.contexts.len()), out);
        Ok(())
    }

    /// A prefix is shared in whole ranges; a group costs nothing beside.
    fn rule(&self, _layout: &Layout) -> Rule {
        Rule { grain_tokens: RANGE_TOKENS, group_cost_tokens: 0 }
    }

    fn prepare_cascade(&self, layout: &Layout, batch: &Batch<'_>, sharing: &Sharing) -> Result<Sharing, CpuError> {
        batch.check_decode()?;
        sharing.check(batch.tables, batch.contexts, layout.block_size)?;
        match sharing.groups.iter().position(|group| group.shared_tokens % RANGE_TOKENS != 0) {
            Some(group) => Err(ShapeError::Shared { group, tokens: sharing.groups[group].shared_tokens }.into()),
            None => Ok(sharing.clone()),
        }
    }

    fn cascade(
        &self,
        kv: &CpuKv,
        layer: usize,
        batch: &Prepared,
        cascade: &Sharing,
        queries: &[f32],
        out: Output<&mut [f32], &mut [f32]>,
    ) -> Result<(), CpuError> {
        self.decode_groups(kv, layer, batch, &cascade.groups, queries, out)
    }

    fn copy_blocks(&self, kv: &CpuKv, pairs: &[(BlockId, BlockId)]) -> Result<(), CpuError> {
        Ok(kv.copy(pairs)?)
    }
}

impl Cpu {
    fn decode_groups(
        &self,
        kv: &CpuKv,
        layer: usize,
        batch: &Prepared,
        groups: &[Group],
        queries: &[f32],
        out: Output<&mut [f32], &mut [f32]>,
    ) -> Result<(), CpuError> {
        batch.batch().check_decode()?;
        if groups.iter().map(|group| group.sequences.len()).sum::<usize>() != batch.contexts.len() {
            return Err(ShapeError::Foreign.into());
        }
        batch.check_attention(kv, layer, queries, &out)?;
        AttentionCall { kv, layer, batch: batch.batch(), queries, new: None }.run(groups, out);
        Ok(())
    }
}
