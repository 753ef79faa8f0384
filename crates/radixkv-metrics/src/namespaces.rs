//! Lookup metrics of each namespace, with a bounded number of series.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use radixkv::{Keys, LookupStats, NamespaceLookups, NamespaceName, PrefixCache};

/// Collects the lookups, hits and misses of each namespace of a [`PrefixCache`], read at each
/// scrape.
///
/// Up to 63 namespaces at a time have their own counters in the cache; all others share one set
/// ([`PrefixCache::lookups_by_namespace`]). The label `kind` is `default`, `named`, `pairs` (of
/// bigrams) or `others`. The label `namespace` is the parts of the name, separated by slashes. A
/// collector makes at most 64 pairs of these labels: the first 63 that it reads, and `others` for
/// every later namespace, so short-lived tenants do not add series without bound. Keeps the cache
/// alive.
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
pub struct NamespaceCollector {
    cache: PrefixCache,
    named: Box<Named>,
    /// The label sets that have a series, even if their namespaces no longer exist.
    told: Mutex<BTreeSet<Labels>>,
}

/// Maximum number of label sets, excluding [`OTHERS`].
const MOST: usize = 63;

type Named = dyn Fn(&NamespaceName) -> String + Send + Sync;

/// The labels `kind` and `namespace`.
type Labels = (&'static str, String);

/// The labels of all namespaces without their own series.
const OTHERS: Labels = ("others", String::new());

/// A function that reads a number.
type Read = fn(&LookupStats) -> u64;

/// The metrics: name, help text, and the function that reads the number.
const COUNTERS: [(&str, &str, Read); 3] = [
    ("radixkv_namespace_lookups", "Lookups in the namespace", |found| found.lookups),
    ("radixkv_namespace_query_tokens", "Tokens looked up in the namespace", |found| found.query_tokens),
    ("radixkv_namespace_hit_tokens", "Tokens found in the namespace", |found| found.hit_tokens),
];

const REASONS: [(&str, Read); 4] = [
    ("evicted", |found| found.missed_evicted_tokens),
    ("diverged", |found| found.missed_diverged_tokens),
    ("elsewhere", |found| found.missed_elsewhere_tokens),
    ("new", |found| found.missed_new_tokens),
];

impl fmt::Debug for NamespaceCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceCollector").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl NamespaceCollector {
    /// Adds the lookups of the cache's namespaces to a registry.
    ///
    /// The text contains the full names of namespaces. If names contain secrets, such as a client's
    /// salt, use [`register_as`](Self::register_as).
    pub fn register(cache: &PrefixCache, registry: &mut Registry) {
        Self::register_as(cache, joined, registry);
    }

    /// As [`register`](Self::register), but `named` makes the values of the label `namespace`.
    /// Namespaces of the same kind and value are added up. The default namespace always has an
    /// empty value.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_metrics::prometheus_client::registry::Registry;
    /// use radixkv_metrics::{NamespaceCollector, text};
    ///
    /// let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// let mut registry = Registry::default();
    /// let tenant = |name: &radixkv::NamespaceName| name.parts().next().unwrap_or_default().to_owned();
    /// NamespaceCollector::register_as(&cache, tenant, &mut registry);
    ///
    /// let spaces = [["tenant-7", "secret"], ["tenant-7", "other"]].map(|parts| cache.namespace(&parts));
    /// spaces.each_ref().map(|space| drop(cache.session().match_prefix(space, &[1, 2, 3])));
    /// let query = r#"radixkv_namespace_query_tokens_total{kind="named",namespace="tenant-7"} 6"#;
    /// assert!(text(&registry).lines().any(|line| line == query));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn register_as(
        cache: &PrefixCache,
        named: impl Fn(&NamespaceName) -> String + Send + Sync + 'static,
        registry: &mut Registry,
    ) {
        let told = Mutex::default();
        registry.register_collector(Box::new(Self { cache: cache.clone(), named: Box::new(named), told }));
    }

    fn by_labels(&self) -> BTreeMap<Labels, Vec<LookupStats>> {
        let mut all = BTreeMap::<Labels, Vec<LookupStats>>::new();
        // The set is valid even after a panic.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for of in self.cache.lookups_by_namespace() {
            let labels = labels(&of, &self.named);
            let has_series = told.contains(&labels) || told.len() < MOST && labels != OTHERS;
            let labels = if has_series { labels } else { OTHERS };
            if has_series {
                told.insert(labels.clone());
            }
            all.entry(labels).or_default().push(of.lookups);
        }
        all
    }
}

impl Collector for NamespaceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.by_labels();
        let sum = |found: &[LookupStats], read: Read| found.iter().map(read).sum::<u64>();
        for (name, help, read) in COUNTERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for ((kind, namespace), found) in &all {
                let labels = [("kind", *kind), ("namespace", namespace.as_str())];
                let sum = sum(found, read);
                metric.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], _, f64>(&sum, None)?;
            }
        }
        let (name, help) = (
            "radixkv_namespace_missed_tokens",
            "Tokens of whole blocks that lookups in the namespace did not find, by likely reason",
        );
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for ((kind, namespace), found) in &all {
            for (reason, read) in REASONS {
                let labels = [("kind", *kind), ("namespace", namespace.as_str()), ("reason", reason)];
                let sum = sum(found, read);
                metric.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], _, f64>(&sum, None)?;
            }
        }
        Ok(())
    }
}

fn labels(of: &NamespaceLookups, named: &Named) -> Labels {
    match &of.namespace {
        None => OTHERS,
        Some(name) if name.keys() == Keys::Bigrams => ("pairs", named(name)),
        Some(name) if name.parts().len() == 0 => ("default", String::new()),
        Some(name) => ("named", named(name)),
    }
}

/// Joins the parts of a name by slashes. Slashes in a part are escaped, so different names have
/// different values.
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
        let mut names: Vec<_> = tokens.iter().map(|parts| cache.namespace(*parts)).collect();
        names.extend(
            [&["a", "b"][..], &[], &["pairs"]]
                .map(|parts| cache.namespace(NamespaceName::new(parts).with_keys(Keys::Bigrams))),
        );
        let all = cache.lookups_by_namespace();
        assert_eq!(all.len(), names.len() + 2);
        let labels: std::collections::BTreeSet<_> = all.iter().map(|of| labels(of, &joined)).collect();
        assert_eq!(labels.len(), all.len(), "{labels:?}");
    }
}
