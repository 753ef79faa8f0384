//! The pages of `docs/recipes`: `cargo test -p radixkv-recipes` compiles and runs their code.

pub mod mistral_rs_connector;

#[doc = include_str!("../../../docs/recipes/mistral-rs.md")]
pub mod mistral_rs {}

#[doc = include_str!("../../../docs/recipes/candle-vllm.md")]
pub mod candle_vllm {}

#[doc = include_str!("../../../docs/recipes/kvbm-logical.md")]
pub mod kvbm_logical {}
