//! Lookups of cached prompts, measured alternately with memcmp of the same tokens.

use std::hint::black_box;

use radixkv::{Namespace, PrefixCache, Session, Token};

use super::common::{Aligned, Spread, insert, memcmp, paired, sequence};

pub const BLOCK: usize = 16;
pub const ROUNDS: usize = 31;

pub fn cache(blocks: usize) -> PrefixCache {
    PrefixCache::builder(BLOCK, blocks).build().expect("a sound configuration")
}

/// Measures a match of a fully cached prompt, and memcmp of its tokens with a copy of them.
fn against_memcmp(session: &Session, space: &Namespace, prompt: &Aligned) -> [Spread; 3] {
    let (len, copy) = (prompt.tokens().len(), Aligned::new(prompt.tokens()));
    let mut blocks = Vec::new();
    assert_eq!(session.match_prefix(space, prompt.tokens()).blocks().len(), len / BLOCK);
    paired(
        ROUNDS,
        20_000 * 2_496 / len,
        || {
            let lease = session.match_prefix_into(space, black_box(prompt.tokens()), &mut blocks);
            black_box((&blocks, lease.len_tokens()));
        },
        || memcmp(prompt.tokens(), copy.tokens()),
    )
}

/// Matches a prompt of `len` tokens in one run. If `held`, another lease is on its end; else its
/// end is idle.
pub fn one_run(len: usize, held: bool) -> [Spread; 3] {
    let cache = cache(len / BLOCK);
    let session = cache.session();
    let space = cache.default_namespace();
    let prompt = Aligned::new(&sequence(1, len));
    let keep = insert(&session, &space, &cache, prompt.tokens());
    let keep = held.then_some(keep);
    let measured = against_memcmp(&session, &space, &prompt);
    drop(keep);
    measured
}

/// Matches a prompt in one run to which `branches` leased branches are attached.
pub fn past_branches(len: usize, branches: usize) -> [Spread; 3] {
    let cache = cache(2 * len / BLOCK + 64 * branches);
    let session = cache.session();
    let space = cache.default_namespace();
    let prompt = Aligned::new(&sequence(1, len));
    let mut keep = vec![insert(&session, &space, &cache, prompt.tokens())];
    for i in 0..branches {
        let at = (i + 1) * len / (branches + 1) + i % 3;
        let other: Vec<Token> = [&prompt.tokens()[..at], &sequence(100 + i as u32, 256)].concat();
        keep.push(insert(&session, &space, &cache, &other));
    }
    against_memcmp(&session, &space, &prompt)
}

/// Matches a conversation of `turns` turns, each of which was appended to the one before.
pub fn turns(len: usize, turns: usize) -> [Spread; 3] {
    let cache = cache(len / BLOCK);
    let session = cache.session();
    let space = cache.default_namespace();
    let prompt = Aligned::new(&sequence(1, len));
    for turn in 1..=turns {
        drop(insert(&session, &space, &cache, &prompt.tokens()[..len * turn / turns]));
    }
    against_memcmp(&session, &space, &prompt)
}

/// Matches `prompts` prompts in turn, so that their tokens come from the outer CPU caches.
pub fn rotating(prompts: usize) -> [Spread; 3] {
    let len = 2_496;
    let cache = cache(prompts * len / BLOCK);
    let session = cache.session();
    let space = cache.default_namespace();
    let all: Vec<Aligned> = (0..prompts).map(|i| Aligned::new(&sequence(i as u32, len))).collect();
    let copies: Vec<Aligned> = all.iter().map(|prompt| Aligned::new(prompt.tokens())).collect();
    for prompt in &all {
        drop(insert(&session, &space, &cache, prompt.tokens()));
    }
    let mut blocks = Vec::new();
    let (mut at, mut limit_at) = (0, 0);
    paired(
        ROUNDS,
        2 * prompts,
        || {
            at = (at + 1) % prompts;
            let lease = session.match_prefix_into(&space, black_box(all[at].tokens()), &mut blocks);
            black_box((&blocks, lease.len_tokens()));
        },
        || {
            limit_at = (limit_at + 1) % prompts;
            memcmp(all[limit_at].tokens(), copies[limit_at].tokens());
        },
    )
}
