//! An engine loop on four threads: `cargo run --example engine_loop`.
//!
//! Each thread takes prompts from a queue. A prompt is matched, gets blocks for its missing tokens,
//! is prefilled in chunks, and is decoded block by block. When no block is left, the thread
//! preempts its youngest sequence. The "model" writes a digest of all tokens so far into each KV
//! slot, so that wrong KV gives a wrong answer.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use radixkv::{BlockId, BlockRequest, InsertErrorKind, Lease, PrefixCache, Reservation, ReserveError, Session, Token};

const BLOCK: usize = 16; // tokens in a block
const BLOCKS: usize = 32; // fewer than one full batch needs
const CHUNK: usize = 48; // tokens that one step prefills
const BATCH: usize = 4; // sequences that one thread runs
const PROMPT: usize = 64 + 36; // tokens of each prompt

struct Request {
    tokens: Vec<Token>, // the prompt, and the tokens sampled before a preemption
    hangs_up: bool,     // the client disconnects before the answer is complete
}

/// A running request. Dropping it ends its lease and gives its unused blocks back.
struct Sequence {
    request: Request,
    lease: Lease,
    own: Reservation,
    table: Vec<BlockId>, // the leased blocks, then those of `own`
    computed: usize,     // tokens whose KV is in these blocks
}

struct Engine {
    cache: PrefixCache,
    queue: Mutex<VecDeque<Request>>,
    kv: Vec<AtomicU64>, // a slot for each token of each block
}

/// The content of a token's KV slot, computed from the slot before it.
fn attend(before: u64, token: Token) -> u64 {
    (before ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

fn sample(last: u64) -> Token {
    (last >> 40) as Token
}

impl Engine {
    /// Takes requests from the queue into the batch. The thread waits for blocks only while it
    /// holds none.
    fn admit(&self, session: &Session, batch: &mut Vec<Sequence>, refused: &mut usize) {
        let space = self.cache.default_namespace();
        while batch.len() < BATCH {
            let Some(request) = self.queue.lock().unwrap().pop_front() else { break };
            let known = &request.tokens[..request.tokens.len() - 1]; // the last one is room: its logits are needed
            let start = match batch.is_empty() {
                true => session.acquire_until(&space, known, 1, Instant::now() + Duration::from_millis(100)),
                false => session.acquire(&space, known, 1),
            };
            match start {
                Ok(start) => {
                    let table = [start.hit.blocks(), start.blocks.blocks()].concat();
                    let (computed, lease) = (start.hit.len_tokens(), start.hit.into_lease());
                    batch.push(Sequence { request, lease, own: start.blocks, table, computed });
                }
                Err(ReserveError::TooLarge { .. }) => *refused += 1,
                Err(_) => return self.queue.lock().unwrap().push_front(request), // too few blocks now
            }
        }
    }

    /// Computes a chunk of a sequence, caches its whole blocks, and samples a token after the last
    /// chunk. Returns false if no block was available.
    fn step(&self, session: &Session, sequence: &mut Sequence) -> Result<bool, InsertErrorKind> {
        let Sequence { request: Request { tokens, .. }, lease, own, table, computed } = sequence;
        if *computed == table.len() * BLOCK {
            let Ok(block) = session.reserve(BlockRequest::new(1).for_running_sequence()) else { return Ok(false) };
            table.extend(block.blocks());
            own.append(block);
        }
        let slot = |at: usize| &self.kv[table[at / BLOCK] as usize * BLOCK + at % BLOCK];
        let end = tokens.len().min(*computed + CHUNK);
        let mut last = if *computed == 0 { 0 } else { slot(*computed - 1).load(Relaxed) };
        for (at, &token) in (*computed..end).zip(&tokens[*computed..end]) {
            last = attend(last, token);
            slot(at).store(last, Relaxed); // `insert` publishes it to the threads that match it
        }
        *computed = end;
        let (cached, whole) = (lease.len_tokens() / BLOCK, end / BLOCK);
        if whole > cached {
            let inserted = session.insert(lease, &tokens[..whole * BLOCK], own.split(whole - cached))?;
            // Another thread may have cached the same tokens first: use its blocks.
            table[cached..whole].copy_from_slice(&inserted.blocks);
            *lease = inserted.lease;
        }
        if end == tokens.len() {
            tokens.push(sample(last));
        }
        Ok(true)
    }

    /// Serves until the queue is empty. Returns how many requests it finished, aborted, refused and
    /// preempted.
    fn serve(&self) -> Result<[usize; 4], InsertErrorKind> {
        let (session, mut batch) = (self.cache.session(), Vec::new());
        let [mut finished, mut aborted, mut refused, mut preempted] = [0; 4];
        loop {
            self.admit(&session, &mut batch, &mut refused);
            if batch.is_empty() && self.queue.lock().unwrap().is_empty() {
                return Ok([finished, aborted, refused, preempted]);
            }
            let mut i = 0;
            while i < batch.len() {
                if !self.step(&session, &mut batch[i])? {
                    let youngest = batch.pop().expect("sequence i is in the batch");
                    self.queue.lock().unwrap().push_front(youngest.request); // resumes from its cached prefix
                    preempted += 1;
                    continue;
                }
                let Request { tokens, hangs_up } = &batch[i].request;
                if tokens.len() < if *hangs_up { PROMPT + 20 } else { PROMPT + 100 } {
                    i += 1;
                    continue;
                }
                *if *hangs_up { &mut aborted } else { &mut finished } += 1;
                // Check: a computation without a cache samples the same tokens.
                tokens.iter().enumerate().fold(0, |last, (at, &token)| {
                    assert!(at < PROMPT || token == sample(last), "token {at} was sampled from wrong KV");
                    attend(last, token)
                });
                batch.remove(i);
            }
            std::thread::yield_now();
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Each prompt is a system prompt of 64 tokens and a question. Every fourth client hangs up.
    let prompt = |i: Token| (0..64).chain(1_000 * i..1_000 * i + 36).collect();
    let request = |i| Request { tokens: prompt(i), hangs_up: i % 4 == 0 };
    let too_large = Request { tokens: vec![7; BLOCK * BLOCKS + 1], hangs_up: false };
    let engine = Engine {
        cache: PrefixCache::builder(BLOCK, BLOCKS).build()?,
        queue: Mutex::new((1..=32).map(request).chain([too_large]).collect()),
        kv: (0..BLOCK * BLOCKS).map(|_| AtomicU64::new(0)).collect(),
    };
    let served = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| engine.serve())).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
    })?;
    let [finished, aborted, refused, preempted] = [0, 1, 2, 3].map(|i| served.iter().map(|of| of[i]).sum::<usize>());
    assert_eq!((finished, aborted, refused), (24, 8, 1));
    assert!(preempted > 0, "a batch of four grows beyond all blocks");
    engine.cache.settle();
    let stats = engine.cache.stats();
    assert_eq!(stats.free_blocks + stats.evictable_blocks, BLOCKS, "no lease and no reservation is left");
    assert!(stats.hit_tokens > 0 && stats.evicted_blocks > 0);
    engine.cache.validate()?;
    println!("{preempted} preempted; {} of {} tokens were cached", stats.hit_tokens, stats.query_tokens);
    Ok(())
}
