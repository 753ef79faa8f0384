//! 1. An engine's loop on two threads: match, reserve, compute, insert, release.
//!
//! `cargo run --example embed`

use std::error::Error;
use std::thread;

use radixkv::{PrefixCache, Token};

const BLOCK_SIZE: usize = 16;
const BLOCKS: usize = 1_024;
const REQUESTS: u32 = 500;

/// The token counts of one thread.
#[derive(Default)]
struct Tally {
    prompt: usize,
    cached: usize,
    computed: usize,
}

/// A prompt: one of four system prompts of 500 tokens, followed by a question of 60 tokens that
/// recurs.
fn prompt(request: u32) -> Vec<Token> {
    let (system, question) = (request / 2 % 4, request % 97);
    (0..500).map(|i| system << 16 | i).chain((0..60).map(|i| (100 + question) << 16 | i)).collect()
}

/// The engine's part: computes the keys and values of `tokens` into `blocks`.
fn prefill(_tokens: &[Token], _blocks: &[u32]) {}

fn serve(cache: &PrefixCache, requests: impl Iterator<Item = u32>) -> Result<Tally, Box<dyn Error + Send + Sync>> {
    // One session per thread. Other threads may use the leases and reservations that it returns.
    let session = cache.session();
    let space = cache.default_namespace();
    let mut tally = Tally::default();
    for request in requests {
        let prompt = prompt(request);
        // (1) Match all but the last token: it must be computed, because the request needs its
        // logits.
        let hit = session.match_prefix(&space, &prompt[..prompt.len() - 1]);
        // (2) Reserve all blocks that the request still needs, including the last one that it fills
        // in part. The call reserves all of them or fails.
        let whole = prompt.len() / BLOCK_SIZE - hit.blocks().len();
        let total = prompt.len().div_ceil(BLOCK_SIZE) - hit.blocks().len();
        let mut tail = session.reserve(total)?;
        let fill = tail.split(whole);
        // (3) Compute the tokens that are not cached. The lease protects the blocks of the hit
        // meanwhile.
        let mut table = [hit.blocks(), fill.blocks(), tail.blocks()].concat();
        prefill(&prompt[hit.len_tokens()..], &table[hit.blocks().len()..]);
        // (4) Insert the whole blocks. If another thread inserted the same tokens first, use its
        // blocks in the block table: the cache keeps only those.
        let inserted = session.insert(hit.lease(), &prompt, fill)?;
        table[hit.blocks().len()..][..whole].copy_from_slice(&inserted.blocks);
        // ... decode with `table`, the tail block included ...
        tally.prompt += prompt.len();
        tally.cached += hit.len_tokens();
        tally.computed += prompt.len() - hit.len_tokens();
        // (5) Release: dropping the values releases the leases and the tail block, also in a panic.
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
