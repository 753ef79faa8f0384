//! What attention is compared with: a read of the same bytes, the products alone by another crate,
//! a plain loop.

use super::gemm::gemm;
use super::load::{HEAD_DIM, KV_HEADS, QUERY_HEADS};

/// Reads all words once, in order.
pub fn stream(words: &[u64]) {
    let mut sums = [0_u64; 32];
    for words in words.chunks_exact(32) {
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum ^= *word);
    }
    std::hint::black_box(sums);
}

/// The two products of attention, for `rows` rows over `tokens` tokens, without what is between
/// them.
pub struct Products {
    rows: usize,
    tokens: usize,
    queries: Vec<f32>,
    keys: Vec<f32>,
    scores: Vec<f32>,
    out: Vec<f32>,
}

impl Products {
    pub fn new(rows: usize, tokens: usize) -> Self {
        let queries = rows * QUERY_HEADS / KV_HEADS;
        let (keys, out) = (vec![0.5; tokens * HEAD_DIM], vec![0.0; queries * HEAD_DIM]);
        Self {
            rows: queries,
            tokens,
            queries: vec![0.5; queries * HEAD_DIM],
            keys,
            scores: vec![0.0; queries * tokens],
            out,
        }
    }

    pub fn run(&mut self) {
        for _ in 0..KV_HEADS {
            gemm(self.rows, HEAD_DIM, self.tokens, &self.queries, &self.keys, &mut self.scores);
            gemm(self.rows, self.tokens, HEAD_DIM, &self.scores, &self.keys, &mut self.out);
        }
        std::hint::black_box(&self.out);
    }
}

/// Decoding by a plain loop over `f32` keys and values that lie side by side for each head, of all
/// sequences.
pub struct PlainLoop {
    tokens: usize,
    numbers: Vec<f32>,
    scores: Vec<f32>,
}

impl PlainLoop {
    pub fn new(tokens: usize, contexts: usize) -> Self {
        Self { tokens, numbers: vec![0.01; 2 * contexts * KV_HEADS * HEAD_DIM], scores: vec![0.0; tokens] }
    }

    pub fn run(&mut self) {
        let query = [0.5_f32; HEAD_DIM];
        for rows in self.numbers.chunks_exact(2 * self.tokens * HEAD_DIM) {
            let (keys, values) = rows.split_at(self.tokens * HEAD_DIM);
            for _ in 0..QUERY_HEADS / KV_HEADS {
                let mut out = [0.0_f32; HEAD_DIM];
                for (score, key) in self.scores.iter_mut().zip(keys.chunks_exact(HEAD_DIM)) {
                    let mut sums = [0.0_f32; 16];
                    for (query, key) in query.chunks_exact(16).zip(key.chunks_exact(16)) {
                        sums.iter_mut().zip(query).zip(key).for_each(|((sum, query), key)| *sum += query * key);
                    }
                    *score = sums.iter().sum();
                }
                let max = self.scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                for (score, value) in self.scores.iter().zip(values.chunks_exact(HEAD_DIM)) {
                    let weight = (score - max).exp();
                    out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value);
                }
                std::hint::black_box(out);
            }
        }
    }
}
