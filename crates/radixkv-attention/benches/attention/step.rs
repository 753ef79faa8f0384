//! One step of a model of 100 M parameters: its products with weights and its attention, and the same products by the crate
//! `gemm` alone. Norms, rotations and activations are on neither side.

use radixkv_attention::cpu::{CpuKv, Prepared, Processor, Weights};
use radixkv_attention::{Backend, Batch, Dtype, Layout, Order, Output, Qkv, Scoring, Tables};

use super::baseline::gemm;

const LAYERS: usize = 12;
const HIDDEN: usize = 768;
const QUERY_HEADS: usize = 12;
const KV_HEADS: usize = 4;
const HEAD_DIM: usize = 64;
const KV_ROW: usize = KV_HEADS * HEAD_DIM;
const BLOCK_SIZE: usize = 16;
/// Inputs and outputs of a layer's weights: queries, keys, values, output, gate, up, down.
const SHAPES: [[usize; 2]; 7] = [
    [HIDDEN, HIDDEN],
    [HIDDEN, KV_ROW],
    [HIDDEN, KV_ROW],
    [HIDDEN, HIDDEN],
    [HIDDEN, 2048],
    [HIDDEN, 2048],
    [2048, HIDDEN],
];
const VOCABULARY: [usize; 2] = [HIDDEN, 32_000];
/// Elements of the longest row.
const WIDEST: usize = 2048;

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

/// The products of the same step.
pub struct StepProducts {
    rows: usize,
    tokens: usize,
    weights: Vec<Vec<f32>>,
    logits: Vec<f32>,
    keys: Vec<f32>,
    rows_in: Vec<f32>,
    rows_out: Vec<f32>,
}

impl StepProducts {
    pub fn new(tokens: usize, rows: usize) -> Self {
        let group = QUERY_HEADS / KV_HEADS;
        Self {
            rows,
            tokens,
            weights: (0..LAYERS).flat_map(|_| SHAPES.map(|[inputs, outputs]| vec![0.01; inputs * outputs])).collect(),
            logits: vec![0.01; VOCABULARY[0] * VOCABULARY[1]],
            keys: vec![0.01; LAYERS * 2 * tokens * KV_ROW],
            rows_in: vec![0.01; rows * WIDEST.max(group * tokens)],
            rows_out: vec![0.0; (rows * WIDEST.max(group * tokens)).max(VOCABULARY[1])],
        }
    }

    pub fn run(&mut self) {
        let (rows, tokens, given, out) = (self.rows, self.tokens, &self.rows_in, &mut self.rows_out);
        let queries = rows * QUERY_HEADS / KV_HEADS;
        let halves = self.keys.chunks_exact(2 * tokens * KV_ROW);
        for (weights, halves) in self.weights.chunks_exact(SHAPES.len()).zip(halves) {
            for (weights, [inputs, outputs]) in weights.iter().zip(SHAPES) {
                gemm(rows, inputs, outputs, given, weights, out);
            }
            let (keys, values) = halves.split_at(tokens * KV_ROW);
            for (keys, values) in keys.chunks_exact(tokens * HEAD_DIM).zip(values.chunks_exact(tokens * HEAD_DIM)) {
                gemm(queries, HEAD_DIM, tokens, given, keys, out);
                gemm(queries, tokens, HEAD_DIM, given, values, out);
            }
        }
        gemm(1, VOCABULARY[0], VOCABULARY[1], given, &self.logits, out);
        std::hint::black_box(out);
    }
}
