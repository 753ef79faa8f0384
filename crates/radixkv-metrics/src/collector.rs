//! Reads one cache's metrics at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use radixkv::{PrefixCache, Stats};

use crate::families::{BLOCKS, COUNTERS, GAUGES, SECONDS};
use crate::family::{encode, encode_counters, encode_gauges};

/// Collects the metrics of one cache. Each scrape reads one [`Stats`] for all of them.
///
/// The registry keeps the cache alive. Use one registry for each cache: with two caches in a
/// registry, metric names would appear twice in the text.
///
/// # Examples
///
/// ```
/// use radixkv_metrics::prometheus_client::registry::Registry;
/// use radixkv_metrics::{CacheCollector, text};
///
/// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
/// // vLLM's dashboards choose by the model's name.
/// let mut registry = Registry::with_labels([("model_name".into(), "llama".into())].into_iter());
/// CacheCollector::register(&cache, &mut registry);
/// # drop(cache.session().match_prefix(&cache.default_namespace(), &[7; 40]));
/// // ... after a lookup of 40 tokens ...
/// assert!(text(&registry).contains("vllm:prefix_cache_queries_total{model_name=\"llama\"} 40\n"));
/// # Ok::<_, radixkv::BuildError>(())
/// ```
pub struct CacheCollector {
    stats: Box<dyn Fn() -> Option<Stats> + Send + Sync>,
    block_size: usize,
}

impl fmt::Debug for CacheCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheCollector").field("block_size", &self.block_size).finish_non_exhaustive()
    }
}

impl CacheCollector {
    /// Adds the metrics of `cache` to a registry.
    pub fn register(cache: &PrefixCache, registry: &mut Registry) {
        let (block_size, cache) = (cache.block_size(), cache.clone());
        Self::register_with(block_size, move || Some(cache.stats()), registry);
    }

    /// Adds metrics to a registry, with values from the function `stats`. For a cache that is built
    /// later, or that the registry must not keep alive. While `stats` returns `None`, the metrics
    /// are zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::{Arc, OnceLock};
    ///
    /// use radixkv::PrefixCache;
    /// use radixkv_metrics::prometheus_client::registry::Registry;
    /// use radixkv_metrics::{CacheCollector, text};
    ///
    /// let cache = Arc::new(OnceLock::<PrefixCache>::new());
    /// let mut registry = Registry::default();
    /// let later = Arc::clone(&cache);
    /// CacheCollector::register_with(16, move || Some(later.get()?.stats()), &mut registry);
    /// assert!(text(&registry).contains("radixkv_capacity_blocks 0\n"));
    /// cache.set(PrefixCache::builder(16, 8).build()?).expect("the first");
    /// assert!(text(&registry).contains("radixkv_capacity_blocks 8\n"));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn register_with(
        block_size: usize,
        stats: impl Fn() -> Option<Stats> + Send + Sync + 'static,
        registry: &mut Registry,
    ) {
        registry.register_collector(Box::new(Self { stats: Box::new(stats), block_size }));
    }
}

impl Collector for CacheCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = (self.stats)().unwrap_or_default();
        encode_counters(COUNTERS, &stats, &mut encoder)?;
        encode(SECONDS, MetricType::Counter, &stats, &mut encoder, |value, metric| {
            metric.encode_counter::<NoLabelSet, _, f64>(&value, None)
        })?;
        encode(GAUGES, MetricType::Gauge, &stats, &mut encoder, |value, metric| metric.encode_gauge(&value))?;
        encode_gauges(BLOCKS, &stats, &mut encoder)?;
        self.encode_tokens(&stats, &mut encoder)
    }
}

impl CacheCollector {
    /// Encodes the metrics that depend on the number of tokens in a block.
    fn encode_tokens(&self, stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let used = (stats.reserved_blocks + stats.protected_blocks) * self.block_size;
        for (name, help, value) in [
            ("sglang:num_used_tokens", "Tokens of the blocks that leases and reservations hold", used as u64),
            ("radixkv_block_size_tokens", "Tokens in a block", self.block_size as u64),
        ] {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
        }
        let (name, help) = ("vllm:cache_config_info", "Tokens in a block, and blocks; always 1");
        let labels = [("block_size", self.block_size), ("num_gpu_blocks", stats.capacity_blocks)];
        let mut info = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        info.encode_family(&labels)?.encode_gauge(&1_u64)
    }
}
