//! Finds the prefixes that most hits come from.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::{prefixes::PrefixTree, replay::Outcome, request::Trace};

/// A prefix run of the trace's keys, and its hits. A hit token counts for exactly one run.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{Details, ReplayConfig, replay, workload::CLASSES};
///
/// let (trace, config) = (CLASSES[2].trace(0), ReplayConfig::default()); // ten prefixes, a hundred requests each
/// let hottest = &Details::new(&trace, &config, &replay(&trace, &config, &|| {})?)?.top_prefixes[0];
/// assert_eq!((hottest.from_token, hottest.to_token, hottest.requests), (0, 256, 99));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HotPrefix {
    /// Row of the first request whose key contains the run, counted from 0.
    pub row: usize,
    /// Tokens of the key before the run.
    pub from_token: usize,
    /// Tokens of the key up to the end of the run.
    pub to_token: usize,
    /// Requests that hit at least one block of the run.
    pub requests: u64,
    /// Tokens of the run that were hit, over all requests.
    pub hit_tokens: u64,
}

/// Counts hits for each run of a tree while a trace is replayed.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, details::PrefixHits, prefixes::PrefixTree, replay, workload::CLASSES};
///
/// let trace = CLASSES[2].trace(0);
/// let tree = PrefixTree::new(&trace, trace.requests().len(), 16, false)?;
/// let mut hits = PrefixHits::new(&tree, 16);
/// for (number, outcome) in replay(&trace, &ReplayConfig::default(), &|| {})?.outcomes.iter().enumerate() {
///     hits.add(number, outcome);
/// }
/// assert_eq!(hits.hottest(&trace, 3).len(), 3);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PrefixHits<'a> {
    tree: &'a PrefixTree,
    block_size: usize,
    /// For each run, the number of requests that hit some of it, and the number of blocks they hit.
    hits: Vec<(u64, u64)>,
}

impl<'a> PrefixHits<'a> {
    /// Creates counts of zero.
    #[must_use]
    pub fn new(tree: &'a PrefixTree, block_size: usize) -> Self {
        Self { tree, block_size, hits: vec![(0, 0); tree.runs().len()] }
    }

    /// Adds the hits of a request.
    ///
    /// # Panics
    ///
    /// Panics if the tree was built without this request.
    pub fn add(&mut self, number: usize, outcome: &Outcome) {
        let hit = outcome.hit_blocks.unwrap_or(0) as usize;
        for run in self.tree.path(number) {
            let of_it = hit.min(self.tree.runs()[run].end).saturating_sub(self.tree.runs()[run].start);
            if of_it > 0 {
                let (requests, blocks) = &mut self.hits[run];
                (*requests, *blocks) = (*requests + 1, *blocks + of_it as u64);
            }
        }
    }

    /// The `count` runs with the most hit tokens, the hottest first; among equal runs, the one that
    /// ends first.
    #[must_use]
    pub fn hottest(&self, trace: &Trace, count: usize) -> Vec<HotPrefix> {
        let mut hit: Vec<usize> = (0..self.hits.len()).filter(|&run| self.hits[run].1 > 0).collect();
        let by = |&run: &usize| (Reverse(self.hits[run].1), run);
        if hit.len() > count {
            hit.select_nth_unstable_by_key(count, by);
            hit.truncate(count);
        }
        hit.sort_unstable_by_key(by);
        let prefix = |&run: &usize| {
            let (at, (requests, blocks)) = (&self.tree.runs()[run], self.hits[run]);
            HotPrefix {
                row: trace.requests()[at.first].row(),
                from_token: at.start * self.block_size,
                to_token: at.end * self.block_size,
                requests,
                hit_tokens: blocks * self.block_size as u64,
            }
        };
        hit.iter().map(prefix).collect()
    }
}
