//! The policy lru at every capacity in one pass over the trace (Mattson's stack).
//!
//! An lru cache holds the blocks that were used last, of one request the first of its tokens first: the cache of `C` blocks
//! is the top `C` blocks of one stack, whatever `C` is. A block is hit where fewer than `C` blocks lie above it. Each run of
//! the tree is one piece of the stack, because every request that uses a part of a run uses all of it.
//!
//! A request that is larger than the cache is bypassed and changes nothing: capacities share a pass as far as they bypass the
//! same requests.

use super::{hits::Hits, runs::Runs};
use crate::request::Trace;

/// What caches of these capacities hit, all of which bypass the same requests; `served` is called after every request.
pub(super) fn hits(trace: &Trace, runs: &Runs, capacities: &[usize], served: &dyn Fn()) -> Vec<Hits> {
    let smallest = capacities.iter().copied().min().unwrap_or(0);
    let mut hits = vec![Hits::default(); capacities.len()];
    let (mut stack, mut path, mut above) = (Stack::new(runs), Vec::new(), Vec::new());
    for (number, request) in trace.requests().iter().enumerate() {
        if runs.key(number) > smallest {
            hits.iter_mut().for_each(|hits| hits.bypassed(request));
            served();
            continue;
        }
        runs.path(number, &mut path);
        above.clear();
        above.extend(path.iter().map_while(|&run| stack.above(run).map(|above| (above, runs.blocks(run)))));
        for (hits, &capacity) in hits.iter_mut().zip(capacities) {
            let within = |&(above, blocks): &(usize, usize)| capacity.saturating_sub(above).min(blocks);
            let hit = above.iter().map(within).sum();
            hits.served(request, hit, runs.block_size());
            hits.inserted_blocks += (runs.key(number) - hit) as u64;
        }
        stack.use_path(runs, &path);
        served();
    }
    for (hits, &capacity) in hits.iter_mut().zip(capacities) {
        // A cache is filled before it evicts, and stays full.
        hits.evicted_blocks = hits.inserted_blocks - stack.blocks.min(capacity) as u64;
    }
    hits
}

/// Groups of capacities, each with the numbers of those that bypass the same requests.
pub(super) fn groups(runs: &Runs, capacities: &[usize]) -> Vec<Vec<usize>> {
    let mut keys = runs.keys().to_vec();
    keys.sort_unstable();
    let served = |&at: &usize| keys.partition_point(|&key| key <= capacities[at]);
    let mut numbers: Vec<usize> = (0..capacities.len()).collect();
    numbers.sort_by_key(served);
    numbers.chunk_by(|a, b| served(a) == served(b)).map(<[usize]>::to_vec).collect()
}

/// The runs in the order of their last use. Each has a slot, a later use a later one, and a Fenwick tree adds up the blocks
/// in the slots from one on.
struct Stack {
    /// The slot of each run, if it was used.
    slots: Vec<Option<u32>>,
    /// The run in each slot that is taken.
    runs: Vec<Option<u32>>,
    sums: Vec<usize>,
    /// Blocks of all slots.
    blocks: usize,
}

impl Stack {
    fn new(runs: &Runs) -> Self {
        Self { slots: vec![None; runs.len()], runs: Vec::new(), sums: vec![0; 2 * runs.len() + 1], blocks: 0 }
    }

    /// Blocks that were used after a run, or with it and nearer to the root; `None` if it was never used.
    fn above(&self, run: u32) -> Option<usize> {
        self.slots[run as usize].map(|slot| self.blocks - self.sum(slot as usize + 1))
    }

    /// Puts the runs of a request on top, the first of them topmost.
    fn use_path(&mut self, runs: &Runs, path: &[u32]) {
        if self.runs.len() + path.len() >= self.sums.len() {
            self.compact(runs);
        }
        for &run in path.iter().rev() {
            if let Some(slot) = self.slots[run as usize].take() {
                self.runs[slot as usize] = None;
                self.add(slot as usize, runs.blocks(run), usize::wrapping_sub);
                self.blocks -= runs.blocks(run);
            }
            self.push(runs, run);
        }
    }

    fn push(&mut self, runs: &Runs, run: u32) {
        let slot = self.runs.len();
        self.runs.push(Some(run));
        self.slots[run as usize] = Some(slot as u32);
        self.add(slot, runs.blocks(run), usize::wrapping_add);
        self.blocks += runs.blocks(run);
    }

    /// Closes the gaps between the slots that are taken.
    fn compact(&mut self, runs: &Runs) {
        let taken = std::mem::take(&mut self.runs);
        self.sums.fill(0);
        self.blocks = 0;
        for run in taken.into_iter().flatten() {
            self.push(runs, run);
        }
    }

    /// Blocks in the first `slots` slots.
    fn sum(&self, mut slots: usize) -> usize {
        let mut sum = 0usize;
        while slots > 0 {
            sum = sum.wrapping_add(self.sums[slots]);
            slots &= slots - 1;
        }
        sum
    }

    fn add(&mut self, slot: usize, blocks: usize, change: fn(usize, usize) -> usize) {
        let mut at = slot + 1;
        while at < self.sums.len() {
            self.sums[at] = change(self.sums[at], blocks);
            at += at & at.wrapping_neg();
        }
    }
}
