//! The interface of a prefix cache that is measured.

use std::{fmt, panic, sync::Arc, time::Instant};

use super::tokens::Tokens;

/// A prefix cache, or a substitute for one.
pub(crate) trait Contender: Send + Sync + Sized + 'static {
    /// The name in the table.
    const NAME: &'static str;
    /// What the contender does not do but others in the table do; empty if it does everything.
    const LACKS: &'static str;
    /// A prompt in the contender's own form, which is prepared from tokens before the clock runs.
    type Prompt: Send + Sync;
    /// The access of one thread.
    type Client: Client<Prompt = Self::Prompt>;

    /// Creates an empty cache of `blocks` blocks.
    fn new(blocks: usize) -> Self;
    fn prompt(tokens: &Tokens) -> Self::Prompt;
    fn client(cache: &Arc<Self>) -> Self::Client;
}

/// One thread's access to a [`Contender`].
pub(crate) trait Client: 'static {
    type Prompt;

    /// Matches a whole prompt, takes a lease and the block ids, and releases. Returns the number of
    /// tokens that matched.
    fn look_up(&mut self, prompt: &Self::Prompt) -> usize;

    /// Matches, reserves the missing blocks, inserts and releases. Returns the number of tokens
    /// that matched. `clock` measures the reservation.
    fn insert(&mut self, prompt: &Self::Prompt, clock: &mut Clock) -> usize;

    /// Completes deferred work: afterwards everything that was inserted can be matched.
    fn settle(&mut self) {}
}

/// Measures the reservations of a thread, if it runs: two clock readings take about 50 ns.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    runs: bool,
    pub(crate) nanoseconds: Vec<f64>,
}

impl Clock {
    pub(crate) fn running() -> Self {
        Self { runs: true, nanoseconds: Vec::new() }
    }

    pub(crate) fn time<T>(&mut self, reserve: impl FnOnce() -> T) -> T {
        if !self.runs {
            return reserve();
        }
        let start = Instant::now();
        let reserved = reserve();
        self.nanoseconds.push(start.elapsed().as_nanos() as f64);
        reserved
    }
}

/// A contender matched another number of tokens than it must.
#[derive(Debug)]
pub(crate) struct WrongAnswer {
    found: usize,
    expected: usize,
}

impl fmt::Display for WrongAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wrong answer: {} tokens matched instead of {}", self.found, self.expected)
    }
}

/// Ends the measurement with a [`WrongAnswer`] unless `found` is `expected`.
#[inline]
pub(crate) fn check(found: usize, expected: usize) {
    if found != expected {
        panic::panic_any(WrongAnswer { found, expected });
    }
}
