//! The shape of a model: `config.json` of a Hugging Face directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use radixkv::Token;
use serde::Deserialize;

/// No model has a larger size; the product of three sizes still fits a number of bytes.
const LARGEST: usize = 1 << 20;

/// Which architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama 2, Llama 3, and models of the same architecture.
    Llama,
    /// Llama with a norm on each head of queries and keys.
    Qwen3,
}

/// Rotary positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// Base of the wavelengths.
    pub theta: f64,
    /// How Llama 3.1 and later stretch the wavelengths.
    pub scaling: Option<Llama3Scaling>,
}

/// Wavelengths longer than `original / low_freq_factor` are multiplied by `factor`, those shorter than
/// `original / high_freq_factor` stay as they are; between the two the factor changes smoothly.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Llama3Scaling {
    /// The factor of the longest wavelengths.
    pub factor: f64,
    /// Where the whole factor applies.
    pub low_freq_factor: f64,
    /// Where stretching begins.
    pub high_freq_factor: f64,
    /// Positions that the model was first trained on.
    pub original_max_position_embeddings: f64,
}

/// The shape of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Which architecture.
    pub architecture: Architecture,
    /// Tokens of the vocabulary.
    pub vocab_size: usize,
    /// Elements of a hidden state.
    pub hidden_size: usize,
    /// Elements inside the feed-forward part.
    pub intermediate_size: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of queries.
    pub query_heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Added to the mean square before the root is taken.
    pub norm_eps: f32,
    /// Rotary positions.
    pub rope: Rope,
    /// Whether the output layer uses the weights of the embedding.
    pub tied: bool,
    /// Tokens of the longest sequence.
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
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not a valid configuration.
    #[error("{}: {source}", .path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The architecture is not one that this engine computes.
    #[error("{}: the architecture is {found}, not llama or qwen3", .path.display())]
    Architecture {
        /// Which file.
        path: PathBuf,
        /// What it says.
        found: String,
    },
    /// Something that this engine does not compute.
    #[error("{}: {what} is not supported", .path.display())]
    Unsupported {
        /// Which file.
        path: PathBuf,
        /// What.
        what: String,
    },
    /// The sizes do not fit each other.
    #[error("{}: {what}", .path.display())]
    Sizes {
        /// Which file.
        path: PathBuf,
        /// Which sizes, with the numbers.
        what: String,
    },
}

/// The fields of the file that this engine uses.
#[derive(Deserialize)]
struct Fields {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    rms_norm_eps: f32,
    rope_theta: Option<f64>,
    rope_scaling: Option<serde_json::Value>,
    /// Newer files have the two fields above in here.
    rope_parameters: Option<serde_json::Value>,
    #[serde(default)]
    tie_word_embeddings: bool,
    #[serde(default = "default_positions")]
    max_position_embeddings: usize,
    eos_token_id: Option<OneOrMany>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default = "default_activation")]
    hidden_act: String,
    #[serde(default)]
    use_sliding_window: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(Token),
    Many(Vec<Token>),
}

fn default_positions() -> usize {
    2_048
}

fn default_activation() -> String {
    "silu".to_owned()
}

impl Config {
    /// A model of two layers over bytes: used when no model is given.
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

    /// Reads `config.json` of a directory.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or names a model that this engine does not compute.
    pub fn read(directory: &Path) -> Result<Self, ConfigError> {
        let path = directory.join("config.json");
        let text = fs::read_to_string(&path).map_err(|source| ConfigError::Read { path: path.clone(), source })?;
        let fields = serde_json::from_str(&text).map_err(|source| ConfigError::Parse { path: path.clone(), source })?;
        Self::from_fields(fields, &path)
    }

    fn from_fields(fields: Fields, path: &Path) -> Result<Self, ConfigError> {
        let path = || path.to_owned();
        let architecture = match fields.model_type.as_str() {
            "llama" => Architecture::Llama,
            "qwen3" => Architecture::Qwen3,
            _ => return Err(ConfigError::Architecture { path: path(), found: fields.model_type }),
        };
        let refused = [
            (fields.attention_bias, "attention_bias".to_owned()),
            (fields.mlp_bias, "mlp_bias".to_owned()),
            (fields.use_sliding_window, "use_sliding_window".to_owned()),
            (fields.hidden_act != "silu", format!("hidden_act {}", fields.hidden_act)),
        ];
        if let Some((_, what)) = refused.into_iter().find(|(refused, _)| *refused) {
            return Err(ConfigError::Unsupported { path: path(), what });
        }
        let query_heads = fields.num_attention_heads;
        let rope = rope(&fields).map_err(|what| ConfigError::Unsupported { path: path(), what })?;
        let config = Self {
            architecture,
            vocab_size: fields.vocab_size,
            hidden_size: fields.hidden_size,
            intermediate_size: fields.intermediate_size,
            layers: fields.num_hidden_layers,
            query_heads,
            kv_heads: fields.num_key_value_heads.unwrap_or(query_heads),
            head_dim: fields.head_dim.unwrap_or(fields.hidden_size / query_heads.max(1)),
            norm_eps: fields.rms_norm_eps,
            rope,
            tied: fields.tie_word_embeddings,
            max_positions: fields.max_position_embeddings,
            end_tokens: match fields.eos_token_id {
                None => Vec::new(),
                Some(OneOrMany::One(token)) => vec![token],
                Some(OneOrMany::Many(tokens)) => tokens,
            },
        };
        config.check().map_err(|what| ConfigError::Sizes { path: path(), what })?;
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
        Ok(())
    }
}

fn rope(fields: &Fields) -> Result<Rope, String> {
    let inside = |name| fields.rope_parameters.as_ref().and_then(|parameters| parameters.get(name)?.as_f64());
    let theta = fields.rope_theta.or_else(|| inside("rope_theta")).unwrap_or(10_000.0);
    let given = fields.rope_scaling.as_ref().or(fields.rope_parameters.as_ref());
    let Some(given) = given.filter(|given| !given.is_null()) else {
        return Ok(Rope { theta, scaling: None });
    };
    let kind = given.get("rope_type").or_else(|| given.get("type")).and_then(|kind| kind.as_str());
    match kind {
        None | Some("default") => Ok(Rope { theta, scaling: None }),
        Some("llama3") => match Llama3Scaling::deserialize(given) {
            Ok(scaling) => Ok(Rope { theta, scaling: Some(scaling) }),
            Err(error) => Err(format!("rope scaling: {error}: it")),
        },
        Some(other) => Err(format!("rope scaling {other}")),
    }
}
