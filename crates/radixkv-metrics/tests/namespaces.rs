//! The lookups of namespaces, however many there are and whatever they are called.

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

/// The text stays one that parsers read.
#[test]
fn hostile_names_are_escaped() {
    let text = told(&["\"} 1\nradixkv_lookups_total 9\n# EOF\n".to_owned()]);
    let line =
        r##"radixkv_namespace_lookups_total{kind="named",namespace="\"} 1\nradixkv_lookups_total 9\n# EOF\n"} 1"##;
    assert!(text.lines().any(|own| own == line), "{text}");
    assert!(text.ends_with("# EOF\n") && text.matches("\n# EOF").count() == 1, "{text}");
}
