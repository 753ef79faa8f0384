//! The public waiting queue: any thread may submit, abort and count requests.

use std::fmt;

use radixkv::{Keys, PrefixCache};

use super::abort::Aborted;
use super::admission::Admission;
use super::config::QueueConfig;
use super::request::{Request, SequenceId, SubmitError, SubmitErrorKind};
use crate::sync::Arc;

/// A queue of requests that wait for a [`Scheduler`](super::Scheduler), with the claims of served
/// requests.
///
/// This is a handle: clones share one queue, and any thread may use them. Every method holds the
/// queue's lock for a short time, logarithmic in the number of waiting requests; under
/// [`Order::DfsWeight`](super::Order::DfsWeight) `submit` also compares the request's tokens.
///
/// A waiting request cannot be changed or moved: abort it and submit another one. Requests of two
/// queues do not wait for each other's prefixes.
///
/// # Examples
///
/// ```
/// use radixkv::PrefixCache;
/// use radixkv_scheduler::{Order, QueueConfig, Request, WaitingQueue};
///
/// let cache = PrefixCache::builder(16, 1_024).build()?;
/// let queue = WaitingQueue::new(&cache, QueueConfig::default().order(Order::LongestPrefix));
/// std::thread::scope(|scope| {
///     for user in 0..4 {
///         let (queue, space) = (queue.clone(), cache.default_namespace());
///         scope.spawn(move || queue.submit(Request::new(space, vec![1, 2, 3, user], 8)).expect("it fits"));
///     }
/// });
/// assert_eq!(queue.len(), 4);
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Clone)]
pub struct WaitingQueue {
    pub(super) admission: Arc<Admission>,
}

impl fmt::Debug for WaitingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingQueue").field("config", &self.admission.config).field("len", &self.len()).finish()
    }
}

impl WaitingQueue {
    /// Creates an empty queue for requests that are served from `cache`.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::PrefixCache;
    /// use radixkv_scheduler::{QueueConfig, WaitingQueue};
    ///
    /// let cache = PrefixCache::builder(16, 1_024).build()?;
    /// let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// assert!(queue.is_empty());
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn new(cache: &PrefixCache, config: QueueConfig) -> Self {
        let max_blocks = config.max_blocks.min(cache.capacity_blocks());
        Self { admission: Arc::new(Admission::new(cache, config.max_blocks(max_blocks))) }
    }

    /// Adds a request to the queue; a scheduler will admit it.
    ///
    /// # Errors
    ///
    /// [`SubmitError`] with the request, if it could never be served: its prompt is empty or it
    /// allows no new token; it needs more blocks than the pool, its namespace's quota or a slot
    /// allows; its namespace compares bigrams; or the engine owns the cache's pool.
    ///
    /// # Panics
    ///
    /// If the request's namespace belongs to another cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{QueueConfig, Request, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 1_024).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
    /// println!("request {} waits", id.as_u64());
    ///
    /// let empty = Request::new(cache.default_namespace(), vec![], 8);
    /// assert_eq!(queue.submit(empty).unwrap_err().to_string(), "the prompt is empty");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit(&self, request: Request) -> Result<SequenceId, SubmitError> {
        if let Err(kind) = self.check(&request) {
            return Err(SubmitError { request, kind });
        }
        Ok(self.admission.submit(request))
    }

    /// Checks whether [`submit`](Self::submit) would accept a request, without side effects. For an
    /// engine that does something for the request first, such as copying blocks from a host tier.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    ///
    /// # Panics
    ///
    /// As [`submit`](Self::submit).
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{QueueConfig, Request, SubmitErrorKind, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 1_024).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// let empty = Request::new(cache.default_namespace(), vec![], 8);
    /// assert_eq!(queue.check(&empty), Err(SubmitErrorKind::EmptyPrompt));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn check(&self, request: &Request) -> Result<(), SubmitErrorKind> {
        let cache = &self.admission.cache;
        // Panics if the namespace belongs to another cache.
        cache.session().peek(&request.namespace, &[]);
        if request.tokens.is_empty() {
            return Err(SubmitErrorKind::EmptyPrompt);
        }
        if request.max_new_tokens == 0 {
            return Err(SubmitErrorKind::NoNewTokens);
        }
        if request.namespace.keys() != Keys::Tokens {
            return Err(SubmitErrorKind::BigramNamespace);
        }
        if cache.external().is_some() {
            return Err(SubmitErrorKind::ExternalPool);
        }
        let (requested, capacity) = (request.blocks(cache.block_size()), cache.capacity_blocks());
        let max_blocks = self.admission.config.max_blocks;
        if requested > capacity {
            return Err(SubmitErrorKind::ExceedsPool { requested, capacity });
        }
        if requested > max_blocks {
            return Err(SubmitErrorKind::ExceedsSlot { requested, max_blocks });
        }
        if let Some(limit) = request.namespace.quota().pinned_blocks.filter(|limit| requested > *limit) {
            return Err(SubmitErrorKind::ExceedsQuota { requested, limit });
        }
        Ok(())
    }

    /// Ends a request, whether it waits or is served. After this returns, no more of its blocks are
    /// published. If its scheduler is publishing a chunk of the request, this waits for the end of
    /// that insert.
    ///
    /// A served request keeps its blocks until its scheduler's current step is done, because the
    /// step may be writing them.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{Aborted, QueueConfig, Request, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 1_024).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
    /// assert_eq!(queue.abort(id), Aborted::Waiting { tokens: vec![1, 2, 3] });
    /// assert_eq!(queue.abort(id), Aborted::Unknown);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort(&self, id: SequenceId) -> Aborted {
        self.admission.abort(id)
    }

    /// The number of waiting requests. They wait for admission, for a prefix that another sequence
    /// is computing, or for their namespace's quota.
    pub fn len(&self) -> usize {
        self.admission.waiting()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of waiting and served requests, forks included.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 1_024).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
    /// queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
    /// scheduler.schedule().complete(&[7])?;
    /// assert_eq!((queue.len(), queue.unfinished_requests()), (0, 1));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn unfinished_requests(&self) -> usize {
        self.admission.unfinished()
    }
}
