//! Computes how much KV memory a model needs, from its `config.json`.
//!
//! The figures account for grouped-query attention, for one compressed vector per token and layer
//! (MLA, as in DeepSeek's models), and for layers that attend only to a window of the last tokens.
//! A field that changes the figures in an unsupported way is refused by its name; other unknown
//! fields are listed ([`ModelConfig::unknown_fields`]).

mod config;
mod error;
mod fields;
mod fit;
mod layers;

pub use config::{KvDtype, ModelConfig};
pub use error::ModelError;
pub use fit::{Fit, FitError};
