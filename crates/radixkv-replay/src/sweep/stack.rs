//! The lru hits at every capacity in one pass over the trace (Mattson's stack algorithm).
//!
//! An lru cache holds the most recently used blocks; within one request, blocks nearer to the start
//! count as more recent. A cache of `C` blocks is then the top `C` blocks of one stack, whatever
//! `C` is: a block is hit if fewer than `C` blocks are above it. Each run of the tree is one piece
//! of the stack, because every request that uses a part of a run uses all of it.
//!
//! A request that is larger than the cache is bypassed and changes nothing, so only capacities that
//! bypass the same requests share a pass.

use super::{hits::Hits, runs::Runs};
use crate::request::Trace;

/// The hits of caches with these capacities, which must all bypass the same requests; `served` is
/// called after every request.
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
        // A cache is filled before it evicts, and then stays full.
        hits.evicted_blocks = hits.inserted_blocks - stack.blocks.min(capacity) as u64;
    }
    hits
}

/// Groups the indices of capacities that bypass the same requests.
pub(super) fn groups(runs: &Runs, capacities: &[usize]) -> Vec<Vec<usize>> {
    let mut keys = runs.keys().to_vec();
    keys.sort_unstable();
    let served = |&at: &usize| keys.partition_point(|&key| key <= capacities[at]);
    let mut numbers: Vec<usize> = (0..capacities.len()).collect();
    numbers.sort_by_key(served);
    numbers.chunk_by(|a, b| served(a) == served(b)).map(<[usize]>::to_vec).collect()
}

/// The runs in the order of their last use. Each use takes a new slot at the end; a Fenwick tree
/// maintains prefix sums of the blocks in the slots.
struct Stack {
    /// The slot of each run; `None` if it was never used.
    slots: Vec<Option<u32>>,
    /// The run in each slot; `None` if the slot is free.
    runs: Vec<Option<u32>>,
    sums: Vec<usize>,
    /// Number of blocks in all slots.
    blocks: usize,
}

impl Stack {
    fn new(runs: &Runs) -> Self {
        Self { slots: vec![None; runs.len()], runs: Vec::new(), sums: vec![0; 2 * runs.len() + 1], blocks: 0 }
    }

    /// Number of blocks that were used after a run, or with it and nearer to the root; `None` if
    /// the run was never used.
    fn above(&self, run: u32) -> Option<usize> {
        self.slots[run as usize].map(|slot| self.blocks - self.sum(slot as usize + 1))
    }

    /// Moves the runs of a request to the top, the first of them topmost.
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

    /// Removes the free slots between those that are taken.
    fn compact(&mut self, runs: &Runs) {
        let taken = std::mem::take(&mut self.runs);
        self.sums.fill(0);
        self.blocks = 0;
        for run in taken.into_iter().flatten() {
            self.push(runs, run);
        }
    }

    /// Number of blocks in the first `slots` slots.
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
