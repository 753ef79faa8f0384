//! Metrics of a cache in use, at an address:
//! `cargo run -p radixkv-metrics --features host --example serve -- 127.0.0.1:9400 [SECONDS]`.
//!
//! Prints the address, and serves requests to a small cache until the time is over: two tenants, a
//! host tier below the cache, files below that. Every panel of the dashboard has something to show.

use std::sync::Arc;
use std::time::{Duration, Instant};

use radixkv::PrefixCache;
use radixkv_host::radixkv_tiers::{FileTier, Layout};
use radixkv_host::{DeviceMemory, HostTier, TieredCache};
use radixkv_metrics::prometheus_client::registry::Registry;
use radixkv_metrics::{BlockLives, CacheCollector, Endpoint, HostCollector, NamespaceCollector, Timers};

const GROUPS: u32 = 50;
const BLOCK_SIZE: usize = 16;
const BLOCK_BYTES: usize = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:9400".to_owned());
    let seconds = arguments.next().map_or(Ok(60), |seconds| seconds.parse())?;
    let folder = tempfile::tempdir()?;
    let cache = PrefixCache::builder(BLOCK_SIZE, 2_000).build()?;
    let files = FileTier::new(folder.path(), Layout::new("example", "bf16", BLOCK_SIZE, BLOCK_BYTES)?, 64 << 20);
    let host = HostTier::builder(BLOCK_SIZE, 2_000).block_bytes(BLOCK_BYTES).remote(files.direct_io(false).open()?);
    let device = Arc::new(DeviceMemory::new(BLOCK_SIZE, BLOCK_BYTES, 2_000));
    let tiers = TieredCache::builder(&cache, &host.build()?, device).build()?;

    let mut registry = Registry::with_labels([("model_name".into(), "example".into())].into_iter());
    CacheCollector::register(&cache, &mut registry);
    NamespaceCollector::register(&cache, &mut registry);
    HostCollector::register_tiers(&tiers, &mut registry);
    let timers = Timers::register(10, &mut registry);
    let lives = BlockLives::register(&cache, 16, &mut registry);
    let endpoint = Endpoint::start(&address, registry)?;
    println!("http://{}/metrics", endpoint.address());

    let (session, mut events) = (tiers.session(), cache.subscribe(1_000));
    let tenants = [cache.default_namespace(), cache.namespace(&["tenant-7"])];
    let (allocation, eviction, mut rng) = (timers.allocation(), timers.eviction(), fastrand::Rng::with_seed(7));
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        let (space, group, own) = (&tenants[rng.usize(..2)], rng.u32(..GROUPS), rng.u32(..));
        let prompt: Vec<u32> = (0..512).map(|i| if i < 384 { group << 16 | i } else { own ^ i }).collect();
        if cache.stats().free_blocks < 100 {
            eviction.time(|| tiers.evict(100));
        }
        let start = allocation.time(|| session.acquire(space, &prompt, 0))?;
        lives.used(&start.cached);
        drop(session.insert(space, &start.lease, &prompt, start.blocks)?);
        lives.pump(&mut events);
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
