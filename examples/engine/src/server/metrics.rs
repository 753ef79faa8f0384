//! Prometheus text under the names that dashboards of vLLM and SGLang ask for.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use radixkv::PrefixCache;
use radixkv::scheduler::WaitingQueue;

/// The type of [`Metrics::text`].
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is counted while requests are served.
#[derive(Default)]
struct Counts {
    prompt_tokens: Counter,
    hits: Counter,
    generated_tokens: Counter,
    requests: Counter,
    refused: Counter,
}

/// What is measured when it is read.
#[derive(Default)]
struct Gauges {
    running: Gauge,
    waiting: Gauge,
    usage: Gauge<f64, AtomicU64>,
    hit_rate: Gauge<f64, AtomicU64>,
}

/// Counts and gauges of one server.
pub(super) struct Metrics {
    registry: Registry,
    counts: Counts,
    /// Locked while a text is made, so that it is of one moment.
    gauges: Mutex<Gauges>,
}

impl Metrics {
    pub(super) fn new(model: &str) -> Self {
        let mut registry = Registry::with_labels([("model_name".into(), model.to_owned().into())].into_iter());
        let (counts, gauges) = (Counts::default(), Gauges::default());
        for (name, help, counter) in [
            ("vllm:prefix_cache_queries", "Prompt tokens that were looked up in the cache", &counts.prompt_tokens),
            ("vllm:prefix_cache_hits", "Prompt tokens that were found in the cache", &counts.hits),
            ("vllm:prompt_tokens", "Prompt tokens", &counts.prompt_tokens),
            ("vllm:generation_tokens", "Sampled tokens", &counts.generated_tokens),
            ("vllm:request_success", "Requests that were computed to their end", &counts.requests),
            ("sglang:prompt_tokens", "Prompt tokens", &counts.prompt_tokens),
            ("sglang:generation_tokens", "Sampled tokens", &counts.generated_tokens),
            ("sglang:cached_tokens", "Prompt tokens that were found in the cache", &counts.hits),
            ("sglang:num_requests", "Requests that were computed to their end", &counts.requests),
            ("radixkv:requests_refused", "Requests that were refused because too many waited", &counts.refused),
        ] {
            registry.register(name, help, counter.clone());
        }
        for (name, help, gauge) in [
            ("vllm:num_requests_running", "Requests that are served", &gauges.running),
            ("vllm:num_requests_waiting", "Requests that wait", &gauges.waiting),
            ("sglang:num_running_reqs", "Requests that are served", &gauges.running),
            ("sglang:num_queue_reqs", "Requests that wait", &gauges.waiting),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, gauge) in [
            ("vllm:kv_cache_usage_perc", "Share of blocks that requests hold, 0 to 1", &gauges.usage),
            ("sglang:token_usage", "Share of blocks that requests hold, 0 to 1", &gauges.usage),
            ("sglang:cache_hit_rate", "Share of prompt tokens that were found, 0 to 1", &gauges.hit_rate),
        ] {
            registry.register(name, help, gauge.clone());
        }
        Self { registry, counts, gauges: Mutex::new(gauges) }
    }

    /// A request was computed to its end.
    pub(super) fn finished(&self, prompt_tokens: usize, cached_tokens: usize, completion_tokens: usize) {
        self.counts.prompt_tokens.inc_by(prompt_tokens as u64);
        self.counts.hits.inc_by(cached_tokens as u64);
        self.counts.generated_tokens.inc_by(completion_tokens as u64);
        self.counts.requests.inc();
    }

    /// A request was refused with 429.
    pub(super) fn refused(&self) {
        self.counts.refused.inc();
    }

    /// All of them, as they are now.
    pub(super) fn text(&self, cache: &PrefixCache, queue: &WaitingQueue) -> String {
        let gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = queue.len();
        gauges.waiting.set(waiting as i64);
        gauges.running.set(queue.unfinished_requests().saturating_sub(waiting) as i64);
        let stats = cache.stats();
        let idle = stats.free_blocks + stats.evictable_blocks;
        gauges.usage.set(1.0 - idle as f64 / stats.capacity_blocks as f64);
        gauges.hit_rate.set(self.counts.hits.get() as f64 / (self.counts.prompt_tokens.get() as f64).max(1.0));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a text takes everything");
        text
    }
}
