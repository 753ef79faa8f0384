//! Requests, the reasons to refuse one, and the data that the queue keeps for each.

use std::fmt;

use radixkv::{Namespace, Token};

/// Identifies a request and its sequence. Unique in its queue and never reused.
///
/// An id has no other meaning. [`as_u64`](Self::as_u64) and `From<u64>` carry it through a log or a
/// protocol.
///
/// # Examples
///
/// ```
/// use radixkv_scheduler::SequenceId;
///
/// let id = SequenceId::from(7);
/// assert_eq!(id.as_u64(), 7);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub(super) u64);

impl SequenceId {
    /// The id as a number. Ids of one queue ascend in the order in which requests were submitted or
    /// forked.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl From<u64> for SequenceId {
    /// Makes an id from its number. A number that no queue has issued identifies no request.
    fn from(id: u64) -> Self {
        Self(id)
    }
}

/// A prompt to continue.
///
/// A submitted request cannot be changed. For another priority or length, abort it
/// ([`WaitingQueue::abort`](super::WaitingQueue::abort)) and submit another one.
///
/// # Examples
///
/// ```
/// use radixkv::PrefixCache;
/// use radixkv_scheduler::Request;
///
/// let cache = PrefixCache::builder(16, 64).build()?;
/// let mut request = Request::new(cache.default_namespace(), vec![1, 2, 3], 100);
/// request.priority = 5;
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// The namespace in which prefixes are looked up and published.
    pub namespace: Namespace,
    /// The prompt: at least one token.
    pub tokens: Vec<Token>,
    /// The maximum number of tokens to sample; at least one.
    pub max_new_tokens: usize,
    /// Under [`Order::Priority`](super::Order::Priority) requests of higher priority are admitted
    /// first and preempted last. Default: 0.
    pub priority: i32,
    /// Whether the computed blocks are published, so that other requests can reuse them. Default:
    /// true.
    pub publish: bool,
}

impl Request {
    /// Creates a request for up to `max_new_tokens` tokens after `tokens`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// use radixkv_scheduler::Request;
    ///
    /// # let cache = PrefixCache::builder(16, 64).build()?;
    /// // A LoRA adapter has prefixes of its own.
    /// let request = Request::new(cache.namespace(&["adapter-7"]), vec![1, 2, 3], 100);
    /// assert!(request.publish && request.priority == 0);
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn new(namespace: Namespace, tokens: Vec<Token>, max_new_tokens: usize) -> Self {
        Self { namespace, tokens, max_new_tokens, priority: 0, publish: true }
    }

    /// The maximum length of the sequence in tokens: prompt and output.
    pub(super) fn limit(&self) -> usize {
        self.tokens.len().saturating_add(self.max_new_tokens)
    }

    /// The maximum number of blocks of the sequence. Its last token is sampled and never computed.
    pub(super) fn blocks(&self, block_size: usize) -> usize {
        (self.limit() - 1).div_ceil(block_size)
    }
}

/// A request that was refused, and why.
///
/// # Examples
///
/// ```
/// use radixkv::PrefixCache;
/// use radixkv_scheduler::{QueueConfig, Request, SubmitErrorKind, WaitingQueue};
///
/// let cache = PrefixCache::builder(16, 64).build()?;
/// let queue = WaitingQueue::new(&cache, QueueConfig::default());
/// let refused = queue.submit(Request::new(cache.default_namespace(), vec![7; 1_000], 100)).unwrap_err();
/// assert_eq!(refused.kind, SubmitErrorKind::ExceedsPool { requested: 69, capacity: 64 });
/// assert_eq!(refused.request.tokens.len(), 1_000);
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct SubmitError {
    /// The request, unchanged.
    pub request: Request,
    /// The reason.
    pub kind: SubmitErrorKind,
}

/// Why a request was refused.
///
/// # Examples
///
/// ```
/// use radixkv::PrefixCache;
/// use radixkv_scheduler::{QueueConfig, Request, SubmitErrorKind, WaitingQueue};
///
/// let cache = PrefixCache::builder(16, 64).build()?;
/// let queue = WaitingQueue::new(&cache, QueueConfig::default());
/// let refused = queue.submit(Request::new(cache.default_namespace(), vec![], 100)).unwrap_err();
/// assert_eq!(refused.kind, SubmitErrorKind::EmptyPrompt);
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitErrorKind {
    /// The prompt has no token.
    EmptyPrompt,
    /// The request allows no new token: ask for at least one.
    NoNewTokens,
    /// The namespace compares pairs of tokens ([`Keys::Bigrams`](radixkv::Keys::Bigrams)), whose
    /// blocks end one token later than a scheduler counts: use a namespace of tokens.
    BigramNamespace,
    /// The engine owns the pool ([`Builder::external`](radixkv::Builder::external)), so the cache
    /// has no blocks for requests: build a cache with its own pool.
    ExternalPool,
    /// Prompt and output need more blocks than the cache has: ask for less, or build a larger
    /// cache.
    ExceedsPool {
        /// Blocks that prompt and output need.
        requested: usize,
        /// Blocks of the cache.
        capacity: usize,
    },
    /// Prompt and output need more blocks than the namespace's quota allows: ask for less, or raise
    /// [`Quota::pinned_blocks`](radixkv::Quota::pinned_blocks). If the limit is lowered after the
    /// request was submitted, the request waits until it is aborted or the limit is raised.
    ExceedsQuota {
        /// Blocks that prompt and output need.
        requested: usize,
        /// Blocks that the namespace may have in leases and reservations.
        limit: usize,
    },
    /// Prompt and output need more blocks than a request slot has: ask for less, or raise
    /// [`QueueConfig::max_blocks`](super::QueueConfig::max_blocks).
    ExceedsSlot {
        /// Blocks that prompt and output need.
        requested: usize,
        /// Blocks that one request may have.
        max_blocks: usize,
    },
}

impl fmt::Display for SubmitErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyPrompt => f.write_str("the prompt is empty"),
            Self::NoNewTokens => f.write_str("0 new tokens requested: at least 1 is needed"),
            Self::BigramNamespace => f.write_str("the namespace compares bigrams: use a namespace of tokens"),
            Self::ExceedsPool { requested, capacity } => {
                write!(f, "prompt and output need {requested} blocks, the pool has {capacity}")
            }
            Self::ExceedsQuota { requested, limit } => {
                write!(f, "prompt and output need {requested} blocks, the namespace may have {limit}")
            }
            Self::ExternalPool => {
                f.write_str("the cache has an external pool, so it cannot reserve blocks: build it with its own pool")
            }
            Self::ExceedsSlot { requested, max_blocks } => {
                write!(f, "prompt and output need {requested} blocks, a request may have {max_blocks}")
            }
        }
    }
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for SubmitError {}

/// The data that a request has from submission to its end, whether it waits or is served.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    pub(super) id: SequenceId,
    pub(super) namespace: Namespace,
    pub(super) prompt_len: usize,
    /// The maximum length of the sequence in tokens: prompt and output.
    pub(super) limit: usize,
    pub(super) priority: i32,
    pub(super) publish: bool,
    /// The queue's number of steps when the request was submitted.
    pub(super) arrived: u64,
    /// Number of tokens that were cached when it was first admitted; `None` before that.
    pub(super) cached: Option<usize>,
    /// Number of tokens computed for it so far.
    pub(super) computed: usize,
}

/// A waiting request: it holds no block and no lease.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    /// The prompt, then the tokens that were sampled before a preemption.
    pub(super) tokens: Vec<Token>,
}

impl Waiting {
    /// The tokens to look up in the cache: all but the last one, whose logits are needed.
    pub(super) fn matchable(&self) -> &[Token] {
        &self.tokens[..self.tokens.len() - 1]
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use crate::sync::Arc;

    /// Makes a waiting request, as the queue does.
    pub(crate) fn waiting(namespace: &Namespace, tokens: &[Token]) -> Arc<Waiting> {
        numbered(0, namespace, tokens)
    }

    /// Like [`waiting`], with this id.
    pub(crate) fn numbered(id: u64, namespace: &Namespace, tokens: &[Token]) -> Arc<Waiting> {
        let ticket = Ticket {
            id: SequenceId(id),
            namespace: namespace.clone(),
            prompt_len: tokens.len(),
            limit: tokens.len() + 1,
            priority: 0,
            publish: true,
            arrived: 0,
            cached: None,
            computed: 0,
        };
        Arc::new(Waiting { ticket, tokens: tokens.to_vec() })
    }
}
