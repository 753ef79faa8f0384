//! The lookups of namespaces, however many there are and whatever they are called.

use std::collections::BTreeSet;

use radixkv::PrefixCache;
use radixkv_metrics::prometheus_client::registry::Registry;
use radixkv_metrics::{NamespaceCollector, text};

/// What a lookup in each of these namespaces is told as.
fn told(names: &[String]) -> String {
    let cache = PrefixCache::builder(4, 8).build().expect("valid");
    let mut registry = Registry::default();
    NamespaceCollector::register(&cache, &mut registry);
    let session = cache.session();
    let spaces: Vec<_> = names.iter().map(|name| cache.namespace(&[name.as_str()])).collect();
    spaces.iter().for_each(|space| drop(session.match_prefix(space, &[1; 8])));
    text(&registry)
}

#[test]
fn ten_thousand_namespaces_make_no_long_text() {
    let names: Vec<String> = (0..10_000).map(|at| format!("tenant {at}")).collect();
    let text = told(&names);
    // 63 and the others, with seven numbers each.
    assert_eq!(text.lines().filter(|line| line.starts_with("radixkv_namespace_")).count(), 64 * 7);
    // One of the 63 is the default namespace.
    assert!(text.contains("radixkv_namespace_lookups_total{kind=\"others\",namespace=\"\"} 9938\n"), "{text}");
}

#[test]
fn tenants_that_come_and_go_make_no_new_series() {
    let cache = PrefixCache::builder(4, 8).build().expect("valid");
    let mut registry = Registry::default();
    NamespaceCollector::register(&cache, &mut registry);
    let (session, mut series, mut lookups) = (cache.session(), BTreeSet::new(), 0);
    for round in 0..60 {
        let spaces: Vec<_> = (0..20).map(|tenant| cache.namespace(&[format!("{round} {tenant}").as_str()])).collect();
        spaces.iter().for_each(|space| drop(session.match_prefix(space, &[1; 8])));
        lookups += spaces.len();
        let text = text(&registry);
        let own = text.lines().filter_map(|line| line.strip_prefix("radixkv_namespace_lookups_total"));
        let values: Vec<_> = own.filter_map(|own| own.rsplit_once(' ')).collect();
        let sum: usize = values.iter().map(|(_, value)| value.parse::<usize>().expect("a number")).sum();
        assert_eq!(sum, lookups, "each lookup is counted once");
        series.extend(values.into_iter().map(|(labels, _)| labels.to_owned()));
        spaces.iter().for_each(|space| space.remove());
    }
    assert!(series.len() <= 64, "{}", series.len());
}

/// The text stays one that parsers read.
#[test]
fn hostile_names_are_escaped() {
    let text = told(&["\"} 1\nradixkv_lookups_total 9\n# EOF\n".to_owned()]);
    let line =
        r##"radixkv_namespace_lookups_total{kind="named",namespace="\"} 1\nradixkv_lookups_total 9\n# EOF\n"} 1"##;
    assert!(text.lines().any(|own| own == line), "{text}");
    assert!(text.ends_with("# EOF\n") && text.matches("\n# EOF").count() == 1, "{text}");
}
