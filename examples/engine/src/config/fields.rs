//! Parses `config.json`: the fields that this engine uses, and those that make it refuse a model.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::end_tokens::{self, OneOrMany};
use super::{Architecture, Config, ConfigError, Rope};

#[derive(Deserialize)]
pub(super) struct Fields {
    model_type: String,
    architectures: Option<Vec<String>>,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    rms_norm_eps: f32,
    rope_theta: Option<Value>,
    rope_scaling: Option<Value>,
    /// Newer files have the two fields above inside this one.
    rope_parameters: Option<Value>,
    partial_rotary_factor: Option<f64>,
    #[serde(default)]
    tie_word_embeddings: bool,
    max_position_embeddings: Option<usize>,
    #[serde(default, deserialize_with = "end_tokens::given")]
    eos_token_id: Option<Option<OneOrMany>>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default = "default_activation")]
    hidden_act: String,
    #[serde(default)]
    use_sliding_window: bool,
    layer_types: Option<Vec<String>>,
    quantization_config: Option<Value>,
    compression_config: Option<Value>,
}

fn default_activation() -> String {
    "silu".to_owned()
}

impl Fields {
    /// The configuration that these fields describe; sizes are not checked.
    pub(super) fn config(self, path: &Path) -> Result<Config, ConfigError> {
        let architecture = self.architecture(path)?;
        let unsupported = |what| ConfigError::Unsupported { path: path.to_owned(), what };
        if let Some(what) = self.refused() {
            return Err(unsupported(what));
        }
        let [theta, scaling, parameters] = [&self.rope_theta, &self.rope_scaling, &self.rope_parameters];
        let rope = Rope::read(theta.as_ref(), scaling.as_ref(), parameters.as_ref()).map_err(unsupported)?;
        let query_heads = self.num_attention_heads;
        let (head_dim, max_positions, end_tokens) = match architecture {
            Architecture::Llama => (self.hidden_size / query_heads.max(1), 2_048, vec![2]),
            Architecture::Qwen3 => (128, 32_768, Vec::new()),
        };
        Ok(Config {
            architecture,
            vocab_size: self.vocab_size,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            layers: self.num_hidden_layers,
            query_heads,
            kv_heads: self.num_key_value_heads.unwrap_or(query_heads),
            head_dim: self.head_dim.unwrap_or(head_dim),
            norm_eps: self.rms_norm_eps,
            rope,
            tied: self.tie_word_embeddings,
            max_positions: self.max_position_embeddings.unwrap_or(max_positions),
            end_tokens: match self.eos_token_id {
                None => end_tokens,
                Some(given) => given.map_or_else(Vec::new, OneOrMany::tokens),
            },
        })
    }

    fn architecture(&self, path: &Path) -> Result<Architecture, ConfigError> {
        let refused = |field, found, known| ConfigError::Architecture { path: path.to_owned(), field, found, known };
        let (architecture, class) = match self.model_type.as_str() {
            "llama" => (Architecture::Llama, "LlamaForCausalLM"),
            "qwen3" => (Architecture::Qwen3, "Qwen3ForCausalLM"),
            _ => return Err(refused("model_type", self.model_type.clone(), "llama or qwen3")),
        };
        match &self.architectures {
            Some(names) if names.iter().any(|name| name != class) => {
                Err(refused("architectures", format!("{names:?}"), class))
            }
            _ => Ok(architecture),
        }
    }

    /// The first field that requires a feature which this engine does not compute.
    fn refused(&self) -> Option<String> {
        let given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
        let full = |kind: &String| kind == "full_attention";
        let refused = [
            (self.attention_bias, "attention_bias".to_owned()),
            (self.mlp_bias, "mlp_bias".to_owned()),
            (self.use_sliding_window, "use_sliding_window".to_owned()),
            (self.hidden_act != "silu", format!("hidden_act {}", self.hidden_act)),
            (self.partial_rotary_factor.is_some_and(|factor| factor != 1.0), "partial_rotary_factor".to_owned()),
            (given(&self.quantization_config), "quantization_config".to_owned()),
            (given(&self.compression_config), "compression_config".to_owned()),
            (
                self.layer_types.as_ref().is_some_and(|kinds| !kinds.iter().all(full)),
                "layer_types other than full_attention".to_owned(),
            ),
        ];
        refused.into_iter().find_map(|(refused, what)| refused.then_some(what))
    }
}
