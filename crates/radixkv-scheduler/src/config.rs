//! Configuration of a waiting queue and its schedulers.

use std::fmt;

/// The order in which waiting requests are admitted; vLLM and SGLang call it the scheduling policy.
/// It is fixed for each queue.
///
/// # Examples
///
/// ```
/// use radixkv_scheduler::{Order, QueueConfig};
///
/// let by_priority = QueueConfig::default().order(Order::Priority);
/// # let _ = by_priority;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Order {
    /// First come, first served.
    #[default]
    Fcfs,
    /// The longest cached prefix first; among equals, the oldest request. SGLang: `lpm`.
    LongestPrefix,
    /// Depth first through the tree of waiting prompts, the branch with most requests first: all
    /// requests of one prefix are admitted before those of the next. SGLang: `dfs-weight`.
    DfsWeight,
    /// The highest [`Request::priority`](super::Request::priority) first; among equals, the oldest
    /// request.
    Priority,
}

/// Configures a [`WaitingQueue`](super::WaitingQueue).
///
/// # Examples
///
/// ```
/// use radixkv_scheduler::{Order, QueueConfig};
///
/// // The longest cached prefix first; prompt and output have 256 blocks at most.
/// let config = QueueConfig::default().order(Order::LongestPrefix).max_blocks(256).age_bound(512);
/// assert_eq!((config.order, config.max_blocks), (Order::LongestPrefix, 256));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct QueueConfig {
    /// Maximum number of blocks of one request, prompt and output together.
    pub max_blocks: usize,
    /// The order in which waiting requests are admitted.
    pub order: Order,
    /// The number of steps within which a request is admitted even if `order` puts it last.
    pub age_bound: u64,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self { max_blocks: usize::MAX, order: Order::Fcfs, age_bound: 1_024 }
    }
}

impl QueueConfig {
    /// Sets the maximum number of blocks of one request, prompt and output together, but at most
    /// all blocks of the cache. Longer requests are refused
    /// ([`SubmitErrorKind::ExceedsSlot`](super::SubmitErrorKind::ExceedsSlot)). Default: all blocks
    /// of the cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{QueueConfig, Request, SubmitErrorKind, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 64).build()?;
    /// let queue = WaitingQueue::new(&cache, QueueConfig::default().max_blocks(2));
    /// let refused = queue.submit(Request::new(cache.default_namespace(), vec![7; 30], 10)).unwrap_err();
    /// assert_eq!(refused.kind, SubmitErrorKind::ExceedsSlot { requested: 3, max_blocks: 2 });
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn max_blocks(mut self, max_blocks: usize) -> Self {
        self.max_blocks = max_blocks;
        self
    }

    /// Sets the order in which waiting requests are admitted. Default: [`Order::Fcfs`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{Order, QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(4, 64).build()?;
    /// let queue = WaitingQueue::new(&cache, QueueConfig::default().order(Order::Priority));
    /// let mut urgent = Request::new(cache.default_namespace(), vec![4, 5], 8);
    /// urgent.priority = 9;
    /// queue.submit(Request::new(cache.default_namespace(), vec![1, 2], 8))?;
    /// let urgent = queue.submit(urgent)?;
    /// let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default().max_running(1))?;
    /// assert_eq!(scheduler.schedule().batch().sequence(0).id, urgent);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets the number of steps within which a request is admitted even if [`order`](Self::order)
    /// puts it last. Default: 1,024.
    ///
    /// A request that has waited for half of the bound is *overdue*. Every sixteenth of the bound,
    /// one overdue request, the last in the order, is admitted before all others. If there is no
    /// room for it, it is the next to be admitted. So eight requests that become overdue together
    /// are admitted within the bound, if running sequences end early enough to make room for all
    /// eight in its second half.
    ///
    /// If many requests are overdue, the queue is too long, and its order is not the cause. Then
    /// one overdue request is admitted first every half of the bound, and the order decides about
    /// the rest. *Many* means that more than eight requests, and more than a sixteenth of the
    /// queue, are overdue and rank below half of the best rank. The rank is the number of cached
    /// tokens, or the priority, counted from the lowest waiting one if that is negative.
    ///
    /// All non-empty steps of the queue's schedulers count.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{Order, QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(4, 64).build()?;
    /// // No request waits for more than about 256 steps because others have longer cached prefixes.
    /// let config = QueueConfig::default().order(Order::LongestPrefix).age_bound(256);
    /// let queue = WaitingQueue::new(&cache, config);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn age_bound(mut self, steps: u64) -> Self {
        self.age_bound = steps;
        self
    }
}

/// Configures a [`Scheduler`](super::Scheduler).
///
/// # Examples
///
/// ```
/// use radixkv_scheduler::SchedulerConfig;
///
/// // 32 sequences at once; a prompt is computed in chunks of 512 tokens.
/// let config = SchedulerConfig::default().max_running(32).max_chunk_tokens(512);
/// assert_eq!((config.max_running, config.max_chunk_tokens), (32, 512));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct SchedulerConfig {
    /// Number of request slots: the maximum number of sequences that run at once.
    pub max_running: u32,
    /// The maximum number of tokens in one step.
    pub max_batch_tokens: usize,
    /// The maximum number of tokens of one sequence in one step.
    pub max_chunk_tokens: usize,
    /// The minimum number of tokens of a partly matching cached block that are copied instead of
    /// computed; `None`: none are copied.
    pub min_copied_tokens: Option<usize>,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self { max_running: 64, max_batch_tokens: 2_048, max_chunk_tokens: 2_048, min_copied_tokens: None }
    }
}

impl SchedulerConfig {
    /// Number of slots allowed even if the cache has fewer blocks, so that one configuration also
    /// works for small caches.
    const ALWAYS_ALLOWED: u32 = 1 << 16;

    /// Sets the number of request slots: the maximum number of sequences that run at once. Each
    /// running sequence has at least one block of its own, so slots beyond the number of blocks are
    /// never used. The limit is the cache's number of blocks, but at least 65,536. Default: 64.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{Order, QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(4, 64).build()?;
    /// let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// for prompt in [[1, 2], [3, 4], [5, 6]] {
    ///     queue.submit(Request::new(cache.default_namespace(), prompt.to_vec(), 8))?;
    /// }
    /// let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default().max_running(2))?;
    /// assert_eq!((scheduler.schedule().batch().len(), queue.len()), (2, 1));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_running(mut self, sequences: u32) -> Self {
        self.max_running = sequences;
        self
    }

    /// Sets the maximum number of tokens in one step, at least one for each slot. Default: 2,048.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{Order, QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(4, 64).build()?;
    /// let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// for prompt in [[1; 6], [2; 6]] {
    ///     queue.submit(Request::new(cache.default_namespace(), prompt.to_vec(), 8))?;
    /// }
    /// let config = SchedulerConfig::default().max_running(4).max_batch_tokens(8);
    /// let mut scheduler = Scheduler::new(&queue, config)?;
    /// assert_eq!(scheduler.schedule().batch().tokens(), [1, 1, 1, 1, 1, 1, 2, 2]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_batch_tokens(mut self, tokens: usize) -> Self {
        self.max_batch_tokens = tokens;
        self
    }

    /// Sets the maximum number of tokens of one sequence in one step; a longer prompt is computed
    /// in chunks. Default: 2,048.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{Order, QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(4, 64).build()?;
    /// let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3, 4, 5, 6], 8))?;
    /// let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default().max_chunk_tokens(4))?;
    /// let step = scheduler.schedule();
    /// assert_eq!(step.batch().tokens(), [1, 2, 3, 4]);
    /// step.complete(&[])?; // no token is sampled in the middle of a prompt
    /// assert_eq!(scheduler.schedule().batch().tokens(), [5, 6]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_chunk_tokens(mut self, tokens: usize) -> Self {
        self.max_chunk_tokens = tokens;
        self
    }

    /// Sets the minimum number of tokens to copy instead of compute when a prompt diverges inside a
    /// cached block. `None`: none are copied. Default: `None`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(4, 64).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// let config = SchedulerConfig::default().min_copied_tokens(2);
    /// let mut scheduler = Scheduler::new(&queue, config)?;
    /// # queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3, 4, 5], 8))?;
    /// # scheduler.schedule().complete(&[7])?;
    /// // Tokens 1 to 4 are cached as one block, which agrees with this prompt for three tokens.
    /// queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3, 9], 8))?;
    /// let step = scheduler.schedule();
    /// assert_eq!(step.batch().copies()[0].tokens, 3);
    /// assert_eq!(step.batch().sequence(1).tokens, [9]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn min_copied_tokens(mut self, tokens: impl Into<Option<usize>>) -> Self {
        self.min_copied_tokens = tokens.into();
        self
    }

    /// Checks that these settings can serve requests from a cache of `capacity` blocks.
    pub(super) fn check(&self, capacity: usize) -> Result<(), ConfigError> {
        let Self { max_running, max_batch_tokens, max_chunk_tokens, .. } = *self;
        if max_running == 0 {
            return Err(ConfigError::NoSlots);
        }
        let most = u32::try_from(capacity).unwrap_or(u32::MAX).max(Self::ALWAYS_ALLOWED);
        if max_running > most {
            return Err(ConfigError::TooManySlots { max_running, most });
        }
        if max_chunk_tokens == 0 {
            return Err(ConfigError::EmptyChunk);
        }
        if max_batch_tokens < max_running as usize {
            return Err(ConfigError::BatchTooSmall { max_batch_tokens, max_running });
        }
        Ok(())
    }
}

/// Why a scheduler could not be built.
///
/// # Examples
///
/// ```
/// use radixkv::PrefixCache;
/// use radixkv_scheduler::{ConfigError, QueueConfig, Scheduler, SchedulerConfig, WaitingQueue};
///
/// let cache = PrefixCache::builder(16, 64).build()?;
/// let queue = WaitingQueue::new(&cache, QueueConfig::default());
/// let refused = Scheduler::new(&queue, SchedulerConfig::default().max_running(0)).unwrap_err();
/// assert_eq!(refused, ConfigError::NoSlots);
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A scheduler needs at least one request slot: set [`SchedulerConfig::max_running`] to at
    /// least 1.
    NoSlots,
    /// A chunk has at least one token: set [`SchedulerConfig::max_chunk_tokens`] to at least 1.
    EmptyChunk,
    /// Each running sequence has a block of its own, so the cache can never serve this many at
    /// once: ask for fewer slots, or build a larger cache.
    TooManySlots {
        /// The requested number of slots.
        max_running: u32,
        /// The limit: the cache's number of blocks, but at least 65,536.
        most: u32,
    },
    /// Every running sequence must be able to decode in every step: allow more tokens, or fewer
    /// sequences.
    BatchTooSmall {
        /// The maximum number of tokens in one step.
        max_batch_tokens: usize,
        /// The maximum number of sequences that run at once.
        max_running: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlots => f.write_str("0 request slots: at least 1 is needed"),
            Self::EmptyChunk => f.write_str("chunks of 0 tokens: at least 1 is needed"),
            Self::TooManySlots { max_running, most } => {
                write!(f, "{max_running} request slots requested, the cache can serve at most {most}")
            }
            Self::BatchTooSmall { max_batch_tokens, max_running } => {
                write!(f, "{max_batch_tokens} tokens per step are too few for {max_running} running sequences")
            }
        }
    }
}

impl std::error::Error for ConfigError {}
