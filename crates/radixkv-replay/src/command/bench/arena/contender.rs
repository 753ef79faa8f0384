//! What is asked of a prefix cache in order to compare it.

use std::{fmt, panic, sync::Arc, time::Instant};

use super::tokens::Tokens;

/// A prefix cache, or what stands for one.
pub(crate) trait Contender: Send + Sync + Sized + 'static {
    /// Its name in the table.
    const NAME: &'static str;
    /// What it does not do and others in the table do; empty if it does all of it.
    const LACKS: &'static str;
    /// A prompt in the form that it takes: what is made of the tokens before the clock runs.
    type Prompt: Send + Sync;
    /// A thread's access.
    type Client: Client<Prompt = Self::Prompt>;

    /// An empty cache of so many blocks.
    fn new(blocks: usize) -> Self;
    fn prompt(tokens: &Tokens) -> Self::Prompt;
    fn client(cache: &Arc<Self>) -> Self::Client;
}

/// One thread's access to a [`Contender`].
pub(crate) trait Client: 'static {
    type Prompt;

    /// Matches all of a prompt, takes a lease and the block ids, and releases; returns the tokens that matched.
    fn look_up(&mut self, prompt: &Self::Prompt) -> usize;

    /// Matches, reserves what is missing, inserts and releases; returns the tokens that matched. What the reservation
    /// takes goes to `clock`.
    fn insert(&mut self, prompt: &Self::Prompt, clock: &mut Clock) -> usize;

    /// Completes what was left for later: afterwards everything inserted can be matched.
    fn settle(&mut self) {}
}

/// Measures the reservations of a thread, or not: a pair of clock readings takes about 50 ns.
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

/// A contender matched what it should not, or did not match what it should.
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

/// Ends the measurement with a [`WrongAnswer`] unless as many tokens matched as must.
#[inline]
pub(crate) fn check(found: usize, expected: usize) {
    if found != expected {
        panic::panic_any(WrongAnswer { found, expected });
    }
}
