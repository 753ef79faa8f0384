//! The CPU backend on a pool of threads, for rows of any element type.

use std::marker::PhantomData;
use std::sync::Arc;

use rayon_core::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::kernels::Level;
use super::threads::Threads;

/// The CPU backend for rows and outputs of `E`: on the calling thread, on its own pool of threads,
/// or on the caller's pool.
///
/// The threads of a call divide among them its sequences, the KV heads, and the rows of long
/// chunks; if a step has fewer sequences than there are threads, they divide the contexts. The
/// outputs have the same bits on any number of threads. A call returns when everything is computed;
/// concurrent calls share the pool. Cloning it is cheap, and the clones share the pool.
///
/// ```
/// use half::bf16;
/// use radixkv_attention::cpu::Processor;
/// use radixkv_attention::{Backend, Batch, Dtype, Layout, Order, Output, Scoring, Tables};
///
/// let (dtype, order) = (Dtype::Bf16, Order::Nhd);
/// let layout = Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 1, head_dim: 4, value_dim: 4, dtype, order };
/// let processor = Processor::<bf16>::with_threads(2)?;
/// let kv = processor.allocate(layout)?;
/// let batch = Batch {
///     query_heads: 1,
///     scale: 0.5,
///     scoring: Scoring::default(),
///     tables: Tables { blocks: &[5], offsets: &[0, 1] },
///     contexts: &[1],
///     rows: &[0, 1],
///     save_kv: true,
///     slots: &[5 * 16],
/// };
/// let prepared = processor.prepare(&layout, &batch)?;
/// let (one, seven, mut out) = ([bf16::ONE; 4], [bf16::from_f32(7.0); 4], [bf16::ZERO; 4]);
/// processor.append(&kv, 0, &prepared, &one, &seven)?;
/// processor.decode(&kv, 0, &prepared, &one, Output { rows: &mut out, lse: None })?;
/// assert_eq!(out, seven);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Processor<E = f32> {
    pub(super) threads: Threads,
    level: Option<Level>,
    number: PhantomData<fn() -> E>,
}

impl<E> Processor<E> {
    /// Computes on the calling thread.
    pub(super) const CALLER: Self = Self { threads: Threads::CALLER, level: None, number: PhantomData };

    /// Creates a backend that computes on the calling thread, as [`Cpu`](super::Cpu) does.
    pub fn new() -> Self {
        Self::CALLER
    }

    /// Creates a backend with its own pool of this many threads; 0 means one for each processor
    /// core.
    ///
    /// # Errors
    ///
    /// If the operating system cannot start a thread.
    pub fn with_threads(threads: usize) -> Result<Self, ThreadPoolBuildError> {
        let named = ThreadPoolBuilder::new().thread_name(|index| format!("radixkv-attention-{index}"));
        Ok(Self::with_pool(Arc::new(named.num_threads(threads).build()?)))
    }

    /// Creates a backend that computes on the threads of `pool`, which may also do other work.
    ///
    /// A call from a thread of the pool computes on that thread, and the other threads help. So an
    /// engine that runs its loop over the layers in the pool (`pool.install(|| ...)`) wakes only
    /// the helpers; a call from outside also wakes the thread that it moves to, and is woken at its
    /// end.
    ///
    /// A thread of the pool that waits for its helpers runs other work of the pool meanwhile, as
    /// always in `rayon`: hold no lock during a call if such work takes the same lock.
    pub fn with_pool(pool: Arc<ThreadPool>) -> Self {
        Self { threads: Threads::of(pool), ..Self::CALLER }
    }

    /// The number of threads that a call uses.
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    pub(super) fn level(&self) -> Level {
        self.level.unwrap_or_else(Level::best)
    }

    /// Uses the instructions of `level`, which the processor must have.
    #[cfg(test)]
    pub(super) fn at(self, level: Level) -> Self {
        Self { level: Some(level), ..self }
    }
}

impl<E> Default for Processor<E> {
    fn default() -> Self {
        Self::new()
    }
}
