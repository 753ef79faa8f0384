//! A flat cache of block hashes: a hash map and a free queue, as in vLLM's automatic prefix
//! caching.
//!
//! There is no tree: a block is found by the hash of its tokens and of all tokens before it. Blocks
//! are evicted in the order of their last use, and the blocks of one request from its end.
//!
//! With vLLM's accounting ([`Accounting::Vllm`]) a last block that is not full takes a slot, and
//! the last token of a prompt is always computed. A block that is computed although its hash is
//! cached therefore takes a second slot.

use std::collections::TryReserveError;

use super::{hits::Hits, runs::Runs};
use crate::request::{Request, Trace};

/// The link after the last block of the queue: no block.
const NONE: u32 = u32::MAX;
/// The link of a block that is not in the queue.
const ABSENT: u32 = u32::MAX - 1;
/// Maximum number of distinct blocks of one cache: as many numbers remain for blocks without a
/// hash.
pub(super) const MAX_BLOCKS: usize = ABSENT as usize / 2;

/// What takes a slot, and what counts as a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accounting {
    /// Only whole blocks, all of which can be hit.
    Blocks,
    /// As vLLM counts.
    Vllm,
}

/// The hits of a flat cache of `capacity` blocks; `served` is called after every request.
pub(super) fn hits(
    trace: &Trace,
    runs: &Runs,
    capacity: usize,
    accounting: Accounting,
    served: &dyn Fn(),
) -> Result<Hits, TryReserveError> {
    let mut cache = Cache::new(runs, capacity, accounting);
    for (number, request) in trace.requests().iter().enumerate() {
        cache.serve(number, request)?;
        served();
    }
    Ok(cache.hits)
}

struct Cache<'a> {
    runs: &'a Runs,
    capacity: usize,
    accounting: Accounting,
    queue: Queue,
    /// The number of each run's first block; `None` until a request with the run was served.
    first: Vec<Option<u32>>,
    /// The numbers of blocks without a hash that are free for reuse.
    nameless: Vec<u32>,
    /// Whether a block has no hash.
    is_nameless: Vec<bool>,
    path: Vec<u32>,
    /// The blocks of the current request, and the blocks that take its slots.
    blocks: Vec<u32>,
    slots: Vec<u32>,
    hits: Hits,
}

impl<'a> Cache<'a> {
    fn new(runs: &'a Runs, capacity: usize, accounting: Accounting) -> Self {
        Self {
            runs,
            capacity,
            accounting,
            queue: Queue::default(),
            first: vec![None; runs.len()],
            nameless: Vec::new(),
            is_nameless: Vec::new(),
            path: Vec::new(),
            blocks: Vec::new(),
            slots: Vec::new(),
            hits: Hits::default(),
        }
    }

    fn serve(&mut self, number: usize, request: &Request) -> Result<(), TryReserveError> {
        let (block_size, key) = (self.runs.block_size(), self.runs.key(number));
        let vllm = self.accounting == Accounting::Vllm;
        let is_partial = vllm && request.prompt_tokens() % block_size != 0;
        if key + usize::from(is_partial) > self.capacity {
            self.hits.bypassed(request);
            return Ok(());
        }
        self.name(number)?;
        let limit = if vllm { request.prompt_tokens().saturating_sub(1) / block_size } else { key };
        let hit = self.blocks.iter().take(limit).take_while(|&&block| self.queue.has(block)).count();
        self.slots.clear();
        for at in 0..key {
            let block = self.blocks[at];
            let slot = match (at < hit, self.queue.has(block)) {
                (true, _) => self.queue.remove(block),
                (false, true) => self.nameless()?,
                (false, false) => block,
            };
            self.slots.push(slot);
        }
        if is_partial {
            let slot = self.nameless()?;
            self.slots.push(slot);
        }
        self.evict((self.queue.len + self.slots.len()).saturating_sub(self.capacity));
        for &slot in self.slots.iter().rev() {
            self.queue.push(slot);
        }
        self.hits.served(request, hit, block_size);
        self.hits.inserted_blocks += (self.slots.len() - hit) as u64;
        Ok(())
    }

    /// Writes the numbers of a request's blocks to `self.blocks`.
    fn name(&mut self, number: usize) -> Result<(), TryReserveError> {
        let mut path = std::mem::take(&mut self.path);
        self.runs.path(number, &mut path);
        self.blocks.clear();
        for &run in &path {
            let blocks = self.runs.blocks(run);
            let first = match self.first[run as usize] {
                Some(first) => first,
                None => self.add(blocks, false)?,
            };
            self.first[run as usize] = Some(first);
            self.blocks.try_reserve(blocks)?;
            self.blocks.extend(first..first + blocks as u32);
        }
        self.path = path;
        Ok(())
    }

    /// The number of a block without a hash.
    fn nameless(&mut self) -> Result<u32, TryReserveError> {
        self.nameless.pop().map_or_else(|| self.add(1, true), Ok)
    }

    /// Allocates numbers for `blocks` more blocks; returns the first.
    fn add(&mut self, blocks: usize, is_nameless: bool) -> Result<u32, TryReserveError> {
        self.is_nameless.try_reserve(blocks)?;
        self.is_nameless.resize(self.is_nameless.len() + blocks, is_nameless);
        self.queue.add(blocks)
    }

    fn evict(&mut self, blocks: usize) {
        for _ in 0..blocks {
            let block = self.queue.pop();
            if self.is_nameless[block as usize] {
                self.nameless.push(block);
            }
        }
        self.hits.evicted_blocks += blocks as u64;
    }
}

/// A queue of blocks from which any block can be removed.
#[derive(Debug)]
struct Queue {
    /// By block: the block before it and the block behind it.
    links: Vec<[u32; 2]>,
    front: u32,
    back: u32,
    len: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self { links: Vec::new(), front: NONE, back: NONE, len: 0 }
    }
}

impl Queue {
    fn add(&mut self, blocks: usize) -> Result<u32, TryReserveError> {
        let first = self.links.len();
        self.links.try_reserve(blocks)?;
        self.links.resize(first + blocks, [ABSENT; 2]);
        Ok(first as u32)
    }

    fn has(&self, block: u32) -> bool {
        self.links[block as usize][0] != ABSENT
    }

    fn push(&mut self, block: u32) {
        self.links[block as usize] = [self.back, NONE];
        match self.back {
            NONE => self.front = block,
            back => self.links[back as usize][1] = block,
        }
        self.back = block;
        self.len += 1;
    }

    fn remove(&mut self, block: u32) -> u32 {
        let [before, behind] = std::mem::replace(&mut self.links[block as usize], [ABSENT; 2]);
        match before {
            NONE => self.front = behind,
            before => self.links[before as usize][1] = behind,
        }
        match behind {
            NONE => self.back = before,
            behind => self.links[behind as usize][0] = before,
        }
        self.len -= 1;
        block
    }

    /// Removes the block at the front; the queue must not be empty.
    fn pop(&mut self) -> u32 {
        self.remove(self.front)
    }
}
