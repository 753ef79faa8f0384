//! The products of one step of a model of 100 M parameters, by the crate `gemm` alone. Norms,
//! rotations and activations are not among them.

use super::gemm::gemm;

pub const LAYERS: usize = 12;
pub const HIDDEN: usize = 768;
pub const QUERY_HEADS: usize = 12;
pub const KV_HEADS: usize = 4;
pub const HEAD_DIM: usize = 64;
pub const INNER: usize = 2048;
pub const KV_ROW: usize = KV_HEADS * HEAD_DIM;
/// Inputs and outputs of a layer's weights: queries, keys, values, output, gate, up, down.
pub const SHAPES: [[usize; 2]; 7] = [
    [HIDDEN, HIDDEN],
    [HIDDEN, KV_ROW],
    [HIDDEN, KV_ROW],
    [HIDDEN, HIDDEN],
    [HIDDEN, INNER],
    [HIDDEN, INNER],
    [INNER, HIDDEN],
];
pub const VOCABULARY: [usize; 2] = [HIDDEN, 32_000];
/// Elements of the longest row.
pub const WIDEST: usize = INNER;

/// The products with weights, and those of attention, of the last `rows` rows of one sequence.
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
