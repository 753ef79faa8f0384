//! The layers of a model: which have a sliding window, which are sparse, and the numbers that each
//! keeps and multiplies.

use serde_json::Value;

use super::{error::ModelError, fields::Fields};

/// Layers by the tokens that they keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layers {
    /// Layers that keep every token.
    pub(super) full: u128,
    /// Layers that keep the last `window` tokens.
    pub(super) sliding: u128,
    pub(super) window: u128,
}

impl Layers {
    pub(super) fn read(fields: &mut Fields<'_>, model: &str) -> Result<Self, ModelError> {
        let layers = fields.needed("num_hidden_layers")?;
        let window = fields.count("sliding_window")?.or(fields.count("attention_chunk_size")?);
        let sliding = match (fields.value("layer_types"), window) {
            (Some(kinds), _) => sliding_types(fields, kinds, layers, window)?,
            (None, Some(_)) => sliding_by_rule(fields, model, layers)?,
            (None, None) => 0,
        };
        Ok(Self { full: layers - sliding, sliding, window: window.unwrap_or(0) })
    }

    pub(super) fn all(self) -> u128 {
        self.full + self.sliding
    }
}

/// Number of sliding-window layers, if the file gives the type of each layer.
fn sliding_types(fields: &Fields<'_>, kinds: &Value, layers: u128, window: Option<u128>) -> Result<u128, ModelError> {
    let list =
        kinds.as_array().ok_or_else(|| fields.wrong("layer_types", kinds, "a list with a word for each layer"))?;
    if list.len() as u128 != layers {
        return Err(fields.wrong("layer_types", kinds, "a list with a word for each of num_hidden_layers layers"));
    }
    let mut sliding = 0;
    for kind in list {
        match kind.as_str() {
            Some("full_attention") => (),
            Some("sliding_attention" | "chunked_attention") => sliding += 1,
            _ => {
                return Err(fields.unsupported("layer_types", kind, "what such a layer keeps of a token is not known"));
            }
        }
    }
    if sliding > 0 && window.is_none() {
        return Err(fields.missing("sliding_window"));
    }
    Ok(sliding)
}

/// Number of sliding-window layers, if the file gives a rule for them.
fn sliding_by_rule(fields: &mut Fields<'_>, model: &str, layers: u128) -> Result<u128, ModelError> {
    let (pattern, most) = (fields.count("sliding_window_pattern")?, fields.number("max_window_layers")?);
    let used = fields.flag("use_sliding_window")?;
    Ok(match (used, pattern) {
        (Some(false), _) => 0,
        // One layer in `pattern` attends to all tokens.
        (_, Some(pattern)) => layers - layers / pattern,
        (Some(true), None) => layers.saturating_sub(most),
        (None, None) if model == "gemma2" => layers.div_ceil(2),
        (None, None) => layers,
    })
}

/// The numbers that the attention of one layer keeps and multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attention {
    /// Numbers that a layer keeps for each token.
    pub(super) kept: u128,
    /// Weights of a layer's projections.
    pub(super) weights: u128,
    /// Multiplications for each token and each token before it, over all heads.
    pub(super) compared: u128,
}

impl Attention {
    pub(super) fn read(fields: &mut Fields<'_>, hidden: u128) -> Result<Self, ModelError> {
        let heads = fields.needed("num_attention_heads")?;
        if let Some(rank) = fields.count("kv_lora_rank")? {
            return Self::latent(fields, hidden, heads, rank);
        }
        let kv_heads = fields.count("num_key_value_heads")?.unwrap_or(heads);
        let head = match fields.count("head_dim")? {
            Some(head) => head,
            None if hidden % heads == 0 => hidden / heads,
            None => return Err(fields.missing("head_dim")),
        };
        let weights = 2 * hidden * head * (heads + kv_heads);
        Ok(Self { kept: 2 * kv_heads * head, weights, compared: 2 * heads * head })
    }

    /// One compressed vector for each token, from which all heads compute keys and values (MLA).
    fn latent(fields: &mut Fields<'_>, hidden: u128, heads: u128, rank: u128) -> Result<Self, ModelError> {
        let rope = fields.needed("qk_rope_head_dim")?;
        let (nope, value) = (fields.needed("qk_nope_head_dim")?, fields.needed("v_head_dim")?);
        // All heads share the compressed vector, whatever these fields say.
        fields.count("num_key_value_heads")?;
        fields.count("head_dim")?;
        let query = match fields.count("q_lora_rank")? {
            Some(query) => query * (hidden + heads * (nope + rope)),
            None => hidden * heads * (nope + rope),
        };
        let weights = query + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden;
        Ok(Self { kept: rank + rope, weights, compared: heads * (nope + rope + value) })
    }
}

/// Weights of the feed-forward parts of all layers: those that one token uses, and all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FeedForward {
    pub(super) met: u128,
    pub(super) all: u128,
}

/// Models whose feed-forward part has two matrices; the others have three.
const UNGATED: [&str; 6] = ["falcon", "gpt_neox", "opt", "phi", "stablelm_epoch", "starcoder2"];

impl FeedForward {
    pub(super) fn read(fields: &mut Fields<'_>, model: &str, hidden: u128, layers: u128) -> Result<Self, ModelError> {
        let matrices = if UNGATED.contains(&model) { 2 } else { 3 };
        let wide = |inner: u128| matrices * hidden * inner;
        let mut routed = None;
        for name in ["num_local_experts", "num_experts", "n_routed_experts"] {
            routed = routed.or(fields.count(name)?);
        }
        let dense = fields.count("intermediate_size")?;
        let missing = |fields: &Fields<'_>| fields.missing("intermediate_size");
        let Some(experts) = routed else {
            let dense = wide(dense.ok_or_else(|| missing(fields))?) * layers;
            return Ok(Self { met: dense, all: dense });
        };
        let met = match fields.count("num_experts_per_tok")? {
            Some(met) => met,
            None => fields.count("experts_per_token")?.ok_or_else(|| fields.missing("num_experts_per_tok"))?,
        };
        fields.count("experts_per_token")?;
        let expert = fields.count("moe_intermediate_size")?.or(dense).ok_or_else(|| missing(fields))?;
        let shared = fields.number("n_shared_experts")? * expert + fields.number("shared_expert_intermediate_size")?;
        let first = fields.number("first_k_dense_replace")?.min(layers);
        let listed = fields.value("mlp_only_layers").and_then(Value::as_array).map_or(0, Vec::len) as u128;
        let dense_layers = (first + listed).min(layers);
        let dense = if dense_layers > 0 { wide(dense.ok_or_else(|| missing(fields))?) * dense_layers } else { 0 };
        let sparse = |experts: u128| (layers - dense_layers) * (wide(experts * expert + shared) + hidden * experts);
        Ok(Self { met: dense + sparse(met), all: dense + sparse(experts) })
    }
}
