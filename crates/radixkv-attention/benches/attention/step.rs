//! One step of a model of 100 M parameters: its products with weights and its attention.

use radixkv_attention::cpu::{CpuKv, Prepared, Processor, Weights};
use radixkv_attention::{Backend, Batch, Dtype, Layout, Order, Output, Qkv, Scoring, Tables};

use super::products::{HEAD_DIM, HIDDEN, KV_HEADS, KV_ROW, LAYERS, QUERY_HEADS, SHAPES, VOCABULARY, WIDEST};

const BLOCK_SIZE: usize = 16;

/// The last `rows` rows of one sequence, `f32` throughout.
pub struct Step {
    rows: usize,
    kv: CpuKv,
    prepared: Prepared,
    weights: Vec<Weights>,
    logits: Weights,
    rows_in: Vec<f32>,
    rows_out: Vec<f32>,
    last: Vec<f32>,
}

impl Step {
    pub fn new(tokens: usize, rows: usize) -> Self {
        let layout = Layout {
            layers: LAYERS,
            blocks: tokens / BLOCK_SIZE,
            block_size: BLOCK_SIZE,
            kv_heads: KV_HEADS,
            head_dim: HEAD_DIM,
            value_dim: HEAD_DIM,
            dtype: Dtype::F32,
            order: Order::Nhd,
        };
        let processor = Processor::<f32>::new();
        let blocks: Vec<u32> = (0..layout.blocks as u32).rev().collect();
        let slot = |token: usize| blocks[token / BLOCK_SIZE] as u64 * BLOCK_SIZE as u64 + (token % BLOCK_SIZE) as u64;
        let slots: Vec<u64> = (tokens - rows..tokens).map(slot).collect();
        let batch = Batch {
            query_heads: QUERY_HEADS,
            scale: (HEAD_DIM as f32).sqrt().recip(),
            scoring: Scoring::default(),
            tables: Tables { blocks: &blocks, offsets: &[0, blocks.len() as u32] },
            contexts: &[tokens as u32],
            rows: &[0, rows as u32],
            save_kv: true,
            slots: &slots,
        };
        let pack = |[inputs, outputs]: [usize; 2]| Weights::from_f32(inputs, outputs, &vec![0.01; inputs * outputs]);
        Self {
            rows,
            kv: processor.allocate(layout).expect("memory"),
            prepared: processor.prepare(&layout, &batch).expect("a batch"),
            weights: (0..LAYERS).flat_map(|_| SHAPES.map(pack)).collect(),
            logits: pack(VOCABULARY),
            rows_in: vec![0.01; rows * WIDEST],
            rows_out: vec![0.0; rows * WIDEST],
            last: vec![0.0; VOCABULARY[1]],
        }
    }

    pub fn run(&mut self, on: &Processor) {
        let (rows, rows_in, rows_out) = (self.rows, &self.rows_in, &mut self.rows_out);
        for (layer, weights) in self.weights.chunks_exact(SHAPES.len()).enumerate() {
            for weights in weights {
                let products = &mut rows_out[..rows * weights.outputs()];
                on.multiply(weights, &rows_in[..rows * weights.inputs()], products);
            }
            let (queries, new) = (&rows_in[..rows * HIDDEN], &rows_in[..rows * KV_ROW]);
            let out = Output { rows: &mut rows_out[..rows * HIDDEN], lse: None };
            on.extend(&self.kv, layer, &self.prepared, Qkv { queries, keys: new, values: new }, out).expect("a step");
        }
        on.multiply(&self.logits, &rows_in[..HIDDEN], &mut self.last);
    }
}
