//! How much is measured, and the command line options for it.

use std::{iter, thread};

/// Maximum number of rounds: more would add no information.
const MOST_ROUNDS: usize = 10_000;
/// Maximum number of threads; the prompts of each take about 9 MiB.
const MOST_THREADS: usize = 256;
/// Maximum number of threads unless the user asks for more.
const ENOUGH_THREADS: usize = 16;

/// The amount of work to be measured.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Number of rounds of each row.
    pub(crate) rounds: usize,
    /// Numbers of threads, each measured separately in rows with several threads.
    pub(crate) threads: Vec<usize>,
    /// Whether rounds have a tenth of the calls: enough to see that everything works.
    pub(crate) quick: bool,
}

impl Settings {
    /// At most `most` threads, by default as many as run in parallel; also measures lower powers of
    /// two.
    pub(crate) fn new(rounds: usize, most: Option<usize>, quick: bool) -> Self {
        let here = || thread::available_parallelism().map_or(1, usize::from).min(ENOUGH_THREADS);
        let most = most.unwrap_or_else(here);
        let powers = iter::successors(Some(1), |threads| Some(2 * threads)).take_while(|&threads| threads < most);
        let rounds = if quick { rounds.div_ceil(5) } else { rounds };
        Self { rounds, threads: powers.chain([most]).collect(), quick }
    }

    /// The number of calls of a round, for `full` calls in a full run.
    pub(crate) fn calls(&self, full: usize) -> usize {
        if self.quick { full.div_ceil(10) } else { full }
    }
}

/// Parses a number of threads.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    within(text, MOST_THREADS)
}

/// Parses a number of rounds.
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
