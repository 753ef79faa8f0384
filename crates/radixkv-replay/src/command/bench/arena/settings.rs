//! How much is measured, and what a command line may say about it.

use std::{iter, thread};

/// More tell nothing that fewer do not.
const MOST_ROUNDS: usize = 10_000;
/// Each has prompts of its own, about 9 MiB.
const MOST_THREADS: usize = 256;
/// More than these only if they are asked for.
const ENOUGH_THREADS: usize = 16;

/// How much is measured.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Rounds of each row.
    pub(crate) rounds: usize,
    /// Threads of each measurement of a row that takes several.
    pub(crate) threads: Vec<usize>,
    /// A tenth of the calls in each round: enough to see that everything works.
    pub(crate) quick: bool,
}

impl Settings {
    /// `most` threads, or as many as run at once; powers of two below that are measured too.
    pub(crate) fn new(rounds: usize, most: Option<usize>, quick: bool) -> Self {
        let here = || thread::available_parallelism().map_or(1, usize::from).min(ENOUGH_THREADS);
        let most = most.unwrap_or_else(here);
        let powers = iter::successors(Some(1), |threads| Some(2 * threads)).take_while(|&threads| threads < most);
        let rounds = if quick { rounds.div_ceil(5) } else { rounds };
        Self { rounds, threads: powers.chain([most]).collect(), quick }
    }

    /// How often a round repeats something that is repeated `full` times if there is time.
    pub(crate) fn calls(&self, full: usize) -> usize {
        if self.quick { full.div_ceil(10) } else { full }
    }
}

/// A number of threads.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    within(text, MOST_THREADS)
}

/// A number of rounds.
pub(crate) fn rounds(text: &str) -> Result<usize, String> {
    within(text, MOST_ROUNDS)
}

fn within(text: &str, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be more than zero".into()),
        Ok(count) if count > most => Err(format!("more than {most}")),
        Ok(count) => Ok(count),
        Err(_) => Err("not a number".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn threads_double_up_to_the_most() {
        let threads = |most| Settings::new(1, Some(most), false).threads;
        assert_eq!([1, 2, 6, 8].map(threads), [vec![1], vec![1, 2], vec![1, 2, 4, 6], vec![1, 2, 4, 8]]);
    }
}
