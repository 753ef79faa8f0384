//! An engine without a model: for each slot it remembers the prefix that its keys and values were
//! computed from, and it looks at every slot that a sequence reads.
//!
//! What it samples is a function of the prefix alone, so outputs do not depend on what was cached,
//! chunked or resumed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use radixkv::{BlockId, Builder, Clock, Namespace, PrefixCache, Token};
use radixkv_scheduler::{
    Finish, Finished, QueueConfig, Request, Scheduler, SchedulerConfig, SequenceId, Step, WaitingQueue,
};

/// The number of the prefix `prefix` continued by `token`.
fn extend(prefix: u64, token: Token) -> u64 {
    (prefix ^ u64::from(token).wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29)
}

/// The token sampled after a prefix.
fn sample(prefix: u64) -> Token {
    (prefix >> 40) as Token % 50_000 + 1_000_000
}

/// A prompt and its output, whatever is cached.
pub fn continued(prompt: &[Token], new_tokens: usize) -> Vec<Token> {
    let mut tokens = prompt.to_vec();
    let mut prefix = prompt.iter().fold(0, |prefix, &token| extend(prefix, token));
    for _ in 0..new_tokens {
        tokens.push(sample(prefix));
        prefix = extend(prefix, tokens[tokens.len() - 1]);
    }
    tokens
}

/// Keys and values of all blocks: for each slot the prefix that they belong to.
#[derive(Clone)]
pub struct Memory {
    slots: Arc<[AtomicU64]>,
    block_size: usize,
    pub computed: Arc<AtomicUsize>,
    /// Most blocks that were neither free nor evictable after a step.
    pub peak: Arc<AtomicUsize>,
}

impl Memory {
    pub fn new(cache: &PrefixCache) -> Self {
        let slots = (0..cache.capacity_blocks() * cache.block_size()).map(|_| AtomicU64::new(0)).collect();
        Self { slots, block_size: cache.block_size(), computed: Arc::default(), peak: Arc::default() }
    }

    /// Writes garbage into a block that another user of the cache has reserved.
    pub fn spoil(&self, block: BlockId) {
        let size = self.block_size;
        self.slots[block as usize * size..][..size].iter().for_each(|slot| slot.store(u64::MAX, Relaxed));
    }

    /// Writes garbage wherever a step writes: what a step may leave that was not completed.
    pub fn ruin(&self, step: &Step<'_>) {
        let (batch, size) = (step.batch(), self.block_size);
        let copied = batch.copies().iter().flat_map(|copy| {
            let first = copy.destination as usize * size;
            first..first + copy.tokens
        });
        let written = batch.slot_mapping().iter().map(|&slot| slot as usize);
        copied.chain(written).for_each(|slot| self.slots[slot].store(u64::MAX, Relaxed));
    }

    /// Computes a step: copies, writes, and then checks every slot that is read. Returns the
    /// sampled tokens.
    pub fn run(&self, step: &Step<'_>) -> Vec<Token> {
        let (batch, size) = (step.batch(), step.batch().block_size());
        for copy in batch.copies() {
            for i in 0..copy.tokens {
                let copied = self.slots[copy.source as usize * size + i].load(Relaxed);
                self.slots[copy.destination as usize * size + i].store(copied, Relaxed);
            }
        }
        let mut written = Vec::new();
        for scheduled in batch.sequences() {
            let tokens = step.sequence(scheduled.id).expect("scheduled sequences are served").tokens();
            assert_eq!(&tokens[scheduled.start..scheduled.context_len()], scheduled.tokens);
            let mut prefix = 0;
            let prefixes = tokens[..scheduled.context_len()].iter().map(|&token| {
                prefix = extend(prefix, token);
                prefix
            });
            written.push(prefixes.collect::<Vec<u64>>());
            for (i, &slot) in scheduled.slot_mapping.iter().enumerate() {
                self.slots[slot as usize].store(written[written.len() - 1][scheduled.start + i], Relaxed);
            }
        }
        self.computed.fetch_add(batch.tokens().len(), Relaxed);
        let mut sampled = Vec::new();
        for (scheduled, prefixes) in batch.sequences().zip(&written) {
            for (position, &prefix) in prefixes.iter().enumerate() {
                let slot = scheduled.block_table[position / size] as usize * size + position % size;
                let found = self.slots[slot].load(Relaxed);
                assert_eq!(found, prefix, "{:?} reads keys of another prefix at position {position}", scheduled.id);
            }
            if scheduled.wants_logits {
                sampled.push(sample(prefixes[prefixes.len() - 1]));
            }
        }
        sampled
    }
}

/// A cache, a queue over it, and the memory of both.
pub struct World {
    pub cache: PrefixCache,
    pub space: Namespace,
    pub queue: WaitingQueue,
    pub memory: Memory,
}

impl World {
    pub fn new(block_size: usize, capacity: usize) -> Self {
        Self::with(PrefixCache::builder(block_size, capacity), QueueConfig::default())
    }

    pub fn with(builder: Builder, config: QueueConfig) -> Self {
        Self::over(builder.clock(Clock::Logical).build().expect("a sound setting"), config)
    }

    pub fn over(cache: PrefixCache, config: QueueConfig) -> Self {
        let queue = WaitingQueue::new(&cache, config);
        Self { space: cache.default_namespace(), memory: Memory::new(&cache), queue, cache }
    }

    pub fn scheduler(&self, max_running: u32, max_chunk_tokens: usize) -> Scheduler {
        let max_batch_tokens = max_chunk_tokens.max(max_running as usize);
        self.scheduler_of(
            SchedulerConfig::default()
                .max_running(max_running)
                .max_batch_tokens(max_batch_tokens)
                .max_chunk_tokens(max_chunk_tokens),
        )
    }

    pub fn scheduler_of(&self, config: SchedulerConfig) -> Scheduler {
        Scheduler::new(&self.queue, config).expect("a sound setting")
    }

    pub fn submit(&self, tokens: &[Token], max_new_tokens: usize) -> SequenceId {
        self.queue.submit(Request::new(self.space.clone(), tokens.to_vec(), max_new_tokens)).expect("a sound request")
    }

    /// One step, computed and taken in; full sequences are finished and published. Returns how many
    /// tokens were computed.
    pub fn step(&self, scheduler: &mut Scheduler, done: &mut Vec<Finished>) -> usize {
        let step = scheduler.schedule();
        let computed = step.batch().tokens().len();
        let sampled = self.memory.run(&step);
        let full = step.complete(&sampled).expect("a token for each row");
        let stats = self.cache.stats();
        let held = stats.capacity_blocks - stats.free_blocks - stats.evictable_blocks;
        self.memory.peak.fetch_max(held, Relaxed);
        for id in full {
            let committed = scheduler.sequence(id).expect("full sequences are served").computed_len();
            done.push(scheduler.finish(id, Finish::keeping(committed)).expect("computed"));
        }
        computed
    }

    pub fn steps(&self, n: usize, scheduler: &mut Scheduler, done: &mut Vec<Finished>) {
        for _ in 0..n {
            self.step(scheduler, done);
        }
    }

    /// Steps until nothing is left to do.
    pub fn finish_all(&self, scheduler: &mut Scheduler) -> HashMap<SequenceId, Finished> {
        let mut done = Vec::new();
        while self.queue.unfinished_requests() > 0 {
            assert!(self.step(scheduler, &mut done) > 0, "a scheduler alone always finds something to do");
        }
        done.into_iter().map(|finished| (finished.id, finished)).collect()
    }

    /// Nothing runs and nothing waits: every block is free or evictable, and every invariant holds.
    /// Returns the cached blocks.
    pub fn rest(&self) -> usize {
        assert_eq!((self.queue.unfinished_requests(), self.queue.len()), (0, 0));
        self.cache.settle();
        self.cache.validate().expect("sound");
        let mut stats = self.cache.stats();
        let end = Instant::now() + Duration::from_secs(60);
        // A background evictor may free blocks while the numbers are read.
        while (stats.reserved_blocks, stats.protected_blocks) != (0, 0) && Instant::now() < end {
            thread::yield_now();
            stats = self.cache.stats();
        }
        assert_eq!((stats.reserved_blocks, stats.protected_blocks), (0, 0), "all blocks are free or evictable");
        stats.evictable_blocks
    }
}

/// `len` tokens that share nothing with those of another `key`.
pub fn sequence(key: u32, len: usize) -> Vec<Token> {
    (0..len as u32).map(|i| key << 16 | i).collect()
}
