//! Typed access to the fields of a `config.json`, which records the fields that were read.

use serde_json::{Map, Value};

use super::error::ModelError;

/// The largest accepted number: products of a few of them fit into 128 bits.
const LARGEST: u64 = 1 << 24;

/// Fields that change the figures in an unsupported way, with the reason.
const UNSUPPORTED: [(&str, &str); 8] = [
    ("attn_layer_period", "layers of state spaces hold no KV of tokens, and are not counted"),
    ("cla_share_factor", "layers that share their KV are not counted"),
    ("full_attention_interval", "layers of linear attention hold no KV of tokens, and are not counted"),
    ("hybrid_override_pattern", "layers of state spaces hold no KV of tokens, and are not counted"),
    ("layers_block_type", "layers of state spaces hold no KV of tokens, and are not counted"),
    ("num_kv_shared_layers", "layers that share their KV are not counted"),
    ("ssm_cfg", "layers of state spaces hold no KV of tokens, and are not counted"),
    ("state_size", "layers of state spaces hold no KV of tokens, and are not counted"),
];

/// Known fields that change no figure.
const HARMLESS: &[&str] = &[
    "_name_or_path",
    "architectures",
    "attention_bias",
    "attention_dropout",
    "attn_logit_softcapping",
    "_sliding_window_pattern",
    "layer_types",
    "max_window_layers",
    "sliding_window_pattern",
    "use_sliding_window",
    "auto_map",
    "aux_loss_alpha",
    "beta_fast",
    "bos_token_id",
    "cache_implementation",
    "decoder_sparse_step",
    "embd_pdrop",
    "eos_token_id",
    "ep_size",
    "final_logit_softcapping",
    "hidden_act",
    "hidden_activation",
    "id2label",
    "initial_context_length",
    "initializer_range",
    "is_encoder_decoder",
    "label2id",
    "layer_norm_epsilon",
    "layer_norm_eps",
    "max_position_embeddings",
    "mlp_bias",
    "model_type",
    "moe_layer_freq",
    "n_group",
    "norm_topk_prob",
    "num_nextn_predict_layers",
    "original_max_position_embeddings",
    "output_router_logits",
    "pad_token_id",
    "partial_rotary_factor",
    "pretraining_tp",
    "query_pre_attn_scalar",
    "resid_pdrop",
    "rms_norm_eps",
    "rope_local_base_freq",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "routed_scaling_factor",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "scoring_func",
    "seq_aux",
    "swiglu_limit",
    "topk_group",
    "topk_method",
    "torch_dtype",
    "transformers_version",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
    "use_qk_norm",
    "qk_norm",
    "attention_multiplier",
    "bos_token",
];

/// The fields of one object, and the names that were read.
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// The prefix of names in messages.
    prefix: &'static str,
    asked: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(object: &'a Map<String, Value>, prefix: &'static str) -> Self {
        Self { object, prefix, asked: Vec::new() }
    }

    /// The value of a field; `None` if it is missing or null.
    pub(super) fn value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.asked.push(name);
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// A whole number above zero; `None` if the field is missing.
    pub(super) fn count(&mut self, name: &'static str) -> Result<Option<u128>, ModelError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(count) if (1..=LARGEST).contains(&count) => Ok(Some(count.into())),
            _ => Err(self.wrong(name, value, "a whole number from 1 to 2^24")),
        }
    }

    /// A whole number from zero; zero if the field is missing.
    pub(super) fn number(&mut self, name: &'static str) -> Result<u128, ModelError> {
        let Some(value) = self.value(name) else {
            return Ok(0);
        };
        let number = value.as_u64().filter(|&number| number <= LARGEST);
        number.map(u128::from).ok_or_else(|| self.wrong(name, value, "a whole number up to 2^24"))
    }

    /// A whole number above zero; the field must be present.
    pub(super) fn needed(&mut self, name: &'static str) -> Result<u128, ModelError> {
        self.count(name)?.ok_or_else(|| self.missing(name))
    }

    /// True or false; `None` if the field is missing.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, ModelError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(name, value, "true or false"))
    }

    /// A text; `None` if the field is missing.
    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<&'a str>, ModelError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        value.as_str().map(Some).ok_or_else(|| self.wrong(name, value, "a text"))
    }

    pub(super) fn missing(&self, name: &str) -> ModelError {
        ModelError::Missing(self.named(name))
    }

    pub(super) fn wrong(&self, name: &str, value: &Value, wanted: &'static str) -> ModelError {
        ModelError::Wrong { field: self.named(name), value: shortened(value), wanted }
    }

    pub(super) fn unsupported(&self, name: &str, value: &Value, why: &'static str) -> ModelError {
        ModelError::Unsupported { field: self.named(name), value: shortened(value), why }
    }

    /// Fails if a field changes the figures in an unsupported way.
    pub(super) fn check(&self) -> Result<(), ModelError> {
        for (name, why) in UNSUPPORTED {
            if let Some(value) = self.object.get(name).filter(|value| !value.is_null()) {
                return Err(self.unsupported(name, value, why));
            }
        }
        Ok(())
    }

    /// The fields that were not read and are not known to be harmless.
    pub(super) fn unknown(&self) -> Vec<String> {
        let known = |name: &str| self.asked.contains(&name) || HARMLESS.contains(&name);
        self.object.keys().filter(|name| !known(name)).map(|name| self.named(name).into()).collect()
    }

    fn named(&self, name: &str) -> Box<str> {
        format!("{}{name}", self.prefix).into()
    }
}

/// A value as it is in the file, truncated if it is long.
fn shortened(value: &Value) -> Box<str> {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}
