//! The server's metrics, of the cache and of requests, under the names that dashboards of vLLM and
//! SGLang use.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use radixkv::PrefixCache;
use radixkv_metrics::prometheus_client::metrics::counter::Counter;
use radixkv_metrics::prometheus_client::metrics::gauge::Gauge;
use radixkv_metrics::prometheus_client::registry::Registry;
use radixkv_metrics::{CacheCollector, NamespaceCollector, TextFormat};
use radixkv_scheduler::WaitingQueue;

use super::requests::Requests;

/// Counters that are updated while requests are served.
#[derive(Default)]
struct Counts {
    prompt_tokens: Counter,
    generated_tokens: Counter,
    requests: Counter,
    refused: Counter,
}

/// Gauges that are updated at each scrape.
#[derive(Default)]
struct Gauges {
    running: Gauge,
    waiting: Gauge,
}

/// Counts and gauges of one server.
pub(super) struct Metrics {
    registry: Registry,
    counts: Counts,
    /// Locked while a text is made, so that all its gauges are from one scrape.
    gauges: Mutex<Gauges>,
}

impl Metrics {
    pub(super) fn new(model: &str, cache: &PrefixCache) -> Self {
        let mut registry = Registry::with_labels([("model_name".into(), model.to_owned().into())].into_iter());
        CacheCollector::register(cache, &mut registry);
        // Salts are secrets, and others read the text. So each salt is replaced by a hash that
        // differs in each process.
        let numbers = RandomState::new();
        NamespaceCollector::register_as(cache, move |name| format!("{:016x}", numbers.hash_one(name)), &mut registry);
        let (counts, gauges) = (Counts::default(), Gauges::default());
        for (name, help, counter) in [
            ("vllm:prompt_tokens", "Prompt tokens", &counts.prompt_tokens),
            ("vllm:generation_tokens", "Sampled tokens", &counts.generated_tokens),
            ("vllm:request_success", "Requests that were computed to their end", &counts.requests),
            ("sglang:prompt_tokens", "Prompt tokens", &counts.prompt_tokens),
            ("sglang:generation_tokens", "Sampled tokens", &counts.generated_tokens),
            ("sglang:num_requests", "Requests that were computed to their end", &counts.requests),
            ("radixkv_requests_refused", "Requests that were refused because too many waited", &counts.refused),
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
        Self { registry, counts, gauges: Mutex::new(gauges) }
    }

    /// Counts a request that was computed to its end.
    pub(super) fn finished(&self, prompt_tokens: usize, completion_tokens: usize) {
        self.counts.prompt_tokens.inc_by(prompt_tokens as u64);
        self.counts.generated_tokens.inc_by(completion_tokens as u64);
        self.counts.requests.inc();
    }

    /// Counts a request that was refused with 429.
    pub(super) fn refused(&self) {
        self.counts.refused.inc();
    }

    /// Returns the text of all metrics now.
    pub(super) fn text(&self, format: TextFormat, requests: &Requests, queue: &WaitingQueue) -> String {
        let gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.waiting.set(requests.waiting(queue) as i64);
        gauges.running.set(queue.unfinished_requests().saturating_sub(queue.len()) as i64);
        format.text(&self.registry)
    }
}
