//! The parameters of a request: sampling, length, stop texts, streaming and cache control.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::error::ApiError;
use super::fields::Fields;
use crate::sampling::Sampling;

/// The error for `cache_control` in a request that stores nothing.
pub(super) const NOTHING_STORED: &str = "cache_control beside skip_cache_insert: nothing is stored";

/// Maximum bytes of a salt or a key.
const LONGEST_NAME: usize = 256;

/// Maximum number of stop texts, and bytes of each.
const STOPS: usize = 4;
const LONGEST_STOP: usize = 256;

/// The time for which `cache_control` retains without a `ttl`, and the maximum.
const RETAINED: Duration = Duration::from_secs(5 * 60);
const LONGEST_RETAINED: Duration = Duration::from_secs(24 * 3_600);

/// The parsed parameters.
#[derive(Debug)]
pub(super) struct Parameters {
    pub(super) new_tokens: Option<usize>,
    pub(super) sampling: Sampling,
    /// Whether the client gave a seed, so that its samples are repeatable.
    pub(super) seeded: bool,
    /// Texts that end the answer, and are not part of it.
    pub(super) stop: Vec<String>,
    pub(super) stream: bool,
    /// Whether a stream ends with the token counts.
    pub(super) include_usage: bool,
    /// `cache_salt`: the namespace.
    pub(super) salt: Option<String>,
    /// Whether the request stores nothing in the cache.
    pub(super) store_nothing: bool,
    /// `cache_control` of the whole prompt: how long it is retained.
    pub(super) retain: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

impl Parameters {
    /// Takes the parameters from the fields. `default` is the sampling for fields that are missing.
    pub(super) fn take(fields: &mut Fields, default: Sampling) -> Result<Self, ApiError> {
        refuse_unsupported(fields)?;
        let seed: Option<i64> = fields.take("seed")?;
        let sampling = Sampling {
            temperature: fields.take("temperature")?.unwrap_or(default.temperature),
            top_k: match fields.take::<i64>("top_k")? {
                Some(top_k @ ..-1) => return Err(ApiError::field("top_k", format!("top_k is {top_k}"))),
                // In vLLM, -1 means all.
                Some(-1) => 0,
                top_k => top_k.map_or(default.top_k, |top_k| top_k as usize),
            },
            top_p: fields.take("top_p")?.unwrap_or(default.top_p),
            seed: seed.map_or(default.seed, |seed| seed as u64),
        };
        sampling.check().map_err(|error| ApiError::field(error.name, error.to_string()))?;
        let old: Option<usize> = fields.take("max_tokens")?;
        let new_tokens = fields.take("max_completion_tokens")?.or(old);
        let options: Option<StreamOptions> = fields.take("stream_options")?;
        let parameters = Self {
            new_tokens,
            sampling,
            seeded: seed.is_some(),
            stop: stops(fields)?,
            stream: fields.take("stream")?.unwrap_or(false),
            include_usage: options.is_some_and(|options| options.include_usage),
            salt: name(fields, "cache_salt")?,
            store_nothing: fields.take("skip_cache_insert")?.unwrap_or(false),
            retain: retained(fields)?,
        };
        // Checked and ignored: it tells routers to send requests with the same key to one server,
        // and here all requests share one cache.
        name(fields, "prompt_cache_key")?;
        if parameters.store_nothing && parameters.retain.is_some() {
            return Err(ApiError::field("cache_control", NOTHING_STORED));
        }
        Ok(parameters)
    }
}

fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    let zero = |value: &Value| value.as_f64() == Some(0.0);
    let one = |value: &Value| value.as_u64() == Some(1);
    let no = |value: &Value| value.as_bool() == Some(false) || value.as_u64() == Some(0);
    let nothing = |value: &Value| {
        value.as_object().is_some_and(serde_json::Map::is_empty)
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_str().is_some_and(str::is_empty)
    };
    fields.without("n", one)?;
    fields.without("best_of", one)?;
    fields.without("logprobs", no)?;
    fields.without("top_logprobs", no)?;
    fields.without("echo", no)?;
    fields.without("suffix", nothing)?;
    fields.without("logit_bias", nothing)?;
    fields.without("presence_penalty", zero)?;
    fields.without("frequency_penalty", zero)?;
    fields.without("tools", nothing)?;
    fields.without("response_format", |value| value["type"] == "text")
}

fn stops(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let stops = match fields.take("stop")? {
        None => Vec::new(),
        Some(OneOrMany::One(stop)) => vec![stop],
        Some(OneOrMany::Many(stops)) => stops,
    };
    if stops.len() > STOPS || stops.iter().any(|stop| stop.is_empty() || stop.len() > LONGEST_STOP) {
        let message = format!("stop has up to {STOPS} texts of 1 to {LONGEST_STOP} bytes");
        return Err(ApiError::field("stop", message));
    }
    Ok(stops)
}

fn name(fields: &mut Fields, field: &str) -> Result<Option<String>, ApiError> {
    match fields.take::<String>(field)? {
        Some(name) if name.is_empty() || name.len() > LONGEST_NAME => {
            Err(ApiError::field(field, format!("{field} has {} bytes, not 1 to {LONGEST_NAME}", name.len())))
        }
        name => Ok(name),
    }
}

/// The retention time of the field `cache_control`; `None` if there is no such field.
pub(super) fn retained(fields: &mut Fields) -> Result<Option<Duration>, ApiError> {
    let Some(control) = fields.take::<Value>("cache_control")? else { return Ok(None) };
    let place = fields.name("cache_control");
    let mut control = Fields::inside(control, &place)?;
    let refused = |field: &str, message: &str| Err(ApiError::field(format!("{place}.{field}"), message));
    match control.take::<String>("type")?.as_deref() {
        Some("ephemeral") => {}
        _ => return refused("type", "cache_control is of type ephemeral"),
    }
    let ttl = match control.take::<String>("ttl")? {
        None => RETAINED,
        Some(text) => match ttl(&text) {
            Some(ttl) if !ttl.is_zero() && ttl <= LONGEST_RETAINED => ttl,
            _ => return refused("ttl", "ttl is a number of s, m or h, as in 5m, up to 24h"),
        },
    };
    control.finish()?;
    Ok(Some(ttl))
}

fn ttl(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(seconds).map(Duration::from_secs)
}
