//! A small inference engine on radixkv: Qwen3 and Llama on the CPU, with continuous batching,
//! chunked prefill and several scheduler threads on one cache.
//!
//! It is an example, and also a correctness test. The order of sums in its matrix products and its
//! attention depends only on a token's own sequence. So a token's logits are bit-identical with and
//! without the cache, and in any batch.
//!
//! ```sh
//! cargo run --release -p radixkv-engine --example engine  # a seeded model, with the cache and without
//! cargo run --release -p radixkv-engine --example engine -- --acceptance  # what the cache saves of one request, bit for bit
//! cargo run --release -p radixkv-engine --example engine -- --model DIR --prompts chats.jsonl
//! cargo run --release -p radixkv-engine --example engine -- --serve 127.0.0.1:8000  # the OpenAI interface over HTTP
//! cargo run --release -p radixkv-engine --example engine --features cuda -- --device cuda  # attention on a GPU
//! ```

pub mod acceptance;
pub mod checkpoint;
pub mod command;
pub mod config;
pub mod dice;
pub mod host_tier;
pub mod intake;
pub mod matrix;
pub mod model;
pub mod prompts;
pub mod sampling;
pub mod serve;
#[cfg(feature = "serve")]
pub mod server;
mod tables;
pub mod tokenizer;
