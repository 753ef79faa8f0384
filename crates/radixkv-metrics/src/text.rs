//! Encodes a registry as text.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// The content type of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Encodes all metrics of a registry in the OpenMetrics text format. A server whose scrapers may
/// need the older format should use [`TextFormat`](crate::TextFormat).
///
/// # Examples
///
/// ```
/// use radixkv_metrics::prometheus_client::registry::Registry;
/// use radixkv_metrics::{CacheCollector, text};
///
/// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
/// let mut registry = Registry::default();
/// CacheCollector::register(&cache, &mut registry);
/// assert!(text(&registry).contains("\nradixkv_capacity_blocks 8\n"));
/// # Ok::<_, radixkv::BuildError>(())
/// ```
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).expect("a text takes everything");
    text
}
