//! The text says what the statistics of a host tier say, and leaves none of them out.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use radixkv::PrefixCache;
use radixkv_host::radixkv_tiers::{FileTier, Layout};
use radixkv_host::{DeviceMemory, HostTier, RemoteWait, TieredCache};
use radixkv_metrics::prometheus_client::registry::Registry;
use radixkv_metrics::{HostCollector, text};

/// Four device blocks over eight in the host over files, after some prompts that do not fit the
/// device.
fn used(folder: &std::path::Path) -> TieredCache {
    let cache = PrefixCache::builder(4, 4).build().expect("valid");
    let device = Arc::new(DeviceMemory::new(4, 256, 4));
    let layout = Layout::new("model", "bf16", 4, 256).expect("a layout");
    let files = FileTier::new(folder, layout, 1 << 20).direct_io(false).open().expect("the folder is free");
    let host = HostTier::builder(4, 8).block_bytes(256).remote(files).build().expect("a tier");
    let tiers = TieredCache::builder(&cache, &host, device).remote_wait(RemoteWait::All).build().expect("tiers");
    let (session, space) = (tiers.session(), cache.default_namespace());
    for first in [0, 100, 0, 200, 300, 400, 0, 100] {
        let prompt: Vec<u32> = (first..first + 16).collect();
        let start = session.acquire(&space, &prompt, 0).expect("it fits");
        drop(session.insert(&space, &start.lease, &prompt, start.blocks).expect("it fits"));
        assert!(host.settle_remote(Duration::from_secs(60)), "the files are there");
    }
    tiers
}

/// The samples of a registry whose names begin so.
fn samples(registry: &Registry, prefix: &str) -> BTreeMap<String, u64> {
    let text = text(registry);
    let lines = text.lines().filter(|line| line.starts_with(prefix));
    let pairs = lines.map(|line| line.rsplit_once(' ').expect("a name and a value"));
    pairs.map(|(name, value)| (name.to_owned(), value.parse().expect("a whole number"))).collect()
}

/// How many numbers statistics have.
fn fields(stats: impl Debug) -> usize {
    format!("{stats:?}").matches(": ").count()
}

// Holds: ME1.
#[test]
fn the_text_is_that_of_the_statistics_of_all_tiers() {
    let folder = tempfile::tempdir().expect("a folder");
    let tiers = used(folder.path());
    let mut registry = Registry::default();
    HostCollector::register_tiers(&tiers, &mut registry);
    let (host, copies) = (tiers.host().stats(), tiers.stats());
    let remote = tiers.host().remote_stats().expect("files are below");
    assert!(host.hit_blocks > 0 && copies.onboarded_bytes > 0 && remote.fetched_blocks > 0, "{host:?} {remote:?}");
    let samples = samples(&registry, "radixkv_");
    for (name, value) in [
        ("radixkv_host_hit_blocks_total", host.hit_blocks),
        ("radixkv_host_removed_blocks_total{reason=\"capacity\"}", host.evicted_blocks),
        ("radixkv_host_removed_blocks_total{reason=\"moved\"}", host.removed_blocks),
        ("radixkv_host_blocks{state=\"free\"}", host.free_blocks as u64),
        ("radixkv_host_block_bytes", 256),
        ("radixkv_host_copied_bytes_total{to=\"host\"}", copies.offloaded_bytes),
        ("radixkv_host_copied_bytes_total{to=\"device\"}", copies.onboarded_bytes),
        ("radixkv_remote_tokens_total", copies.remote_tokens),
        ("radixkv_remote_fetched_blocks_total", remote.fetched_blocks),
        ("radixkv_remote_put_blocks_total", remote.put_blocks),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name} in {samples:?}");
    }
    // Each number of the statistics has a sample, and so have the size and the bytes of a host
    // block.
    assert_eq!(samples.len(), fields(host) + fields(copies) + fields(remote) + 2, "{samples:?}");
}

#[test]
fn a_tier_without_others_tells_of_itself() {
    let host = HostTier::builder(4, 8).build().expect("a tier");
    let mut registry = Registry::default();
    HostCollector::register(&host, &mut registry);
    let samples = samples(&registry, "radixkv_");
    assert_eq!(samples.len(), fields(host.stats()) + 2, "{samples:?}");
}
