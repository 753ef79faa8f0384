//! How fast blocks move between two tiers, beside `memcpy` in the same process, and what lookups
//! pay while they move.
//!
//! Blocks of 64 KiB and 16 tokens, prompts of 128 blocks, 2,048 blocks on the device and 4,096 in
//! the host, exclusive: each prompt was evicted from the device when it comes again, so serving it
//! moves 128 blocks down and 128 up. `memcpy` copies as many blocks of the same size between memory
//! of the same sizes. Prompt after prompt the two alternate, so that both meet the same load of the
//! machine. The ratio is taken for each pair; printed are the median and the spread, from the 10th
//! to the 90th percentile, with the processor, the load of the machine and the command.
//!
//! Lookups: the time of each `match_prefix` of a prompt of 128 blocks that stays on the device, on
//! a thread of its own, with and without another thread that moves blocks.
//!
//! Requests that the device answers: the time of `acquire`, over the tiers and by the cache's own
//! session in turn.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use radixkv::{Namespace, PrefixCache};
use radixkv_host::{DeviceMemory, HostTier, TieredCache, TieredSession, TieredStart};

const TOKENS: usize = 16;
const BYTES: usize = 64 << 10;
const DEVICE: usize = 2048;
const HOST: usize = 4096;
const BLOCKS: usize = 128;
/// As many prompts as both tiers hold, but for one, which is what the lookups look for.
const PROMPTS: usize = (DEVICE + HOST) / BLOCKS - 1;
const ROUNDS: usize = 7;

fn prompt(number: usize) -> Vec<u32> {
    (0..(BLOCKS * TOKENS) as u32).map(|at| number as u32 * 1_000_003 + at).collect()
}

/// Serves a prompt; tokens that came from the host.
fn serve(session: &TieredSession, namespace: &Namespace, prompt: &[u32]) -> usize {
    let start = session.acquire(namespace, prompt, 0).expect("room");
    let TieredStart { lease, blocks, host_tokens, .. } = start;
    if !blocks.is_empty() {
        drop(session.insert(namespace, &lease, prompt, blocks).expect("it is inserted"));
    }
    host_tokens
}

/// Bytes that serving a prompt moves, and that copying in its place copies.
const MOVED: usize = 2 * BLOCKS * BYTES;

/// Serves a prompt that is in the host; bytes a second.
fn move_blocks(session: &TieredSession, namespace: &Namespace, prompt: &[u32]) -> f64 {
    let began = Instant::now();
    assert_eq!(serve(session, namespace, prompt), BLOCKS * TOKENS, "all of it came from the host");
    MOVED as f64 / began.elapsed().as_secs_f64()
}

/// Copies as many blocks there and back; bytes a second.
fn copy_blocks(device: &mut [u8], host: &mut [u8], number: usize) -> f64 {
    let began = Instant::now();
    for number in number * BLOCKS..(number + 1) * BLOCKS {
        let there = &mut host[number % HOST * BYTES..][..BYTES];
        there.copy_from_slice(&device[number % DEVICE * BYTES..][..BYTES]);
    }
    for number in number * BLOCKS..(number + 1) * BLOCKS {
        let back = &mut device[number % DEVICE * BYTES..][..BYTES];
        back.copy_from_slice(&host[(number + HOST / 2) % HOST * BYTES..][..BYTES]);
    }
    black_box((device, host));
    MOVED as f64 / began.elapsed().as_secs_f64()
}

/// The 10th percentile, the median and the 90th percentile.
fn spread(mut figures: Vec<f64>) -> [f64; 3] {
    figures.sort_by(f64::total_cmp);
    [1, 5, 9].map(|tenths| figures[figures.len() * tenths / 10])
}

/// Nanoseconds of a request that the device answers, over the tiers and without.
fn start_on_device(session: &TieredSession, namespace: &Namespace, prompt: &[u32]) -> [f64; 2] {
    const CALLS: u32 = 1000;
    let per_call = |call: &dyn Fn()| {
        let began = Instant::now();
        (0..CALLS).for_each(|_| call());
        began.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    [
        per_call(&|| drop(black_box(session.acquire(namespace, prompt, 0).expect("it is cached")))),
        per_call(&|| drop(black_box(session.device().acquire(namespace, prompt, 0).expect("it is cached")))),
    ]
}

/// What the figures are of: the processor, the load of the machine and the command.
fn print_machine() {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown");
    println!("processor           {}, {processors} threads, load {load}", model.unwrap_or(std::env::consts::ARCH));
    println!("command             cargo bench -p radixkv-host --bench movement");
}

/// The median and the 99th percentile of lookups for a while.
fn look_up(cache: &PrefixCache, prompt: &[u32], goes_on: &dyn Fn() -> bool) -> (Duration, Duration) {
    let (session, space, mut blocks, mut times) = (cache.session(), cache.default_namespace(), Vec::new(), Vec::new());
    while goes_on() {
        let began = Instant::now();
        drop(session.match_prefix_into(&space, prompt, &mut blocks));
        times.push(began.elapsed());
        assert_eq!(blocks.len(), BLOCKS);
    }
    times.sort();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

fn main() {
    print_machine();
    let cache = PrefixCache::builder(TOKENS, DEVICE).build().expect("a cache");
    let device = Arc::new(DeviceMemory::new(TOKENS, BYTES, DEVICE));
    let host = HostTier::builder(TOKENS, HOST).block_bytes(BYTES).staging(BLOCKS).build().expect("a tier");
    let tiers = TieredCache::builder(&cache, &host, device).build().expect("they go together");
    let (session, space) = (tiers.session(), cache.default_namespace());
    let prompts: Vec<Vec<u32>> = (0..PROMPTS).map(prompt).collect();

    // The last prompt is leased, so that it stays.
    let kept = prompt(PROMPTS);
    serve(&session, &space, &kept);
    let _lease = session.match_prefix(&space, &kept);
    for prompt in &prompts {
        serve(&session, &space, prompt);
    }

    let (mut on_device, mut in_host) = (vec![1; DEVICE * BYTES], vec![2; HOST * BYTES]);
    let (mut moved, mut copied) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (number, prompt) in prompts.iter().enumerate() {
            moved.push(move_blocks(&session, &space, prompt));
            copied.push(copy_blocks(&mut on_device, &mut in_host, number));
        }
    }
    let ratios = moved.iter().zip(&copied).map(|(moved, copied)| 100.0 * moved / copied).collect();
    for (name, figures) in [("offload and onboard", moved), ("memcpy", copied)] {
        let [low, median, high] = spread(figures).map(|bytes| bytes / 1e9);
        println!("{name:<20}{median:.2} GB/s ({low:.2} to {high:.2})");
    }
    let [low, median, high] = spread(ratios);
    println!("of memcpy           {median:.0} % ({low:.0} to {high:.0})");

    let began = Instant::now();
    let (median_alone, alone) = look_up(&cache, &kept, &|| began.elapsed() < Duration::from_millis(500));
    let is_over = AtomicBool::new(false);
    let (median_beside, beside) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| look_up(&cache, &kept, &|| !is_over.load(Relaxed)));
        for _ in 0..ROUNDS {
            prompts.iter().for_each(|prompt| _ = move_blocks(&session, &space, prompt));
        }
        is_over.store(true, Relaxed);
        looking.join().expect("no panic")
    });
    println!("lookup alone        {median_alone:?}, p99 {alone:?}");
    println!("lookup beside       {median_beside:?}, p99 {beside:?}");

    let times: Vec<[f64; 2]> = (0..200).map(|_| start_on_device(&session, &space, &kept)).collect();
    for (at, name) in ["acquire over tiers", "acquire without"].into_iter().enumerate() {
        let [low, median, high] = spread(times.iter().map(|pair| pair[at]).collect());
        println!("{name:<20}{median:.0} ns ({low:.0} to {high:.0}) for {} tokens", kept.len());
    }
}
