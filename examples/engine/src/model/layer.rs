//! One transformer layer: attention, then the feed-forward part. Each part reads normalized states,
//! and its result is added to the states.

use radixkv_attention::Qkv;

use super::Weights;
use super::rotary::Angles;
use crate::config::{Architecture, Config};
use crate::matrix::Matrix;

/// A layer's weights.
#[derive(Debug)]
pub(super) struct Layer {
    attention_norm: Vec<f32>,
    query: Matrix,
    key: Matrix,
    value: Matrix,
    /// Norms of each query head and each key head (Qwen3 only).
    head_norms: Option<(Vec<f32>, Vec<f32>)>,
    output: Matrix,
    feed_norm: Vec<f32>,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
}

impl Layer {
    pub(super) fn load<W: Weights>(config: &Config, weights: &W, index: usize) -> Result<Self, W::Error> {
        let Config { hidden_size: hidden, intermediate_size: inner, head_dim, .. } = *config;
        let (queries, keys) = (config.query_heads * head_dim, config.kv_heads * head_dim);
        let name = |part: &str| format!("model.layers.{index}.{part}.weight");
        let matrix = |part: &str, inputs, outputs| weights.matrix(&name(part), inputs, outputs);
        let vector = |part: &str, len| weights.vector(&name(part), len);
        Ok(Self {
            attention_norm: vector("input_layernorm", hidden)?,
            query: matrix("self_attn.q_proj", hidden, queries)?,
            key: matrix("self_attn.k_proj", hidden, keys)?,
            value: matrix("self_attn.v_proj", hidden, keys)?,
            head_norms: match config.architecture {
                Architecture::Llama => None,
                Architecture::Qwen3 => {
                    Some((vector("self_attn.q_norm", head_dim)?, vector("self_attn.k_norm", head_dim)?))
                }
            },
            output: matrix("self_attn.o_proj", queries, hidden)?,
            feed_norm: vector("post_attention_layernorm", hidden)?,
            gate: matrix("mlp.gate_proj", hidden, inner)?,
            up: matrix("mlp.up_proj", hidden, inner)?,
            down: matrix("mlp.down_proj", inner, hidden)?,
        })
    }

    /// Computes the layer on the states, in place. `attend` computes the attention of all rows.
    pub(super) fn forward<E>(
        &self,
        config: &Config,
        states: &mut [f32],
        angles: &Angles,
        attend: impl FnOnce(Qkv<&[f32]>, &mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let normed = norm(states, &self.attention_norm, config.norm_eps);
        let mut queries = self.query.multiply(&normed);
        let mut keys = self.key.multiply(&normed);
        let values = self.value.multiply(&normed);
        if let Some((of_query, of_key)) = &self.head_norms {
            queries = norm(&queries, of_query, config.norm_eps);
            keys = norm(&keys, of_key, config.norm_eps);
        }
        angles.turn(&mut queries, config.query_heads);
        angles.turn(&mut keys, config.kv_heads);
        let mut attended = vec![0.0; queries.len()];
        attend(Qkv { queries: &queries, keys: &keys, values: &values }, &mut attended)?;
        add(states, &self.output.multiply(&attended));

        let normed = norm(states, &self.feed_norm, config.norm_eps);
        let mut gate = self.gate.multiply(&normed);
        let up = self.up.multiply(&normed);
        gate.iter_mut().zip(up).for_each(|(gate, up)| *gate = *gate / (1.0 + (-*gate).exp()) * up);
        add(states, &self.down.multiply(&gate));
        Ok(())
    }
}

/// Divides each row by the root of its mean square, and multiplies it by the weights.
pub(super) fn norm(rows: &[f32], weights: &[f32], eps: f32) -> Vec<f32> {
    let mut normed = rows.to_vec();
    for row in normed.chunks_exact_mut(weights.len()) {
        let squares: f32 = row.iter().map(|element| element * element).sum();
        let scale = (squares / row.len() as f32 + eps).sqrt().recip();
        row.iter_mut().zip(weights).for_each(|(element, weight)| *element = *element * scale * weight);
    }
    normed
}

fn add(states: &mut [f32], more: &[f32]) {
    states.iter_mut().zip(more).for_each(|(state, more)| *state += more);
}
