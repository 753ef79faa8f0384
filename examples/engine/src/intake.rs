//! The entry for requests from any thread: checks a request against the model, then submits it to
//! the queue.

use radixkv::Token;
use radixkv_scheduler::{Request, SequenceId, SubmitErrorKind, WaitingQueue};

/// The queue of an engine, with the limits of its model.
#[derive(Debug, Clone)]
pub struct Intake {
    queue: WaitingQueue,
    vocab_size: usize,
    max_positions: usize,
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The queue refuses the request.
    #[error("{0}")]
    Queue(SubmitErrorKind),
    /// The prompt has a token outside the vocabulary.
    #[error("token {token} is not in a vocabulary of {vocab_size}")]
    Token {
        /// The token.
        token: Token,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// Prompt and output are longer than the model's maximum: use a shorter prompt or output.
    #[error("prompt and output have {tokens} tokens, the model takes {max_positions}")]
    TooLong {
        /// Tokens of prompt and output.
        tokens: usize,
        /// Maximum tokens of the model.
        max_positions: usize,
    },
}

impl Intake {
    pub(crate) fn new(queue: WaitingQueue, vocab_size: usize, max_positions: usize) -> Self {
        Self { queue, vocab_size, max_positions }
    }

    /// Checks whether the model and the pool can ever serve a request. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`Refusal`], if they cannot.
    pub fn check(&self, request: &Request) -> Result<(), Refusal> {
        let Self { vocab_size, max_positions, .. } = *self;
        if let Some(&token) = request.tokens.iter().find(|token| **token as usize >= vocab_size) {
            return Err(Refusal::Token { token, vocab_size });
        }
        let tokens = request.tokens.len().saturating_add(request.max_new_tokens);
        if tokens > max_positions {
            return Err(Refusal::TooLong { tokens, max_positions });
        }
        self.queue.check(request).map_err(Refusal::Queue)
    }

    /// Checks a request, and submits it to the queue.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn submit(&self, request: Request) -> Result<SequenceId, Refusal> {
        self.check(&request)?;
        self.queue.submit(request).map_err(|refused| Refusal::Queue(refused.kind))
    }

    /// The queue.
    pub fn queue(&self) -> &WaitingQueue {
        &self.queue
    }

    /// Maximum tokens of a sequence.
    pub fn max_positions(&self) -> usize {
        self.max_positions
    }
}
