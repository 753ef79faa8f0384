//! How much KV memory a model needs, read from its `config.json`.
//!
//! What counts is counted as it is: grouped heads, one compressed vector for each token and layer (MLA, as in DeepSeek's
//! models), and layers that look at a window of the last tokens alone. A field that changes the figures in a way that is not
//! known is refused by its name; other fields that are not known are listed ([`ModelConfig::unknown_fields`]).

mod config;
mod error;
mod fields;
mod fit;
mod layers;

pub use config::{KvDtype, ModelConfig};
pub use error::ModelError;
pub use fit::{Fit, FitError};
