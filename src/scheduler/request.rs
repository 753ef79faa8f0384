//! What a caller asks for, and why it may be refused.

use std::fmt;

use super::batch::SequenceId;
use crate::cache::Namespace;
use crate::key::Token;

/// A prompt to be continued.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// Where its prefixes are looked up and published.
    pub namespace: Namespace,
    /// The prompt: at least one token.
    pub tokens: Vec<Token>,
    /// Tokens to sample at most: at least one.
    pub max_new_tokens: usize,
    /// Under [`Order::Priority`](super::Order::Priority) higher ones go first, and are preempted last. Default: 0.
    pub priority: i32,
    /// Whether others may start from what is computed for it. Default: true.
    pub publish: bool,
}

impl Request {
    /// Asks for up to `max_new_tokens` tokens behind `tokens`.
    pub fn new(namespace: Namespace, tokens: Vec<Token>, max_new_tokens: usize) -> Self {
        Self { namespace, tokens, max_new_tokens, priority: 0, publish: true }
    }

    /// Tokens of the sequence when it has become as long as it may.
    pub(super) fn limit(&self) -> usize {
        self.tokens.len().saturating_add(self.max_new_tokens)
    }

    /// Blocks that the sequence needs at most: the last token is sampled and never computed.
    pub(super) fn blocks(&self, block_size: usize) -> usize {
        (self.limit() - 1).div_ceil(block_size)
    }
}

/// Why a request was not taken, with the request.
#[derive(Debug)]
#[non_exhaustive]
pub struct SubmitError {
    /// What was asked for.
    pub request: Request,
    /// The reason.
    pub kind: SubmitErrorKind,
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitErrorKind {
    /// The prompt has no token: there is nothing to continue.
    EmptyPrompt,
    /// No token is to be sampled.
    NoNewTokens,
    /// The namespace compares pairs ([`Keys::Bigrams`](crate::Keys::Bigrams)), whose blocks end a token later than a
    /// scheduler counts them: use one of tokens.
    BigramNamespace,
    /// The pool is the engine's ([`Builder::external`](crate::Builder::external)): the cache has no blocks to serve a
    /// request with. Build it with a pool of its own.
    ExternalPool,
    /// The cache's pool can never hold prompt and output: ask for less, or build a larger cache.
    ExceedsPool {
        /// Blocks that prompt and output need.
        requested: usize,
        /// Blocks of the cache.
        capacity: usize,
    },
    /// A request slot can never hold prompt and output: ask for less, or configure more blocks a request.
    ExceedsSlot {
        /// Blocks that prompt and output need.
        requested: usize,
        /// Blocks of a slot.
        max_blocks: usize,
    },
}

impl fmt::Display for SubmitErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyPrompt => f.write_str("the prompt has no token"),
            Self::NoNewTokens => f.write_str("no new token is asked for"),
            Self::BigramNamespace => f.write_str("the namespace is one of bigrams, not of tokens"),
            Self::ExceedsPool { requested, capacity } => {
                write!(f, "prompt and output need {requested} blocks of a pool of {capacity}")
            }
            Self::ExternalPool => f.write_str("the engine owns the pool, the cache has no blocks to give"),
            Self::ExceedsSlot { requested, max_blocks } => {
                write!(f, "prompt and output need {requested} blocks of the {max_blocks} that a request may have")
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

/// What stays with a request from submitting to finishing, wherever it is.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    pub(super) id: SequenceId,
    pub(super) namespace: Namespace,
    pub(super) prompt_len: usize,
    /// Tokens of prompt and output at most.
    pub(super) limit: usize,
    pub(super) priority: i32,
    pub(super) publish: bool,
    /// Steps of the queue when it was submitted.
    pub(super) arrived: u64,
    /// Tokens that were cached when it was first admitted.
    pub(super) cached: Option<usize>,
    /// Tokens computed for it so far.
    pub(super) computed: usize,
}

/// A request that waits: it holds no block and no lease.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    /// The prompt, and what was sampled before it was preempted.
    pub(super) tokens: Vec<Token>,
}

impl Waiting {
    /// What may be taken from the cache: at least one token is left to compute.
    pub(super) fn matchable(&self) -> &[Token] {
        &self.tokens[..self.tokens.len() - 1]
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use crate::sync::Arc;

    /// A request that waits, as the queue would make it.
    pub(crate) fn waiting(namespace: &Namespace, tokens: &[Token]) -> Arc<Waiting> {
        named(0, namespace, tokens)
    }

    /// The same, of that name.
    pub(crate) fn named(name: u64, namespace: &Namespace, tokens: &[Token]) -> Arc<Waiting> {
        let ticket = Ticket {
            id: SequenceId(name),
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
