//! A cache over a host tier, with metrics and events:
//! `cargo run -p radixkv-metrics --features host --example tiered`.
//!
//! What the cache evicts is copied to host memory and found there again. A thread follows the
//! cache's events and mirrors what is cached. At the end the mirror and the metrics are compared
//! with the cache itself.

use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::thread;
use std::time::Duration;

use radixkv::{Namespace, PrefixCache, Token};
use radixkv_events::{BlockHash, CacheRecorder, Follower, HashScheme, Scope, Verdict};
use radixkv_host::{DeviceMemory, HostTier, TieredCache, TieredSession};
use radixkv_metrics::prometheus_client::registry::Registry;
use radixkv_metrics::{CacheCollector, HostCollector, TextFormat};

const BLOCK: usize = 16; // tokens in a block
const BLOCK_BYTES: usize = 64; // of its keys and values: four bytes for each token
const DEVICE_BLOCKS: usize = 24;
const HOST_BLOCKS: usize = 256;

type Failure = Box<dyn Error + Send + Sync>;

/// The keys and values of a block: here, its tokens' bytes.
fn keys_and_values(tokens: &[Token]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
}

/// Serves a prompt of whole blocks. Returns the tokens that the device and the host had.
fn serve(
    session: &TieredSession,
    device: &DeviceMemory,
    space: &Namespace,
    prompt: &[Token],
) -> Result<(usize, usize), Failure> {
    let start = session.acquire(space, prompt, 0)?;
    // What was found is what was computed for these tokens, also if it was copied to the host and
    // back.
    for (&block, tokens) in start.cached.iter().zip(prompt.chunks(BLOCK)) {
        assert!(device.read(block, |bytes| bytes == keys_and_values(tokens)), "block {block} has wrong bytes");
    }
    // The rest is computed. Host blocks have the cache's size here, so the lease ends where this
    // begins.
    assert_eq!(start.len_tokens(), start.lease.len_tokens());
    let missing = prompt[start.len_tokens()..].chunks(BLOCK);
    for (&block, tokens) in start.blocks.blocks().iter().zip(missing) {
        device.write(block, |bytes| bytes.copy_from_slice(&keys_and_values(tokens)));
    }
    let found = (start.device_tokens, start.host_tokens);
    let inserted = session.insert(space, &start.lease, prompt, start.blocks);
    drop(inserted.map_err(radixkv::InsertErrorKind::from)?);
    Ok(found)
}

/// Applies all events that are there to the mirror.
fn follow(recorder: &mut CacheRecorder, mirror: &mut Follower) -> Result<(), Failure> {
    while let Some(batch) = recorder.next()? {
        match mirror.take(&batch)? {
            Verdict::Applied => {}
            // Batches were lost; this one says everything again.
            Verdict::Gap { .. } => {
                mirror.accept_gap(batch.seq);
                assert_eq!(mirror.take(&batch)?, Verdict::Applied);
            }
            other => return Err(format!("unexpected verdict: {other:?}").into()),
        }
    }
    Ok(())
}

/// The names of all blocks that a namespace caches, computed from the tokens that a walk visits.
fn cached_names(space: &Namespace, scheme: &HashScheme) -> HashSet<BlockHash> {
    let scope = Scope::of_namespace(&space.name());
    let mut paths: Vec<Vec<Token>> = Vec::new(); // of each run, from the first token on; runs count from 0
    let mut names = HashSet::new();
    space.walk(|run| {
        let mut path = run.parent.map_or(Vec::new(), |parent| paths[parent][..run.start].to_vec());
        path.extend(run.tokens);
        let all = scheme.chain(&scope, &path, BLOCK);
        names.extend(&all[all.len() - run.blocks.len()..]);
        assert_eq!(run.id, paths.len());
        paths.push(path);
    });
    names
}

fn main() -> Result<(), Failure> {
    let cache = PrefixCache::builder(BLOCK, DEVICE_BLOCKS).build()?;
    let device = Arc::new(DeviceMemory::new(BLOCK, BLOCK_BYTES, DEVICE_BLOCKS));
    let host = HostTier::builder(BLOCK, HOST_BLOCKS).block_bytes(BLOCK_BYTES).build()?;
    let tiers = TieredCache::builder(&cache, &host, Arc::clone(&device)).build()?;

    let mut registry = Registry::default();
    CacheCollector::register(&cache, &mut registry);
    HostCollector::register_tiers(&tiers, &mut registry);

    let scheme = HashScheme::xxh3();
    let mut recorder = CacheRecorder::builder(&cache, HashScheme::xxh3()).build();
    let done = AtomicBool::new(false);
    let spaces = [cache.default_namespace(), cache.namespace("lora-7")];

    let (mirror, found) = thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let mut mirror = Follower::new();
            loop {
                // Read before the events: what was cached before it was set is among them.
                let last = done.load(Acquire);
                follow(&mut recorder, &mut mirror)?;
                if last {
                    return Ok::<_, Failure>(mirror);
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        let engines = spaces.each_ref().map(|space| {
            let (tiers, device) = (&tiers, &device);
            scope.spawn(move || {
                let session = tiers.session();
                let mut found = (0, 0);
                // A system prompt of two blocks, then one of eight documents; twice over. The
                // device is too small.
                for document in (1..9).chain(1..9) {
                    let prompt: Vec<Token> = (0..32).chain(document * 1_000..).take(8 * BLOCK).collect();
                    let (on_device, in_host) = serve(&session, device, space, &prompt)?;
                    found = (found.0 + on_device, found.1 + in_host);
                }
                Ok::<_, Failure>(found)
            })
        });
        let found = engines.map(|engine| engine.join().expect("no panic"));
        done.store(true, Release);
        (follower.join().expect("no panic"), found)
    });
    let (mirror, [first, second]) = (mirror?, found);
    let (first, second) = (first?, second?);
    let (on_device, in_host) = (first.0 + second.0, first.1 + second.1);
    assert!(on_device > 0, "the system prompts are used all the time");
    assert!(in_host > 0, "the second round finds documents in the host");

    // The mirror has exactly the blocks that a walk of the namespaces visits.
    let cached: HashSet<_> = spaces.iter().flat_map(|space| cached_names(space, &scheme)).collect();
    assert_eq!(mirror.holdings().names().collect::<HashSet<_>>(), cached);
    assert!(mirror.is_complete() && !cached.is_empty());

    // One scrape says the same as the statistics.
    let text = TextFormat::negotiate("").text(&registry);
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<usize>().ok());
    assert_eq!(value("radixkv_capacity_blocks"), Some(DEVICE_BLOCKS));
    assert_eq!(value("radixkv_host_copied_tokens_total{to=\"device\"}"), Some(in_host));
    assert_eq!(value("radixkv_blocks{state=\"evictable\"}"), Some(cached.len()));

    cache.validate()?;
    host.validate()?;
    println!("{on_device} tokens found on the device, {in_host} in the host; {} blocks mirrored", cached.len());
    Ok(())
}
