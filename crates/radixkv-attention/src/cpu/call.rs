//! One operation on one layer: which ranges are read for which queries, and in what order.

use super::softmax::{OnlineSoftmax, RANGE_TOKENS, RangeKv};
use super::storage::CpuKv;
use crate::backend::Output;
use crate::batch::Batch;
use crate::element::round;
use crate::layout::{Half, Layout};
use crate::plan::Group;

/// One operation on one layer.
pub(super) struct AttentionCall<'a> {
    pub(super) kv: &'a CpuKv,
    pub(super) layer: usize,
    pub(super) batch: Batch<'a>,
    pub(super) queries: &'a [f32],
    /// Keys and values of the rows, if they are not kept in blocks.
    pub(super) new: Option<(&'a [f32], &'a [f32])>,
}

/// Buffers of a call.
struct Scratch {
    range_kv: RangeKv,
    keys: Vec<f32>,
    values: Vec<f32>,
    partial: Vec<f32>,
}

impl Scratch {
    fn new(head_dim: usize) -> Self {
        let rows = vec![0.0; RANGE_TOKENS * head_dim];
        Self { range_kv: RangeKv::new(head_dim), keys: rows.clone(), values: rows, partial: vec![0.0; head_dim] }
    }
}

/// One query head of one row, and its attention so far.
struct Query<'a> {
    row: usize,
    head: usize,
    /// Tokens that it attends to.
    visible: usize,
    running: OnlineSoftmax<'a>,
}

impl AttentionCall<'_> {
    pub(super) fn run(&self, groups: &[Group], out: Output<&mut [f32], &mut [f32]>) {
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
                    let index = query.row * self.batch.query_heads + query.head;
                    let value = query.running.finish();
                    if let Some(lse) = &mut lse {
                        lse[index] = value;
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
        let heads = rows.flat_map(|row| (0..group).map(move |i| (row, kv_head * group + i)));
        let query = |(row, head): (usize, usize)| {
            let out = outputs[row * self.batch.query_heads + head].take()?;
            Some(Query { row, head, visible: context - (end - 1 - row), running: OnlineSoftmax::new(out) })
        };
        heads.filter_map(query).collect()
    }

    /// Reads the ranges of the shared prefix once for all sequences, then the other ranges of each.
    fn attend(&self, kv_head: usize, group: &Group, queries: &mut [Vec<Query<'_>>], scratch: &mut Scratch) {
        let Some(&first) = group.sequences.first() else { return };
        let shared = group.shared_tokens / RANGE_TOKENS;
        for range in 0..shared {
            self.load(first as usize, kv_head, range, scratch);
            queries.iter_mut().for_each(|queries| self.attend_range(range, queries, scratch));
        }
        for (sequence, queries) in group.sequences.iter().zip(queries) {
            let context = self.batch.contexts[*sequence as usize] as usize;
            for range in shared..context.div_ceil(RANGE_TOKENS) {
                self.load(*sequence as usize, kv_head, range, scratch);
                self.attend_range(range, queries, scratch);
            }
        }
    }

    fn attend_range(&self, range: usize, queries: &mut [Query<'_>], scratch: &mut Scratch) {
        let head_dim = self.kv.layout().head_dim;
        for query in queries.iter_mut().filter(|query| query.visible > range * RANGE_TOKENS) {
            let tokens = (query.visible - range * RANGE_TOKENS).min(RANGE_TOKENS);
            let elements = &self.queries[(query.row * self.batch.query_heads + query.head) * head_dim..][..head_dim];
            scratch.range_kv.attend(elements, self.batch.scale, tokens, &mut query.running, &mut scratch.partial);
        }
    }

    /// Loads the keys and values of one range of a sequence.
    fn load(&self, sequence: usize, kv_head: usize, range: usize, scratch: &mut Scratch) {
        let Layout { head_dim, block_size, .. } = *self.kv.layout();
        let context = self.batch.contexts[sequence] as usize;
        let (first, end) = (range * RANGE_TOKENS, context.min((range + 1) * RANGE_TOKENS));
        let kept = if self.new.is_some() { context - self.batch.rows_of(sequence).len() } else { context };
        let table = self.batch.tables.blocks_of(sequence);
        let mut token = first;
        while token < end.min(kept) {
            let (block, within) = (table[token / block_size], token % block_size);
            let tokens = (block_size - within).min(end.min(kept) - token);
            let to = (token - first) * head_dim..(token - first + tokens) * head_dim;
            self.kv.read(self.layer, Half::Keys, block, within, kv_head, &mut scratch.keys[to.clone()]);
            self.kv.read(self.layer, Half::Values, block, within, kv_head, &mut scratch.values[to]);
            token += tokens;
        }
        for token in token..end {
            self.load_new(sequence, kv_head, token - kept, (token - first) * head_dim, scratch);
        }
        let filled = (end - first) * head_dim;
        scratch.range_kv.fill(&scratch.keys[..filled], &scratch.values[..filled]);
    }

    /// Loads a row that is in no block, rounded as if it came from one.
    fn load_new(&self, sequence: usize, kv_head: usize, row: usize, at: usize, scratch: &mut Scratch) {
        let Some((keys, values)) = self.new else { return };
        let Layout { head_dim, kv_heads, dtype, .. } = *self.kv.layout();
        let from = ((self.batch.rows_of(sequence).start + row) * kv_heads + kv_head) * head_dim;
        for (given, taken) in [(keys, &mut scratch.keys), (values, &mut scratch.values)] {
            let given = given[from..][..head_dim].iter();
            taken[at..][..head_dim].iter_mut().zip(given).for_each(|(to, from)| *to = round(dtype, *from));
        }
    }
}
