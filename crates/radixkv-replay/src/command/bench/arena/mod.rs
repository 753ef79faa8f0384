//! Where prefix caches meet: the same loads for each of them, measured in turn in one process.
//!
//! `radixkv bench` and the peers' table (`benches/peers`, outside the workspace) are made of this module: a [`Contender`]
//! is measured in [`rows`], round by round beside its limit and the others, and [`table`] shows medians with quartiles.

pub(crate) mod contender;
pub(crate) mod measure;
pub(crate) mod mutexed;
pub(crate) mod own;
pub(crate) mod row;
pub(crate) mod rows;
pub(crate) mod strawman;
pub(crate) mod table;
pub(crate) mod team;
pub(crate) mod tokens;

/// Tokens in a block, for every contender.
pub(crate) const BLOCK: usize = 16;
/// Tokens of the prefix that everybody matches.
pub(crate) const HOT: usize = 2_496;

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
    /// Powers of two up to `most`, and `most` itself.
    pub(crate) fn threads_up_to(most: usize) -> Vec<usize> {
        let mut threads: Vec<usize> =
            std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|&n| n < most).collect();
        threads.push(most);
        threads
    }

    /// How often a round repeats something that is repeated `full` times if there is time.
    pub(crate) fn calls(&self, full: usize) -> usize {
        if self.quick { full.div_ceil(10) } else { full }
    }
}
