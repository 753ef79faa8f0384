//! The pages of `docs` that contain Rust code, included as doc tests:
//! `cargo test -p radixkv-recipes` compiles and runs it.

pub mod mistral_rs_connector;

#[doc = include_str!("../../../docs/recipes/mistral-rs.md")]
pub mod mistral_rs {}

#[doc = include_str!("../../../docs/recipes/candle-vllm.md")]
pub mod candle_vllm {}

#[doc = include_str!("../../../docs/recipes/kvbm-logical.md")]
pub mod kvbm_logical {}

#[doc = include_str!("../../../docs/getting-started.md")]
pub mod getting_started {}

#[doc = include_str!("../../../docs/embedding.md")]
pub mod embedding {}

#[doc = include_str!("../../../docs/own-blocks.md")]
pub mod own_blocks {}

#[doc = include_str!("../../../docs/tiers.md")]
pub mod tiers {}

#[doc = include_str!("../../../docs/routers-and-metrics.md")]
pub mod routers_and_metrics {}

#[doc = include_str!("../../../docs/tuning.md")]
pub mod tuning {}

#[doc = include_str!("../../../docs/operating.md")]
pub mod operating {}

#[doc = include_str!("../../../docs/migrating.md")]
pub mod migrating {}
