//! The fields of a `config.json`, each asked for by its name.

use serde_json::{Map, Value};

use super::error::ModelError;

/// Whole numbers up to here are taken: products of a few of them fit into 128 bits.
const LARGEST: u64 = 1 << 24;

/// Fields that change what a token takes in a way that is not known.
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

/// Fields that are known and change no figure.
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

/// The fields of one object, and which of them were asked for.
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// What stands before names in messages.
    prefix: &'static str,
    asked: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(object: &'a Map<String, Value>, prefix: &'static str) -> Self {
        Self { object, prefix, asked: Vec::new() }
    }

    /// A value that is there and not null.
    pub(super) fn value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.asked.push(name);
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// A whole number above zero, if the field is there.
    pub(super) fn count(&mut self, name: &'static str) -> Result<Option<u128>, ModelError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(count) if (1..=LARGEST).contains(&count) => Ok(Some(count.into())),
            _ => Err(self.wrong(name, value, "a whole number from 1 to 2^24")),
        }
    }

    /// A whole number of zero or more, zero if the field is not there.
    pub(super) fn number(&mut self, name: &'static str) -> Result<u128, ModelError> {
        let Some(value) = self.value(name) else {
            return Ok(0);
        };
        let number = value.as_u64().filter(|&number| number <= LARGEST);
        number.map(u128::from).ok_or_else(|| self.wrong(name, value, "a whole number up to 2^24"))
    }

    /// A whole number above zero.
    pub(super) fn needed(&mut self, name: &'static str) -> Result<u128, ModelError> {
        self.count(name)?.ok_or_else(|| self.missing(name))
    }

    /// True, false, or not there.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, ModelError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(name, value, "true or false"))
    }

    /// A text, if the field is there.
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

    /// Fails if there is a field that changes what a token takes in a way that is not known.
    pub(super) fn check(&self) -> Result<(), ModelError> {
        for (name, why) in UNSUPPORTED {
            if let Some(value) = self.object.get(name).filter(|value| !value.is_null()) {
                return Err(self.unsupported(name, value, why));
            }
        }
        Ok(())
    }

    /// The fields that are neither asked for nor known to change nothing.
    pub(super) fn unknown(&self) -> Vec<String> {
        let known = |name: &str| self.asked.contains(&name) || HARMLESS.contains(&name);
        self.object.keys().filter(|name| !known(name)).map(|name| self.named(name).into()).collect()
    }

    fn named(&self, name: &str) -> Box<str> {
        format!("{}{name}", self.prefix).into()
    }
}

/// A value as it stands in the file, cut where it is long.
fn shortened(value: &Value) -> Box<str> {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}
