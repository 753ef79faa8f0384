//! The requests of a trace as an immutable prefix tree, on which the simulated caches work.
//!
//! Every request is a path of whole runs from the root: runs are cut wherever two requests diverge
//! and wherever one ends. All blocks of a run therefore share their state in a cache, and a request
//! is a few runs long, however many tokens it has.
//!
//! The tree is built from the sorted keys and the lengths of the common prefixes of neighbours, as
//! a suffix tree is built from a suffix array: tokens are made only where two keys diverge.

use crate::request::{Segment, Trace};

/// The parent of a run that begins at the root: no run.
const ROOT: u32 = u32::MAX;

/// The keys of a trace in the order of their tokens, which the trees of all block sizes share.
#[derive(Debug)]
pub(super) struct Sorted {
    /// The numbers of the requests, sorted.
    order: Vec<u32>,
    /// Length in tokens of the common prefix of each key and the one before; 0 for the first.
    agreed: Vec<usize>,
    outputs: bool,
}

impl Sorted {
    pub(super) fn new(trace: &Trace, outputs: bool) -> Self {
        let request = |number: u32| &trace.requests()[number as usize];
        let mut order: Vec<u32> = (0..trace.requests().len() as u32).collect();
        order.sort_unstable_by(|&a, &b| trace.compare(request(a), request(b), outputs).1);
        let with_the_one_before = |at: usize| match at.checked_sub(1) {
            Some(before) => trace.compare(request(order[before]), request(order[at]), outputs).0,
            None => 0,
        };
        let agreed = (0..order.len()).map(with_the_one_before).collect();
        Self { order, agreed, outputs }
    }
}

/// One run of the tree.
#[derive(Debug, Clone, Copy)]
struct Run {
    above: u32,
    blocks: usize,
}

/// The tree, and the run at which each request ends.
#[derive(Debug)]
pub(super) struct Runs {
    runs: Vec<Run>,
    /// The last run of each request.
    ends: Vec<u32>,
    /// Whole blocks of each request's key.
    keys: Vec<usize>,
    block_size: usize,
}

impl Runs {
    pub(super) fn new(trace: &Trace, sorted: &Sorted, block_size: usize) -> Self {
        let blocks = |number: u32| trace.requests()[number as usize].key_tokens(sorted.outputs) / block_size;
        let keys = (0..trace.requests().len() as u32).map(blocks).collect();
        let mut tree = Self { runs: Vec::new(), ends: vec![ROOT; sorted.order.len()], keys, block_size };
        // The path of the previous key: its runs, each with the depth of its end in blocks.
        let mut path: Vec<(u32, usize)> = Vec::new();
        let mut before = 0;
        for (&number, &agreed) in sorted.order.iter().zip(&sorted.agreed) {
            let key = tree.keys[number as usize];
            tree.go_up(&mut path, (agreed / block_size).min(key).min(before));
            let (above, depth) = path.last().copied().unwrap_or((ROOT, 0));
            if key > depth {
                path.push((tree.push(Run { above, blocks: key - depth }), key));
            }
            tree.ends[number as usize] = path.last().map_or(ROOT, |&(run, _)| run);
            before = key;
        }
        tree
    }

    /// Shortens a path to `depth` blocks, and cuts the run that extends beyond.
    fn go_up(&mut self, path: &mut Vec<(u32, usize)>, depth: usize) {
        while let Some(&(lower, end)) = path.last().filter(|&&(_, end)| end > depth) {
            path.pop();
            let start = path.last().map_or(0, |&(_, end)| end);
            if start < depth {
                let above = self.runs[lower as usize].above;
                let upper = self.push(Run { above, blocks: depth - start });
                self.runs[lower as usize] = Run { above: upper, blocks: end - depth };
                path.push((upper, depth));
            }
        }
    }

    fn push(&mut self, run: Run) -> u32 {
        self.runs.push(run);
        (self.runs.len() - 1) as u32
    }

    pub(super) fn block_size(&self) -> usize {
        self.block_size
    }

    /// Number of runs in the tree.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Number of whole blocks of a request's key.
    pub(super) fn key(&self, request: usize) -> usize {
        self.keys[request]
    }

    /// Number of whole blocks of every request's key.
    pub(super) fn keys(&self) -> &[usize] {
        &self.keys
    }

    /// Number of blocks of a run.
    pub(super) fn blocks(&self, run: u32) -> usize {
        self.runs[run as usize].blocks
    }

    /// The parent of a run; `None` if the run begins at the root.
    pub(super) fn above(&self, run: u32) -> Option<u32> {
        Some(self.runs[run as usize].above).filter(|&above| above != ROOT)
    }

    /// Writes the runs of a request to `path`, from the root on.
    pub(super) fn path(&self, request: usize, path: &mut Vec<u32>) {
        path.clear();
        let mut at = Some(self.ends[request]).filter(|&end| end != ROOT);
        while let Some(run) = at {
            path.push(run);
            at = self.above(run);
        }
        path.reverse();
    }

    /// The requests with one token for each whole block: two blocks get the same token if they have
    /// the same tokens and follow the same blocks. A cache with blocks of one token hits the same
    /// blocks of these requests as a cache with whole blocks hits of the original ones.
    ///
    /// A run's number is the hash id of its tokens. So runs after the same blocks differ in their
    /// first token, and no token takes memory.
    pub(super) fn numbered(&self, trace: &Trace) -> Trace {
        let (mut numbered, mut path) = (Trace::default(), Vec::new());
        for (number, request) in trace.requests().iter().enumerate() {
            self.path(number, &mut path);
            let segment = |&run: &u32| Segment::Hashed { id: run.into(), len: self.blocks(run) as u32 };
            numbered.push_for(request, path.iter().map(segment), self.keys[number] as u32);
        }
        numbered
    }

    /// Number of distinct blocks of all requests.
    pub(super) fn distinct_blocks(&self) -> usize {
        self.runs.iter().map(|run| run.blocks).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::CLASSES;

    /// Ten rows can announce 2^36 tokens.
    #[test]
    fn a_numbered_trace_takes_memory_for_runs_not_for_blocks() {
        let mut trace = Trace::default();
        (0..10).for_each(|_| trace.push(0.0, [], u32::MAX, None, 0));
        let runs = Runs::new(&trace, &Sorted::new(&trace, false), 16);
        let numbered = runs.numbered(&trace);
        assert_eq!((numbered.literals.len(), numbered.segments.len()), (0, 20));
        let blocks: Vec<usize> = numbered.requests().iter().map(|request| request.prompt_tokens()).collect();
        assert_eq!(blocks, [u32::MAX as usize / 16; 10]);
        assert_eq!(numbered.working_set_blocks(1), runs.distinct_blocks());
    }

    #[test]
    fn a_path_has_the_blocks_of_its_key_and_paths_share_what_keys_share() {
        for class in [&CLASSES[0], &CLASSES[5], &CLASSES[7], &CLASSES[10]] {
            let trace = class.trace(1);
            for (block_size, outputs) in [(1, false), (16, false), (16, true), (48, false)] {
                let sorted = Sorted::new(&trace, outputs);
                let runs = Runs::new(&trace, &sorted, block_size);
                let path = |request: usize| {
                    let mut path = Vec::new();
                    runs.path(request, &mut path);
                    path
                };
                for (number, request) in trace.requests().iter().enumerate() {
                    let blocks: usize = path(number).iter().map(|&run| runs.blocks(run)).sum();
                    assert_eq!(blocks, request.key_tokens(outputs) / block_size, "{} {number}", class.name);
                }
                for number in 1..trace.requests().len().min(200) {
                    let (a, b) = (path(number - 1), path(number));
                    let both = a.iter().zip(&b).take_while(|(a, b)| a == b);
                    let shared: usize = both.map(|(&run, _)| runs.blocks(run)).sum();
                    let [x, y] = [number - 1, number].map(|number| &trace.requests()[number]);
                    assert_eq!(trace.compare(x, y, outputs).0 / block_size, shared, "{} {number}", class.name);
                }
                if !outputs {
                    assert_eq!(runs.distinct_blocks(), trace.working_set_blocks(block_size));
                }
            }
        }
    }
}
