//! 32 requests that share 2,500 tokens: how many tokens are computed, and how many blocks are in
//! use.

use std::sync::atomic::{AtomicUsize, Ordering};

use engine::config::Config;
use engine::dice::Dice;
use engine::serve::{Engine, Options};
use radixkv::Token;
use radixkv_attention::cpu::Cpu;
use radixkv_scheduler::SchedulerConfig;

use crate::{assert_at_rest, random, tiny};

const SHARED: usize = 2_500;
const REQUESTS: usize = 32;
const NEW_TOKENS: usize = 3;

/// Submits all requests, then serves them. Returns how many shared tokens were computed, and the
/// most blocks in use.
fn serve(block_size: usize, tail: usize, threads: usize, publish: bool) -> (usize, usize) {
    let model = random(Config { layers: 1, query_heads: 2, kv_heads: 1, head_dim: 4, ..tiny() }, 5);
    let dice = &mut Dice::new(5);
    let mut draw = |tokens: usize| -> Vec<Token> { (0..tokens).map(|_| dice.below(64) as Token).collect() };
    let shared = draw(SHARED);
    let blocks = 32 * (SHARED + tail + NEW_TOKENS).div_ceil(block_size);
    let scheduler = SchedulerConfig::default().max_running(32).max_batch_tokens(1_024).max_chunk_tokens(512);
    let options = Options { block_size, blocks, threads, publish, scheduler, cascade: true, ..Options::default() };
    let engine = Engine::new(&model, Cpu, options).expect("good options");
    for number in 0..REQUESTS {
        // Tails differ from their first token on.
        let own = [vec![number as Token], draw(tail)].concat();
        let prompt = [&shared[..], &own[..tail]].concat();
        engine.submit(number, prompt, NEW_TOKENS).expect("a good prompt");
    }
    let peak = AtomicUsize::new(0);
    let used = || engine.cache().capacity_blocks() - engine.cache().stats().free_blocks;
    let finished = engine
        .serve(&|_| {
            peak.fetch_max(used(), Ordering::Relaxed);
        })
        .expect("served");
    assert_eq!(finished.len(), REQUESTS);
    assert_at_rest(engine.cache(), "32 requests");
    let computed: usize = finished.iter().map(|finished| finished.computed_len).sum();
    (computed - REQUESTS * (tail + NEW_TOKENS - 1), peak.into_inner())
}

#[test]
fn blocks_of_16_tokens() {
    for threads in [1, 4] {
        let (computed, peak) = serve(16, 20, threads, true);
        assert_eq!(computed, SHARED + 31 * 4, "{threads} threads");
        // Whole blocks of the prefix once; for each request its last four tokens, the tail and the
        // output.
        let most = SHARED / 16 + REQUESTS * (4 + 20 + NEW_TOKENS - 1_usize).div_ceil(16);
        assert!((SHARED / 16 + 2..=most).contains(&peak), "{threads} threads: {peak} blocks of {most}");
    }
}

#[test]
fn blocks_of_one_token() {
    for threads in [1, 4] {
        let (computed, peak) = serve(1, 9, threads, true);
        assert_eq!(computed, SHARED, "{threads} threads");
        let most = SHARED + REQUESTS * (9 + NEW_TOKENS - 1);
        assert!(peak <= most, "{threads} threads: {peak} blocks of {most}");
    }
}

#[test]
fn identical_prompts_compute_their_last_token() {
    for threads in [1, 4] {
        assert_eq!(serve(1, 0, threads, true).0, SHARED + 31, "{threads} threads");
    }
}
