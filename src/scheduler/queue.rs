//! The waiting requests, shared by the schedulers that serve them: what anybody may call.

use std::fmt;

use super::admission::Admission;
use super::batch::SequenceId;
use super::request::{Request, SubmitError, SubmitErrorKind};
use crate::cache::{Keys, PrefixCache};
use crate::key::Token;
use crate::sync::Arc;

/// Which waiting request is admitted next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Order {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Whoever finds most of its prompt cached; of equals, whoever came first.
    LongestPrefix,
    /// Depth first through the tree of the waiting prompts, the branch with most requests first: a prefix is served to
    /// the end before the next one begins.
    DfsWeight,
    /// The highest [`Request::priority`]; of equals, whoever came first.
    Priority,
}

/// What a [`WaitingQueue`] is to be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueConfig {
    /// Blocks of a request slot: the longest prompt and output that are taken. No more than the cache has are used.
    /// Default: all blocks of the cache.
    pub max_blocks: usize,
    /// Who is admitted next. Default: [`Order::Fcfs`].
    pub order: Order,
    /// Steps within which a request is to be admitted that [`order`](Self::order) would leave to the last.
    ///
    /// Who has waited for half the bound is *due*. Every sixteenth of the bound one of those goes first, and nobody
    /// overtakes it: the one that the order would serve last; where there was no room at its time, with the next room.
    /// So eight that become due together are admitted within the bound, as long as running sequences end and make room
    /// for eight in the other half of it. Where more are due (than eight and than a sixteenth of the queue) that the
    /// order likes less than half as well as the best, the queue is not unfair but too long: then every half of the
    /// bound, and the order goes on to decide. (Half as well: of the tokens cached; of the priority, counted from the
    /// lowest that waits if that is negative.) Steps of all the queue's schedulers count. Default: 1,024.
    pub age_bound: u64,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self { max_blocks: usize::MAX, order: Order::Fcfs, age_bound: 1_024 }
    }
}

/// Requests that wait for a [`Scheduler`](super::Scheduler), and the claims of those that are served.
///
/// A handle: clones share one queue, on any threads. Every verb takes the queue's lock for a moment: the logarithm of
/// how many wait, and under [`Order::DfsWeight`] a comparison of the request's tokens.
#[derive(Clone)]
pub struct WaitingQueue {
    pub(super) admission: Arc<Admission>,
}

/// What aborting a request found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Aborted {
    /// It waited, and is gone.
    Waiting {
        /// The prompt, and what was sampled before it was preempted.
        tokens: Vec<Token>,
    },
    /// It is being served: its scheduler drops it when its present step is done, and the next step lists it
    /// ([`Step::aborted`](super::Step::aborted)). So again until then.
    Served,
    /// It was finished, aborted, or never there.
    Unknown,
}

impl fmt::Debug for WaitingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingQueue").field("config", &self.admission.config).field("len", &self.len()).finish()
    }
}

impl WaitingQueue {
    /// An empty queue of requests over `cache`.
    pub fn new(cache: &PrefixCache, config: QueueConfig) -> Self {
        let config = QueueConfig { max_blocks: config.max_blocks.min(cache.capacity_blocks()), ..config };
        Self { admission: Arc::new(Admission::new(cache, config)) }
    }

    /// Takes a request; a scheduler will admit it.
    ///
    /// # Errors
    ///
    /// [`SubmitError`] with the request, if it asks for nothing or for more than pool or slot can ever hold, in a
    /// namespace of bigrams, or of a cache whose pool is the engine's.
    ///
    /// # Panics
    ///
    /// If the request's namespace is of another cache.
    pub fn submit(&self, request: Request) -> Result<SequenceId, SubmitError> {
        if let Err(kind) = self.check(&request) {
            return Err(SubmitError { request, kind });
        }
        Ok(self.admission.take_in(request))
    }

    fn check(&self, request: &Request) -> Result<(), SubmitErrorKind> {
        let cache = &self.admission.cache;
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
        if cache.is_external() {
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
        Ok(())
    }

    /// Ends a request wherever it is. When this returns nothing more of it is published, whatever its scheduler does
    /// with it yet: if it is publishing a chunk just now, this waits for that.
    ///
    /// One that is being served keeps its blocks until its scheduler's present step is done: they may be being written.
    pub fn abort(&self, id: SequenceId) -> Aborted {
        self.admission.abort(id)
    }

    /// Requests that wait: for their turn, or for a prefix that somebody else is computing.
    pub fn len(&self) -> usize {
        self.admission.waiting()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests that were submitted and neither finished nor aborted.
    pub fn unfinished(&self) -> usize {
        self.admission.unfinished()
    }
}
