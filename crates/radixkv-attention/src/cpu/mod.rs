//! The CPU backend: attention in `f32`, with one order of sums (see the [package](crate)).
//!
//! [`Cpu`] computes on the calling thread. [`Processor`] computes on a pool of threads, and also
//! takes 16-bit rows. Both use the same storage and batches, and their outputs have the same bits.
//! The processor's vector instructions are detected at run time, and change no bit either.
//!
//! A call allocates nothing once its threads have computed a call of its size, except that the
//! queue of a pool grows by a block now and then. Concurrent calls share only the storage and the
//! pool.

mod aligned;
mod apart;
mod call;
mod error;
mod kernels;
mod matrix;
mod number;
mod operations;
mod prepared;
mod processor;
mod ranges;
mod read;
mod scratch;
mod storage;
mod threads;
mod word;

#[cfg(target_endian = "big")]
compile_error!("words of the storage are read as elements in the order of a little-endian processor");

#[cfg(test)]
mod tests;

pub use error::CpuError;
pub use matrix::Weights;
pub use number::Number;
pub use prepared::{CpuCascade, Prepared};
pub use processor::Processor;
pub use rayon_core;
pub use storage::CpuKv;

/// Number of tokens in a range. Each range of a sequence, tokens `64 i..64 (i + 1)`, is summed
/// separately.
pub const RANGE_TOKENS: usize = 64;

/// The CPU backend that computes on the calling thread.
///
/// Its operations are those of [`Backend`](crate::Backend). Rows and outputs are `f32`; keys and
/// values are rounded to the storage's element type when they are appended.
///
/// ```
/// use radixkv_attention::cpu::Cpu;
/// use radixkv_attention::{Backend, Batch, Dtype, Layout, Order, Output, Qkv, Scoring, Tables};
///
/// let (dtype, order) = (Dtype::F32, Order::Nhd);
/// let layout = Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 1, head_dim: 4, value_dim: 4, dtype, order };
/// let kv = Cpu.allocate(layout)?;
/// // A prompt of two tokens, in block 5.
/// let batch = Batch {
///     query_heads: 1,
///     scale: 0.5,
///     scoring: Scoring::default(),
///     tables: Tables { blocks: &[5], offsets: &[0, 1] },
///     contexts: &[2],
///     rows: &[0, 2],
///     save_kv: true,
///     slots: &[5 * 16, 5 * 16 + 1],
/// };
/// let prepared = Cpu.prepare(&layout, &batch)?;
/// let values = [1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0];
/// let (new, mut out) = (Qkv { queries: &[0.0; 8][..], keys: &[0.0; 8], values: &values }, [0.0; 8]);
/// Cpu.extend(&kv, 0, &prepared, new, Output { rows: &mut out, lse: None })?;
/// assert_eq!(out, [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]); // the second row sees both, with equal weight
/// # Ok::<_, radixkv_attention::cpu::CpuError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu;
