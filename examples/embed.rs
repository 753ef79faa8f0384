//! 1. An engine's loop on two threads: match, reserve, compute, insert, release.
//!
//! `cargo run --example embed`

use std::error::Error;
use std::thread;

use radixkv::{PrefixCache, Token};

const BLOCK_SIZE: usize = 16;
const BLOCKS: usize = 1_024;
const REQUESTS: u32 = 500;

/// What one thread did.
#[derive(Default)]
struct Tally {
    prompt: usize,
    cached: usize,
    computed: usize,
}

/// A prompt: one of four system prompts of 500 tokens, and a question of 60 that is asked now and
/// then.
fn prompt(request: u32) -> Vec<Token> {
    let (system, question) = (request / 2 % 4, request % 97);
    (0..500).map(|i| system << 16 | i).chain((0..60).map(|i| (100 + question) << 16 | i)).collect()
}

/// The engine's part: keys and values of `tokens` go into `blocks`.
fn prefill(_tokens: &[Token], _blocks: &[u32]) {}

fn serve(cache: &PrefixCache, requests: impl Iterator<Item = u32>) -> Result<Tally, Box<dyn Error + Send + Sync>> {
    // One session per thread; what it returns may go to any other.
    let session = cache.session();
    let space = cache.default_namespace();
    let mut tally = Tally::default();
    for request in requests {
        let prompt = prompt(request);
        // (1) Match, and leave at least one token to compute: its logits are what the request
        // wants.
        let hit = session.match_prefix(&space, &prompt[..prompt.len() - 1]);
        // (2) Reserve all that the request still needs, the last block in part: all of it, or
        // nothing.
        let whole = prompt.len() / BLOCK_SIZE - hit.blocks().len();
        let total = prompt.len().div_ceil(BLOCK_SIZE) - hit.blocks().len();
        let mut tail = session.reserve(total)?;
        let fill = tail.split(whole);
        // (3) Compute what is not cached. The lease keeps the blocks of the hit in place meanwhile.
        let mut table = [hit.blocks(), fill.blocks(), tail.blocks()].concat();
        prefill(&prompt[hit.len_tokens()..], &table[hit.blocks().len()..]);
        // (4) Insert whole blocks. Where another thread was first its blocks are the canonical
        // ones: repoint.
        let inserted = session.insert(hit.lease(), &prompt, fill)?;
        table[hit.blocks().len()..][..whole].copy_from_slice(&inserted.blocks);
        // ... decode with `table`, the tail block included ...
        tally.prompt += prompt.len();
        tally.cached += hit.len_tokens();
        tally.computed += prompt.len() - hit.len_tokens();
        // (5) Release: leases and the tail block go with their values, in a panic too.
    }
    Ok(tally)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let cache = PrefixCache::builder(BLOCK_SIZE, BLOCKS).build()?;
    let tallies = thread::scope(|scope| {
        let threads = [0, 1].map(|first| {
            let cache = &cache;
            scope.spawn(move || serve(cache, (first..REQUESTS).step_by(2)))
        });
        threads.map(|thread| thread.join().expect("no panic"))
    });
    println!("{:<8} {:>8} {:>8} {:>8}", "thread", "prompt", "cached", "computed");
    for (thread, tally) in tallies.into_iter().enumerate() {
        let tally = tally?;
        println!("{thread:<8} {:>8} {:>8} {:>8}", tally.prompt, tally.cached, tally.computed);
    }
    cache.settle();
    let stats = cache.stats();
    println!("\n{:<8} {:>8} {:>8} {:>8}", "blocks", "free", "cached", "evicted");
    let (free, cached) = (stats.free_blocks, stats.evictable_blocks + stats.protected_blocks);
    println!("{:<8} {free:>8} {cached:>8} {:>8}", stats.capacity_blocks, stats.evicted_blocks);
    Ok(())
}
