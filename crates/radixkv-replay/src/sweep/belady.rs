//! The optimum for a cache that knows the future and must hold every request that it serves
//! (Belady).
//!
//! The run whose next use is latest is evicted first, block by block from its end; only leaves of
//! the tree are evicted, so parents follow their children.

use std::collections::BinaryHeap;

use super::{hits::Hits, runs::Runs};
use crate::request::Trace;

/// The next use of a run that no later request uses.
const NEVER: u32 = u32::MAX;

/// The hits of the optimal cache of `capacity` blocks; `served` is called after every request.
pub(super) fn hits(trace: &Trace, runs: &Runs, capacity: usize, served: &dyn Fn()) -> Hits {
    let mut cache = Cache::new(trace, runs, capacity);
    for number in 0..trace.requests().len() {
        cache.serve(number);
        served();
    }
    cache.hits
}

struct Cache<'a> {
    trace: &'a Trace,
    runs: &'a Runs,
    capacity: usize,
    /// For each request, the next request that uses each run of its path, in one list for all
    /// requests.
    next_uses: Vec<u32>,
    /// The index in `next_uses` at which each request's path begins.
    starts: Vec<usize>,
    /// By run: its cached blocks, its children with cached blocks, the next request that uses it.
    cached: Vec<usize>,
    below: Vec<u32>,
    next_use: Vec<u32>,
    /// A heap of leaves, the one with the latest next use on top. An entry is stale if the run is
    /// no longer a leaf or has another next use.
    leaves: BinaryHeap<(u32, u32)>,
    used: usize,
    path: Vec<u32>,
    hits: Hits,
}

impl<'a> Cache<'a> {
    fn new(trace: &'a Trace, runs: &'a Runs, capacity: usize) -> Self {
        let (next_uses, starts) = look_ahead(runs, capacity);
        Self {
            trace,
            runs,
            capacity,
            next_uses,
            starts,
            cached: vec![0; runs.len()],
            below: vec![0; runs.len()],
            next_use: vec![NEVER; runs.len()],
            leaves: BinaryHeap::new(),
            used: 0,
            path: Vec::new(),
            hits: Hits::default(),
        }
    }

    fn serve(&mut self, number: usize) {
        let (request, key) = (&self.trace.requests()[number], self.runs.key(number));
        if key > self.capacity {
            self.hits.bypassed(request);
            return;
        }
        let mut path = std::mem::take(&mut self.path);
        self.runs.path(number, &mut path);
        let (mut hit, mut end) = (0, None);
        for (&run, &next) in path.iter().zip(&self.next_uses[self.starts[number]..]) {
            self.next_use[run as usize] = next;
            if self.cached[run as usize] > 0 {
                (hit, end) = (hit + self.cached[run as usize], Some(run));
            }
        }
        self.evict((self.used + key - hit).saturating_sub(self.capacity), end);
        self.insert(&path);
        self.used += key - hit;
        self.hits.served(request, hit, self.runs.block_size());
        self.hits.inserted_blocks += (key - hit) as u64;
        self.path = path;
    }

    /// Evicts `over` blocks, but none of `end`, the last run of the match.
    fn evict(&mut self, mut over: usize, end: Option<u32>) {
        while over > 0 {
            let Some((next, run)) = self.leaves.pop() else {
                break;
            };
            let at = run as usize;
            if end == Some(run) || self.cached[at] == 0 || self.below[at] > 0 || next != self.next_use[at] {
                continue;
            }
            let freed = self.cached[at].min(over);
            self.cached[at] -= freed;
            self.used -= freed;
            over -= freed;
            self.hits.evicted_blocks += freed as u64;
            if self.cached[at] > 0 {
                self.leaves.push((next, run));
            } else if let Some(above) = self.runs.above(run) {
                self.below[above as usize] -= 1;
                self.push_if_leaf(above);
            }
        }
    }

    fn insert(&mut self, path: &[u32]) {
        for &run in path {
            if self.cached[run as usize] == 0 {
                if let Some(above) = self.runs.above(run) {
                    self.below[above as usize] += 1;
                }
            }
            self.cached[run as usize] = self.runs.blocks(run);
        }
        if let Some(&last) = path.last() {
            self.push_if_leaf(last);
        }
    }

    fn push_if_leaf(&mut self, run: u32) {
        if self.below[run as usize] == 0 {
            self.leaves.push((self.next_use[run as usize], run));
        }
    }
}

/// The next use of each run of each path, in one list, and the index at which each path begins.
fn look_ahead(runs: &Runs, capacity: usize) -> (Vec<u32>, Vec<usize>) {
    let (mut path, mut next_uses, mut starts) = (Vec::new(), Vec::new(), vec![0; runs.keys().len()]);
    let mut upcoming = vec![NEVER; runs.len()];
    for number in (0..runs.keys().len()).rev() {
        if runs.key(number) <= capacity {
            runs.path(number, &mut path);
            // The whole list is reversed at the end.
            for &run in path.iter().rev() {
                next_uses.push(std::mem::replace(&mut upcoming[run as usize], number as u32));
            }
        }
        starts[number] = next_uses.len();
    }
    next_uses.reverse();
    let uses = next_uses.len();
    starts.iter_mut().for_each(|start| *start = uses - *start);
    (next_uses, starts)
}
