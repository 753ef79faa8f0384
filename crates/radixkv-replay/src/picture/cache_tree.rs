//! A snapshot of a cache's contents for pictures: runs of blocks, with their last uses and leases.

use std::collections::{BTreeMap, BTreeSet, TryReserveError};

use radixkv::{
    Namespace, PrefixCache,
    key::{Token, common_prefix},
};

use crate::{
    prefixes::PrefixTree,
    replay::{Moment, ReplayConfig, ReplayError, replay_until},
    request::Trace,
};

/// A run of blocks that a cache holds.
///
/// # Examples
///
/// ```
/// use radixkv_replay::picture::CacheTree;
///
/// let mut tree = CacheTree::new(16);
/// let shared = tree.push(0, 32, 7, 0);
/// tree.push(shared, 4, 7, 1);
/// assert_eq!((tree.runs()[2].start, tree.runs()[2].end, tree.runs()[2].leases), (32, 36, 1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedRun {
    /// The parent run; the root, run 0, is its own parent.
    pub parent: usize,
    /// Blocks from the root to the start of the run.
    pub start: usize,
    /// Blocks from the root to the end of the run.
    pub end: usize,
    /// The time of the last use: later uses have larger numbers, starting at 1.
    pub last_use: u64,
    /// Leases that end on the run.
    pub leases: usize,
    /// The row of a request whose key contains the run, if the tree was made from a trace.
    pub row: Option<usize>,
}

impl CachedRun {
    /// The length of the run in blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.end - self.start
    }
}

/// A run of a live cache, in blocks, and the depths at which children diverge from it.
struct Walked {
    parent: Option<usize>,
    start: usize,
    end: usize,
    leases: usize,
    last_use: u64,
    cuts: BTreeSet<usize>,
}

/// The cached runs of one namespace at one moment, split where prefixes diverge and where uses or
/// leases differ.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, picture::CacheTree, workload::CLASSES};
///
/// let tree = CacheTree::after(&CLASSES[2].trace(0), 500, &ReplayConfig::default(), &|| {})?;
/// assert!(tree.blocks() <= 1616); // a tenth of what the trace asks for
/// # Ok::<_, radixkv_replay::ReplayError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheTree {
    block_size: usize,
    runs: Vec<CachedRun>,
    now: u64,
    oldest: u64,
}

impl CacheTree {
    /// Creates an empty tree for blocks of `block_size` tokens, with only the root.
    #[must_use]
    pub fn new(block_size: usize) -> Self {
        let root = CachedRun { parent: 0, start: 0, end: 0, last_use: 0, leases: 0, row: None };
        Self { block_size, runs: vec![root], now: 0, oldest: u64::MAX }
    }

    /// Adds a run of `blocks` blocks after `parent`, and returns its index.
    ///
    /// # Panics
    ///
    /// Panics if there is no such parent.
    pub fn push(&mut self, parent: usize, blocks: usize, last_use: u64, leases: usize) -> usize {
        let start = self.runs[parent].end;
        self.runs.push(CachedRun { parent, start, end: start + blocks, last_use, leases, row: None });
        (self.now, self.oldest) = (self.now.max(last_use), self.oldest.min(last_use));
        self.runs.len() - 1
    }

    /// Computes what a cache holds after the first `requests` requests of a trace, with the leases
    /// held at that moment ([`ReplayConfig::hold`], [`ReplayConfig::service`]). `served` is called
    /// after each request.
    ///
    /// # Errors
    ///
    /// As [`replay`](crate::replay()), and if the trace has fewer requests.
    pub fn after(
        trace: &Trace,
        requests: usize,
        config: &ReplayConfig,
        served: &(dyn Fn() + Sync),
    ) -> Result<Self, ReplayError> {
        let Moment { cache, held, served } = replay_until(trace, requests, config, served)?;
        let key = |at: usize| &trace.requests()[served[at]];
        let blocks = |at: usize| key(at).key_tokens(config.outputs) / config.block_size;
        let compare = |a: usize, b: usize| {
            let (common, order) = trace.compare(key(a), key(b), config.outputs);
            (common / config.block_size, order)
        };
        let prefixes = PrefixTree::of(served.len(), blocks, compare)?;
        let mut tokens = Vec::new();
        let (session, namespace) = (cache.session(), cache.default_namespace());
        let cached = |at: usize| {
            tokens.resize(blocks(at) * config.block_size, 0);
            trace.fill(key(at), &mut tokens);
            session.peek(&namespace, &tokens) / config.block_size
        };
        let leased = |&(number, tokens): &(usize, usize)| {
            served.binary_search(&number).ok().map(|at| (at, tokens / config.block_size))
        };
        let leases: Vec<_> = held.iter().filter_map(leased).collect();
        let tree = Self::cut(&prefixes, config.block_size, cached, &leases, |at| {
            (served[at] as u64 + 1, Some(key(at).row()))
        })?;
        Ok(Self { now: requests as u64, ..tree })
    }

    /// Reads everything that a live cache holds in a namespace at one moment
    /// ([`Namespace::walk`](radixkv::Namespace::walk)). A run's leases are shown at its end. A
    /// run's last use is the latest use of it or of a descendant.
    ///
    /// The depths are wrong if another cache with another block size owns the namespace.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::picture::{CacheTree, Icicle};
    ///
    /// let cache = radixkv::PrefixCache::builder(2, 16).build()?;
    /// let (session, space) = (cache.session(), cache.default_namespace());
    /// for prompt in [[1, 2, 3, 4], [1, 2, 5, 6]] {
    ///     let hit = session.match_prefix(&space, &prompt);
    ///     let fill = session.reserve(2 - hit.blocks().len())?;
    ///     session.insert(hit.lease(), &prompt, fill)?;
    /// }
    /// let tree = CacheTree::of(&cache, &space);
    /// assert_eq!((tree.blocks(), tree.runs().len()), (3, 4)); // the root, 1 2, 3 4 and 5 6
    /// println!("{}", Icicle::for_text(&tree).text(80));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn of(cache: &PrefixCache, namespace: &Namespace) -> Self {
        let block_size = cache.block_size();
        let mut walked: Vec<Walked> = Vec::new();
        namespace.walk(|run| {
            let start = run.start / block_size;
            if let Some(parent) = run.parent {
                walked[parent].cuts.insert(start);
            }
            let (end, leases) = (start + run.blocks.len(), run.leases as usize);
            walked.push(Walked {
                parent: run.parent,
                start,
                end,
                leases,
                last_use: run.last_used,
                cuts: BTreeSet::new(),
            });
        });
        for at in (0..walked.len()).rev() {
            if let Some(parent) = walked[at].parent {
                walked[parent].last_use = walked[parent].last_use.max(walked[at].last_use);
            }
        }
        let mut tree = Self::new(block_size);
        // The depth at which each piece of a run ends, and the piece's index in the tree.
        let mut pieces: Vec<BTreeMap<usize, usize>> = Vec::new();
        for run in &walked {
            let mut before = run.parent.map_or(0, |parent| pieces[parent].get(&run.start).copied().unwrap_or(0));
            let mut ends = BTreeMap::from([(run.start, before)]);
            let inside = run.cuts.range(run.start + 1..run.end.max(run.start + 1)).copied();
            for end in inside.chain((run.end > run.start).then_some(run.end)) {
                let leases = if end == run.end { run.leases } else { 0 };
                before = tree.push(before, end - tree.runs[before].end, run.last_use, leases);
                ends.insert(end, before);
            }
            pieces.push(ends);
        }
        tree
    }

    /// Reads the blocks of these prompts that a live cache holds; the prompts must be in the order
    /// of their last uses. Changes nothing in the cache, and does not count as a use. Leases are
    /// not included.
    ///
    /// # Errors
    ///
    /// Fails if memory is short.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::picture::{CacheTree, Icicle};
    ///
    /// let cache = radixkv::PrefixCache::builder(2, 16).build()?;
    /// let (session, space) = (cache.session(), cache.default_namespace());
    /// let prompts: [&[u32]; 2] = [&[1, 2, 3, 4], &[1, 2, 5, 6]];
    /// for prompt in prompts {
    ///     let hit = session.match_prefix(&space, prompt);
    ///     let fill = session.reserve(2 - hit.blocks().len())?;
    ///     session.insert(hit.lease(), prompt, fill)?;
    /// }
    /// let tree = CacheTree::of_prompts(&cache, &space, &prompts)?;
    /// assert_eq!((tree.blocks(), tree.runs().len()), (3, 4)); // the root, 1 2, 3 4 and 5 6
    /// println!("{}", Icicle::for_text(&tree).text(80));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_prompts(
        cache: &PrefixCache,
        namespace: &Namespace,
        prompts: &[&[Token]],
    ) -> Result<Self, TryReserveError> {
        let block_size = cache.block_size();
        let blocks = |at: usize| prompts[at].len() / block_size;
        let compare =
            |a: usize, b: usize| (common_prefix(prompts[a], prompts[b]) / block_size, prompts[a].cmp(prompts[b]));
        let prefixes = PrefixTree::of(prompts.len(), blocks, compare)?;
        let session = cache.session();
        let cached = |at: usize| session.peek(namespace, prompts[at]) / block_size;
        Self::cut(&prefixes, block_size, cached, &[], |at| (at as u64 + 1, None))
    }

    /// The cached part of a tree of keys. `cached` returns the number of cached blocks of a key,
    /// `leases` lists keys with their number of leased blocks, and `of_key` returns the last use of
    /// a key and its row.
    fn cut(
        prefixes: &PrefixTree,
        block_size: usize,
        mut cached: impl FnMut(usize) -> usize,
        leases: &[(usize, usize)],
        of_key: impl Fn(usize) -> (u64, Option<usize>),
    ) -> Result<Self, TryReserveError> {
        let runs = prefixes.runs();
        let mut is_leaf = vec![true; runs.len()];
        runs.iter().skip(1).for_each(|run| is_leaf[run.parent] = false);
        // A cached block of a key is also a cached block of every key that extends it, so only the
        // longest keys are looked up.
        let mut ends = vec![0; runs.len()];
        for run in (1..runs.len()).rev() {
            if is_leaf[run] {
                ends[run] = cached(runs[run].first);
            }
            let parent = runs[run].parent;
            ends[parent] = ends[parent].max(ends[run]);
        }
        let last_use = prefixes.fold(0, |key| of_key(key).0, u64::max);
        let mut leased = vec![0; runs.len()];
        for &(key, blocks) in leases {
            let run = prefixes.path(key).find(|&run| runs[run].start < blocks);
            run.into_iter().for_each(|run| leased[run] += 1);
        }
        let mut tree = Self::new(block_size);
        tree.runs.try_reserve(runs.len())?;
        let mut places = vec![0; runs.len()];
        for (at, run) in runs.iter().enumerate().skip(1).filter(|&(at, run)| ends[at] > run.start) {
            let blocks = ends[at].min(run.end) - run.start;
            places[at] = tree.push(places[run.parent], blocks, last_use[at], leased[at]);
            tree.runs[places[at]].row = of_key(run.first).1;
        }
        tree.join()
    }

    /// Joins a run with its only child if both have the same last use and no lease ends between
    /// them.
    fn join(self) -> Result<Self, TryReserveError> {
        let mut children = vec![0; self.runs.len()];
        self.runs.iter().skip(1).for_each(|run| children[run.parent] += 1);
        let (mut joined, mut places) = (Self::new(self.block_size), vec![0; self.runs.len()]);
        joined.runs.try_reserve(self.runs.len())?;
        for (at, run) in self.runs.iter().enumerate().skip(1) {
            let before = &self.runs[run.parent];
            let continues = run.parent > 0 && children[run.parent] == 1 && before.leases == 0;
            if continues && before.last_use == run.last_use {
                let place = places[run.parent];
                places[at] = place;
                (joined.runs[place].end, joined.runs[place].leases) = (run.end, run.leases);
                continue;
            }
            places[at] = joined.push(places[run.parent], run.blocks(), run.last_use, run.leases);
            joined.runs[places[at]].row = run.row;
        }
        joined.now = self.now;
        Ok(joined)
    }

    /// The runs; run 0 is the root, which has no blocks, and each run comes after its parent.
    #[must_use]
    pub fn runs(&self) -> &[CachedRun] {
        &self.runs
    }

    /// Number of blocks of all runs.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.runs.iter().map(CachedRun::blocks).sum()
    }

    /// Tokens per block.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// The current time: the closer a last use is to it, the more recent it is.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The earliest last use of all runs.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.oldest.min(self.now)
    }

    /// Scales a use to a number from 0, the oldest last use, to 1, now.
    pub(super) fn recency(&self, last_use: u64) -> f64 {
        let oldest = self.oldest();
        last_use.saturating_sub(oldest) as f64 / self.now.saturating_sub(oldest).max(1) as f64
    }

    /// Number of leases on all runs.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.runs.iter().map(|run| run.leases).sum()
    }
}
