//! The engine's loop: schedule a step, compute it, sample tokens, complete it.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use radixkv::{BuildError, Eviction, PolicyKind, PrefixCache, Token};
use radixkv_attention::{Dtype, Layout};
use radixkv_host::TieredCache;
use radixkv_scheduler::{
    Finish, FinishError, Finished, QueueConfig, Request, Scheduler, SchedulerConfig, Sequence, SequenceId, WaitingQueue,
};

use crate::config::Config;
use crate::host_tier;
use crate::intake::{Intake, Refusal};
use crate::model::{HostBackend, Model};
use crate::sampling::{Sampling, SamplingError};

/// How long a scheduler without work waits before it checks the queue again.
const PATIENCE: Duration = Duration::from_millis(20);

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// Tokens in a block.
    pub block_size: usize,
    /// Blocks of the cache.
    pub blocks: usize,
    /// Blocks of the host tier, for [`Engine::over_host_tier`].
    pub host_blocks: usize,
    /// The type in which keys and values are stored.
    pub dtype: Dtype,
    /// The eviction policy.
    pub policy: PolicyKind,
    /// Which thread evicts, and when.
    pub eviction: Eviction,
    /// Settings of the waiting queue: its order and its limits.
    pub queue: QueueConfig,
    /// Settings of each thread's scheduler.
    pub scheduler: SchedulerConfig,
    /// Scheduler threads.
    pub threads: usize,
    /// Whether computed prefixes are published, so that later requests find them.
    pub publish: bool,
    /// Whether decoding sequences read shared prefixes only once (cascade attention).
    pub cascade: bool,
    /// Settings of sampling.
    pub sampling: Sampling,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_size: 16,
            blocks: 512,
            host_blocks: 0,
            dtype: Dtype::F32,
            policy: PolicyKind::default(),
            eviction: Eviction::Inline,
            queue: QueueConfig::default(),
            scheduler: SchedulerConfig::default(),
            threads: 1,
            publish: true,
            cascade: false,
            sampling: Sampling::default(),
        }
    }
}

/// A model with its cache, its keys and values, and its waiting requests.
pub struct Engine<'m, B: HostBackend> {
    model: &'m Model,
    backend: B,
    kv: Arc<B::Kv>,
    layout: Layout,
    cache: PrefixCache,
    queue: WaitingQueue,
    tiers: Option<TieredCache>,
    options: Options,
}

/// The logits of a sequence's next token.
#[derive(Debug, Clone, Copy)]
pub struct Row<'l> {
    /// The sequence.
    pub id: SequenceId,
    /// The position that the token gets.
    pub position: usize,
    /// The number of the prompt's tokens that were found in the cache.
    pub cached_len: usize,
    /// The logits. All are finite.
    pub logits: &'l [f32],
}

/// A token that was chosen from a row of logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// The token.
    pub token: Token,
    /// Whether the sequence ends with it.
    pub ends: bool,
}

/// A sampled token and its logits, reported before the step is completed.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'l> {
    /// The sequence.
    pub id: SequenceId,
    /// The position that the token gets.
    pub position: usize,
    /// The logits that it was sampled from.
    pub logits: &'l [f32],
    /// The token.
    pub token: Token,
}

/// The result of a step.
#[derive(Debug)]
pub enum Stepped {
    /// There was nothing to do.
    Idle,
    /// The step was computed.
    Computed {
        /// The number of computed tokens.
        tokens: usize,
        /// Sequences that ended.
        finished: Vec<Finished>,
        /// Sequences whose logits were not finite. They are aborted, and no more of their blocks
        /// are published.
        broken: Vec<SequenceId>,
    },
}

/// Why an engine stopped, or refused a request.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The cache cannot be built.
    #[error("{0}")]
    Build(#[from] BuildError),
    /// A request is refused.
    #[error("prompt {number}: {refusal}")]
    Refused {
        /// The number of the prompt, from 1 on.
        number: usize,
        /// Why.
        refusal: Refusal,
    },
    /// Logits of a sequence are infinite or NaN: the weights are wrong, or the type of keys and
    /// values has too small a range.
    #[error("logits of request {} are not finite", .id.as_u64())]
    NotFinite {
        /// The sequence.
        id: SequenceId,
    },
    /// The sampling settings are invalid.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The attention backend or a scheduler returned an error.
    #[error("{0}")]
    Failed(Box<dyn Error + Send + Sync>),
}

impl<'m, B: HostBackend> Engine<'m, B> {
    /// Creates an engine with an empty cache.
    ///
    /// # Errors
    ///
    /// If the cache cannot be built with these options, if there is no memory for keys and values,
    /// or if the sampling settings are invalid.
    pub fn new(model: &'m Model, backend: B, options: Options) -> Result<Self, ServeError> {
        options.sampling.check()?;
        let cache = PrefixCache::builder(options.block_size, options.blocks)
            .policy(options.policy)
            .eviction(options.eviction)
            .build()?;
        let blocks = options.blocks.saturating_add(options.host_blocks);
        let layout = model.layout(options.block_size, blocks, options.dtype);
        let kv = Arc::new(backend.allocate(layout).map_err(failed)?);
        let queue = WaitingQueue::new(&cache, options.queue);
        Ok(Self { model, backend, kv, layout, cache, queue, tiers: None, options })
    }

    /// The cache over a host tier, if there is one.
    pub fn tiers(&self) -> Option<&TieredCache> {
        self.tiers.as_ref()
    }

    pub(crate) fn set_tiers(&mut self, tiers: TieredCache) {
        self.tiers = Some(tiers);
    }

    /// The attention backend, and the keys and values.
    pub(crate) fn storage(&self) -> (&B, &Arc<B::Kv>) {
        (&self.backend, &self.kv)
    }

    /// Its cache.
    pub fn cache(&self) -> &PrefixCache {
        &self.cache
    }

    /// The number of blocks that are neither free nor evictable; 0 when no request is in service.
    pub fn blocks_in_use(&self) -> usize {
        self.cache.settle();
        let stats = self.cache.stats();
        stats.capacity_blocks - stats.free_blocks - stats.evictable_blocks
    }

    /// Its waiting requests.
    pub fn queue(&self) -> &WaitingQueue {
        &self.queue
    }

    /// Creates a scheduler for the calling thread.
    ///
    /// # Errors
    ///
    /// If the options allow too few slots or tokens.
    pub fn scheduler(&self) -> Result<Scheduler, ServeError> {
        Scheduler::new(&self.queue, self.options.scheduler).map_err(failed)
    }

    /// Submits a prompt to be continued by up to `new_tokens` tokens. `number` identifies the
    /// prompt in errors.
    ///
    /// # Errors
    ///
    /// If the model or the pool cannot serve the prompt.
    pub fn submit(&self, number: usize, tokens: Vec<Token>, new_tokens: usize) -> Result<SequenceId, ServeError> {
        let mut request = Request::new(self.cache.default_namespace(), tokens, new_tokens);
        request.publish = self.options.publish;
        let (intake, refused) = (self.intake(), |refusal| ServeError::Refused { number, refusal });
        // Checked first, so that nothing is evicted for a prompt that is refused.
        intake.check(&request).map_err(refused)?;
        if let Some(tiers) = &self.tiers {
            host_tier::bring_up(tiers, &request.namespace, &request.tokens);
        }
        intake.submit(request).map_err(refused)
    }

    /// The entry for requests from other threads.
    pub fn intake(&self) -> Intake {
        let config = self.model.config();
        Intake::new(self.queue.clone(), config.vocab_size, config.max_positions)
    }

    /// The configuration of the model.
    pub fn config(&self) -> &Config {
        self.model.config()
    }

    /// The engine's settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Runs one step of a scheduler, and samples tokens as the options specify.
    ///
    /// # Errors
    ///
    /// Errors of the backend, and then the step counts as not computed. [`ServeError::NotFinite`],
    /// if logits are not finite.
    pub fn step(&self, scheduler: &mut Scheduler, observe: &dyn Fn(Observed<'_>)) -> Result<Stepped, ServeError> {
        let end_tokens = &self.model.config().end_tokens;
        let stepped = self.step_choosing(scheduler, &|row| {
            let Row { id, position, logits, .. } = row;
            let token = self.options.sampling.choose(logits, id.as_u64(), position);
            observe(Observed { id, position, logits, token });
            Chosen { token, ends: end_tokens.contains(&token) }
        })?;
        match &stepped {
            Stepped::Computed { broken, .. } if !broken.is_empty() => Err(ServeError::NotFinite { id: broken[0] }),
            _ => Ok(stepped),
        }
    }

    /// Runs one step of a scheduler. `choose` returns a token for each row of logits; it is not
    /// called for rows that are not finite.
    ///
    /// # Errors
    ///
    /// Errors of the backend, and then the step counts as not computed.
    pub fn step_choosing(
        &self,
        scheduler: &mut Scheduler,
        choose: &dyn Fn(Row<'_>) -> Chosen,
    ) -> Result<Stepped, ServeError> {
        if let Some(tiers) = &self.tiers {
            host_tier::make_room(tiers);
        }
        let step = scheduler.schedule();
        if step.is_empty() {
            return Ok(Stepped::Idle);
        }
        let batch = step.batch();
        let forward = self.model.forward(&self.backend, &self.kv, &self.layout, batch, self.options.cascade);
        let logits = forward.map_err(failed)?;
        let wanted = batch.sampling().zip(batch.logits_rows()).zip(logits.chunks_exact(self.model.config().vocab_size));
        let mut sampled = Vec::with_capacity(batch.logits_rows().len());
        let (mut ends, mut broken) = (Vec::new(), Vec::new());
        for ((id, row), logits) in wanted {
            if !logits.iter().all(|logit| logit.is_finite()) {
                // Aborted before the step is completed, so that its blocks are not published.
                self.queue.abort(id);
                broken.push(id);
                sampled.push(0);
                continue;
            }
            let position = batch.positions()[*row as usize] as usize + 1;
            let cached_len = step.sequence(id).map_or(0, Sequence::cached_len);
            let chosen = choose(Row { id, position, cached_len, logits });
            sampled.push(chosen.token);
            if chosen.ends {
                ends.push(id);
            }
        }
        let tokens = batch.tokens().len();
        ends.extend(step.complete(&sampled).map_err(failed)?);
        ends.sort_unstable();
        ends.dedup();
        ends.retain(|id| !broken.contains(id));
        let finished = ends.into_iter().filter_map(|id| finish(scheduler, id).transpose()).collect::<Result<_, _>>()?;
        Ok(Stepped::Computed { tokens, finished, broken })
    }

    /// Serves all requests to their end, on [`Options::threads`] threads. Returns them in the order
    /// of submission.
    ///
    /// # Errors
    ///
    /// The first error of any thread. The other threads stop after their step, and requests that
    /// were not served stay in the queue.
    pub fn serve(&self, observe: &(dyn Fn(Observed<'_>) + Sync)) -> Result<Vec<Finished>, ServeError>
    where
        B: Sync,
        B::Kv: Send + Sync,
    {
        let stop = AtomicBool::new(false);
        let results: Vec<_> = thread::scope(|scope| {
            let thread = || self.serve_here(observe, &stop);
            let threads: Vec<_> = (0..self.options.threads).map(|_| scope.spawn(thread)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a scheduler thread does not panic")).collect()
        });
        let mut finished = Vec::new();
        for result in results {
            finished.extend(result?);
        }
        finished.sort_unstable_by_key(|finished| finished.id);
        Ok(finished)
    }

    fn serve_here(&self, observe: &dyn Fn(Observed<'_>), stop: &AtomicBool) -> Result<Vec<Finished>, ServeError> {
        let mut scheduler = self.scheduler()?;
        let mut all = Vec::new();
        while self.queue.unfinished_requests() > 0 && !stop.load(Ordering::Relaxed) {
            match self.step(&mut scheduler, observe) {
                Ok(Stepped::Idle) => {
                    scheduler.wait(PATIENCE);
                }
                Ok(Stepped::Computed { finished, .. }) => all.extend(finished),
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(all)
    }
}

/// Ends a sequence; `None` if it was aborted meanwhile.
fn finish(scheduler: &mut Scheduler, id: SequenceId) -> Result<Option<Finished>, ServeError> {
    let committed = scheduler.sequence(id).map_or(0, Sequence::computed_len);
    match scheduler.finish(id, Finish::keeping(committed)) {
        Ok(finished) => Ok(Some(finished)),
        Err(FinishError::NotServed) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: impl Error + Send + Sync + 'static) -> ServeError {
    ServeError::Failed(Box::new(error))
}
