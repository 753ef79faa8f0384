//! The lookups of each namespace, for as many as the cache counts by themselves.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use radixkv::{Keys, LookupStats, NamespaceLookups, NamespaceName, PrefixCache};

/// What the lookups of each namespace of a [`PrefixCache`] found and missed, read when it is asked for.
///
/// The cache counts 63 namespaces at a time by themselves, and all others together
/// ([`PrefixCache::lookups_by_namespace`]), so there are at most 64 values of each label set: `kind` is `default`, `named`, `pairs` (of bigrams) or `others`, and `namespace` has the parts of the name, with a slash between two of them. Keeps the cache alive.
///
/// # Examples
///
/// ```
/// use radixkv::PrefixCache;
/// use radixkv_metrics::prometheus_client::registry::Registry;
/// use radixkv_metrics::{NamespaceCollector, text};
///
/// let cache = PrefixCache::builder(2, 8).build()?;
/// let mut registry = Registry::default();
/// NamespaceCollector::register(&cache, &mut registry);
///
/// let tenant = cache.namespace(&["tenant-7"]);
/// drop(cache.session().match_prefix(&tenant, &[1, 2, 3]));
/// let query = r#"radixkv_namespace_query_tokens_total{kind="named",namespace="tenant-7"} 3"#;
/// assert!(text(&registry).lines().any(|line| line == query));
/// # Ok::<_, radixkv::BuildError>(())
/// ```
pub struct NamespaceCollector(PrefixCache);

/// How a number is read.
type Read = fn(&LookupStats) -> u64;

/// Each metric: its name, what it says, and how it is read.
const COUNTERS: [(&str, &str, Read); 3] = [
    ("radixkv_namespace_lookups", "Lookups of a namespace", |found| found.lookups),
    ("radixkv_namespace_query_tokens", "Tokens that were looked up in it", |found| found.query_tokens),
    ("radixkv_namespace_hit_tokens", "Of those, tokens that were found", |found| found.hit_tokens),
];

const REASONS: [(&str, Read); 4] = [
    ("evicted", |found| found.missed_evicted_tokens),
    ("diverged", |found| found.missed_diverged_tokens),
    ("elsewhere", |found| found.missed_elsewhere_tokens),
    ("new", |found| found.missed_new_tokens),
];

impl fmt::Debug for NamespaceCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamespaceCollector").finish()
    }
}

impl NamespaceCollector {
    /// Adds the lookups of the cache's namespaces to a registry.
    pub fn register(cache: &PrefixCache, registry: &mut Registry) {
        registry.register_collector(Box::new(Self(cache.clone())));
    }
}

impl Collector for NamespaceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.lookups_by_namespace();
        for (name, help, read) in COUNTERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for of in &all {
                let (kind, namespace) = labels(of);
                let labels = [("kind", kind), ("namespace", namespace.as_str())];
                metric.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], _, f64>(&read(&of.lookups), None)?;
            }
        }
        let (name, help) =
            ("radixkv_namespace_missed_tokens", "Tokens of whole blocks that it did not find, by the likely reason");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for of in &all {
            let (kind, namespace) = labels(of);
            for (reason, read) in REASONS {
                let labels = [("kind", kind), ("namespace", namespace.as_str()), ("reason", reason)];
                metric.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], _, f64>(&read(&of.lookups), None)?;
            }
        }
        Ok(())
    }
}

fn labels(of: &NamespaceLookups) -> (&'static str, String) {
    match &of.namespace {
        None => ("others", String::new()),
        Some(name) if name.keys() == Keys::Bigrams => ("pairs", joined(name)),
        Some(name) if name.parts().len() == 0 => ("default", String::new()),
        Some(name) => ("named", joined(name)),
    }
}

/// Slashes in a part are escaped, so that no two names are alike.
fn joined(name: &NamespaceName) -> String {
    let parts: Vec<_> = name.parts().map(|part| part.replace('\\', r"\\").replace('/', r"\/")).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_names_have_one_label() {
        let cache = PrefixCache::builder(2, 8).build().expect("sound");
        let tokens = [&["a/b"][..], &["a", "b"], &[r"a\", "b"], &[r"a\/b"], &["a", "b", "", "pairs"], &[""], &["", ""]];
        let mut names: Vec<_> = tokens.iter().map(|parts| cache.namespace(parts)).collect();
        names.extend([&["a", "b"][..], &[], &["pairs"]].map(|parts| cache.namespace_with(parts, Keys::Bigrams)));
        let all = cache.lookups_by_namespace();
        assert_eq!(all.len(), names.len() + 2);
        let labels: std::collections::BTreeSet<_> = all.iter().map(labels).collect();
        assert_eq!(labels.len(), all.len(), "{labels:?}");
    }
}
