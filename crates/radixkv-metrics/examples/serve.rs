//! Metrics of a cache in use, at an address: `cargo run -p radixkv-metrics --example serve -- 127.0.0.1:9400 [SECONDS]`.
//!
//! Prints where it listens, and serves requests to a small cache until the time is over.

use std::time::{Duration, Instant};

use radixkv::PrefixCache;
use radixkv_metrics::prometheus_client::registry::Registry;
use radixkv_metrics::{BlockLives, CacheCollector, Endpoint, Timers};

const GROUPS: u32 = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:9400".to_owned());
    let seconds = arguments.next().map_or(Ok(60), |seconds| seconds.parse())?;
    let cache = PrefixCache::builder(16, 2_000).build()?;
    let mut registry = Registry::with_labels([("model_name".into(), "example".into())].into_iter());
    CacheCollector::register(&cache, &mut registry);
    let timers = Timers::register(10, &mut registry);
    let lives = BlockLives::register(&cache, 16, &mut registry);
    let endpoint = Endpoint::start(&address, registry)?;
    println!("http://{}/metrics", endpoint.address());

    let (session, space, mut events) = (cache.session(), cache.default_namespace(), cache.subscribe(1_000));
    let (allocation, mut rng) = (timers.allocation(), fastrand::Rng::with_seed(7));
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        let (group, own) = (rng.u32(..GROUPS), rng.u32(..));
        let prompt: Vec<u32> = (0..512).map(|i| if i < 384 { group << 16 | i } else { own ^ i }).collect();
        let start = allocation.time(|| session.acquire(&space, &prompt, 64))?;
        lives.used(start.hit.blocks());
        let mut blocks = start.blocks;
        let whole = blocks.split(prompt.len() / 16 - start.hit.blocks().len());
        drop(session.insert(start.hit.lease(), &prompt, whole)?);
        lives.pump(&mut events);
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
