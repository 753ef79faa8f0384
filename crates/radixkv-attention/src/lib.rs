//! Attention over paged keys and values: the storage that block ids index, and the operations of an
//! engine on it.
//!
//! The cache only manages block ids. This package has the memory that the ids index ([`Layout`]),
//! and a trait for the operations of one engine step on that memory ([`Backend`]). The CPU
//! ([`cpu::Cpu`]) and a GPU (package `radixkv-cuda`) implement it. An engine prepares the batch of a
//! step once and then runs it for every layer:
//!
//! ```text
//! prepare(batch)                    block tables, contexts, slots: checked, and copied to the device
//! for each layer
//!     extend(q, k, v)               chunks of prompts: appends them and attends causally
//!  or append(k, v), decode(q)       one row for each sequence
//!  or append(k, v), cascade(q)      one row for each sequence; a prefix that several share is read once
//! ```
//!
//! [`plan`] finds the prefixes that the sequences of a batch share. It reads only their block
//! tables and context lengths.
//!
//! # Examples
//!
//! One decode step of one sequence, over a storage of one layer:
//!
//! ```
//! use radixkv_attention::cpu::Cpu;
//! use radixkv_attention::{Backend, Batch, Dtype, Layout, Order, Output, Scoring, Tables};
//!
//! let layout =
//!     Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 4, value_dim: 4, dtype: Dtype::Bf16, order: Order::Nhd };
//! let kv = Cpu.allocate(layout)?;
//! let batch = Batch {
//!     query_heads: 4,
//!     scale: 0.5,
//!     scoring: Scoring::default(),
//!     tables: Tables { blocks: &[3], offsets: &[0, 1] },
//!     contexts: &[1], // the first token of its sequence, in the first slot of block 3
//!     rows: &[0, 1],
//!     save_kv: true,
//!     slots: &[3 * 16],
//! };
//! let prepared = Cpu.prepare(&layout, &batch)?;
//! Cpu.append(&kv, 0, &prepared, &[1.0; 2 * 4], &[7.0; 2 * 4])?;
//! let mut out = [0.0; 4 * 4];
//! Cpu.decode(&kv, 0, &prepared, &[1.0; 4 * 4], Output { rows: &mut out, lse: None })?;
//! assert_eq!(out, [7.0; 4 * 4]); // one token: its value
//! # Ok::<_, radixkv_attention::cpu::CpuError>(())
//! ```
//!
//! # Order of sums
//!
//! The CPU backend always sums in the same order: over ranges of [`cpu::RANGE_TOKENS`] tokens at
//! fixed positions of the sequence, merged from left to right. The order does not depend on the
//! batch, the chunks, the block size, the sharing, the threads or the CPU's instructions. So the
//! output of a sequence has the same bits whatever else is in its batch and however much of it came
//! from the cache. The outputs of a GPU backend are close to these, not equal.
//!
//! # Latent attention
//!
//! Models with multi-head latent attention (DeepSeek, Kimi) cache one vector for each token, from
//! which the keys and values of all heads are computed. In the absorbed form these keys and values
//! are never computed: the weights that would make keys are multiplied into the queries, and those
//! that would make values into the outputs. What remains is attention of all query heads over a
//! single head of keys whose first elements are the values ([`Order::Latent`]). Every operation is
//! defined for it as for other layouts, and sums in the same order.
//!
//! # Limits
//!
//! Attention is causal. [`Scoring`] has the sliding window, the soft-cap, the ALiBi slopes and the
//! sinks of a model; all layers of a prepared batch have the same window. The block size, the
//! number of heads and their sizes are the same in the whole storage.

mod backend;
mod batch;
pub mod cpu;
pub mod element;
mod layout;
pub mod plan;
mod scoring;
mod shape;

pub use backend::{Backend, Output, Qkv};
pub use batch::{Batch, Tables};
pub use layout::{Dtype, Half, Layout, Order, UnknownDtype};
pub use scoring::Scoring;
pub use shape::{MAX_GQA_GROUP, MAX_LATENT_HEADS, ShapeError};

/// The example of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
