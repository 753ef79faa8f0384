//! Computes how many tokens of KV fit into the memory of a GPU.

use serde::Serialize;

use super::config::{KvDtype, ModelConfig};

/// Why no KV fits.
///
/// # Examples
///
/// ```
/// use radixkv_replay::model::FitError;
///
/// let error = FitError::WeightsTooLarge { weights: 141_000_000_000, memory: 77_000_000_000 };
/// assert!(error.to_string().starts_with("the weights need 141000000000 bytes"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// The size of the weights is unknown: pass their bytes.
    #[error("the file does not give the size of the weights (quantization_config, or no torch_dtype)")]
    UnknownWeights,
    /// The weights exceed the memory: use more memory, or smaller weights.
    #[error("the weights need {weights} bytes, {memory} are available")]
    WeightsTooLarge {
        /// Bytes of the weights.
        weights: u64,
        /// Bytes that are available.
        memory: u64,
    },
}

/// The KV that fits into a GPU's memory beside a model's weights. `serde` serializes it with the
/// field names as keys.
///
/// # Examples
///
/// ```
/// use radixkv_replay::model::{Fit, KvDtype, ModelConfig};
///
/// let llama = ModelConfig::from_json(br#"{
///     "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
///     "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256
/// }"#)?;
/// let fit = Fit::new(&llama, 60_000_000_000, Some(0), KvDtype::Fp16, 16, 8192)?;
/// assert_eq!((fit.tokens, fit.blocks), (183_104, 11_444));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fit {
    /// Bytes that are available to weights and KV.
    pub memory_bytes: u64,
    /// Bytes of the weights.
    pub weight_bytes: u64,
    /// Bytes that are left for KV.
    pub kv_bytes: u64,
    /// Bytes of a token's KV in all layers.
    pub kv_bytes_per_token: u64,
    /// Tokens per sequence; sliding-window layers keep only the tokens of the window.
    pub sequence_tokens: u64,
    /// Tokens per block.
    pub block_size: u64,
    /// Number of blocks that fit.
    pub blocks: u64,
    /// Number of tokens in these blocks.
    pub tokens: u64,
}

impl Fit {
    /// Computes the KV that fits into `memory_bytes` beside the weights, for sequences of
    /// `sequence_tokens` tokens.
    ///
    /// # Errors
    ///
    /// Fails if the weights do not fit, or if `weight_bytes` is `None` and the file does not give
    /// their size.
    ///
    /// # Panics
    ///
    /// Panics if `block_size` or `sequence_tokens` is zero.
    pub fn new(
        model: &ModelConfig,
        memory_bytes: u64,
        weight_bytes: Option<u64>,
        dtype: KvDtype,
        block_size: u64,
        sequence_tokens: u64,
    ) -> Result<Self, FitError> {
        let weight_bytes = weight_bytes.or_else(|| model.weight_bytes()).ok_or(FitError::UnknownWeights)?;
        let kv_bytes = memory_bytes
            .checked_sub(weight_bytes)
            .ok_or(FitError::WeightsTooLarge { weights: weight_bytes, memory: memory_bytes })?;
        // The saving of sliding-window layers is spread over the tokens of a sequence.
        let sequence = u128::from(model.kv_bytes(sequence_tokens, dtype).max(1));
        let tokens = u128::from(kv_bytes) * u128::from(sequence_tokens) / sequence;
        let blocks = u64::try_from(tokens / u128::from(block_size)).unwrap_or(u64::MAX);
        Ok(Self {
            memory_bytes,
            weight_bytes,
            kv_bytes,
            kv_bytes_per_token: model.kv_bytes_per_token(dtype),
            sequence_tokens,
            block_size,
            blocks,
            tokens: blocks.saturating_mul(block_size),
        })
    }
}
