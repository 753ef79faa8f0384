//! Where requests come in, from any thread.

use radixkv::Token;
use radixkv_scheduler::{Request, SequenceId, SubmitErrorKind, WaitingQueue};

/// The queue of an engine, and what its model takes.
#[derive(Debug, Clone)]
pub struct Intake {
    queue: WaitingQueue,
    vocab_size: usize,
    max_positions: usize,
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The queue refuses it.
    #[error("{0}")]
    Queue(SubmitErrorKind),
    /// The prompt has a token that the model does not know.
    #[error("token {token} is not in a vocabulary of {vocab_size}")]
    Token {
        /// The token.
        token: Token,
        /// Tokens of the model.
        vocab_size: usize,
    },
    /// Prompt and output are longer than the model was made for: ask for less.
    #[error("prompt and output have {tokens} tokens, the model takes {max_positions}")]
    TooLong {
        /// Tokens of prompt and output.
        tokens: usize,
        /// Tokens that the model takes.
        max_positions: usize,
    },
}

impl Intake {
    pub(crate) fn new(queue: WaitingQueue, vocab_size: usize, max_positions: usize) -> Self {
        Self { queue, vocab_size, max_positions }
    }

    /// Whether the model and the pool can ever take a request. Changes nothing.
    ///
    /// # Errors
    ///
    /// If they cannot.
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

    /// Hands in a request.
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

    /// Tokens of the longest sequence.
    pub fn max_positions(&self) -> usize {
        self.max_positions
    }
}
