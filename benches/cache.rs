//! Criterion benches of match, insert, evict and a hot prefix. Baselines: memcmp of the same
//! tokens, and the reference model behind a lock.
//!
//! `cargo bench --bench cache`. Each group's baselines run in the same process; the bench `ratios`
//! alternates with them round by round.

#![allow(missing_docs)] // `criterion_group!` makes a public function

// `ratios` uses the rest.
#[allow(dead_code)]
mod common;

use std::hint::black_box;
use std::sync::RwLock;
use std::thread;
use std::time::{Duration, Instant};

use common::{Aligned, fill_with_leaves, insert, memcmp, sequence, together};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use radixkv::{Clock, PolicyKind, PrefixCache, Token};
use radixkv_reference::Reference;

const BLOCK: usize = 16;
const PROMPT: usize = 2_496;

fn cache(blocks: usize) -> PrefixCache {
    PrefixCache::builder(BLOCK, blocks).build().expect("a sound configuration")
}

/// The reference model with `prompt` cached, behind a lock, which it needs to be shared.
fn locked(prompt: &[Token]) -> RwLock<Reference> {
    let mut reference = Reference::new(BLOCK, 4 * prompt.len() / BLOCK, PolicyKind::Lru);
    let hit = reference.match_prefix(&[], prompt);
    let blocks = reference.reserve(prompt.len() / BLOCK).expect("free");
    let inserted = reference.insert(&hit.lease, prompt, blocks).expect("sound");
    reference.release(hit.lease);
    reference.release(inserted.lease);
    RwLock::new(reference)
}

/// Looks up one prompt that is in one run: match, lease, block ids, release.
fn match_prefix(criterion: &mut Criterion) {
    let prompt = Aligned::new(&sequence(1, PROMPT));
    let copy = Aligned::new(prompt.tokens());
    let cache = cache(PROMPT / BLOCK);
    let session = cache.session();
    let space = cache.default_namespace();
    drop(insert(&session, &space, &cache, prompt.tokens()));
    let baseline = locked(prompt.tokens());
    let mut blocks = Vec::new();
    assert_eq!(session.match_prefix(&space, prompt.tokens()).len_tokens(), PROMPT);

    let mut group = criterion.benchmark_group("match 2,496 tokens");
    group.throughput(Throughput::Elements(PROMPT as u64));
    group.bench_function("memcmp", |b| b.iter(|| memcmp(prompt.tokens(), copy.tokens())));
    group.bench_function("radixkv", |b| {
        b.iter(|| black_box(session.match_prefix_into(&space, black_box(prompt.tokens()), &mut blocks)));
    });
    group.bench_function("radixkv, not leased", |b| {
        b.iter(|| black_box(session.peek(&space, black_box(prompt.tokens()))));
    });
    group.bench_function("model behind a lock", |b| {
        b.iter(|| {
            let hit = baseline.write().expect("sound").match_prefix(&[], black_box(prompt.tokens()));
            baseline.write().expect("sound").release(hit.lease);
        });
    });
    group.finish();
}

/// Inserts a tail of 256 tokens after a leased prompt.
fn insert_tail(criterion: &mut Criterion) {
    let prompt = sequence(1, PROMPT);
    let cache = cache(PROMPT / BLOCK + 64 * 1024);
    let session = cache.session();
    let space = cache.default_namespace();
    let held = insert(&session, &space, &cache, &prompt);
    let mut seed = 1;
    let mut tail = || {
        seed += 1;
        [&prompt[..], &sequence(seed, 256)].concat()
    };
    let mut copied = vec![0; 256];

    let mut group = criterion.benchmark_group("insert 256 tokens");
    group.throughput(Throughput::Elements(256));
    group.bench_function("copy alone", |b| {
        b.iter(|| copied.copy_from_slice(black_box(&prompt[..256])));
    });
    group.bench_function("radixkv", |b| {
        b.iter_batched(
            || (tail(), session.reserve(16).expect("evictable")),
            |(tokens, blocks)| session.insert(&held, &tokens, blocks).expect("sound"),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

/// Evicts one idle leaf of many.
fn evict(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("evict one leaf");
    for leaves in [1_000, 100_000] {
        group.bench_function(format!("of {leaves}"), |b| {
            b.iter_custom(|wanted| {
                let mut spent = Duration::ZERO;
                let mut left = wanted;
                while left > 0 {
                    let cache = full_of_leaves(leaves);
                    let now = left.min(leaves as u64 / 2);
                    let start = Instant::now();
                    for _ in 0..now {
                        assert_eq!(black_box(cache.evict(1)), 1);
                    }
                    spent += start.elapsed();
                    left -= now;
                }
                spent
            });
        });
    }
    group.finish();
}

fn full_of_leaves(leaves: usize) -> PrefixCache {
    let builder = PrefixCache::builder(BLOCK, leaves).clock(Clock::Logical);
    let cache = builder.build().expect("a sound configuration");
    fill_with_leaves(&cache, leaves);
    cache
}

/// All threads match one prompt. The time per match of a thread should not depend on the number of
/// threads.
fn hot_prefix(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hot prefix");
    let cores = thread::available_parallelism().map_or(2, usize::from);
    for threads in [1, 2, 4, 8, 16].into_iter().filter(|threads| *threads <= cores) {
        let prompt = Aligned::new(&sequence(1, PROMPT));
        let copy = Aligned::new(prompt.tokens());
        group.bench_function(format!("memcmp, {threads} threads"), |b| {
            b.iter_custom(|times| {
                nanoseconds(together(threads, times, || || memcmp(prompt.tokens(), copy.tokens())), times)
            });
        });
        let cache = cache(PROMPT / BLOCK);
        let space = cache.default_namespace();
        let held = insert(&cache.session(), &space, &cache, prompt.tokens());
        group.bench_function(format!("radixkv, {threads} threads"), |b| {
            b.iter_custom(|times| {
                let each = together(threads, times, || {
                    let (session, mut blocks) = (cache.session(), Vec::new());
                    let (space, prompt) = (&space, &prompt);
                    move || {
                        black_box(session.match_prefix_into(space, black_box(prompt.tokens()), &mut blocks));
                    }
                });
                nanoseconds(each, times)
            });
        });
        drop(held);
    }
    group.finish();
}

fn nanoseconds(each: f64, times: u64) -> Duration {
    Duration::from_nanos((each * times as f64) as u64)
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    targets = match_prefix, insert_tail, evict, hot_prefix
}
criterion_main!(benches);
