//! Reads the settings of rotary positions: the base of the wavelengths, and their scaling.
//!
//! A file can have the base next to `rope_scaling`, inside it, or inside `rope_parameters`.
//! Versions of transformers prefer different places, so a file with two different values is
//! refused.

use serde::Deserialize;
use serde_json::Value;

/// The settings of rotary positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// Base of the wavelengths.
    pub theta: f64,
    /// The scaling of the wavelengths in Llama 3.1 and later.
    pub scaling: Option<Llama3Scaling>,
}

/// Wavelengths longer than `original / low_freq_factor` are multiplied by `factor`, those shorter
/// than `original / high_freq_factor` stay as they are; between the two the factor changes
/// smoothly.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Llama3Scaling {
    /// The factor of the longest wavelengths.
    pub factor: f64,
    /// Sets the wavelength from which on the whole factor applies.
    pub low_freq_factor: f64,
    /// Sets the wavelength from which on scaling begins.
    pub high_freq_factor: f64,
    /// Positions that the model was first trained on.
    pub original_max_position_embeddings: f64,
}

/// The base if no field has it.
const DEFAULT_THETA: f64 = 10_000.0;

impl Rope {
    /// Reads the three fields of a configuration.
    ///
    /// # Errors
    ///
    /// The name and value of a field that is not supported.
    pub(super) fn read(
        theta: Option<&Value>,
        scaling: Option<&Value>,
        parameters: Option<&Value>,
    ) -> Result<Self, String> {
        let given = |value: Option<&'_ Value>| value.filter(|value| !value.is_null()).cloned();
        let [theta, scaling, parameters] = [theta, scaling, parameters].map(given);
        for (name, value) in [("rope_scaling", &scaling), ("rope_parameters", &parameters)] {
            if let Some(other) = value.as_ref().filter(|value| !value.is_object()) {
                return Err(format!("{name} {other}"));
            }
        }
        let inside = |value: &Option<Value>| value.as_ref().and_then(|value| value.get("rope_theta")).cloned();
        let thetas = [
            ("rope_theta", theta.clone()),
            ("rope_scaling.rope_theta", inside(&scaling)),
            ("rope_parameters.rope_theta", inside(&parameters)),
        ];
        let theta = agreed(&thetas)?.unwrap_or(DEFAULT_THETA);
        let scaling = match (&scaling, &parameters) {
            (Some(_), Some(_)) => {
                let (old, new) = (stretch(&scaling, "rope_scaling")?, stretch(&parameters, "rope_parameters")?);
                if old != new {
                    return Err("rope_scaling that is not what rope_parameters says".to_owned());
                }
                new
            }
            (Some(_), None) => stretch(&scaling, "rope_scaling")?,
            (None, _) => stretch(&parameters, "rope_parameters")?,
        };
        Ok(Self { theta, scaling })
    }
}

/// The base, which must be the same in all fields that have one.
fn agreed(thetas: &[(&str, Option<Value>)]) -> Result<Option<f64>, String> {
    let mut agreed: Option<(&str, f64)> = None;
    for (name, value) in thetas {
        let Some(value) = value else { continue };
        let theta = value.as_f64().filter(|theta| *theta > 0.0).ok_or_else(|| format!("{name} {value}"))?;
        match agreed {
            Some((other, first)) if first != theta => return Err(format!("{name} {theta} beside {other} {first}")),
            _ => agreed = Some((name, theta)),
        }
    }
    Ok(agreed.map(|(_, theta)| theta))
}

/// The scaling of the wavelengths in the field `name`.
fn stretch(given: &Option<Value>, name: &str) -> Result<Option<Llama3Scaling>, String> {
    let Some(given) = given else { return Ok(None) };
    match given.get("partial_rotary_factor") {
        Some(factor) if factor.as_f64() != Some(1.0) => return Err(format!("{name}.partial_rotary_factor {factor}")),
        _ => {}
    }
    match given.get("rope_type").or_else(|| given.get("type")) {
        None if given.get("factor").is_some() => Err(format!("{name}.factor without rope_type")),
        None => Ok(None),
        Some(kind) => match kind.as_str() {
            Some("default") => Ok(None),
            Some("llama3") => llama3(given, name).map(Some),
            _ => Err(format!("{name}.rope_type {kind}")),
        },
    }
}

fn llama3(given: &Value, name: &str) -> Result<Llama3Scaling, String> {
    let scaling = Llama3Scaling::deserialize(given).map_err(|error| format!("{name}: {error}: it"))?;
    let Llama3Scaling { factor, low_freq_factor: low, high_freq_factor: high, original_max_position_embeddings } =
        scaling;
    let numbers = [
        ("factor", factor >= 1.0),
        ("low_freq_factor", low > 0.0),
        ("high_freq_factor", high > low),
        ("original_max_position_embeddings", original_max_position_embeddings >= 1.0),
    ];
    match numbers.into_iter().find(|(_, good)| !good) {
        Some((field, _)) => Err(format!("{name}.{field} {}", given[field])),
        None => Ok(scaling),
    }
}
