//! Reads the configuration of a model: `config.json` and `generation_config.json` of a Hugging Face
//! directory.
//!
//! Fields have the same meaning as in transformers. A field is refused by its name if it requires a
//! feature that this engine does not compute, or if versions of transformers read it differently.

mod end_tokens;
mod fields;
mod rope;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use radixkv::Token;

use fields::Fields;
pub use rope::{Llama3Scaling, Rope};

/// Maximum of each size. No model has a larger one, and a product of three sizes does not overflow.
const LARGEST: usize = 1 << 20;

/// The architecture of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama 2, Llama 3, and models of the same architecture.
    Llama,
    /// Llama with a norm on each head of queries and keys.
    Qwen3,
}

/// The shape of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The architecture of a model.
    pub architecture: Architecture,
    /// Size of the vocabulary.
    pub vocab_size: usize,
    /// Elements of a hidden state.
    pub hidden_size: usize,
    /// Elements inside the feed-forward part.
    pub intermediate_size: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of query heads.
    pub query_heads: usize,
    /// Number of key and value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Added to the mean square in norms, before the square root.
    pub norm_eps: f32,
    /// Rotary positions.
    pub rope: Rope,
    /// Whether the output layer uses the weights of the embedding.
    pub tied: bool,
    /// Maximum tokens of a sequence.
    pub max_positions: usize,
    /// Tokens that end a text.
    pub end_tokens: Vec<Token>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not a valid configuration.
    #[error("{}: {source}", .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// This engine does not compute the architecture.
    #[error("{}: {field} is {found}, not {known}", .path.display())]
    Architecture {
        /// The file.
        path: PathBuf,
        /// The name of the field.
        field: &'static str,
        /// Its value.
        found: String,
        /// The accepted values.
        known: &'static str,
    },
    /// The model requires a feature that this engine does not compute.
    #[error("{}: {what} is not supported", .path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The field, with its value.
        what: String,
    },
    /// A size is out of range, or sizes do not fit together.
    #[error("{}: {what}", .path.display())]
    Sizes {
        /// The file.
        path: PathBuf,
        /// The sizes and their values.
        what: String,
    },
}

impl Config {
    /// A small model with two layers on bytes, which is used if no model is given.
    pub fn small() -> Self {
        Self {
            architecture: Architecture::Qwen3,
            vocab_size: 258,
            hidden_size: 64,
            intermediate_size: 128,
            layers: 2,
            query_heads: 4,
            kv_heads: 2,
            head_dim: 16,
            norm_eps: 1e-6,
            rope: Rope { theta: 10_000.0, scaling: None },
            tied: true,
            max_positions: 32_768,
            end_tokens: vec![crate::tokenizer::END_OF_BYTES],
        }
    }

    /// Reads `config.json` of a directory, and the end tokens of `generation_config.json` if it
    /// exists.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or describes a model that this engine does not compute.
    pub fn read(directory: &Path) -> Result<Self, ConfigError> {
        let path = directory.join("config.json");
        let text = fs::read_to_string(&path).map_err(|source| ConfigError::Read { path: path.clone(), source })?;
        let fields: Fields =
            serde_json::from_str(&text).map_err(|source| ConfigError::Parse { path: path.clone(), source })?;
        let mut config = fields.config(&path)?;
        config.check().map_err(|what| ConfigError::Sizes { path, what })?;
        if let Some(tokens) = end_tokens::of_generation(directory)? {
            config.end_tokens = tokens;
        }
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.layers),
            ("num_attention_heads", self.query_heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
        ];
        if let Some((what, size)) = sizes.into_iter().find(|(_, size)| !(1..=LARGEST).contains(size)) {
            return Err(format!("{what} is {size}, not 1 to {LARGEST}"));
        }
        let Self { query_heads, kv_heads, head_dim, .. } = *self;
        if query_heads % kv_heads != 0 || query_heads / kv_heads > 16 {
            return Err(format!(
                "{query_heads} attention heads are not 1 to 16 for each of {kv_heads} key-value heads"
            ));
        }
        if head_dim % 4 != 0 {
            return Err(format!("a head_dim of {head_dim} is not a multiple of 4"));
        }
        if !self.norm_eps.is_finite() || self.norm_eps < 0.0 {
            return Err(format!("rms_norm_eps is {}, which is no small number above 0", self.norm_eps));
        }
        Ok(())
    }
}
