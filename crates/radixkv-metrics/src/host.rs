//! Metrics of a host tier, its remote tiers, and the copies between it and the cache.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use radixkv_host::{HostStats, HostTier, RemoteStats, TieredCache, TieredStats};

use crate::family::{Family, Values::By, encode_counters, encode_gauges, one};

/// Collects the metrics of a host tier, its remote tiers, and, for a [`TieredCache`], the copies
/// between device and host. A registry can have only one.
///
/// # Examples
///
/// ```
/// use radixkv_host::HostTier;
/// use radixkv_metrics::prometheus_client::registry::Registry;
/// use radixkv_metrics::{HostCollector, text};
///
/// let host = HostTier::builder(16, 64).build()?;
/// let mut registry = Registry::default();
/// HostCollector::register(&host, &mut registry);
/// assert!(text(&registry).contains("radixkv_host_capacity_blocks 64\n"));
/// # Ok::<_, radixkv_host::HostBuildError>(())
/// ```
pub struct HostCollector {
    host: HostTier,
    tiers: Option<TieredCache>,
}

impl fmt::Debug for HostCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostCollector").field("block_size", &self.host.block_size()).finish_non_exhaustive()
    }
}

impl HostCollector {
    /// Adds the metrics of a host tier, and of its remote tiers, to a registry. Keeps the tier
    /// alive.
    pub fn register(host: &HostTier, registry: &mut Registry) {
        registry.register_collector(Box::new(Self { host: host.clone(), tiers: None }));
    }

    /// Adds the metrics of the host tier of `tiers`, and of the copies between the tiers, to a
    /// registry. Keeps both tiers alive.
    pub fn register_tiers(tiers: &TieredCache, registry: &mut Registry) {
        registry.register_collector(Box::new(Self { host: tiers.host().clone(), tiers: Some(tiers.clone()) }));
    }
}

impl Collector for HostCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = self.host.stats();
        encode_counters(HOST_COUNTERS, &stats, &mut encoder)?;
        encode_gauges(HOST_GAUGES, &stats, &mut encoder)?;
        encode_gauges(LAYOUT, &self.host, &mut encoder)?;
        if let Some(tiers) = &self.tiers {
            encode_counters(COPIES, &tiers.stats(), &mut encoder)?;
        }
        if let Some(stats) = self.host.remote_stats() {
            encode_counters(REMOTE_COUNTERS, &stats, &mut encoder)?;
            encode_gauges(REMOTE_GAUGES, &stats, &mut encoder)?;
        }
        Ok(())
    }
}

const HOST_COUNTERS: &[Family<HostStats, u64>] = &[
    one("radixkv_host_lookups", "Lookups in the host tier", |stats| stats.lookups),
    one("radixkv_host_hit_blocks", "Host blocks that lookups found", |stats| stats.hit_blocks),
    one("radixkv_host_arrived_blocks", "Blocks that were stored in the host tier", |stats| stats.arrived_blocks),
    one("radixkv_host_duplicate_blocks", "Arriving blocks that the host tier had already", |stats| {
        stats.duplicate_blocks
    }),
    Family {
        name: "radixkv_host_refused_blocks",
        help: "Arriving blocks that were not stored, by reason",
        values: By(
            "reason",
            &[("kept_out", |stats| stats.kept_out_blocks), ("not_admitted", |stats| stats.not_admitted_blocks)],
        ),
    },
    Family {
        name: "radixkv_host_removed_blocks",
        help: "Blocks that left the host tier, by reason",
        values: By(
            "reason",
            &[
                ("capacity", |stats| stats.evicted_blocks),
                ("moved", |stats| stats.removed_blocks),
                ("cleared", |stats| stats.cleared_blocks),
                ("expired", |stats| stats.expired_blocks),
            ],
        ),
    },
];

const HOST_GAUGES: &[Family<HostStats, u64>] = &[
    one("radixkv_host_capacity_blocks", "Blocks that the host tier may hold", |stats| stats.capacity_blocks as u64),
    Family {
        name: "radixkv_host_blocks",
        help: "Host blocks by state, staging blocks included",
        values: By(
            "state",
            &[
                ("cached", |stats| stats.cached_blocks as u64),
                ("pinned", |stats| stats.pinned_blocks as u64),
                ("reserved", |stats| stats.reserved_blocks as u64),
                ("free", |stats| stats.free_blocks as u64),
            ],
        ),
    },
    one("radixkv_host_index_bytes", "Memory of the host tier's index", |stats| stats.index_bytes as u64),
];

const LAYOUT: &[Family<HostTier, u64>] = &[
    one("radixkv_host_block_size_tokens", "Tokens in a host block", |host| host.block_size() as u64),
    one("radixkv_host_block_bytes", "Bytes of a host block", |host| host.block_bytes() as u64),
];

const COPIES: &[Family<TieredStats, u64>] = &[
    one("radixkv_host_offered_blocks", "Device blocks that were evicted and offered to the host", |stats| {
        stats.evicted_blocks
    }),
    one("radixkv_host_bypassed_blocks", "Device blocks that were evicted and not offered to the host", |stats| {
        stats.bypassed_blocks
    }),
    Family {
        name: "radixkv_host_copied_tokens",
        help: "Tokens copied between the device and the host",
        values: By("to", &[("host", |stats| stats.offloaded_tokens), ("device", |stats| stats.onboarded_tokens)]),
    },
    Family {
        name: "radixkv_host_copied_bytes",
        help: "Bytes copied between the device and the host",
        values: By("to", &[("host", |stats| stats.offloaded_bytes), ("device", |stats| stats.onboarded_bytes)]),
    },
    Family {
        name: "radixkv_host_uncopied_blocks",
        help: "Evicted blocks that were not copied to the host, by reason",
        values: By(
            "reason",
            &[
                ("full_queue", |stats| stats.dropped_blocks),
                ("no_room", |stats| stats.lacking_blocks),
                ("incomplete", |stats| stats.incomplete_blocks),
                ("failed", |stats| stats.failed_offload_blocks),
            ],
        ),
    },
    one("radixkv_host_failed_tokens", "Tokens in the host that were computed again because a copy failed", |stats| {
        stats.failed_onboard_tokens
    }),
    one("radixkv_remote_tokens", "Tokens copied to the device that came from remote tiers", |stats| {
        stats.remote_tokens
    }),
];

const REMOTE_COUNTERS: &[Family<RemoteStats, u64>] = &[
    one("radixkv_remote_asked_blocks", "Blocks that lookups requested from remote tiers", |stats| stats.asked_blocks),
    one("radixkv_remote_found_blocks", "Requested blocks that remote tiers reported to have", |stats| {
        stats.found_blocks
    }),
    one("radixkv_remote_fetched_blocks", "Blocks fetched from remote tiers", |stats| stats.fetched_blocks),
    Family {
        name: "radixkv_remote_unfetched_blocks",
        help: "Requested blocks that were not fetched, by reason",
        values: By(
            "reason",
            &[
                ("missed", |stats| stats.missed_blocks),
                ("failed", |stats| stats.failed_blocks),
                ("full", |stats| stats.full_blocks),
                ("no_room", |stats| stats.lacking_blocks),
            ],
        ),
    },
    Family {
        name: "radixkv_remote_dropped_fetches",
        help: "Fetches that were not started or were cancelled, by reason",
        values: By("reason", &[("full", |stats| stats.full_fetches), ("late", |stats| stats.late_fetches)]),
    },
    one("radixkv_remote_left_out_tiers", "Times that a remote tier which did not answer was left out", |stats| {
        stats.left_out_tiers
    }),
    one("radixkv_remote_put_blocks", "Blocks stored in remote tiers", |stats| stats.put_blocks),
    one("radixkv_remote_present_blocks", "Blocks that remote tiers had already", |stats| stats.present_blocks),
    Family {
        name: "radixkv_remote_unput_blocks",
        help: "Blocks that left the host and were not stored in a remote tier, by reason",
        values: By(
            "reason",
            &[
                ("full", |stats| stats.full_puts),
                ("failed", |stats| stats.failed_puts),
                ("stale", |stats| stats.stale_puts),
            ],
        ),
    },
];

const REMOTE_GAUGES: &[Family<RemoteStats, u64>] = &[Family {
    name: "radixkv_remote_blocks_in_flight",
    help: "Blocks in flight to remote tiers (put) and from them (get)",
    values: By("direction", &[("put", |stats| stats.puts_in_flight), ("get", |stats| stats.gets_in_flight)]),
}];
