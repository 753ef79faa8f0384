//! What several shards cost in the hit rate of a trace. Each request is served by a session drawn
//! at random, on one thread and with a logical clock; with one shard that is exact lru.
//!
//!     cargo run --release -p radixkv-replay --example shards -- TRACE...
//!
//! It prints, for caches of four sizes, the hit rate with one shard and what sixteen shards change,
//! in points: the least and the most of six seeds.

use std::path::Path;
use std::process::ExitCode;

use fastrand::Rng;
use radixkv::{Clock, PrefixCache, Session};
use radixkv_replay::Trace;

const BLOCK: usize = 16;
const SHARDS: usize = 16;
const SEEDS: u64 = 6;
/// The sizes of the cache, in percent of the trace's distinct blocks.
const PERCENT: [usize; 4] = [2, 5, 10, 25];

fn main() -> ExitCode {
    println!("{:<32} {:>4} {:>14} {:>9} {:>19}", "trace", "%", "requests/shard", "one shard", "sixteen, points");
    for path in std::env::args().skip(1) {
        match Trace::open(Path::new(&path), None) {
            Ok(trace) => compare(&path, &trace),
            Err(error) => {
                eprintln!("shards: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn compare(path: &str, trace: &Trace) {
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
    let distinct = trace.working_set_blocks(BLOCK);
    for percent in PERCENT {
        let capacity = (distinct * percent / 100).max(1);
        let prompts = prompts_of(trace, capacity);
        let blocks: usize = prompts.iter().map(|prompt| prompt.len() / BLOCK).sum();
        let requests = capacity * prompts.len() / blocks.max(1) / SHARDS;
        let one = hit_rate(&prompts, capacity, 1, 0);
        let changes = (0..SEEDS).map(|seed| hit_rate(&prompts, capacity, SHARDS, seed) - one);
        let (least, most) =
            changes.fold((f64::MAX, f64::MIN), |(least, most), change| (least.min(change), most.max(change)));
        println!("{name:<32} {percent:>4} {requests:>14} {one:>8.2}% {least:>+9.2}{most:>+10.2}");
    }
}

/// The prompts of the requests that fit into the cache.
fn prompts_of(trace: &Trace, capacity: usize) -> Vec<Vec<u32>> {
    let fitting = trace.requests().iter().filter(|request| request.prompt_tokens() / BLOCK <= capacity);
    let tokens = fitting.map(|request| {
        let mut tokens = vec![0; request.prompt_tokens()];
        trace.fill(request, &mut tokens);
        tokens
    });
    tokens.collect()
}

/// The percentage of the prompts' tokens that are found in the cache.
fn hit_rate(prompts: &[Vec<u32>], capacity: usize, shards: usize, seed: u64) -> f64 {
    let builder = PrefixCache::builder(BLOCK, capacity).shards(shards).clock(Clock::Logical);
    let cache = builder.build().expect("a sound configuration");
    let space = cache.default_namespace();
    let sessions: Vec<Session> = (0..shards).map(|_| cache.session()).collect();
    let (mut dice, mut hits, mut tokens) = (Rng::with_seed(seed), 0, 0);
    for (time, prompt) in (1..).zip(prompts) {
        cache.set_time(time);
        let session = &sessions[dice.usize(..shards)];
        let hit = session.match_prefix(&space, prompt);
        let (found, whole) = (hit.len_tokens(), prompt.len() / BLOCK * BLOCK);
        (hits, tokens) = (hits + found, tokens + prompt.len());
        if found < whole {
            let blocks = session.reserve((whole - found) / BLOCK).expect("no other lease is held");
            drop(session.insert(hit.lease(), &prompt[..whole], blocks).expect("the blocks fit"));
        }
    }
    100.0 * hits as f64 / tokens.max(1) as f64
}
