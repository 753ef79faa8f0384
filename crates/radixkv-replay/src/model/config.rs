//! The sizes of a model that determine its KV memory and its work per token.

use std::{fmt, str::FromStr};

use serde_json::Value;

use super::{
    error::ModelError,
    fields::Fields,
    layers::{Attention, FeedForward, Layers},
};

/// The element type of the KV.
///
/// # Examples
///
/// ```
/// use radixkv_replay::model::KvDtype;
///
/// assert_eq!("fp8".parse(), Ok(KvDtype::Fp8));
/// assert_eq!(KvDtype::Bf16.bytes(), 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvDtype {
    /// 32 bits.
    Fp32,
    /// 16 bits.
    Fp16,
    /// 16 bits.
    Bf16,
    /// 8 bits.
    Fp8,
    /// 8 bits.
    Int8,
}

impl KvDtype {
    /// All element types.
    pub const ALL: [Self; 5] = [Self::Fp32, Self::Fp16, Self::Bf16, Self::Fp8, Self::Int8];

    /// Bytes of one element.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Fp32 => 4,
            Self::Fp16 | Self::Bf16 => 2,
            Self::Fp8 | Self::Int8 => 1,
        }
    }

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
        }
    }

    /// The type that `config.json` calls `name`; `None` if there is none.
    fn of_config(name: &str) -> Option<Self> {
        Some(match name {
            "float32" => Self::Fp32,
            "float16" => Self::Fp16,
            "bfloat16" => Self::Bf16,
            _ => return None,
        })
    }
}

impl fmt::Display for KvDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KvDtype {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or("none of fp32, fp16, bf16, fp8, int8")
    }
}

/// The sizes of a model, read from its `config.json`.
///
/// # Examples
///
/// ```
/// use radixkv_replay::model::{KvDtype, ModelConfig};
///
/// let llama = ModelConfig::from_json(br#"{
///     "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
///     "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16"
/// }"#)?;
/// assert_eq!(llama.kv_bytes_per_token(KvDtype::Fp16), 327_680);
/// assert_eq!(llama.prefill_flops_per_token() / 1_000_000_000, 139);
/// # Ok::<_, radixkv_replay::model::ModelError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    layers: Layers,
    attention: Attention,
    feed_forward: FeedForward,
    hidden: u128,
    vocabulary: u128,
    is_tied: bool,
    dtype: Option<KvDtype>,
    is_quantized: bool,
    longest: Option<u128>,
    unknown: Vec<String>,
}

impl ModelConfig {
    /// Reads a `config.json` as published on model hubs.
    ///
    /// # Errors
    ///
    /// Fails if a field is missing or has a wrong value, and if a field changes the figures in an
    /// unsupported way.
    pub fn from_json(text: &[u8]) -> Result<Self, ModelError> {
        let config: Value =
            serde_json::from_slice(text).map_err(|error| ModelError::NotAnObject(error.to_string().into()))?;
        let whole = config.as_object().ok_or_else(|| ModelError::NotAnObject("another value".into()))?;
        match whole.get("text_config").and_then(Value::as_object) {
            Some(text) => Self::read(Fields::new(text, "text_config."), whole.contains_key("quantization_config")),
            None => Self::read(Fields::new(whole, ""), false),
        }
    }

    fn read(mut fields: Fields<'_>, is_quantized: bool) -> Result<Self, ModelError> {
        fields.check()?;
        let model = fields.text("model_type")?.unwrap_or("");
        let layers = Layers::read(&mut fields, model)?;
        let heads = fields.needed("num_attention_heads")?;
        let hidden = match (fields.count("hidden_size")?, fields.count("head_dim")?) {
            (Some(hidden), _) => hidden,
            (None, Some(head)) => heads.saturating_mul(head),
            (None, None) => return Err(fields.missing("hidden_size")),
        };
        let attention = Attention::read(&mut fields, hidden)?;
        let feed_forward = FeedForward::read(&mut fields, model, hidden, layers.all())?;
        let dtype = match fields.text("torch_dtype")? {
            Some(dtype) => Some(dtype),
            None => fields.text("dtype")?,
        };
        Ok(Self {
            layers,
            attention,
            feed_forward,
            hidden,
            vocabulary: fields.needed("vocab_size")?,
            is_tied: fields.flag("tie_word_embeddings")?.unwrap_or(model.starts_with("gemma")),
            dtype: dtype.and_then(KvDtype::of_config),
            is_quantized: fields.value("quantization_config").is_some() || is_quantized,
            longest: fields.count("max_position_embeddings")?,
            unknown: fields.unknown(),
        })
    }

    /// Unknown fields of the file: the figures do not account for them.
    #[must_use]
    pub fn unknown_fields(&self) -> &[String] {
        &self.unknown
    }

    /// The element type of the model's weights; `None` if the file does not name it.
    #[must_use]
    pub fn dtype(&self) -> Option<KvDtype> {
        self.dtype
    }

    /// Bytes of a token's KV in all layers.
    #[must_use]
    pub fn kv_bytes_per_token(&self, dtype: KvDtype) -> u64 {
        saturated(self.layers.all() * self.attention.kept * u128::from(dtype.bytes()))
    }

    /// Bytes of the KV of a sequence of `tokens` tokens; sliding-window layers keep only the tokens
    /// of the window.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::model::{KvDtype, ModelConfig};
    ///
    /// let sliding = ModelConfig::from_json(br#"{
    ///     "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
    ///     "sliding_window": 10, "layer_types": ["sliding_attention", "full_attention"]
    /// }"#)?;
    /// let token = sliding.kv_bytes_per_token(KvDtype::Fp16);
    /// assert_eq!(sliding.kv_bytes(10, KvDtype::Fp16), 10 * token);
    /// assert_eq!(sliding.kv_bytes(30, KvDtype::Fp16), 20 * token);
    /// # Ok::<_, radixkv_replay::model::ModelError>(())
    /// ```
    #[must_use]
    pub fn kv_bytes(&self, tokens: u64, dtype: KvDtype) -> u64 {
        let Layers { full, sliding, window } = self.layers;
        let tokens = u128::from(tokens);
        let kept = full * tokens + sliding * tokens.min(window);
        saturated(kept.saturating_mul(self.attention.kept * u128::from(dtype.bytes())))
    }

    /// Number of sliding-window layers, and tokens of the window; `None` if there are no such
    /// layers.
    #[must_use]
    pub fn window(&self) -> Option<(u64, u64)> {
        (self.layers.sliding > 0).then_some((saturated(self.layers.sliding), saturated(self.layers.window)))
    }

    /// Number of layers of the model.
    #[must_use]
    pub fn layers(&self) -> u64 {
        saturated(self.layers.all())
    }

    /// The longest sequence that the model was made for, if the file gives it.
    #[must_use]
    pub fn longest_sequence(&self) -> Option<u64> {
        self.longest.map(saturated)
    }

    /// The number of weights of the model, counted in its matrices; the rest is negligible.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        let tables = self.hidden * self.vocabulary * if self.is_tied { 1 } else { 2 };
        saturated(self.layers.all() * self.attention.weights + self.feed_forward.all + tables)
    }

    /// Bytes of the weights, computed from their number and type; `None` if they are quantized or
    /// the file does not give the type.
    #[must_use]
    pub fn weight_bytes(&self) -> Option<u64> {
        let bytes = self.dtype.filter(|_| !self.is_quantized)?.bytes();
        self.parameters().checked_mul(bytes)
    }

    /// Floating-point operations per prompt token without attention: two for each weight that a
    /// token uses; in a mixture of experts, only those of the selected experts.
    #[must_use]
    pub fn prefill_flops_per_token(&self) -> u64 {
        let tables = self.hidden * self.vocabulary;
        saturated(2 * (self.layers.all() * self.attention.weights + self.feed_forward.met + tables))
    }

    /// Floating-point operations of attention, per prompt token and token before it.
    #[must_use]
    pub fn attention_flops_per_token_before(&self) -> u64 {
        saturated(2 * self.layers.all() * self.attention.compared)
    }
}

/// Numbers too large for 64 bits, which no real model has, become the largest one.
fn saturated(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
