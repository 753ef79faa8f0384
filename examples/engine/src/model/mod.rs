//! The models Qwen3 and Llama: compute logits from tokens, with keys and values in blocks.

mod arrange;
mod layer;
mod random;
mod rotary;

pub use random::RandomWeights;

use radixkv::BlockId;
use radixkv_attention::{Backend, Dtype, Layout, Order};
use radixkv_scheduler::Batch;

use crate::config::Config;
use crate::matrix::Matrix;
use arrange::Arranged;
use layer::{Layer, norm};

/// A source of weights by their Hugging Face names.
pub trait Weights {
    /// Why a weight cannot be read.
    type Error;

    /// A vector of `len` elements.
    ///
    /// # Errors
    ///
    /// If there is no vector of this name and length.
    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, Self::Error>;

    /// A matrix of `outputs` rows with `inputs` elements each.
    ///
    /// # Errors
    ///
    /// If there is no matrix of this name and shape.
    fn matrix(&self, name: &str, inputs: usize, outputs: usize) -> Result<Matrix, Self::Error>;

    /// Called after the model has requested all its weights.
    ///
    /// # Errors
    ///
    /// If there are weights that the model does not have.
    fn finish(&self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// An attention backend whose rows are in main memory. The backend of a device can implement it by
/// copying rows to the device and back.
pub trait HostBackend:
    for<'a> Backend<Rows<'a> = &'a [f32], RowsMut<'a> = &'a mut [f32], LseMut<'a> = &'a mut [f32]>
{
}

impl<B> HostBackend for B where
    B: for<'a> Backend<Rows<'a> = &'a [f32], RowsMut<'a> = &'a mut [f32], LseMut<'a> = &'a mut [f32]>
{
}

/// A model's weights.
#[derive(Debug)]
pub struct Model {
    config: Config,
    embedding: Matrix,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    /// The output layer; `None` if it uses the weights of the embedding.
    head: Option<Matrix>,
}

impl Model {
    /// Loads the weights of a configuration. Calls `loaded` after each layer with the number of
    /// layers so far.
    ///
    /// # Errors
    ///
    /// The first weight that cannot be read, or a weight that the model does not have.
    pub fn load<W: Weights>(config: Config, weights: &W, mut loaded: impl FnMut(usize)) -> Result<Self, W::Error> {
        let (hidden, vocab) = (config.hidden_size, config.vocab_size);
        let mut layers = Vec::new();
        for index in 0..config.layers {
            layers.push(Layer::load(&config, weights, index)?);
            loaded(index + 1);
        }
        let model = Self {
            embedding: weights.matrix("model.embed_tokens.weight", hidden, vocab)?,
            layers,
            norm: weights.vector("model.norm.weight", hidden)?,
            head: if config.tied { None } else { Some(weights.matrix("lm_head.weight", hidden, vocab)?) },
            config,
        };
        weights.finish()?;
        Ok(model)
    }

    /// The model's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The layout of the model's keys and values in a cache of `blocks` blocks.
    pub fn layout(&self, block_size: usize, blocks: usize, dtype: Dtype) -> Layout {
        Layout {
            layers: self.config.layers,
            blocks,
            block_size,
            kv_heads: self.config.kv_heads,
            head_dim: self.config.head_dim,
            value_dim: self.config.head_dim,
            dtype,
            order: Order::Nhd,
        }
    }

    /// Computes a step: its block copies, then its tokens. Returns the requested logits,
    /// `[logits rows, vocabulary]`.
    ///
    /// With `cascade`, decoding sequences read shared prefixes only once. The result is
    /// bit-identical without it.
    ///
    /// # Errors
    ///
    /// Errors of the backend.
    ///
    /// # Panics
    ///
    /// If a token is not in the vocabulary.
    pub fn forward<B: HostBackend>(
        &self,
        backend: &B,
        kv: &B::Kv,
        layout: &Layout,
        step: &Batch,
        cascade: bool,
    ) -> Result<Vec<f32>, B::Error> {
        let copies: Vec<(BlockId, BlockId)> =
            step.copies().iter().map(|copy| (copy.source, copy.destination)).collect();
        backend.copy_blocks(kv, &copies)?;
        let arranged = Arranged::new(step);
        let prepared = arranged.prepare(backend, layout, &self.config, cascade)?;
        let angles = rotary::angles(&self.config.rope, self.config.head_dim, arranged.positions());
        let hidden = self.config.hidden_size;
        let mut states = vec![0.0; arranged.tokens().len() * hidden];
        for (token, state) in arranged.tokens().iter().zip(states.chunks_exact_mut(hidden)) {
            self.embedding.row(*token as usize, state);
        }
        for (index, layer) in self.layers.iter().enumerate() {
            layer.forward(&self.config, &mut states, &angles, |new, out| {
                prepared.attend(backend, kv, index, new, out)
            })?;
        }
        let wanted: Vec<f32> =
            arranged.logits_rows().iter().flat_map(|row| &states[row * hidden..(row + 1) * hidden]).copied().collect();
        let wanted = norm(&wanted, &self.norm, self.config.norm_eps);
        Ok(self.head.as_ref().unwrap_or(&self.embedding).multiply(&wanted))
    }
}
