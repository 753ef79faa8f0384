//! The prefix tree of a trace: what its requests share, whatever the cache.
//!
//! A *run* of this tree is a piece of a key, in whole blocks, between two depths where keys diverge
//! or end. The tree is built from the trace only: a cache of any size could hold no more than it.
//! Two blocks are equal if they and all blocks before them are equal; tokens are compared, no block
//! is hashed.

use std::{cmp::Ordering, collections::TryReserveError, iter};

use crate::request::Trace;

/// A run of a [`PrefixTree`].
///
/// # Examples
///
/// ```
/// use radixkv_replay::{prefixes::PrefixTree, workload::CLASSES};
///
/// let trace = CLASSES[2].trace(0); // ten prefixes of 256 tokens
/// let tree = PrefixTree::new(&trace, trace.requests().len(), 16, false)?;
/// let shared = tree.runs().iter().filter(|run| run.requests > 1 && run.blocks() == 16);
/// assert_eq!(shared.count(), 10);
/// # Ok::<_, std::collections::TryReserveError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The parent run; the root, run 0, is its own parent.
    pub parent: usize,
    /// Blocks from the root to the start of the run.
    pub start: usize,
    /// Blocks from the root to the end of the run.
    pub end: usize,
    /// Number of requests whose keys contain the run.
    pub requests: usize,
    /// The first of these requests, by its number in replay order.
    pub first: usize,
}

impl Run {
    /// The length of the run in blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.end - self.start
    }
}

/// The prefix tree of the keys of a trace's first requests, in whole blocks.
///
/// For n requests, building takes O(n log n) comparisons of keys, and memory for at most two runs
/// per request.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{Trace, prefixes::PrefixTree};
///
/// let rows = "{\"timestamp\": 0, \"input_tok_ids\": [1, 2, 3, 4]}\n{\"timestamp\": 1, \"input_tok_ids\": [1, 2, 5, 6]}";
/// let trace = Trace::from_reader(rows.as_bytes(), "rows", None)?;
/// let tree = PrefixTree::new(&trace, 2, 2, false)?;
/// let ends: Vec<usize> = tree.path(1).map(|run| tree.runs()[run].end).collect();
/// assert_eq!(ends, [2, 1, 0]); // 5 6, then 1 2, then the root
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct PrefixTree {
    runs: Vec<Run>,
    /// For each request, the run that its key ends with.
    ends: Vec<usize>,
}

impl PrefixTree {
    /// Builds the tree from the keys of the first `requests` requests: their prompts and, with
    /// `outputs`, the generated tokens.
    ///
    /// # Errors
    ///
    /// Fails if memory is short.
    ///
    /// # Panics
    ///
    /// Panics if `block_size` is zero.
    pub fn new(trace: &Trace, requests: usize, block_size: usize, outputs: bool) -> Result<Self, TryReserveError> {
        let requests = &trace.requests()[..requests.min(trace.requests().len())];
        let blocks = |at: usize| requests[at].key_tokens(outputs) / block_size;
        let compare = |a: usize, b: usize| {
            let (common, order) = trace.compare(&requests[a], &requests[b], outputs);
            (common / block_size, order)
        };
        Self::of(requests.len(), blocks, compare)
    }

    /// Builds the tree of `count` keys. `blocks` returns a key's length in blocks, and `compare`
    /// the number of common blocks of two keys and the order of the keys.
    pub(crate) fn of(
        count: usize,
        blocks: impl Fn(usize) -> usize,
        compare: impl Fn(usize, usize) -> (usize, Ordering),
    ) -> Result<Self, TryReserveError> {
        let mut sorted = Vec::new();
        sorted.try_reserve_exact(count)?;
        sorted.extend(0..count);
        sorted.sort_unstable_by(|&a, &b| compare(a, b).1.then(a.cmp(&b)));
        let mut growing = Growing::new(count)?;
        let mut previous = None;
        for number in sorted {
            let common = previous.map_or(0, |previous| compare(previous, number).0);
            growing.add(number, common, blocks(number));
            previous = Some(number);
        }
        growing.finish()
    }

    /// The runs; run 0 is the root, which has no blocks, and each run comes after its parent.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The runs that make up a request's key, from the last one back to the root.
    ///
    /// # Panics
    ///
    /// Panics if the tree was built without this request.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{prefixes::PrefixTree, workload::CLASSES};
    ///
    /// let trace = CLASSES[2].trace(0);
    /// let tree = PrefixTree::new(&trace, 1, 16, false)?;
    /// assert_eq!(tree.path(0).last(), Some(0)); // the root
    /// # Ok::<_, std::collections::TryReserveError>(())
    /// ```
    pub fn path(&self, request: usize) -> impl Iterator<Item = usize> + '_ {
        let up = |&run: &usize| (run > 0).then(|| self.runs[run].parent);
        iter::successors(Some(self.ends[request]), up)
    }

    /// For each run, the minimum of `of` over the requests whose keys contain the run.
    pub(crate) fn least(&self, of: impl Fn(usize) -> u64) -> Vec<u64> {
        self.fold(u64::MAX, of, u64::min)
    }

    /// For each run, `of` folded with `both` over the requests whose keys contain the run.
    pub(crate) fn fold<T: Copy>(&self, none: T, of: impl Fn(usize) -> T, both: impl Fn(T, T) -> T) -> Vec<T> {
        let mut folded = vec![none; self.runs.len()];
        for (request, &end) in self.ends.iter().enumerate() {
            folded[end] = both(folded[end], of(request));
        }
        for run in (1..self.runs.len()).rev() {
            let parent = self.runs[run].parent;
            folded[parent] = both(folded[parent], folded[run]);
        }
        folded
    }
}

/// A tree that is built from keys in sorted order; only the runs of the last key can still be cut.
struct Growing {
    runs: Vec<Run>,
    ends: Vec<usize>,
    /// The runs of the last key, from the root to its end.
    open: Vec<usize>,
}

impl Growing {
    fn new(keys: usize) -> Result<Self, TryReserveError> {
        let (mut runs, mut ends) = (Vec::new(), Vec::new());
        ends.try_reserve_exact(keys)?;
        ends.resize(keys, 0);
        runs.try_reserve_exact(2 * keys + 1)?;
        runs.push(Run { parent: 0, start: 0, end: 0, requests: 0, first: usize::MAX });
        Ok(Self { runs, ends, open: vec![0] })
    }

    /// Adds a key of `blocks` blocks that has `common` blocks in common with the key before it.
    fn add(&mut self, number: usize, common: usize, blocks: usize) {
        let mut cut = None;
        while self.end() > common {
            cut = self.open.pop();
        }
        if let Some(cut) = cut.filter(|_| self.end() < common) {
            let between = self.push(common);
            self.runs[cut].parent = between;
        }
        if self.end() < blocks {
            self.push(blocks);
        }
        self.ends[number] = self.last();
    }

    fn last(&self) -> usize {
        self.open.last().copied().unwrap_or(0)
    }

    fn end(&self) -> usize {
        self.runs[self.last()].end
    }

    fn push(&mut self, end: usize) -> usize {
        let run = self.runs.len();
        self.runs.push(Run { parent: self.last(), start: 0, end, requests: 0, first: usize::MAX });
        self.open.push(run);
        run
    }

    /// Sorts parents before their children, and counts the requests of each run.
    fn finish(self) -> Result<PrefixTree, TryReserveError> {
        let (mut order, mut places) = (Vec::new(), Vec::new());
        order.try_reserve_exact(self.runs.len())?;
        order.extend(0..self.runs.len());
        order.sort_unstable_by_key(|&run| (self.runs[run].end, run));
        places.try_reserve_exact(order.len())?;
        places.resize(order.len(), 0);
        for (place, &run) in order.iter().enumerate() {
            places[run] = place;
        }
        let placed = |&run: &usize| {
            let parent = self.runs[run].parent;
            Run { parent: places[parent], start: self.runs[parent].end, ..self.runs[run] }
        };
        let runs = order.iter().map(placed).collect();
        let ends = self.ends.iter().map(|&run| places[run]).collect();
        let mut tree = PrefixTree { runs, ends };
        let requests = tree.fold(0, |_| 1, |a, b| a + b);
        let first = tree.fold(usize::MAX, |request| request, usize::min);
        for (run, (requests, first)) in tree.runs.iter_mut().zip(requests.into_iter().zip(first)) {
            (run.requests, run.first) = (requests, first);
        }
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use fastrand::Rng;

    use super::*;

    /// A tree of random keys over two letters.
    fn random(rng: &mut Rng) -> (Vec<Vec<u32>>, PrefixTree) {
        let keys: Vec<Vec<u32>> =
            (0..rng.usize(..40)).map(|_| (0..rng.usize(..9)).map(|_| rng.u32(..2)).collect()).collect();
        let compare = |a: usize, b: usize| {
            let common = keys[a].iter().zip(&keys[b]).take_while(|(a, b)| a == b).count();
            (common, keys[a].cmp(&keys[b]))
        };
        let tree = PrefixTree::of(keys.len(), |at| keys[at].len(), compare).expect("memory");
        (keys, tree)
    }

    #[test]
    fn a_path_is_the_key_and_a_run_counts_the_keys_through_it() {
        let mut rng = Rng::with_seed(7);
        for _ in 0..500 {
            let (keys, tree) = random(&mut rng);
            let mut through: HashMap<usize, Vec<usize>> = HashMap::new();
            for (number, key) in keys.iter().enumerate() {
                let path: Vec<usize> = tree.path(number).collect();
                assert_eq!(tree.runs()[path[0]].end, key.len());
                for pair in path.windows(2) {
                    assert_eq!(tree.runs()[pair[0]].start, tree.runs()[pair[1]].end);
                }
                for run in path {
                    through.entry(run).or_default().push(number);
                }
            }
            for (at, run) in tree.runs().iter().enumerate().skip(1) {
                assert!(run.parent < at && run.blocks() > 0);
                assert_eq!((run.requests, run.first), (through[&at].len(), through[&at][0]));
                let prefix = &keys[run.first][..run.end];
                let with = keys.iter().filter(|key| key.starts_with(prefix)).count();
                assert_eq!(with, run.requests, "no other run holds the same blocks");
            }
        }
    }

    #[test]
    fn keys_are_cut_at_whole_blocks() {
        let rows = "{\"timestamp\": 0, \"input_tok_ids\": [1, 2, 3, 4]}\n{\"timestamp\": 1, \"input_tok_ids\": [1, 2, 3, 5, 6]}";
        let trace = Trace::from_reader(rows.as_bytes(), "rows", None).expect("a trace");
        let tree = PrefixTree::new(&trace, 2, 2, false).expect("memory");
        let shape: Vec<_> = tree.runs().iter().map(|run| (run.parent, run.start, run.end, run.requests)).collect();
        assert_eq!(shape, [(0, 0, 0, 2), (0, 0, 1, 2), (1, 1, 2, 1), (1, 1, 2, 1)]);
    }
}
