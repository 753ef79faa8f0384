//! Attention on the processor, in `f32`, with one order of sums: see [`attention`](super).
//!
//! Each call computes on the calling thread. Threads that call at once share the storage and nothing else.

pub(crate) mod softmax;
mod storage;

#[cfg(test)]
mod tests;

pub use storage::CpuKv;

use std::fmt;

use super::plan::{Group, Rule, Sharing};
use super::{Backend, Batch, Half, Layout, Output, Qkv, RANGE, ShapeError, Tables};
use crate::element::rounded;
use radixkv::BlockId;
use softmax::{Running, Tile};

/// The processor.
///
/// Rows are `f32` and so are outputs; keys and values are rounded to the storage's element type when they are appended.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu;

/// A batch that was checked.
#[derive(Debug)]
pub struct Prepared {
    layout: Layout,
    query_heads: usize,
    scale: f32,
    blocks: Vec<BlockId>,
    offsets: Vec<u32>,
    contexts: Vec<u32>,
    rows: Vec<u32>,
    save_kv: bool,
    slots: Vec<u64>,
}

/// Why something was not computed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum CpuError {
    /// A shape does not fit.
    Shape(ShapeError),
    /// There is not so much memory: use fewer blocks.
    Memory {
        /// Bytes asked for.
        bytes: usize,
    },
}

impl From<ShapeError> for CpuError {
    fn from(error: ShapeError) -> Self {
        Self::Shape(error)
    }
}

impl fmt::Display for CpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape(error) => error.fmt(f),
            Self::Memory { bytes } => write!(f, "no memory for {bytes} bytes of keys and values"),
        }
    }
}

impl std::error::Error for CpuError {}

impl Prepared {
    fn batch(&self) -> Batch<'_> {
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

    /// Whether the layer exists in `kv`, and each buffer, named, has so many elements for each row.
    fn check(&self, kv: &CpuKv, layer: usize, buffers: &[(&'static str, usize, usize)]) -> Result<(), ShapeError> {
        let layers = self.layout.layers;
        if *kv.layout() != self.layout {
            return Err(ShapeError::Foreign);
        }
        if layer >= layers {
            return Err(ShapeError::Layer { layer, layers });
        }
        let rows = self.batch().total_rows();
        for &(what, given, of_row) in buffers {
            if given != rows * of_row {
                return Err(ShapeError::Length { what, given, needed: rows * of_row });
            }
        }
        Ok(())
    }

    fn check_attention(
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

/// One layer of one operation.
struct Pass<'a> {
    kv: &'a CpuKv,
    layer: usize,
    batch: Batch<'a>,
    queries: &'a [f32],
    /// Keys and values of the rows, if they are not in blocks.
    new: Option<(&'a [f32], &'a [f32])>,
}

/// Buffers of a pass.
struct Scratch {
    tile: Tile,
    keys: Vec<f32>,
    values: Vec<f32>,
    partial: Vec<f32>,
}

impl Scratch {
    fn new(head_dim: usize) -> Self {
        let rows = vec![0.0; RANGE * head_dim];
        Self { tile: Tile::new(head_dim), keys: rows.clone(), values: rows, partial: vec![0.0; head_dim] }
    }
}

/// A row of the batch with one query head: where it is, and what it has seen.
struct Query<'a> {
    row: usize,
    head: usize,
    /// Tokens that it attends to.
    visible: usize,
    running: Running<'a>,
}

impl Pass<'_> {
    fn run(&self, groups: &[Group], out: Output<&mut [f32], &mut [f32]>) {
        let head_dim = self.kv.layout().head_dim;
        let Output { rows, mut lse } = out;
        rows.fill(0.0);
        let mut scratch = Scratch::new(head_dim);
        let mut outputs: Vec<Option<&mut [f32]>> = rows.chunks_exact_mut(head_dim).map(Some).collect();
        for kv_head in 0..self.kv.layout().kv_heads {
            for group in groups {
                let mut queries: Vec<Vec<Query<'_>>> = group
                    .sequences
                    .iter()
                    .map(|sequence| self.queries(*sequence as usize, kv_head, &mut outputs))
                    .collect();
                self.attend(kv_head, group, &mut queries, &mut scratch);
                for query in queries.into_iter().flatten() {
                    let place = query.row * self.batch.query_heads + query.head;
                    let value = query.running.finish();
                    if let Some(lse) = &mut lse {
                        lse[place] = value;
                    }
                }
            }
        }
    }

    /// The queries of a sequence that read this head of keys and values.
    fn queries<'o>(&self, sequence: usize, kv_head: usize, outputs: &mut [Option<&'o mut [f32]>]) -> Vec<Query<'o>> {
        let (rows, context) = (self.batch.rows_of(sequence), self.batch.contexts[sequence] as usize);
        let group = self.batch.query_heads / self.kv.layout().kv_heads;
        let end = rows.end;
        let places = rows.flat_map(|row| (0..group).map(move |i| (row, kv_head * group + i)));
        let query = |(row, head): (usize, usize)| {
            let out = outputs[row * self.batch.query_heads + head].take()?;
            Some(Query { row, head, visible: context - (end - 1 - row), running: Running::new(out) })
        };
        places.filter_map(query).collect()
    }

    /// Ranges of the shared prefix once for all, then each sequence's own.
    fn attend(&self, kv_head: usize, group: &Group, queries: &mut [Vec<Query<'_>>], scratch: &mut Scratch) {
        let Some(&first) = group.sequences.first() else { return };
        let shared = group.shared_tokens / RANGE;
        for range in 0..shared {
            self.load(first as usize, kv_head, range, scratch);
            queries.iter_mut().for_each(|queries| self.attend_range(range, queries, scratch));
        }
        for (sequence, queries) in group.sequences.iter().zip(queries) {
            let context = self.batch.contexts[*sequence as usize] as usize;
            for range in shared..context.div_ceil(RANGE) {
                self.load(*sequence as usize, kv_head, range, scratch);
                self.attend_range(range, queries, scratch);
            }
        }
    }

    fn attend_range(&self, range: usize, queries: &mut [Query<'_>], scratch: &mut Scratch) {
        let head_dim = self.kv.layout().head_dim;
        for query in queries.iter_mut().filter(|query| query.visible > range * RANGE) {
            let tokens = (query.visible - range * RANGE).min(RANGE);
            let elements = &self.queries[(query.row * self.batch.query_heads + query.head) * head_dim..][..head_dim];
            scratch.tile.attend(elements, self.batch.scale, tokens, &mut query.running, &mut scratch.partial);
        }
    }

    /// Brings a range of a sequence's keys and values into the tile.
    fn load(&self, sequence: usize, kv_head: usize, range: usize, scratch: &mut Scratch) {
        let Layout { head_dim, block_size, .. } = *self.kv.layout();
        let context = self.batch.contexts[sequence] as usize;
        let (first, end) = (range * RANGE, context.min((range + 1) * RANGE));
        let kept = if self.new.is_some() { context - self.batch.rows_of(sequence).len() } else { context };
        let table = self.batch.tables.of(sequence);
        let mut token = first;
        while token < end.min(kept) {
            let (block, within) = (table[token / block_size], token % block_size);
            let tokens = (block_size - within).min(end.min(kept) - token);
            let place = (token - first) * head_dim..(token - first + tokens) * head_dim;
            self.kv.read(self.layer, Half::Keys, block, within, kv_head, &mut scratch.keys[place.clone()]);
            self.kv.read(self.layer, Half::Values, block, within, kv_head, &mut scratch.values[place]);
            token += tokens;
        }
        for token in token..end {
            self.load_new(sequence, kv_head, token - kept, (token - first) * head_dim, scratch);
        }
        let filled = (end - first) * head_dim;
        scratch.tile.fill(&scratch.keys[..filled], &scratch.values[..filled]);
    }

    /// A row of the batch that is in no block, as it would be read from one.
    fn load_new(&self, sequence: usize, kv_head: usize, row: usize, place: usize, scratch: &mut Scratch) {
        let Some((keys, values)) = self.new else { return };
        let Layout { head_dim, kv_heads, dtype, .. } = *self.kv.layout();
        let from = ((self.batch.rows_of(sequence).start + row) * kv_heads + kv_head) * head_dim;
        for (given, taken) in [(keys, &mut scratch.keys), (values, &mut scratch.values)] {
            let given = given[from..][..head_dim].iter();
            taken[place..][..head_dim].iter_mut().zip(given).for_each(|(to, from)| *to = rounded(dtype, *from));
        }
    }
}

/// Every sequence by itself.
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
        batch.check(layout)?;
        Ok(Prepared {
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

    fn append(&self, kv: &CpuKv, layer: usize, batch: &Prepared, keys: &[f32], values: &[f32]) -> Result<(), CpuError> {
        if !batch.save_kv {
            return Err(ShapeError::NotKept.into());
        }
        let row = batch.layout.row();
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
        let row = batch.layout.row();
        batch.check(kv, layer, &[("keys", new.keys.len(), row), ("values", new.values.len(), row)])?;
        if batch.save_kv {
            self.append(kv, layer, batch, new.keys, new.values)?;
        }
        let unkept = (!batch.save_kv).then_some((new.keys, new.values));
        let pass = Pass { kv, layer, batch: batch.batch(), queries: new.queries, new: unkept };
        pass.run(&alone(batch.contexts.len()), out);
        Ok(())
    }

    /// A prefix is shared in whole ranges; a group costs next to nothing.
    fn rule(&self, _layout: &Layout) -> Rule {
        Rule { grain_tokens: RANGE, group_cost_tokens: 0 }
    }

    fn prepare_cascade(&self, layout: &Layout, batch: &Batch<'_>, sharing: &Sharing) -> Result<Sharing, CpuError> {
        batch.check_decode()?;
        sharing.check(batch.tables, batch.contexts, layout.block_size)?;
        match sharing.groups.iter().position(|group| group.shared_tokens % RANGE != 0) {
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
        Pass { kv, layer, batch: batch.batch(), queries, new: None }.run(groups, out);
        Ok(())
    }
}
