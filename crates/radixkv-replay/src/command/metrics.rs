//! Serves metrics of a replay's cache to a scraper while the replay runs.

use std::{
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use clap::Args;
use radixkv::PrefixCache;
use radixkv_metrics::{CacheCollector, Endpoint, EndpointError, prometheus_client::registry::Registry};

use crate::{
    console,
    serving::{address, natural},
};

/// The heading of these options in the help.
const HEADING: &str = "Metrics";

/// Where the cache's metrics are served.
#[derive(Args)]
pub(crate) struct MetricsOptions {
    /// Serve Prometheus metrics of the cache while it runs, such as at 127.0.0.1:9400; port 0 is
    /// any free port
    #[arg(long, help_heading = HEADING, value_name = "ADDR", requires = "trace", value_parser = address)]
    metrics: Option<String>,
    /// Keep serving them for this many seconds after the report
    #[arg(long, help_heading = HEADING, value_name = "SECONDS", requires = "metrics", value_parser = natural)]
    metrics_linger: Option<usize>,
}

/// The metrics of a replay.
pub(crate) struct Metrics {
    /// Serves the metrics until it is dropped.
    _endpoint: Endpoint,
    cache: Arc<OnceLock<PrefixCache>>,
    linger: Duration,
}

impl Metrics {
    /// Starts the endpoint if it is configured, and prints its address. All metrics are zero until
    /// [`show`](Self::show) is called.
    ///
    /// # Errors
    ///
    /// [`EndpointError`].
    pub(crate) fn start(options: &MetricsOptions, block_size: usize) -> Result<Option<Self>, EndpointError> {
        let Some(address) = &options.metrics else { return Ok(None) };
        let cache = Arc::<OnceLock<PrefixCache>>::default();
        let (mut registry, shown) = (Registry::default(), Arc::clone(&cache));
        CacheCollector::register_with(block_size, move || Some(shown.get()?.stats()), &mut registry);
        let endpoint = Endpoint::start(address, registry)?;
        console::say(format_args!("radixkv: metrics at http://{}/metrics", endpoint.address()));
        let linger = Duration::from_secs(options.metrics_linger.unwrap_or(0) as u64);
        Ok(Some(Self { _endpoint: endpoint, cache, linger }))
    }

    /// Sets the cache whose metrics are served; only the first call has an effect.
    pub(crate) fn show(&self, cache: &PrefixCache) {
        self.cache.get_or_init(|| cache.clone());
    }

    /// Keeps serving for the configured time.
    pub(crate) fn linger(&self) {
        thread::sleep(self.linger);
    }
}
